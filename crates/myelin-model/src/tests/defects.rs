use insta::assert_snapshot;

use super::search::LIMITS;
use crate::{Detail, Failure, Flaw, Scenario, explore};

/// Explores a scenario with a defect, and returns how it was found.
#[track_caller]
fn check(scenario: Scenario, flaw: Flaw) -> Failure {
    explore(&scenario.with_flaw(flaw), LIMITS).expect_err("the defect is found")
}

#[test]
fn a_create_that_is_submitted_before_it_is_recorded_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::SubmitsBeforeRecording));
}

#[test]
fn a_stale_result_that_is_passed_off_as_current_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::FoldsStaleResults));
}

#[test]
fn an_adoption_that_is_skipped_before_cleanup_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::SkipsAdoption));
}

#[test]
fn a_create_without_a_look_at_an_earlier_one_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::CreatesBlindly));
}

#[test]
fn deadlines_that_are_slept_through_are_found() {
    let scenario = Scenario::one_slot(1).in_detail(Detail::Coarse);
    assert_snapshot!(check(scenario, Flaw::SleepsThroughDeadlines));
}

#[test]
fn a_lost_lease_that_the_driver_never_hears_of_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::IgnoresLostLeases));
}

#[test]
fn a_node_that_does_not_stay_as_wanted_is_found() {
    assert_snapshot!(check(Scenario::one_slot(0), Flaw::TiresOfNodes));
}

#[test]
fn a_failure_that_needs_no_person_and_asks_for_one_is_found() {
    let scenario = Scenario::one_slot(1).in_detail(Detail::Coarse);
    assert_snapshot!(check(scenario, Flaw::RefusesForGood));
}

#[test]
fn a_machine_that_cannot_be_reached_and_is_forgotten_is_found() {
    assert_snapshot!(check(Scenario::one_slot(1), Flaw::ForgetsUnreachable));
}

#[test]
fn an_attempt_that_ends_for_the_time_without_a_control_plane_is_found() {
    let scenario = Scenario::one_slot(1).in_detail(Detail::Finest);
    assert_snapshot!(check(scenario, Flaw::ForgetsLostTime));
}
