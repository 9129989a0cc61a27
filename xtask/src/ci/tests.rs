use super::*;

fn step(name: &'static str, task: fn() -> anyhow::Result<()>) -> Step {
    Step { name, work: Work::Here(task) }
}

#[test]
fn the_first_failure_ends_the_run_and_is_named() {
    let steps = vec![
        step("one", || Ok(())),
        step("two", || bail!("2 findings")),
        step("three", || bail!("never asked")),
    ];
    let mut outcomes = run_steps(steps);
    for outcome in &mut outcomes {
        outcome.took = Duration::from_millis(1500);
    }
    insta::assert_snapshot!(summary(&outcomes, 3), @r"

        ok      1.5 s  one
    FAILED      1.5 s  two
    1 of 3 steps passed
    ");
    assert_eq!(outcomes[1].failure.as_deref(), Some("2 findings"));
}

#[test]
fn a_command_that_fails_is_a_failure_with_its_line() {
    let error = do_work(cargo("no-such-subcommand", &[])).expect_err("cargo has no such command");
    assert!(error.to_string().starts_with("`cargo no-such-subcommand` ended with "));
}

#[test]
fn without_nextest_the_tests_still_run() {
    for nextest in [false, true] {
        let names: Vec<_> = steps(nextest).iter().map(|step| step.name).collect();
        let expected = ["fmt", "layers", "tidy", "clippy", "tests", "doc tests", "docs"];
        assert_eq!(names, expected);
    }
}

#[test]
fn long_runs_cover_every_pure_crate() {
    let args = expand_pure(&["test", "{pure}", "--lib"]);
    for name in layers::pure_crates() {
        assert!(args.iter().any(|arg| arg == name), "{name}");
    }
    assert_eq!(args.last().map(String::as_str), Some("--lib"));
}
