//! What failures of providers and bootstraps do.

use std::time::Duration;

use myelin_shape::FirstNode;
use myelin_state::{
    BootstrapStage, ErrorClass, NodeEvent, NodeStage, OperationKind, OperatorRequest,
};

use super::world::{Boot, Reply, Rule, World, image, seconds, workers};
use crate::{Event, EventKind, Target};

fn all_at_once(count: u32) -> myelin_shape::RunNodeGroupSpec {
    let mut group = workers(count);
    group.policy.first_node = Some(FirstNode::All);
    group
}

fn fails(kind: OperationKind, class: ErrorClass, times: u32) -> Rule {
    Rule::effect(kind, Reply::Fails(class), times)
}

#[test]
fn a_bootstrap_that_fails_is_cleaned_up_at_once_and_restarted_later() {
    let mut world = World::new([workers(1)]);
    let stage = BootstrapStage::BootCheckFailed;
    world.script(Rule::boot("worker-0", Boot::Fails(stage), 1));
    world.settle(seconds(60));
    insta::assert_snapshot!(world.story());
}

#[test]
fn the_restart_is_delayed_more_with_every_failure_and_cleanup_is_not() {
    let mut world = World::new([workers(1)]);
    world.script(Rule::boot("worker-0", Boot::Fails(BootstrapStage::StartFailed), 9));
    world.settle(seconds(3600));
    let at = |wanted: fn(&EventKind) -> bool| -> Vec<_> {
        let events = world.history.iter().filter(move |event| wanted(&event.kind));
        events.map(|event| event.at).collect()
    };
    let failed = at(|kind| matches!(kind, EventKind::AttemptFailed { .. }));
    let began = at(|kind| matches!(kind, EventKind::DeleteBegan { .. }));
    let restarted = at(|kind| matches!(kind, EventKind::Restarted { .. }));
    assert_eq!(failed, began);
    let waits = failed.iter().zip(&restarted);
    let waits: Vec<_> =
        waits.map(|(from, to)| to.duration_since(*from).unwrap().as_secs()).collect();
    // Cleanup itself takes two seconds.
    assert_eq!(waits, [2, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn a_handoff_that_fails_after_the_bootstrap_has_closed_keeps_nobody_waiting() {
    let mut world = World::new([workers(1)]);
    let handoff = OperationKind::BootstrapConvergenceObserved;
    world.script(fails(handoff, ErrorClass::Transient, 1));
    let joined = |world: &World| {
        world.count(
            |kind| matches!(kind, EventKind::Dispatched { effect, .. } if *effect == handoff),
        ) > 0
    };
    world.run_until(seconds(60), joined);
    let session = world.driver.state().nodes["worker-0"].active_bootstrap.unwrap();
    let stage = BootstrapStage::Closed;
    world.observe(
        "worker-0",
        0,
        NodeEvent::Bootstrap { session, sequence: 9, stage, message: None },
    );
    assert_eq!(world.settle(seconds(60)), seconds(1), "as soon as the answer is there");
}

#[test]
fn a_failed_create_is_tried_again_in_the_same_attempt() {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::NoCapacity, 3));
    world.apply([workers(1)]);
    world.settle(seconds(60));
    assert_eq!(world.attempt("worker-0"), 0);
    insta::assert_snapshot!(world.story());
}

#[test]
fn a_rate_limit_is_waited_out() {
    let mut world = World::new([]);
    let class = ErrorClass::RateLimited(seconds(90));
    world.script(fails(OperationKind::CreateLease, class, 1));
    world.apply([workers(1)]);
    world.run_for(seconds(2));
    insta::assert_snapshot!(world.explain("worker-0"), @"backing off after 1 failures, until @91");
}

#[test]
fn wake_ups_from_other_events_neither_skip_nor_lengthen_a_delay() {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::RateLimited(seconds(90)), 1));
    world.apply([workers(1)]);
    world.run_for(seconds(2));
    let before = world.driver.state().clone();
    for event in [Event::Tick, Event::Wake, Event::Tick] {
        world.run_for(seconds(5));
        world.handle(event);
    }
    assert_eq!(*world.driver.state(), before);
    world.run_for(seconds(74));
    let node = &world.driver.state().nodes.values().next().unwrap();
    assert_eq!(node.pending.as_deref().map(|pending| pending.id.sequence), Some(1));
}

#[test]
fn a_template_the_provider_refuses_is_held_for_the_group_in_its_words() {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::Permanent, u32::MAX));
    world.apply([workers(20)]);
    world.run_for(seconds(24 * 3600));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Dispatched { .. })), 1);
    for node in ["worker-0", "worker-13"] {
        assert_eq!(
            world.explain(node),
            "provider refused the template at worker-0: scripted, until the spec changes or `retry`"
        );
    }
}

fn refused() -> World {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::Permanent, 1));
    world.apply([workers(6)]);
    world.run_for(seconds(600));
    assert_eq!(world.n_ready(), 0);
    world
}

#[test]
fn retry_releases_a_refused_template() {
    let mut world = refused();
    world.operator("worker-0", OperatorRequest::Retry);
    world.settle(seconds(60));
}

#[test]
fn retry_of_the_group_releases_a_refused_template() {
    let mut world = refused();
    let target = Target::Group("worker".into());
    let request = OperatorRequest::Retry;
    world.handle(Event::Operator { target, request });
    world.settle(seconds(60));
}

#[test]
fn another_spec_releases_a_refused_template() {
    let mut world = refused();
    world.apply([image(workers(6), "b")]);
    world.settle(seconds(60));
}

#[test]
fn an_endpoint_that_never_comes_ends_the_attempt_in_time() {
    let mut world = World::new([workers(1)]);
    world.script(fails(OperationKind::LookupEndpoint, ErrorClass::Transient, 40));
    world.run_until(seconds(1000), |world| {
        world.count(|kind| matches!(kind, EventKind::AttemptFailed { .. })) == 1
    });
    insta::assert_snapshot!(world.cluster(), @"worker-0#0 Failed: DestroyLease under way, until @1021");
    world.settle(seconds(3600));
}

#[test]
fn a_bootstrap_without_a_join_ends_the_attempt_in_time() {
    let mut world = World::new([workers(1)]);
    world.script(Rule::boot("worker-0", Boot::Hangs, 1));
    world.run_for(seconds(10));
    insta::assert_snapshot!(world.explain("worker-0"), @"waiting for the agent to join, until @602");
    world.run_for(seconds(591));
    assert_eq!(world.attempt("worker-0"), 0);
    world.run_for(seconds(2));
    insta::assert_snapshot!(world.cluster(), @"worker-0#0 Failed: DestroyLease under way, until @723");
    world.settle(seconds(60));
}

#[test]
fn a_lost_reply_to_a_create_is_adopted_and_not_repeated() {
    let mut world = World::new([]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Lost, 1));
    world.apply([workers(1)]);
    world.settle(seconds(300));
    assert_eq!(world.provider.n_leases_ever, 1);
    insta::assert_snapshot!(world.story());
}

#[test]
fn a_lost_reply_to_a_start_is_adopted_and_the_join_may_come_first() {
    let mut world = World::new([]);
    world.script(Rule::effect(OperationKind::StartBootstrap, Reply::Lost, 1));
    world.apply([workers(1)]);
    let took = world.settle(seconds(300));
    assert_eq!(world.attempt("worker-0"), 0);
    assert!(took > seconds(120), "the time-out must pass first");
}

#[test]
fn an_executor_that_never_answers_is_asked_again_and_again() {
    let mut world = World::new([]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Stuck, 1));
    world.apply([workers(1)]);
    world.run_for(seconds(150));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Expired { .. })), 7);
    insta::assert_snapshot!(world.explain("worker-0"), @"CreateLease timed out, being stopped, until @155");
    world.provider.heal();
    world.settle(seconds(60));
}

#[test]
fn a_deleted_node_finds_its_ambiguous_create_before_it_goes() {
    let mut world = World::new([]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Ambiguous, 1));
    world.apply([workers(1)]);
    world.run_for(seconds(1));
    world.apply([]);
    world.settle(seconds(60));
    assert!(world.provider.leases.is_empty());
    insta::assert_snapshot!(world.story());
}

#[test]
fn a_deleted_node_proves_that_its_ambiguous_create_made_nothing() {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::Ambiguous, 1));
    world.apply([workers(1)]);
    world.run_for(seconds(1));
    world.apply([]);
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 0);
}

#[test]
fn a_refusal_does_not_settle_an_ambiguous_create() {
    let mut world = World::new([]);
    world.script(fails(OperationKind::CreateLease, ErrorClass::Permanent, 1));
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Ambiguous, 1));
    world.apply([workers(1)]);
    world.run_for(seconds(60));
    world.apply([]);
    world.settle(seconds(60));
    assert!(world.provider.leases.is_empty());
}

#[test]
fn a_cancel_that_never_works_does_not_keep_the_machine() {
    let mut world = World::new([workers(1)]);
    world.script(Rule::boot("worker-0", Boot::Hangs, 1));
    world.script(fails(OperationKind::CancelBootstrap, ErrorClass::Transient, u32::MAX));
    world.run_for(seconds(10));
    world.apply([]);
    let took = world.settle(seconds(60));
    assert_eq!(world.provider.leases.len(), 0);
    // Three tries with their delays of 1 and 2 seconds, and the delay after the last.
    assert_eq!(took, seconds(11), "{}", world.story());
}

#[test]
fn a_permanent_error_of_a_destroy_is_retried_at_the_longest_delay() {
    let mut world = World::ready([workers(1)]);
    world.script(fails(OperationKind::DestroyLease, ErrorClass::Permanent, 2));
    world.apply([]);
    assert_eq!(world.settle(seconds(600)), seconds(123));
}

#[test]
fn a_slot_that_failed_ten_times_waits_for_retry() {
    let mut world = World::new([workers(1)]);
    world.script(Rule::boot("worker-0", Boot::Fails(BootstrapStage::StartFailed), 10));
    world.run_for(seconds(24 * 3600));
    assert_eq!(world.provider.n_leases_ever, 10);
    insta::assert_snapshot!(world.explain("worker-0"), @"quarantined after 10 failed attempts, until the spec changes or `retry`");
    world.operator("worker-0", OperatorRequest::Retry);
    world.settle(seconds(60));
    let node = &world.driver.state().nodes.values().next().unwrap();
    assert_eq!(node.retry.ended_attempts, 0, "failures count from the release");
}

#[test]
fn a_machine_that_joins_and_dies_still_backs_off() {
    let mut world = World::ready([workers(1)]);
    for _ in 0..3 {
        world.run_for(seconds(300));
        world.kill(["worker-0"]);
        world.run_until(seconds(100), |world| world.n_ready() == 0);
        world.settle(seconds(300));
    }
    let failures = |world: &World| {
        world.driver.state().nodes.values().next().unwrap().retry.consecutive_failures
    };
    assert_eq!(failures(&world), 3);
    world.run_for(seconds(601));
    world.kill(["worker-0"]);
    world.run_for(seconds(60));
    assert_eq!(failures(&world), 1, "ten minutes of readiness forgive");
}

#[test]
fn one_failing_node_does_not_slow_the_others() {
    let mut world = World::new([]);
    world.script(Rule::effect_of("worker-1", OperationKind::CreateLease, Reply::Stuck, u32::MAX));
    world.apply([all_at_once(8)]);
    world.run_for(seconds(7));
    assert_eq!(world.n_ready(), 7);
}

#[test]
fn a_submission_that_fails_is_folded_as_a_failure() {
    let mut world = World::empty();
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Stuck, 1));
    world.apply([workers(1)]);
    let node = "worker-0".into();
    let operation = world.driver.state().nodes[&node].pending.as_deref().unwrap().id;
    let message = "the executor is gone".into();
    world.handle(Event::SubmitFailed { node, operation, message });
    insta::assert_snapshot!(world.explain("worker-0"), @"backing off after 1 failures, until @1");
    world.settle(seconds(60));
}

#[test]
fn late_repeated_and_stale_results_change_nothing() {
    let mut world = World::new([]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Twice, 1));
    world.script(Rule::effect(OperationKind::LookupEndpoint, Reply::After(seconds(500)), 1));
    world.apply([workers(1)]);
    world.run_for(seconds(50));
    world.apply([image(workers(1), "b")]);
    world.settle(seconds(600));
    let converged = world.driver.state().clone();
    world.run_for(seconds(600));
    assert_eq!(*world.driver.state(), converged);
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Ignored { .. })), 2);
}

#[test]
fn a_join_before_the_reply_to_the_start_stays_a_join() {
    let mut world = World::new([workers(1)]);
    world.script(Rule::boot("worker-0", Boot::JoinsFirst, 1));
    world.run_until(seconds(60), |world| {
        world.driver.state().nodes.values().next().unwrap().record.stage == NodeStage::SwactorJoined
    });
    insta::assert_snapshot!(world.explain("worker-0"), @"StartBootstrap under way, until @122");
    world.settle(seconds(60));
    assert_eq!(world.attempt("worker-0"), 0);
}

#[test]
fn an_attempt_that_has_no_time_to_become_ready_ends_all_the_same() {
    let mut world = World::empty();
    world.retry.ready_timeout = Duration::ZERO;
    world.apply([workers(1)]);
    world.run_for(seconds(2));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::AttemptFailed { .. })), 1);
}
