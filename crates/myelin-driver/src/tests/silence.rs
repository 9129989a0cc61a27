//! What happens when agents are not heard: they died, or we are cut off.

use std::{collections::BTreeSet, time::Duration};

use myelin_state::{
    BootstrapStage, DeleteCause, ErrorClass, NodeEvent, NodeStage, OperationKind, OperatorRequest,
};

use super::world::{Boot, Reply, Rule, World, group, image, seconds, workers};
use crate::EventKind;

fn lost(world: &World) -> usize {
    let cause = DeleteCause::Lost;
    world.count(|kind| *kind == EventKind::DeleteBegan { cause })
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("worker-{n}")).collect()
}

fn kill_all(world: &mut World, n: usize) {
    let names = names(n);
    world.kill(names.iter().map(String::as_str));
}

#[test]
fn a_killed_agent_is_noticed_cleaned_up_and_replaced() {
    let mut world = World::ready([workers(3)]);
    world.story();
    world.kill(["worker-1"]);
    world.run_for(seconds(100));
    assert!(world.is_converged());
    insta::assert_snapshot!(world.story());
}

#[test]
fn an_agent_that_goes_on_in_time_loses_nothing() {
    let mut world = World::ready([workers(3)]);
    let agent = world.provider.agent("worker-1");
    world.falls_silent(agent.clone());
    world.run_for(seconds(44));
    assert_eq!(world.n_ready(), 2);
    insta::assert_snapshot!(world.explain("worker-1"), @"agent silent since @7, until @52");
    world.is_heard(agent);
    world.run_for(seconds(3600));
    assert_eq!(world.n_ready(), 3);
    assert_eq!(world.provider.n_leases_ever, 3);
}

#[test]
fn another_agent_is_not_this_node() {
    let mut world = World::ready([workers(1)]);
    let agent = world.provider.agent("worker-0");
    world.falls_silent(agent);
    world.run_for(seconds(20));
    for event in [
        NodeEvent::Contact { swactor: "stranger".into() },
        NodeEvent::Joined { swactor: "stranger".into() },
    ] {
        world.observe("worker-0", 0, event);
        assert_eq!(world.n_ready(), 0);
    }
}

#[test]
fn a_few_dead_nodes_are_repaired_at_once() {
    let mut world = World::ready([workers(10)]);
    kill_all(&mut world, 4);
    world.run_for(seconds(70));
    assert!(world.is_converged(), "{}", world.cluster());
}

#[test]
fn ten_dead_nodes_trip_the_brake_are_repaired_one_by_one_and_then_at_full_speed() {
    let mut world = World::ready([workers(10)]);
    kill_all(&mut world, 10);
    world.run_for(seconds(46));
    insta::assert_snapshot!(world.cluster());
    world.settle(seconds(600));
    let restarts =
        world.history.iter().filter(|event| matches!(event.kind, EventKind::Restarted { .. }));
    let at: Vec<_> = restarts
        .map(|event| event.at.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs())
        .collect();
    // The second waits for what may be an outage of ours to end, four more follow one after the other; with four of ten
    // left the brake is off.
    insta::assert_debug_snapshot!(at);
    assert_eq!(lost(&world), 10);
}

#[test]
fn a_repair_whose_create_failed_once_still_lets_the_brake_forget() {
    let mut world = World::ready([workers(10)]);
    kill_all(&mut world, 10);
    let class = ErrorClass::NoCapacity;
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Fails(class), 1));
    world.settle(seconds(900));
}

#[test]
fn under_the_brake_at_most_one_machine_is_asked_for_however_often_that_fails() {
    let mut world = World::ready([workers(10)]);
    kill_all(&mut world, 10);
    let class = ErrorClass::NoCapacity;
    world.script(Rule::effect(OperationKind::CreateLease, Reply::Fails(class), 12));
    let from = world.history.len();
    world.run_for(seconds(46));
    world.settle(seconds(7200));
    let (mut under_way, mut n_ready, mut n_failed) = (BTreeSet::new(), 0, 0);
    for event in &world.history[from..] {
        if let EventKind::Dispatched { operation, effect: OperationKind::CreateLease } = &event.kind
        {
            under_way.insert(*operation);
            // With six of ten well again the brake is off.
            assert!(n_ready >= 6 || under_way.len() == 1, "{under_way:?}");
        } else if let EventKind::Succeeded { operation, .. } = &event.kind {
            under_way.remove(operation);
        } else if let EventKind::EffectFailed { operation, .. } = &event.kind {
            n_failed += u32::from(under_way.remove(operation));
        } else if event.kind == EventKind::Ready {
            n_ready += 1;
        }
    }
    assert_eq!((n_ready, n_failed), (10, 12));
}

#[test]
fn a_brake_forgets_when_the_repair_was_overtaken_by_another_spec() {
    let mut world = World::ready([image(workers(4), "a")]);
    world.close_listener();
    world.run_for(seconds(60));
    assert_eq!(lost(&world), 1);
    world.open_listener();
    world.apply([image(workers(4), "b")]);
    world.settle(seconds(120));
    world.kill(["worker-2"]);
    world.run_for(seconds(120));
    assert!(world.is_converged(), "{}", world.cluster());
}

#[test]
fn a_brake_forgets_when_its_repair_is_no_longer_desired() {
    let mut world = World::ready([group("a", 1), group("b", 2)]);
    world.kill(["a-0", "b-0", "b-1"]);
    world.run_until(seconds(60), |world| lost(world) == 1);
    world.apply([group("b", 1)]);
    world.settle(seconds(300));
}

#[test]
fn a_brake_forgets_when_its_repair_is_taken_on_purpose() {
    let mut world = World::ready([group("a", 1), group("b", 2)]);
    world.kill(["a-0", "b-0", "b-1"]);
    world.run_until(seconds(100), |world| world.attempt("a-0") > 2);
    world.apply([group("b", 1)]);
    world.settle(seconds(300));
}

/// Cuts our own listener off for two days and returns how many machines that had been ready were ended.
fn cut_off(groups: Vec<myelin_shape::RunNodeGroupSpec>) -> usize {
    let mut world = World::ready(groups);
    world.close_listener();
    world.run_for(Duration::from_hours(48));
    let ended = lost(&world);
    world.open_listener();
    world.provider.heal();
    world.run_for(Duration::from_hours(1));
    let nodes: Vec<_> = world.driver.state().nodes.keys().cloned().collect();
    for node in nodes {
        world.operator(node.as_str(), OperatorRequest::Retry);
    }
    world.settle(Duration::from_hours(1));
    ended
}

#[test]
fn a_single_node_has_no_brake() {
    assert_eq!(cut_off(vec![workers(1)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_two() {
    assert_eq!(cut_off(vec![workers(2)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_three() {
    assert_eq!(cut_off(vec![workers(3)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_five() {
    assert_eq!(cut_off(vec![workers(5)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_ten() {
    assert_eq!(cut_off(vec![workers(10)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_two_groups() {
    assert_eq!(cut_off(vec![group("a", 5), group("b", 5)]), 1);
}

#[test]
fn being_cut_off_costs_at_most_one_healthy_machine_of_many_small_groups() {
    let groups = (0..6).map(|n| group(&format!("g{n}"), 1));
    assert_eq!(cut_off(groups.collect()), 1);
}

#[test]
fn agents_that_dial_again_later_than_the_first_repair_is_ready_keep_their_machines() {
    let mut world = World::ready([workers(10)]);
    world.close_listener();
    world.run_for(seconds(600));
    assert_eq!(lost(&world), 1);
    world.open_listener_heard_in(seconds(40));
    world.settle(seconds(120));
    assert_eq!(lost(&world), 1);
}

#[test]
fn a_group_that_is_lost_whole_trips_its_own_brake() {
    let mut world = World::ready([workers(5), group("big", 30)]);
    kill_all(&mut world, 5);
    world.run_for(seconds(46));
    assert_eq!(lost(&world), 1);
    insta::assert_snapshot!(world.explain("worker-4"), @"brake of group worker: 5 nodes failing, limit 2, 1 under repair, until the counts move");
    world.settle(seconds(600));
}

#[test]
fn a_repair_that_waits_for_its_canary_gives_the_brake_to_others() {
    let mut world = World::new([image(workers(5), "never")]);
    world.script(Rule::Image { image: "never", boot: Boot::Fails(BootstrapStage::StartFailed) });
    world.run_for(seconds(1));
    for node in names(5) {
        world.operator(&node, OperatorRequest::Abandon);
        world.provider.destroy(&(node.as_str().into(), myelin_shape::NodeAttemptId(0)));
    }
    world.run_for(seconds(6));
    world.provider.heal();
    world.settle(seconds(600));
}

#[test]
fn a_lease_that_is_gone_ends_the_attempt_and_is_still_cleaned_up() {
    let mut world = World::ready([workers(2)]);
    world.story();
    world.observe("worker-0", 0, NodeEvent::LeaseGone);
    world.settle(seconds(60));
    insta::assert_snapshot!(world.story());
}

#[test]
fn a_repair_that_falls_silent_does_not_wait_for_itself() {
    let mut world = World::ready([workers(2)]);
    // It is handed off while silent, and so never ready.
    let kind = OperationKind::BootstrapConvergenceObserved;
    world.script(Rule::effect(kind, Reply::After(seconds(30)), 1));
    kill_all(&mut world, 2);
    world.run_until(seconds(100), |world| {
        let repaired = world.driver.state().nodes.values().next().unwrap();
        repaired.record.stage == NodeStage::SwactorJoined
    });
    world.kill(["worker-0"]);
    world.settle(seconds(900));
    assert_eq!(lost(&world), 3);
}

#[test]
fn a_brake_forgets_when_the_slot_under_repair_is_replaced_by_an_operator() {
    let mut world = World::ready([workers(5)]);
    kill_all(&mut world, 5);
    world.run_for(seconds(47));
    assert_eq!(lost(&world), 1);
    world.operator("worker-0", OperatorRequest::Replace);
    world.settle(seconds(900));
}

#[test]
fn a_brake_forgets_when_the_slot_under_repair_is_scaled_away() {
    let mut world = World::ready([workers(5)]);
    world.kill(["worker-4"]);
    world.run_for(seconds(1));
    kill_all(&mut world, 4);
    world.run_for(seconds(46));
    assert_eq!(lost(&world), 1);
    world.apply([workers(4)]);
    world.settle(seconds(900));
}
