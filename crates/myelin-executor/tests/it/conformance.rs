//! The suite finds nothing in a fake that obeys, and every rule a fake can break.

use std::{fmt::Write as _, time::Duration};

use myelin_executor::{
    conformance,
    fake::{CallKind, FakeWorld, Flaw, Step},
};

#[tokio::test(start_paused = true)]
async fn obedient_fake_passes_every_check() {
    let world = FakeWorld::new();
    let report = conformance::run(&world).await.expect("the fake obeys");
    assert_eq!(report.passed, conformance::CHECKS);
    assert_eq!(report.to_string(), "25 checks passed");
    assert!(world.leases().is_empty(), "the suite cleans up");
}

#[tokio::test(start_paused = true)]
async fn slow_fake_with_a_settle_window_passes_every_check() {
    let world = FakeWorld::new();
    world.set_settle_window(Duration::from_secs(30)).set_endpoint_after(5);
    world.always(CallKind::Create, Step::Late(Duration::from_secs(2)));
    world.always(CallKind::Destroy, Step::Slow(Duration::from_secs(3)));
    let report = conformance::run(&world).await.expect("being slow breaks no rule");
    assert_eq!(report.passed, conformance::CHECKS);
}

#[tokio::test(start_paused = true)]
async fn every_planted_flaw_is_caught_by_a_check() {
    let mut caught = String::new();
    for flaw in Flaw::ALL {
        let world = FakeWorld::new();
        world.plant(flaw);
        let check = match conformance::run(&world).await {
            Ok(_) => "NOT CAUGHT",
            Err(failure) => failure.check,
        };
        writeln!(caught, "{flaw:?}: {check}").expect("strings take everything");
    }
    insta::assert_snapshot!(caught, @r"
    CreateForgetsKey: repeated_create_answers_the_same_lease
    CreateSharesLease: keys_do_not_share_a_lease
    CreateRecordsLast: dropped_create_leaves_at_most_one_lease
    CreateAdoptsNewest: oldest_of_two_leases_comes_first
    RefusesVaguely: refused_template_is_a_permanent_error
    FindMisses: find_answers_what_create_made
    FindListsNewestFirst: oldest_of_two_leases_comes_first
    LosesDigest: lease_keeps_its_digest
    LosesGeneration: lease_keeps_the_generation_it_was_made_under
    NeverAnEndpoint: endpoint_appears
    ListLeaks: list_shows_no_lease_of_another_cluster
    ListMisses: list_shows_every_lease_of_a_cluster
    DestroyRefusesAbsent: destroying_twice_succeeds
    DestroyLies: destroyed_lease_is_absent
    DestroyLeavesAgents: destroying_ends_what_runs_on_the_lease
    DestroyTakesForeign: destroying_spares_other_leases
    StartForgetsKey: repeated_start_answers_the_same_session
    ConcludeEndsAgent: concluded_session_leaves_the_agent_running
    CancelLeavesAgent: cancelled_session_leaves_nothing_running
    CancelRefusesRepeat: cancelling_twice_succeeds
    CancelRefusesUnknown: cancelling_an_unknown_session_succeeds
    IdentityWanders: identity_outlives_a_restart
    ForgetsOnRestart: leases_and_sessions_outlive_a_restart
    ");
}

#[tokio::test(start_paused = true)]
async fn call_that_never_answers_fails_its_check() {
    let world = FakeWorld::new();
    world.always(CallKind::Destroy, Step::Ignore);
    let failure = conformance::run(&world).await.expect_err("destroy hangs");
    insta::assert_snapshot!(failure, @"find_answers_what_create_made: destroy did not answer within 60s");
}
