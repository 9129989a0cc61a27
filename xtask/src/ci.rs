//! Everything a change must pass, in the order in which failures are cheapest to learn.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::{layers, root, tidy};

/// What only `--full` runs after the usual steps: arguments of cargo, and the environment they get.
///
/// The pure crates are named by [`layers::TABLE`]; `{pure}` stands for `-p <crate>` of each.
const LONG_RUNS: &[LongRun] = &[
    LongRun {
        name: "property tests, 10 000 cases each",
        args: &["test", "--release", "{pure}", "-p", "myelin-driver", "--lib", "--tests"],
        env: &[("PROPTEST_CASES", "10000")],
    },
    long("bench", &["xtask", "bench"]),
    long("every moment to be killed at", &["xtask", "crash"]),
    long("damaged files", &["xtask", "damage"]),
    long("seeds of the simulator", &["xtask", "sim"]),
    long("planted defects", &["xtask", "flaws"]),
    long("one thing wrong, everywhere", &["xtask", "explore"]),
    long("model", &["xtask", "model"]),
    long("records of mutants", &["xtask", "mutants", "--summary"]),
    // They need a nightly toolchain to be linked, not to be checked.
    long("fuzz targets", &["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]),
];

const fn long(name: &'static str, args: &'static [&'static str]) -> LongRun {
    LongRun { name, args, env: &[] }
}

#[derive(Clone, Copy, Debug)]
struct LongRun {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

/// A named part of the run.
#[derive(Debug)]
struct Step {
    name: &'static str,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// A command, with what its environment has beyond ours.
    Cargo { args: Vec<String>, env: Vec<(&'static str, &'static str)> },
    /// Something this program does itself.
    Here(fn() -> anyhow::Result<()>),
}

/// How a step went.
#[derive(Debug)]
struct Outcome {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

/// Runs the steps and prints how long each took.
///
/// # Errors
///
/// The first step that fails, by name; later ones are not run.
pub(crate) fn run(full: bool) -> anyhow::Result<()> {
    let mut steps = steps(has_nextest());
    if full {
        steps.extend(long_steps());
    }
    let n_steps = steps.len();
    let outcomes = run_steps(steps);
    eprint!("{}", summary(&outcomes, n_steps));
    match outcomes.last() {
        Some(Outcome { name, failure: Some(failure), .. }) => {
            bail!("step `{name}` failed: {failure}")
        }
        _ => Ok(()),
    }
}

fn steps(nextest: bool) -> Vec<Step> {
    let tests = if nextest {
        cargo("nextest run --workspace", &[])
    } else {
        cargo("test --workspace --lib --bins --tests --examples", &[])
    };
    let step = |name, work| Step { name, work };
    vec![
        step("fmt", cargo("fmt --all --check", &[])),
        step("layers", Work::Here(layers::run)),
        step("tidy", Work::Here(tidy::run)),
        step("clippy", cargo("clippy --workspace --all-targets -- -D warnings", &[])),
        step("tests", tests),
        step("doc tests", cargo("test --workspace --doc", &[])),
        step("docs", cargo("doc --workspace --no-deps", &[("RUSTDOCFLAGS", "-D warnings")])),
    ]
}

fn long_steps() -> Vec<Step> {
    let mut steps = vec![Step { name: "deny", work: Work::Here(deny) }];
    steps.extend(LONG_RUNS.iter().map(|run| Step {
        name: run.name,
        work: Work::Cargo { args: expand_pure(run.args), env: run.env.to_vec() },
    }));
    steps
}

/// Puts `-p <crate>` of every pure crate in the place of `{pure}`.
fn expand_pure(args: &[&str]) -> Vec<String> {
    let mut expanded = Vec::new();
    for &arg in args {
        if arg == "{pure}" {
            expanded.extend(layers::pure_crates().flat_map(|name| ["-p".into(), name.into()]));
        } else {
            expanded.push(arg.into());
        }
    }
    expanded
}

fn cargo(args: &str, env: &[(&'static str, &'static str)]) -> Work {
    Work::Cargo { args: args.split(' ').map(Into::into).collect(), env: env.to_vec() }
}

/// Runs steps up to the first that fails.
fn run_steps(steps: Vec<Step>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for Step { name, work } in steps {
        eprintln!("== {name}");
        let start = Instant::now();
        let failure = do_work(work).err().map(|error| format!("{error:#}"));
        let failed = failure.is_some();
        outcomes.push(Outcome { name, took: start.elapsed(), failure });
        if failed {
            break;
        }
    }
    outcomes
}

fn do_work(work: Work) -> anyhow::Result<()> {
    let (args, env) = match work {
        Work::Here(task) => return task(),
        Work::Cargo { args, env } => (args, env),
    };
    let mut command = Command::new("cargo");
    command.args(&args).envs(env).current_dir(root()?);
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        // A snapshot that differs must fail, not be written beside the accepted one.
        command.env("INSTA_UPDATE", "no");
    }
    let line = format!("cargo {}", args.join(" "));
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` ended with {status}");
    Ok(())
}

fn summary(outcomes: &[Outcome], n_steps: usize) -> String {
    let mut text = "\n".to_owned();
    for Outcome { name, took, failure } in outcomes {
        let word = if failure.is_some() { "FAILED" } else { "ok" };
        let seconds = took.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word:>6}  {seconds:7.1} s  {name}");
    }
    let n_ok = outcomes.iter().filter(|o| o.failure.is_none()).count();
    let _ = writeln!(text, "{n_ok} of {n_steps} steps passed");
    text
}

fn has_nextest() -> bool {
    answers(&["nextest", "--version"])
}

/// Returns whether cargo knows a subcommand.
fn answers(args: &[&str]) -> bool {
    let mut command = Command::new("cargo");
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Checks bans, licences and sources of dependencies. Advisories need a database, so they are left to those who have it.
fn deny() -> anyhow::Result<()> {
    if !answers(&["deny", "--version"]) {
        do_work(cargo("install cargo-deny --locked", &[]))?;
    }
    do_work(cargo("deny check bans licenses sources", &[]))
}

#[cfg(test)]
mod tests;
