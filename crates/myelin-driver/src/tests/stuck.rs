//! What must not stand still for ever, and what an outage must not be allowed to take.

use std::time::Duration;

use myelin_shape::{Limit, NodeAttemptId, RunNodeGroupSpec};
use myelin_state::{DeleteCause, ErrorClass, OperationKind, OperatorRequest};

use super::world::{Reply, Rule, World, image, seconds, workers};
use crate::EventKind;

fn rolling(count: u32) -> RunNodeGroupSpec {
    let mut group = workers(count);
    group.policy.max_unavailable = Some(Limit::Count(1));
    group
}

fn ended(world: &World) -> usize {
    world.count(|kind| matches!(kind, EventKind::DeleteBegan { .. }))
}

#[test]
fn a_start_of_unknown_outcome_does_not_keep_the_machine_for_ever() {
    let mut world = World::new([workers(1)]);
    let reply = Reply::Fails(ErrorClass::Ambiguous);
    world.script(Rule::effect(OperationKind::StartBootstrap, reply, u32::MAX));
    world.run_for(Duration::from_hours(1));
    world.apply([]);
    world.run_for(Duration::from_hours(1));
    assert!(world.is_converged(), "{}", world.cluster());
    assert!(world.provider.leases.is_empty());
}

#[test]
fn an_outage_during_a_rolling_update_takes_one_machine_more_at_most() {
    let mut world = World::ready([image(rolling(10), "a")]);
    world.apply([image(rolling(10), "b")]);
    while world.driver.state().groups["worker"].proven.len() < 2 {
        world.run_for(seconds(1));
    }
    let before = ended(&world);
    world.close_listener();
    world.run_for(Duration::from_hours(24));
    let taken = ended(&world) - before;
    // One for the budget of the rollout; one for the brake; and attempts of the same two slots that never join.
    let slots = world.driver.state().nodes.values().filter(|node| !node.record.handed_off);
    assert!(slots.count() <= 2, "{taken} ended\n{}", world.cluster());
    world.open_listener();
    // A day of attempts that nobody could hear has quarantined their slots.
    for node in ["worker-8", "worker-9"] {
        world.operator(node, OperatorRequest::Retry);
    }
    world.settle(Duration::from_hours(2));
}

#[test]
fn a_blip_during_a_rolling_update_takes_one_machine_more_at_most() {
    let mut world = World::ready([image(rolling(10), "a")]);
    world.apply([image(rolling(10), "b")]);
    while world.driver.state().groups["worker"].proven.len() < 2 {
        world.run_for(seconds(1));
    }
    let before = ended(&world);
    world.close_listener();
    world.run_for(seconds(15));
    world.open_listener();
    assert!(ended(&world) - before <= 1, "{}", world.cluster());
    world.settle(Duration::from_hours(1));
}

#[test]
fn an_operator_frees_the_repairs_that_wait_for_one_that_cannot_finish() {
    let mut world = World::ready([workers(10)]);
    let (kind, reply) = (OperationKind::DestroyLease, Reply::Fails(ErrorClass::Transient));
    world.script(Rule::effect_of("worker-0", kind, reply, u32::MAX));
    world.kill(["worker-0", "worker-1", "worker-2", "worker-3", "worker-4"]);
    world.run_for(Duration::from_hours(1));
    insta::assert_snapshot!(world.explain("worker-1"), @"brake of group worker: a silent machine was ended and no repair is ready yet, until the counts move");
    world.provider.destroy(&("worker-0".into(), NodeAttemptId(0)));
    world.operator("worker-0", OperatorRequest::Abandon);
    world.provider.heal();
    world.run_for(seconds(600));
    let ready = world.driver.state().nodes.values().filter(|node| node.is_ready());
    assert_eq!(ready.count(), 10, "{}", world.cluster());
}

#[test]
fn a_template_that_was_proven_before_needs_no_second_trial() {
    let mut world = World::ready([image(workers(10), "a")]);
    world.apply([image(workers(10), "b")]);
    world.settle(seconds(600));
    let before = ended(&world);
    world.apply([image(workers(10), "a")]);
    assert_eq!(ended(&world) - before, 10);
    world.settle(seconds(600));
}

#[test]
fn a_refusal_does_not_end_the_search_for_what_an_earlier_create_made() {
    let mut world = World::new([workers(1)]);
    world.provider.script.clear();
    let kind = OperationKind::CreateLease;
    world.script(Rule::effect(kind, Reply::Fails(ErrorClass::Permanent), 1));
    world.run_for(seconds(600));
    world.apply([]);
    world.run_for(seconds(600));
    assert!(world.is_converged(), "{}", world.cluster());
    assert!(world.provider.leases.is_empty());
}

#[test]
fn a_silent_machine_of_an_old_spec_counts_as_failing() {
    let mut world = World::ready([image(rolling(10), "a")]);
    world.apply([image(rolling(10), "b")]);
    world.close_listener();
    world.run_for(seconds(60));
    let lost = DeleteCause::Lost;
    let n_lost = world.count(|kind| *kind == EventKind::DeleteBegan { cause: lost });
    assert!(n_lost <= 1, "{}", world.cluster());
    let planner = world.driver.planner().unwrap();
    assert!(planner.run_brake(world.driver.state()).is_on());
    world.open_listener();
    world.settle(Duration::from_hours(1));
}
