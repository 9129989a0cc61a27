use crate::{Detail, Failure, Flaw, Scenario, explore_twins};

#[track_caller]
fn check(scenario: &Scenario) {
    if let Err(failure) = explore_twins(scenario) {
        panic!("{scenario}: {failure}");
    }
}

#[test]
fn states_of_one_slot_that_look_alike_go_on_alike() {
    check(&Scenario::one_slot(1));
    check(&Scenario::one_slot(1).in_detail(Detail::Coarse));
}

#[test]
fn states_of_two_slots_that_look_alike_go_on_alike() {
    check(&Scenario::replacement(0));
    check(&Scenario::scaling(0));
    check(&Scenario::rolling(0));
}

#[test]
fn states_that_only_seem_alike_are_told_apart() {
    let failure = explore_twins(&Scenario::one_slot(1).with_flaw(Flaw::LooksAway)).unwrap_err();
    assert!(matches!(failure, Failure::Twins { .. }), "{failure}");
}
