//! Group policy: what is granted, what is held, and why (`spec 1.6`).

use myelin_shape::{FirstNode, Limit, OnFailure, RunNodeGroupSpec};
use myelin_state::{Canary, ManagedNode};

use super::fixture::{
    NOW, all, at, change, create_failed, creating, deleting, due, failed, group, image, lost, new,
    node, plan, quarantined, ready, refused, repairing, shape, silent, state, workers,
};
use crate::{BrakeStatus, Planner, Topology};

/// Makes a slot the canary of the template that `wanted` has.
fn on_trial(state: &mut myelin_state::ClusterState, slot: &str, wanted: &RunNodeGroupSpec) {
    unproven(state);
    let template = myelin_shape::expand_node_group(wanted).next().unwrap().template;
    let canary = Canary { node: slot.into(), template };
    state.groups.values_mut().next().unwrap().canary = Some(canary);
}

fn unproven(state: &mut myelin_state::ClusterState) {
    for group in state.groups.values_mut() {
        group.proven.clear();
    }
}

fn budget(mut group: RunNodeGroupSpec, limit: Limit) -> RunNodeGroupSpec {
    group.policy.max_unavailable = Some(limit);
    group
}

#[test]
fn ready_nodes_are_taken_highest_first_within_the_budget() {
    let limit = Limit::Percent(30);
    let mut old = all(&workers(12), ready);
    change(&mut old, "worker-3", |node| {
        creating(node);
        node.spends_budget = true;
    });
    change(&mut old, "worker-5", silent);
    change(&mut old, "worker-6", new);
    let mut wanted = budget(image(workers(12), "new"), limit);
    wanted.policy.first_node = Some(FirstNode::All);
    insta::assert_snapshot!(plan(&old, &shape([wanted])));
}

#[test]
fn what_is_no_longer_desired_is_taken_before_what_is_replaced() {
    let old = all(&workers(8), ready);
    let mut wanted = budget(image(workers(6), "new"), Limit::Count(3));
    wanted.policy.first_node = Some(FirstNode::All);
    insta::assert_snapshot!(plan(&old, &shape([wanted])));
}

#[test]
fn a_removed_group_ignores_its_budget() {
    let old = all(&budget(workers(3), Limit::Count(1)), ready);
    insta::assert_snapshot!(plan(&old, &shape([])));
}

#[test]
fn an_unproven_template_starts_with_the_lowest_new_slot() {
    let mut fresh = all(&workers(5), new);
    unproven(&mut fresh);
    insta::assert_snapshot!(plan(&fresh, &shape([workers(5)])));
}

#[test]
fn an_unproven_template_replaces_the_highest_slot_first() {
    let old = all(&workers(5), ready);
    insta::assert_snapshot!(plan(&old, &shape([image(workers(5), "new")])));
}

#[test]
fn a_canary_on_record_is_waited_for() {
    let mut fresh = all(&workers(5), new);
    unproven(&mut fresh);
    change(&mut fresh, "worker-2", creating);
    let template = fresh.nodes["worker-2"].record.desired.template.clone();
    let canary = Canary { node: "worker-2".into(), template };
    fresh.groups.values_mut().next().unwrap().canary = Some(canary);
    let waiting = plan(&fresh, &shape([workers(5)]));
    change(&mut fresh, "worker-2", quarantined);
    insta::assert_snapshot!(format!(
        "{waiting}# quarantined\n{}",
        plan(&fresh, &shape([workers(5)]))
    ));
}

#[test]
fn small_groups_and_proven_templates_need_no_canary() {
    let mut small = all(&workers(4), new);
    unproven(&mut small);
    assert_eq!(plan(&small, &shape([workers(4)])).matches("CreateLease").count(), 4);
    let proven = all(&workers(5), new);
    assert_eq!(plan(&proven, &shape([workers(5)])).matches("CreateLease").count(), 5);
}

#[test]
fn creates_in_flight_are_limited() {
    let mut wanted = workers(5);
    wanted.policy.max_in_flight_creates = 3;
    let mut observed = all(&wanted, new);
    change(&mut observed, "worker-1", creating);
    change(&mut observed, "worker-4", |node| {
        super::fixture::ambiguous(node, myelin_state::OperationKind::CreateLease);
    });
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn a_refused_template_holds_the_nodes_without_a_machine() {
    let mut observed = all(&workers(4), ready);
    change(&mut observed, "worker-0", refused);
    change(&mut observed, "worker-1", new);
    change(&mut observed, "worker-2", super::fixture::leased);
    insta::assert_snapshot!(plan(&observed, &shape([workers(4)])));
}

#[test]
fn failed_machines_are_kept_up_to_the_limit_the_oldest_first() {
    let mut wanted = workers(4);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_limit = 1;
    let mut observed = all(&wanted, ready);
    change(&mut observed, "worker-0", failed);
    change(&mut observed, "worker-1", |node| {
        failed(node);
        node.record.failed_at = Some(at(980));
    });
    change(&mut observed, "worker-2", |node| {
        failed(node);
        node.keep_released = true;
    });
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn a_machine_is_kept_no_longer_than_it_may() {
    let mut wanted = workers(1);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_for = std::time::Duration::from_secs(10);
    insta::assert_snapshot!(plan(&all(&wanted, failed), &shape([wanted])));
}

#[test]
fn a_quarantined_slot_waits_for_another_spec() {
    let observed = all(&workers(1), quarantined);
    let held = plan(&observed, &shape([workers(1)]));
    insta::assert_snapshot!(held + &plan(&observed, &shape([image(workers(1), "new")])));
}

#[test]
fn the_brake_lets_one_silent_machine_go_and_says_the_numbers() {
    let observed = all(&workers(5), lost);
    insta::assert_snapshot!(plan(&observed, &shape([workers(5)])));
}

#[test]
fn under_the_brake_what_has_no_machine_left_goes_first() {
    let mut observed = all(&workers(5), lost);
    change(&mut observed, "worker-3", due);
    insta::assert_snapshot!(plan(&observed, &shape([workers(5)])));
}

#[test]
fn under_the_brake_one_repair_is_under_way() {
    let mut observed = all(&workers(5), lost);
    change(&mut observed, "worker-1", repairing);
    insta::assert_snapshot!(plan(&observed, &shape([workers(5)])));
}

#[test]
fn a_repair_whose_create_failed_asks_for_the_brake_again() {
    let mut observed = all(&workers(5), create_failed);
    change(&mut observed, "worker-3", |node| {
        create_failed(node);
        node.retry.next_effect_at = Some(at(940));
    });
    let one = plan(&observed, &shape([workers(5)]));
    change(&mut observed, "worker-0", repairing);
    insta::assert_snapshot!(format!(
        "{one}# one under way\n{}",
        plan(&observed, &shape([workers(5)]))
    ));
}

#[test]
fn without_the_brake_creates_of_repairs_are_limited_like_others() {
    let mut wanted = workers(5);
    wanted.policy.max_in_flight_creates = 2;
    let mut observed = all(&wanted, ready);
    change(&mut observed, "worker-0", create_failed);
    change(&mut observed, "worker-1", create_failed);
    change(&mut observed, "worker-4", creating);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn nodes_replaced_on_request_spend_the_budget() {
    let mut observed = all(&workers(4), ready);
    for node in ["worker-0", "worker-1", "worker-2"] {
        change(&mut observed, node, |node| {
            ready(node);
            node.replace_requested = true;
        });
    }
    change(&mut observed, "worker-2", |node| {
        creating(node);
        node.replace_requested = true;
    });
    insta::assert_snapshot!(plan(&observed, &shape([budget(workers(4), Limit::Count(1))])));
}

#[test]
fn a_silent_machine_waits_for_the_person_that_releases_the_failed_ones() {
    let mut observed = all(&workers(5), lost);
    observed.brake.silent_machine_ended = true;
    change(&mut observed, "worker-2", quarantined);
    let stuck = plan(&observed, &shape([workers(5)]));
    change(&mut observed, "worker-1", failed);
    insta::assert_snapshot!(format!(
        "{stuck}# another fails\n{}",
        plan(&observed, &shape([workers(5)]))
    ));
}

#[test]
fn what_is_kept_no_longer_counts_before_a_silent_machine_is_ended() {
    let mut wanted = workers(2);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_limit = 0;
    let mut observed = all(&wanted, lost);
    change(&mut observed, "worker-1", failed);
    let before = plan(&observed, &shape([wanted.clone()]));
    change(&mut observed, "worker-1", deleting);
    insta::assert_snapshot!(format!("{before}# deleting\n{}", plan(&observed, &shape([wanted]))));
}

#[test]
fn no_second_silent_machine_ends_before_a_repair_is_ready() {
    let mut observed = all(&workers(5), lost);
    observed.brake.silent_machine_ended = true;
    let on = plan(&observed, &shape([workers(5)]));
    for node in ["worker-0", "worker-1", "worker-2", "worker-3"] {
        change(&mut observed, node, ready);
    }
    insta::assert_snapshot!(format!("{on}# brake off\n{}", plan(&observed, &shape([workers(5)]))));
}

#[test]
fn a_repair_that_waits_for_its_template_gives_the_brake_to_others() {
    let mut observed = all(&workers(5), due);
    change(&mut observed, "worker-1", |node| {
        (node.recovering, node.repairing) = (true, true);
    });
    unproven(&mut observed);
    let template = observed.nodes["worker-0"].record.desired.template.clone();
    let canary = Canary { node: "worker-0".into(), template };
    observed.groups.values_mut().next().unwrap().canary = Some(canary);
    insta::assert_snapshot!(plan(&observed, &shape([workers(5)])));
}

#[test]
fn the_brake_of_the_run_takes_the_longest_waiting_of_all_groups() {
    let (a, b) = (group("a", 2), group("b", 2));
    let mut nodes: Vec<_> = (0..2).map(|index| node(&a, index, lost)).collect();
    nodes.extend((0..2).map(|index| node(&b, index, lost)));
    let silence = nodes[3].record.silence.as_mut().unwrap();
    silence.lost_at = at(800);
    insta::assert_snapshot!(plan(&state(nodes), &shape([a, b])));
}

/// Returns the brake's limit for a group of lost nodes, or `-` if it is off.
fn limit(count: u32, policy: Option<Limit>) -> String {
    let mut wanted = workers(count);
    wanted.policy.max_unhealthy = policy.unwrap_or(wanted.policy.max_unhealthy);
    let plan = plan(&all(&wanted, lost), &shape([wanted]));
    let limit = plan.split("limit ").nth(1);
    limit.map_or_else(|| "-".into(), |rest| rest.split(',').next().unwrap().to_owned())
}

#[test]
fn the_brake_needs_at_least_two_nodes_and_trips_when_all_fail() {
    let limits = [1, 2, 3, 4, 5, 6, 10, 20].map(|count| limit(count, None));
    assert_eq!(limits, ["-", "1", "2", "2", "2", "3", "4", "8"]);
    assert_eq!(limit(10, Some(Limit::Count(0))), "2", "never fewer than two");
    assert_eq!(limit(10, Some(Limit::Percent(100))), "9", "losing all is never their fault alone");
}

#[test]
fn a_silent_machine_waits_for_a_repair_whatever_is_created_beside() {
    let mut wanted = workers(5);
    wanted.policy.max_in_flight_creates = 1;
    let mut observed = all(&wanted, lost);
    observed.brake.silent_machine_ended = true;
    change(&mut observed, "worker-4", creating);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn while_a_failure_is_uncovered_the_brake_of_the_group_is_named() {
    let mut wanted = workers(6);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_limit = 0;
    let mut observed = all(&wanted, lost);
    change(&mut observed, "worker-5", failed);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn what_is_taken_is_counted_apart_from_what_is_created() {
    let requested = |node: &mut ManagedNode| {
        ready(node);
        node.replace_requested = true;
    };
    let mut observed = all(&workers(4), requested);
    change(&mut observed, "worker-3", new);
    insta::assert_snapshot!(plan(&observed, &shape([budget(workers(4), Limit::Count(1))])));
}

#[test]
fn a_canary_that_failed_and_is_kept_is_waited_for_until_it_is_not() {
    let mut wanted = workers(5);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_limit = 2;
    wanted.policy.keep_for = std::time::Duration::from_secs(100);
    let mut observed = all(&wanted, new);
    change(&mut observed, "worker-0", |node| {
        failed(node);
        node.record.failed_at = Some(at(980));
    });
    change(&mut observed, "worker-2", failed);
    on_trial(&mut observed, "worker-2", &wanted);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn a_spent_budget_is_named_before_the_canary() {
    let wanted = budget(image(workers(5), "new"), Limit::Count(1));
    let mut observed = all(&workers(5), ready);
    change(&mut observed, "worker-4", |node| {
        deleting(node);
        node.spends_budget = true;
    });
    on_trial(&mut observed, "worker-4", &wanted);
    let spent = plan(&observed, &shape([wanted.clone()]));
    change(&mut observed, "worker-4", deleting);
    insta::assert_snapshot!(format!("{spent}# not spent\n{}", plan(&observed, &shape([wanted]))));
}

#[test]
fn an_unproven_template_is_tried_by_the_lowest_slot_that_wants_a_machine_again() {
    let mut observed = all(&workers(5), create_failed);
    change(&mut observed, "worker-3", |node| {
        create_failed(node);
        node.retry.next_effect_at = Some(at(940));
    });
    unproven(&mut observed);
    insta::assert_snapshot!(plan(&observed, &shape([workers(5)])));
}

#[test]
fn the_brake_of_a_group_can_be_read() {
    let wanted = [workers(5), group("other", 3)];
    let mut observed = all(&wanted[0], lost);
    change(&mut observed, "worker-1", repairing);
    let mut planner = Planner::new(Topology::new(&shape(wanted)).unwrap());
    let nodes: Vec<_> = observed.nodes.keys().cloned().collect();
    let _ = planner.plan(&observed, nodes, at(NOW));
    let brake = |id: &str| planner.group_brake(&observed, &id.into());
    let worker = BrakeStatus { unhealthy: 5, limit: Some(2), repairs: 1 };
    assert_eq!(brake("worker"), Some(worker));
    assert!(worker.is_on());
    let other = BrakeStatus { unhealthy: 0, limit: Some(2), repairs: 0 };
    assert_eq!(brake("other"), Some(other));
    assert_eq!(brake("nobody"), None);
    let run = BrakeStatus { unhealthy: 5, limit: Some(4), repairs: 1 };
    assert_eq!(planner.run_brake(&observed), run);
}

#[test]
fn what_is_created_is_counted_apart_from_what_is_cleaned_up() {
    let mut wanted = workers(5);
    wanted.policy.on_failure = OnFailure::Keep;
    wanted.policy.keep_limit = 0;
    wanted.policy.max_in_flight_creates = 2;
    let mut observed = all(&wanted, new);
    change(&mut observed, "worker-0", failed);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}

#[test]
fn only_slots_that_are_wanted_as_they_are_count_as_failing() {
    let observed = all(&workers(6), create_failed);
    let brake = |wanted: RunNodeGroupSpec| {
        let mut planner = Planner::new(Topology::new(&shape([wanted])).unwrap());
        let nodes: Vec<_> = observed.nodes.keys().cloned().collect();
        let _ = planner.plan(&observed, nodes, at(NOW));
        assert_eq!(planner.n_unsettled(), 6);
        planner.group_brake(&observed, &"worker".into()).unwrap().unhealthy
    };
    assert_eq!(brake(workers(6)), 6);
    assert_eq!(brake(workers(4)), 4);
    assert_eq!(brake(image(workers(6), "new")), 0);
}

#[test]
fn a_canary_of_earlier_that_went_back_holds_nobody() {
    let wanted = budget(image(workers(5), "new"), Limit::Count(1));
    let mut observed = all(&workers(5), ready);
    change(&mut observed, "worker-2", |node| node.spends_budget = true);
    let template = myelin_shape::expand_node_group(&wanted).next().unwrap().template;
    observed.nodes.get_mut("worker-2").unwrap().record.desired.template = template;
    on_trial(&mut observed, "worker-0", &wanted);
    insta::assert_snapshot!(plan(&observed, &shape([wanted])));
}
