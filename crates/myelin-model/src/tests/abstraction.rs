use crate::{Detail, Failure, Flaw, Scenario, explore_twins};

#[track_caller]
fn check(scenario: &Scenario, steps: u32) {
    if let Err(failure) = explore_twins(scenario, steps) {
        panic!("{scenario}: {failure}");
    }
}

#[test]
fn states_of_one_slot_that_look_alike_go_on_alike() {
    check(&Scenario::one_slot(1), 1);
    check(&Scenario::one_slot(1).in_detail(Detail::Coarse), 3);
}

#[test]
fn states_of_two_slots_that_look_alike_go_on_alike() {
    check(&Scenario::replacement(0), 1);
    check(&Scenario::scaling(0), 1);
    check(&Scenario::rolling(0), 1);
}

#[test]
fn states_that_only_seem_alike_are_told_apart() {
    let scenario = Scenario::one_slot(1).with_flaw(Flaw::LooksAway);
    let failure = explore_twins(&scenario, 1).unwrap_err();
    assert!(matches!(failure, Failure::Twins { .. }), "{failure}");
}

#[test]
fn states_that_seem_alike_for_a_step_are_told_apart() {
    let scenario = Scenario::one_slot(1).with_flaw(Flaw::HidesStillbirths);
    assert!(explore_twins(&scenario, 1).is_ok());
    let failure = explore_twins(&scenario, 2).unwrap_err();
    assert!(matches!(failure, Failure::Twins { .. }), "{failure}");
}
