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
