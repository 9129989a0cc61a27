use std::num::NonZeroUsize;

use crate::{Detail, Failure, Limits, Scenario, explore};

pub(crate) const LIMITS: Limits =
    Limits { most_transitions: NonZeroUsize::new(1_000_000).unwrap(), threads: 1 };

/// Explores a scenario to its end, where every way on must lead to a converged state, and compares what slots waited for.
#[track_caller]
fn check(scenario: &Scenario, waits: &str) {
    let report =
        explore(scenario, LIMITS).unwrap_or_else(|failure| panic!("{scenario}: {failure}"));
    assert!(report.inevitable, "{scenario}: {report}");
    assert!(report.n_converged > 0, "{scenario}: {report}");
    let met: Vec<_> = report.waits.iter().copied().collect();
    assert_eq!(met.join(", "), waits, "{scenario}");
}

#[test]
fn one_slot_survives_any_fault_in_every_detail() {
    let scenario = Scenario::one_slot(1).with_all_classes().in_detail(Detail::Finest);
    check(&scenario, "backoff, endpoint, expired, join, paused, pending, refused, restart, silent");
}

#[test]
fn one_slot_survives_any_two_faults() {
    let scenario = Scenario::one_slot(2).in_detail(Detail::Coarse);
    check(&scenario, "backoff, expired, join, pending, quarantined, refused, restart, silent");
}

#[test]
fn two_slots_are_replaced_in_every_order() {
    check(&Scenario::replacement(0), "join, pending");
}

#[test]
fn two_slots_become_one_and_two_again_in_every_order() {
    check(&Scenario::scaling(0).in_detail(Detail::Fine), "join, pending");
}

#[test]
fn two_slots_are_replaced_one_after_the_other_in_every_order() {
    check(&Scenario::rolling(0).in_detail(Detail::Fine), "budget, create limit, join, pending");
}

#[test]
fn one_of_two_slots_proves_an_image_whatever_happens() {
    check(
        &Scenario::canary(1),
        "backoff, canary, expired, join, pending, refused, restart, silent",
    );
}

#[test]
fn two_slots_survive_times_that_are_slept_through() {
    let mut scenario = Scenario::overslept(1);
    scenario.shapes.truncate(1);
    check(&scenario, "backoff, brake, expired, join, pending, refused, restart, silent");
}

#[test]
fn a_search_that_is_cut_off_shows_nothing() {
    let limits = Limits { most_transitions: NonZeroUsize::new(1000).unwrap(), ..LIMITS };
    let failure = explore(&Scenario::one_slot(2), limits).unwrap_err();
    assert!(
        matches!(failure, Failure::CutOff { n_unexplored, .. } if n_unexplored > 0),
        "{failure}"
    );
}
