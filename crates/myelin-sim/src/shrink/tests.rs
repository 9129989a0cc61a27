//! Which breaches count as the same.

use std::time::Duration;

use super::{Symptom, shrink};
use crate::{Breach, Config, Flaw, Happening, Scenario, Step, run, scenario, script};

fn is_same(rule: &'static str, left: &str, right: &str) -> bool {
    let breach = |what: &str| Breach { at: Duration::ZERO, rule, what: what.to_owned() };
    Symptom::of(&breach(left)).is_of(&breach(right))
}

#[test]
fn nodes_and_numbers_do_not_tell_two_breaches_apart() {
    assert!(is_same(
        "it converges",
        "not converged: a-0: Held(At(5)); a-1: Held(Operator)",
        "not converged: b-3: Held(At(71))",
    ));
    assert!(is_same("it converges", "the store is in trouble", "the store is in trouble"));
    assert!(!is_same("it converges", "the store is in trouble", "3 attempts are remembered, of 1"));
    assert!(!is_same(
        "it converges",
        "not converged: a-0: Held(Refused)",
        "not converged: a-0: Next(Create)",
    ));
}

#[test]
fn rules_of_the_linter_are_told_apart() {
    let check = |left, right| is_same("the linter's", left, right);
    let lost = "invariant 3 (one lease): a-0: 2 leases";
    assert!(check(
        lost,
        "invariant 3 (one lease): b-1: 2 leases\ninvariant 7 (fresh ids): 4 again"
    ));
    assert!(!check(lost, "invariant 4 (no lease): a-0: 2 leases"));
}

#[test]
fn what_is_wanted_in_the_end_can_still_be_had() {
    // Without its last step, nothing converges whatever the defect.
    let wants = |at, text: &str| {
        let parsed = script::parse(&format!("at 0s want {text}")).expect("it can be read");
        let [Step::At(_, groups)] = parsed.steps.as_slice() else { panic!("one step") };
        Step::At(Duration::from_secs(at), groups.clone())
    };
    let mut refused = wants(5, "a:1");
    if let Step::At(_, Happening::Want(groups)) = &mut refused {
        groups[0].shape.image = "refused".into();
    }
    let history = Scenario {
        config: Config::default(),
        steps: vec![wants(0, "a:1"), refused, wants(30, "a:1")],
        calm_at: Duration::from_mins(1),
        flaw: Some(Flaw::RetiresNobody),
        traced: false,
    };
    assert!(run(&history).breach.is_some(), "the defect shows");
    let small = shrink(&history);
    assert_eq!(script::problem(&small), None, "{}", script::render(&small));
    assert!(small.steps.len() < 3, "{}", script::render(&small));
}

#[test]
fn whatever_is_drawn_can_end_well() {
    for seed in 0..2000 {
        assert_eq!(script::problem(&scenario(seed)), None, "seed {seed}");
    }
}
