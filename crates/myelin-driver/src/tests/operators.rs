//! What operators say, and what time, restarts and limits do.

use std::time::{Duration, SystemTime};

use myelin_shape::{ClusterShape, Limit, LogicalNodeId, NodeAttemptId, RunId};
use myelin_state::{ClusterState, ErrorClass, OperationKind, OperatorRequest};

use super::world::{Reply, Rule, World, group, image, seconds, workers};
use crate::{ClusterDriver, Desired, DesiredError, Event, EventKind, Options, Target};

#[test]
fn nothing_is_done_while_paused_and_everything_after() {
    let mut world = World::ready([image(workers(2), "a")]);
    world.handle(Event::Pause);
    world.apply([image(workers(3), "b")]);
    world.kill(["worker-0"]);
    world.run_for(seconds(600));
    assert_eq!(world.provider.n_leases_ever, 2);
    assert_eq!(world.explain("worker-0"), "paused, until an operator says so");
    assert_eq!(world.explain("worker-2"), "paused, until an operator says so");
    world.handle(Event::Resume);
    world.settle(seconds(60));
}

#[test]
fn results_are_folded_while_paused_and_attempts_get_their_time_afterwards() {
    let mut world = World::new([workers(1)]);
    world.handle(Event::Pause);
    world.run_for(seconds(1));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Succeeded { .. })), 1);
    world.run_for(seconds(1901));
    world.handle(Event::Resume);
    world.settle(seconds(60));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::AttemptFailed { .. })), 0);
}

#[test]
fn a_pause_says_nothing_about_what_was_already_as_desired() {
    let mut world = World::ready([workers(1)]);
    world.handle(Event::Pause);
    assert!(world.is_converged());
    world.apply([workers(2)]);
    world.apply([workers(1)]);
    assert!(world.is_converged());
}

#[test]
fn replace_ends_the_current_attempt_whatever_it_does() {
    let mut world = World::ready([workers(2)]);
    world.operator("worker-1", OperatorRequest::Replace);
    assert_eq!(world.n_ready(), 1);
    world.settle(seconds(60));
    assert_eq!((world.attempt("worker-0"), world.attempt("worker-1")), (0, 2));
}

#[test]
fn a_group_is_replaced_within_its_budget() {
    let mut wanted = workers(4);
    wanted.policy.max_unavailable = Some(Limit::Count(1));
    let mut world = World::ready([wanted]);
    let target = Target::Group("worker".into());
    world.handle(Event::Operator { target, request: OperatorRequest::Replace });
    let (end, mut least) = (world.now + seconds(600), 4);
    while world.step(end) {
        least = least.min(world.n_ready());
    }
    assert_eq!(least, 3);
    let replaced = (0..4).filter(|index| world.attempt(&format!("worker-{index}")) >= 4).count();
    assert_eq!(replaced, 4);
}

#[test]
fn what_was_known_of_a_group_goes_when_its_last_node_has_gone() {
    let mut world = World::ready([group("a", 1), group("b", 1)]);
    world.apply([group("b", 1)]);
    assert_eq!(world.driver.state().groups.len(), 2, "a node of it is still there");
    world.settle(seconds(60));
    world.apply([group("b", 2)]);
    assert_eq!(world.driver.state().groups.len(), 1);
}

#[test]
fn abandon_ends_a_cleanup_that_can_never_work() {
    let mut world = World::ready([workers(1)]);
    let class = ErrorClass::Permanent;
    world.script(Rule::effect(OperationKind::DestroyLease, Reply::Fails(class), u32::MAX));
    world.apply([]);
    world.run_for(seconds(3600));
    assert!(!world.is_converged());
    world.operator("worker-0", OperatorRequest::Abandon);
    assert!(world.is_converged());
}

#[test]
fn an_abandoned_effect_is_not_told_as_done() {
    let mut world = World::new([workers(1)]);
    world.run_for(seconds(1));
    let succeeded = |world: &World| world.count(|kind| matches!(kind, EventKind::Succeeded { .. }));
    let before = succeeded(&world);
    world.operator("worker-0", OperatorRequest::Abandon);
    assert_eq!(succeeded(&world), before);
}

#[test]
fn an_abandoned_effect_is_stopped() {
    let mut world = World::new([workers(1)]);
    world.run_for(seconds(1));
    let node: LogicalNodeId = "worker-0".into();
    let pending = world.driver.state().nodes[&node].pending.as_deref().expect("it is under way").id;
    let request = OperatorRequest::Abandon;
    let effects = world.handle(Event::Operator { target: Target::Node(node.clone()), request });
    assert_eq!(effects.expire, [(node, pending)]);
}

#[test]
fn a_clock_that_jumps_back_stops_nothing_and_repeats_nothing() {
    let mut world = World::ready([workers(2)]);
    world.run_for(seconds(5000));
    world.handle(Event::Tick);
    world.now = SystemTime::UNIX_EPOCH + seconds(100);
    world.apply([image(workers(2), "b")]);
    let submitted = world.history.last().unwrap().at;
    assert!(submitted >= SystemTime::UNIX_EPOCH + seconds(5000), "time does not go back");
    world.settle(Duration::from_hours(2));
}

#[test]
fn without_attempt_ids_a_node_is_held_and_the_others_go_on() {
    let state = ClusterState { next_attempt_id: u64::MAX - 1, ..ClusterState::default() };
    let mut world = World::restored(state);
    world.apply([workers(2)]);
    world.run_for(seconds(60));
    assert_eq!(world.n_ready(), 1);
    assert_eq!(world.explain("worker-1"), "no attempt id is left, until an operator says so");
    world.kill(["worker-0"]);
    world.run_for(seconds(100));
    assert_eq!(world.explain("worker-0"), "no attempt id is left, until an operator says so");
}

#[test]
fn a_restored_driver_goes_on_with_what_was_under_way() {
    let mut world = World::new([workers(3)]);
    world.run_for(seconds(2));
    let mut restored = World::restored(world.driver.state().clone());
    restored.now = world.now;
    restored.provider = std::mem::take(&mut world.provider);
    restored.shape.generation = world.shape.generation;
    restored.apply([workers(3)]);
    // The replies were lost with the first driver: the effects time out and are adopted, and the agents dial again.
    restored.provider.waiting = restored.provider.living();
    restored.open_listener();
    restored.settle(seconds(600));
    assert_eq!(restored.provider.n_leases_ever, 3);
    assert_eq!(restored.attempt("worker-2"), 2);
}

#[test]
fn a_cluster_that_cannot_settle_at_once_does_not_spin() {
    let mut world = World::ready([workers(40)]);
    let passes = world.driver.counters().passes;
    world.handle(Event::Wake);
    world.handle(Event::Tick);
    assert!(world.driver.counters().passes - passes <= 4);
    assert_eq!(world.driver.counters().discarded, 0);
}

fn accept(driver: &mut ClusterDriver, shape: ClusterShape) -> Vec<DesiredError> {
    let event = Event::Desired(Box::new(Desired::new(shape)));
    driver.handle(SystemTime::UNIX_EPOCH, event).refused
}

#[test]
fn a_shape_is_refused_for_another_run_an_older_generation_or_changed_content() {
    let shape = |run, generation, count| {
        let mut group = workers(count);
        group.run_id = RunId(run);
        ClusterShape::new(RunId(run), generation, [group])
    };
    let mut driver = ClusterDriver::new(Options::default());
    assert_eq!(accept(&mut driver, shape(1, 5, 1)), []);
    assert_eq!(accept(&mut driver, shape(1, 5, 1)), [], "the same again is no news");
    let found = |driver: &mut ClusterDriver, shape| {
        accept(driver, shape).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let refusals =
        [shape(2, 6, 1), shape(1, 4, 1), shape(1, 5, 2)].map(|shape| found(&mut driver, shape));
    insta::assert_debug_snapshot!(refusals);
    assert_eq!(driver.desired().unwrap().generation, 5);
    assert_eq!(driver.state().next_attempt_id, 1);
}

#[test]
fn an_action_for_another_attempt_is_discarded_and_planned_anew() {
    let mut driver = ClusterDriver::new(Options::default());
    accept(&mut driver, ClusterShape::new(RunId(1), 1, [workers(2)]));
    let before = driver.state().clone();
    let node = || "worker-0".into();
    let expected_attempt = NodeAttemptId(7);
    let stale = vec![
        myelin_decider::NodeAction::Reap { node: node(), expected_attempt },
        myelin_decider::NodeAction::MarkDestroyed { node: "worker-1".into(), expected_attempt },
    ];
    driver.apply_all(stale);
    assert_eq!(*driver.state(), before);
    assert_eq!(driver.counters().discarded, 2);
    assert_eq!(driver.touched.len(), 2);
}

#[test]
fn a_mismatched_allocation_invalidates_all_later_ones_of_the_plan() {
    let mut driver = ClusterDriver::new(Options::default());
    accept(&mut driver, ClusterShape::new(RunId(1), 1, [workers(4)]));
    let before = driver.state().clone();
    let insert = |attempt, index| myelin_decider::NodeAction::Insert {
        attempt: NodeAttemptId(attempt),
        desired: driver.planner().unwrap().topology().groups.values().next().unwrap().spec(index),
    };
    let actions = vec![insert(9, 8), insert(4, 9)];
    driver.apply_all(actions);
    assert_eq!(*driver.state(), before);
    assert_eq!(driver.counters().discarded, 2);
}

#[test]
fn a_lease_being_created_cannot_be_abandoned() {
    let mut world = World::new([workers(1)]);
    world.operator("worker-0", OperatorRequest::Abandon);
    assert_eq!(world.count(|kind| matches!(kind, EventKind::OperatorAsked { .. })), 0);
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 1);
}

#[test]
fn what_fell_due_while_no_driver_ran_is_folded_by_the_next_one() {
    let world = World::new([workers(1)]);
    let desired = world.driver.desired().unwrap().clone();
    let mut driver = ClusterDriver::restore(Options::default(), world.driver.state().clone());
    let later = SystemTime::UNIX_EPOCH + seconds(3600);
    let effects = driver.handle(later, Event::Desired(Box::new(Desired::new(desired))));
    assert_eq!(effects.expire.len(), 1, "the pending create's time is over");
    assert!(effects.wake_at.is_some_and(|time| time > later));
}

#[test]
fn a_resumed_driver_looks_for_what_was_under_way_at_once() {
    let mut world = World::new([workers(2)]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Lost, 2));
    world.run_for(seconds(1));
    world.restart(true);
    world.handle(Event::Wake);
    let interrupted = |kind: &EventKind| matches!(kind, EventKind::Interrupted { .. });
    assert_eq!(world.count(interrupted), 2);
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 2, "what the lost creates have made is adopted");
}

#[test]
fn a_driver_that_only_shows_explains_what_was_left_as_it_was() {
    let mut world = World::new([workers(2)]);
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Lost, 1));
    world.run_for(seconds(1));
    let left = &world.driver;
    let desired = Desired { shape: world.shape.clone(), retry: world.retry.clone() };
    let state = left.state().clone();
    let shown = ClusterDriver::show(Options::default(), state, Some(desired), world.now).unwrap();
    assert_eq!(shown.state(), left.state());
    assert_eq!(shown.convergence(), left.convergence());
    for node in left.state().nodes.keys() {
        assert_eq!(shown.explain(node), left.explain(node));
    }
}

#[test]
fn a_resumed_driver_compares_templates_by_pointer_again() {
    let world = World::ready([workers(3)]);
    // Each node has its own copy at first, as a store shares them among the nodes only.
    let text = serde_json::to_string(&world.driver.state().nodes["worker-0"]).unwrap();
    let copy: myelin_state::ManagedNode = serde_json::from_str(&text).unwrap();
    let template = copy.record.desired.template;
    let mut state = world.driver.state().clone();
    for node in state.nodes.values_mut() {
        node.record.desired.template = std::sync::Arc::clone(&template);
    }
    let desired = Desired::new(world.shape.clone());
    let mut driver = ClusterDriver::resume(Options::default(), state, desired, world.now).unwrap();
    driver.handle(world.now, Event::Wake);
    let topology = driver.planner().unwrap().topology();
    assert!(std::sync::Arc::ptr_eq(&topology.groups["worker"].template, &template));
    assert!(driver.convergence().converged);
}

#[test]
fn nobody_is_lost_for_the_time_the_control_plane_was_away() {
    let mut world = World::ready([workers(3)]);
    let agent = world.provider.agent("worker-1");
    world.falls_silent(agent.clone());
    world.run_for(seconds(12));
    assert_eq!(world.n_ready(), 2);
    world.now += Duration::from_hours(1);
    world.restart(true);
    world.run_for(seconds(30));
    world.is_heard(agent);
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 3);
}

#[test]
fn a_time_out_of_nothing_neither_spins_nor_is_forgotten() {
    let mut driver = ClusterDriver::new(Options::default());
    let mut desired = Desired::new(ClusterShape::new(RunId(1), 1, [workers(1)]));
    desired.retry.operation_timeout = Duration::ZERO;
    let now = SystemTime::UNIX_EPOCH;
    let effects = driver.handle(now, Event::Desired(Box::new(desired)));
    let wake_at = effects.wake_at.unwrap();
    assert!(wake_at > now);
    assert_eq!(driver.handle(wake_at, Event::Wake).expire.len(), 1);
}
