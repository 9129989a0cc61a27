use std::num::NonZeroUsize;

use crate::{Detail, Failure, Limits, Report, Scenario, explore};

pub(crate) const LIMITS: Limits =
    Limits { most_transitions: NonZeroUsize::new(1_000_000).unwrap(), threads: 1 };

/// Explores a scenario to its end, where every way on must lead to a converged state.
fn check(scenario: &Scenario) -> Report {
    let report =
        explore(scenario, LIMITS).unwrap_or_else(|failure| panic!("{scenario}: {failure}"));
    assert!(report.inevitable, "{scenario}: {report}");
    assert!(report.n_converged > 0, "{scenario}: {report}");
    report
}

#[test]
fn one_slot_survives_any_fault_in_every_detail() {
    let report = check(&Scenario::one_slot(1).with_all_classes().in_detail(Detail::Finest));
    assert!(report.n_states > 2000, "{report}");
}

#[test]
fn one_slot_survives_any_two_faults() {
    let report = check(&Scenario::one_slot(2).in_detail(Detail::Coarse));
    assert!(report.n_states > 2000, "{report}");
}

#[test]
fn two_slots_are_replaced_in_every_order() {
    let report = check(&Scenario::replacement(0).in_detail(Detail::Fine));
    assert!(report.n_states > 2000, "{report}");
}

#[test]
fn two_slots_become_one_and_two_again_in_every_order() {
    let report = check(&Scenario::scaling(0).in_detail(Detail::Fine));
    assert!(report.n_states > 1000, "{report}");
}

#[test]
fn two_slots_are_replaced_one_after_the_other_in_every_order() {
    let report = check(&Scenario::rolling(0).in_detail(Detail::Fine));
    assert!(report.n_states > 2000, "{report}");
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
