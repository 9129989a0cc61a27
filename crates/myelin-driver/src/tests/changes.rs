//! What a change of the desired shape does.

use myelin_shape::{FirstNode, Limit, OnFailure, RunNodeGroupSpec};
use myelin_state::{BootstrapStage, DeleteCause, OperationKind, OperatorRequest};

use super::world::{Boot, Reply, Rule, World, group, image, seconds, workers};
use crate::EventKind;

fn began(cause: DeleteCause) -> impl Fn(&EventKind) -> bool {
    move |kind| *kind == EventKind::DeleteBegan { cause }
}

/// Lists the nodes something happened to, in order.
fn nodes(world: &World, happened: impl Fn(&EventKind) -> bool) -> Vec<String> {
    let events = world.history.iter().filter(|event| happened(&event.kind));
    events.filter_map(|event| event.node.as_ref()).map(ToString::to_string).collect()
}

fn rolling(count: u32, name: &str, limit: u32) -> RunNodeGroupSpec {
    let mut group = image(workers(count), name);
    group.policy.max_unavailable = Some(Limit::Count(limit));
    group
}

#[test]
fn scaling_adds_and_removes_the_highest_slots_only() {
    let mut world = World::ready([workers(3)]);
    world.history.clear();
    world.apply([workers(6)]);
    world.settle(seconds(60));
    let added = nodes(&world, |kind| *kind == EventKind::Inserted);
    assert_eq!(added, ["worker-3", "worker-4", "worker-5"]);
    world.apply([workers(2)]);
    world.settle(seconds(60));
    let removed = nodes(&world, |kind| *kind == EventKind::Reaped);
    assert_eq!(removed, ["worker-2", "worker-3", "worker-4", "worker-5"]);
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Restarted { .. })), 0);
    assert_eq!(world.provider.leases.len(), 2);
}

#[test]
fn scale_down_within_a_budget_takes_the_highest_slot_first() {
    let mut world = World::ready([rolling(12, "a", 1)]);
    world.history.clear();
    world.apply([rolling(8, "a", 1)]);
    world.settle(seconds(60));
    let removed = nodes(&world, began(DeleteCause::Undesired));
    assert_eq!(removed, ["worker-11", "worker-10", "worker-9", "worker-8"]);
}

#[test]
fn another_image_replaces_each_node_under_a_new_attempt() {
    let mut world = World::ready([image(workers(2), "a")]);
    world.story();
    world.apply([image(workers(2), "b")]);
    world.settle(seconds(60));
    insta::assert_snapshot!(world.story());
    assert_eq!(world.provider.most_leases, 2);
}

#[test]
fn a_shape_that_was_replaced_before_a_pass_need_not_be_visited() {
    let mut world = World::ready([image(workers(3), "a")]);
    world.apply([image(workers(3), "b")]);
    world.apply([image(workers(3), "c")]);
    world.settle(seconds(60));
    // Cleanup was under way when `c` came, so no machine was ever made from `b`.
    assert_eq!(world.provider.n_leases_ever, 6);
}

#[test]
fn a_spec_that_returns_while_its_node_is_deleted_starts_afresh() {
    let mut world = World::ready([image(workers(2), "a")]);
    world.apply([image(workers(2), "b")]);
    world.apply([image(workers(2), "a")]);
    assert!(!world.is_converged(), "an attempt that is being deleted is not resurrected");
    world.settle(seconds(60));
    assert_eq!((world.attempt("worker-0"), world.attempt("worker-1")), (2, 3));
}

#[test]
fn a_slot_that_returns_while_it_is_deleted_starts_afresh() {
    let mut world = World::ready([workers(2)]);
    world.apply([workers(1)]);
    world.run_for(seconds(0));
    world.apply([workers(2)]);
    world.settle(seconds(60));
    assert_eq!(world.attempt("worker-1"), 2);
}

#[test]
fn everything_goes_whatever_the_budget_when_the_group_is_removed() {
    let mut world = World::ready([rolling(5, "a", 1)]);
    world.apply([]);
    assert_eq!(world.settle(seconds(60)), seconds(1));
    assert!(world.provider.leases.is_empty());
}

#[test]
fn a_rolling_replacement_takes_no_more_ready_nodes_than_it_may() {
    let mut rolled = rolling(5, "b", 2);
    rolled.policy.first_node = Some(FirstNode::All);
    let mut world = World::ready([rolling(5, "a", 2)]);
    world.apply([rolled]);
    let mut fewest = world.n_ready();
    while !world.is_converged() {
        assert!(world.step(world.now + seconds(60)));
        fewest = fewest.min(world.n_ready());
    }
    assert_eq!(fewest, 3);
    assert_eq!(world.provider.n_leases_ever, 10);
}

#[test]
fn a_held_replacement_says_why() {
    let mut world = World::ready([rolling(3, "a", 1)]);
    world.apply([rolling(3, "b", 1)]);
    insta::assert_snapshot!(world.cluster(), @r"
    worker-0#0 Dormant ready: 1 of at most 1 nodes unavailable, until the counts move
    worker-1#1 Dormant ready: 1 of at most 1 nodes unavailable, until the counts move
    worker-2#2 Dormant: DestroyLease under way, until @127
    ");
}

#[test]
fn nodes_that_were_not_ready_anyway_are_replaced_first_and_spend_nothing() {
    let mut world = World::ready([rolling(3, "a", 1)]);
    world.script(Rule::Image { image: "broken", boot: Boot::Hangs });
    world.apply([rolling(3, "broken", 1)]);
    world.run_for(seconds(60));
    assert_eq!(world.n_ready(), 2, "the rollout stops at its budget");
    world.apply([rolling(3, "c", 1)]);
    world.settle(seconds(120));
    let order = nodes(&world, began(DeleteCause::SpecChanged));
    assert_eq!(order, ["worker-2", "worker-2", "worker-1", "worker-0"]);
}

#[test]
fn one_node_proves_a_new_template_for_a_group_of_five() {
    let mut world = World::new([workers(5)]);
    world.run_for(seconds(6));
    assert_eq!(world.provider.n_leases_ever, 1);
    insta::assert_snapshot!(world.explain("worker-4"), @"worker-0 proves the new template first, until the counts move");
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 5);
}

#[test]
fn a_template_that_never_works_costs_one_machine_and_then_waits_for_a_person() {
    let mut world = World::new([image(workers(20), "never")]);
    world
        .script(Rule::Image { image: "never", boot: Boot::Fails(BootstrapStage::BootCheckFailed) });
    world.run_for(seconds(24 * 3600));
    assert_eq!(world.provider.most_leases, 1);
    assert_eq!(world.provider.n_leases_ever, 10, "as many attempts as quarantine allows");
    insta::assert_snapshot!(world.explain("worker-0"), @"quarantined after 10 failed attempts, until the spec changes or `retry`");
    insta::assert_snapshot!(world.explain("worker-7"), @"worker-0, which was to prove the new template, is quarantined, until the spec changes or `retry`");
    world.apply([image(workers(20), "works")]);
    world.settle(seconds(120));
}

#[test]
fn a_bad_template_burns_one_machine_at_a_time_in_a_group_of_any_size() {
    for (count, boot) in
        [(5, Boot::Hangs), (6, Boot::Fails(BootstrapStage::Closed)), (40, Boot::Hangs)]
    {
        let mut world = World::empty();
        world.script(Rule::Image { image: "bad", boot });
        world.apply([image(workers(count), "bad")]);
        world.run_for(seconds(24 * 3600));
        assert_eq!((world.provider.most_leases, world.provider.n_leases_ever), (1, 10));
    }
}

#[test]
fn a_canary_that_is_scaled_away_has_a_successor() {
    let mut world = World::new([image(workers(6), "never")]);
    world.script(Rule::boot("worker-0", Boot::Hangs, 1));
    world.run_for(seconds(30));
    world.apply([group("other", 6)]);
    world.settle(seconds(60));
    assert_eq!(world.n_ready(), 6);
}

#[test]
fn a_rollout_in_a_large_group_starts_with_its_highest_slot() {
    let mut world = World::ready([image(workers(6), "a")]);
    world.apply([image(workers(6), "b")]);
    assert_eq!(world.n_ready(), 5);
    insta::assert_snapshot!(world.explain("worker-0"), @"worker-5 proves the new template first, until the counts move");
    world.settle(seconds(60));
    assert_eq!(world.provider.n_leases_ever, 12);
}

#[test]
fn a_node_of_an_earlier_spec_that_is_heard_again_proves_nothing() {
    let mut world = World::ready([image(workers(6), "a")]);
    world.script(Rule::Image { image: "b", boot: Boot::Hangs });
    world.apply([image(workers(6), "b")]);
    let agent = world.provider.agent("worker-0");
    world.falls_silent(agent.clone());
    world.run_for(seconds(20));
    world.is_heard(agent);
    world.run_for(seconds(20));
    insta::assert_snapshot!(world.explain("worker-0"), @"worker-5 proves the new template first, until the counts move");
}

#[test]
fn no_more_creates_are_under_way_than_the_group_allows() {
    let mut group = workers(12);
    group.policy.first_node = Some(FirstNode::All);
    group.policy.max_in_flight_creates = 3;
    let mut world = World::new([group]);
    insta::assert_snapshot!(world.explain("worker-9"), @"3 of at most 3 creates under way, until the counts move");
    let mut most = 0;
    while !world.is_converged() {
        let creates = world.driver.state().nodes.values().filter(|node| {
            node.pending
                .as_deref()
                .is_some_and(|pending| pending.kind == OperationKind::CreateLease)
        });
        most = most.max(creates.count());
        assert!(world.step(world.now + seconds(60)));
    }
    assert_eq!(most, 3);
}

fn keeping(count: u32) -> RunNodeGroupSpec {
    let mut group = image(workers(count), "never");
    group.policy.on_failure = OnFailure::Keep;
    group.policy.keep_for = seconds(3600);
    group
}

fn kept(count: u32) -> World {
    let mut world = World::new([keeping(count)]);
    world.script(Rule::Image { image: "never", boot: Boot::Fails(BootstrapStage::StartFailed) });
    world.run_for(seconds(30));
    world
}

#[test]
fn a_failed_machine_is_kept_for_its_time_and_others_are_replaced() {
    let mut world = kept(2);
    insta::assert_snapshot!(world.explain("worker-0"), @"failed machine kept for inspection, until @3605");
    assert!(world.count(|kind| matches!(kind, EventKind::Restarted { .. })) > 0);
    assert_eq!(world.attempt("worker-0"), 0);
    world.run_for(seconds(3600));
    assert_ne!(world.attempt("worker-0"), 0, "kept no longer than an hour");
}

#[test]
fn retry_ends_the_keeping_of_a_machine() {
    let mut world = kept(1);
    world.provider.heal();
    world.operator("worker-0", OperatorRequest::Retry);
    world.settle(seconds(60));
    assert_eq!(world.attempt("worker-0"), 1);
}

#[test]
fn another_spec_ends_the_keeping_of_a_machine() {
    let mut world = kept(1);
    world.apply([image(workers(1), "works")]);
    world.settle(seconds(60));
    assert_eq!(world.attempt("worker-0"), 1);
}

#[test]
fn an_effect_under_way_in_a_kept_machine_still_times_out() {
    let mut world = World::new([keeping(1)]);
    world.script(Rule::Image { image: "never", boot: Boot::Fails(BootstrapStage::StartFailed) });
    world.script(Rule::effect(OperationKind::StartBootstrap, Reply::Lost, 1));
    world.run_for(seconds(200));
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Expired { .. })), 1);
}
