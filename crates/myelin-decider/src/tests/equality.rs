//! The incremental form and the pass over everything.

use proptest::{collection::vec, prelude::*, sample::select};

use myelin_shape::{ClusterShape, FirstNode, Limit, LogicalNodeId, OnFailure, RunNodeGroupSpec};
use myelin_state::{ClusterState, ManagedNode};

use super::fixture::{
    NOW, at, booting, create_failed, creating, deleting, deleting_bare, deleting_leased, destroyed,
    due, failed, group, image, joined, leased, lost, new, node, quarantined, reachable, ready,
    refused, repairing, shape, silent, state,
};
use crate::{Explanation, NodeAction, Planner, Topology, reconcile};

type Make = fn(&mut ManagedNode);

const STATES: [Make; 16] = [
    new, creating, leased, reachable, booting, joined, ready, ready, ready, silent, lost, lost,
    failed, deleting, due, destroyed,
];

fn any_state() -> impl Strategy<Value = Make> {
    let mut states = STATES.to_vec();
    states.extend([deleting_leased as Make, deleting_bare, repairing, create_failed]);
    states.extend([quarantined as Make, refused, |node| {
        quarantined(node);
        node.recovering = true;
    }]);
    select(states)
}

fn any_group(id: &'static str) -> impl Strategy<Value = RunNodeGroupSpec> {
    let policy = (
        prop::option::of((0..4_u32).prop_map(Limit::Count)),
        prop::option::of(select(vec![FirstNode::All, FirstNode::Canary])),
        1..3_u32,
        select(vec![OnFailure::Replace, OnFailure::Keep]),
        0..3_u32,
        0..20_u64,
    );
    (0..8_u32, select(vec!["x", "y"]), policy).prop_map(move |(count, name, policy)| {
        let mut group = image(group(id, count), name);
        group.policy.max_unavailable = policy.0;
        group.policy.first_node = policy.1;
        group.policy.max_in_flight_creates = policy.2;
        group.policy.on_failure = policy.3;
        group.policy.keep_limit = policy.4;
        group.policy.keep_for = std::time::Duration::from_secs(policy.5);
        group
    })
}

fn any_shape() -> impl Strategy<Value = ClusterShape> {
    (any_group("a"), any_group("b")).prop_map(|(a, b)| shape([a, b]))
}

fn any_cluster() -> impl Strategy<Value = ClusterState> {
    let nodes = || vec((any_state(), select(vec!["x", "y"])), 0..8);
    (nodes(), nodes(), any::<bool>(), any::<bool>()).prop_map(|(a, b, proven, ended)| {
        let make = |id: &'static str, nodes: Vec<(Make, &'static str)>| {
            let nodes = nodes.into_iter().zip(0..);
            nodes.map(move |((make, name), index)| node(&image(group(id, 8), name), index, make))
        };
        let mut nodes: Vec<_> = make("a", a).chain(make("b", b)).collect();
        for (node, attempt) in nodes.iter_mut().zip(0..) {
            node.attempt = myelin_shape::NodeAttemptId(attempt);
        }
        let mut state = state(nodes);
        for group in state.groups.values_mut() {
            if !proven {
                group.proven.clear();
            }
        }
        state.brake.silent_machine_ended = ended;
        state
    })
}

/// Changes nodes of a state as a driver may between two passes.
fn changed(before: &ClusterState, changes: &[(usize, Make)]) -> (ClusterState, Vec<LogicalNodeId>) {
    let mut after = before.clone();
    let mut touched = Vec::new();
    for (n, make) in changes {
        let n = n % before.nodes.len().max(1);
        let Some((id, node)) = after.nodes.iter_mut().nth(n) else {
            continue;
        };
        let (attempt, spec) = (node.attempt, node.record.desired.clone());
        *node = ManagedNode::new(attempt, spec);
        make(node);
        touched.push(id.clone());
    }
    touched.sort();
    touched.dedup();
    (after, touched)
}

proptest! {
    #[test]
    fn a_plan_has_one_action_per_node_and_a_reason_for_every_other(
        observed in any_cluster(),
        desired in any_shape(),
    ) {
        let plan = reconcile(&observed, &desired, at(NOW)).unwrap();
        let again = reconcile(&observed, &desired, at(NOW)).unwrap();
        prop_assert_eq!(&plan, &again);
        let mut reversed = desired.clone();
        reversed.groups.reverse();
        prop_assert_eq!(&plan, &reconcile(&observed, &reversed, at(NOW)).unwrap());
        prop_assert!(plan.requeue_at.is_none_or(|time| time > at(NOW)));
        let mut nodes: Vec<_> = plan.actions.iter().map(NodeAction::node).collect();
        prop_assert!(nodes.is_sorted_by(|left, right| left < right));
        nodes.extend(plan.held.iter().map(|(node, _)| node));
        let slots = desired.expand().unwrap();
        for (id, node) in &observed.nodes {
            let as_desired = node.is_ready() && slots.get(id) == Some(&node.record.desired);
            prop_assert!(as_desired != nodes.contains(&id), "{} of\n{}", id, plan);
        }
        for id in slots.keys().filter(|id| !observed.nodes.contains_key(*id)) {
            prop_assert!(nodes.contains(&id), "{} of\n{}", id, plan);
        }
    }

    #[test]
    fn looking_at_touched_nodes_is_looking_at_all(
        before in any_cluster(),
        first in any_shape(),
        changes in vec((0..16_usize, any_state()), 0..5),
        second in prop::option::of(any_shape()),
        later in 0..30_u64,
    ) {
        let mut planner = Planner::new(Topology::new(&first).unwrap());
        let full = planner.plan(&before, before.nodes.keys().cloned(), at(NOW));
        let acted: Vec<_> = full.actions.iter().map(|action| action.node().clone()).collect();
        let (after, mut touched) = changed(&before, &changes);
        let now = at(NOW + later);
        touched.extend(acted);
        touched.extend(planner.take_due(now));
        let mut desired = first.clone();
        if let Some(second) = second {
            desired = second;
            desired.generation = 2;
            touched.extend(planner.set_topology(Topology::new(&desired).unwrap(), &after));
        }
        // Nothing of the first plan was applied: its inserts are still missing, its grants still waiting.
        for group in &desired.groups {
            planner.recheck_group(&group.group_id);
        }
        for group in ["a", "b"] {
            planner.touch_group(&group.into());
        }
        planner.touch_run();
        let incremental = planner.plan(&after, touched, now);
        let mut fresh = Planner::new(Topology::new(&desired).unwrap());
        let full = fresh.plan(&after, after.nodes.keys().cloned(), now);
        prop_assert_eq!(incremental.actions, full.actions);
        prop_assert_eq!(incremental.requeue_at, full.requeue_at);
        for said in incremental.held {
            prop_assert!(full.held.contains(&said), "{}: {}", said.0, said.1);
        }
        prop_assert_eq!(planner.run_brake(&after), fresh.run_brake(&after));
        for group in [None, Some("a".into()), Some("b".into())] {
            prop_assert_eq!(planner.awaits_repair(group.as_ref()), fresh.awaits_repair(group.as_ref()));
            let brake = |planner: &Planner| planner.group_brake(&after, group.as_ref()?);
            prop_assert_eq!(brake(&planner), brake(&fresh));
        }
        for (id, held) in full.held {
            let explanation = planner.explain(&after, &id, now);
            prop_assert!(matches!(explanation, Explanation::Held(_)), "{id}: {held}, {explanation:?}");
        }
    }
}
