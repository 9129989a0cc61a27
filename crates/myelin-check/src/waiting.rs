//! What waits for counts to move is waiting for something that moves (`spec 1.2`, `spec 1.6`).

use std::collections::{BTreeMap, BTreeSet};

use myelin_decider::{BrakeScope, HeldReason, ReconcilePlan, Trigger, Until};
use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::{ClusterState, ManagedNode};

use crate::{
    policy::creates,
    violation::{Findings, Rule},
};

/// Which counts of a scope have somebody in them who will move, or whose hold a person or another spec ends.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each count")]
struct Moving {
    creates: bool,
    spends_budget: bool,
    repairs: bool,
    recovers: bool,
}

impl Moving {
    fn note(&mut self, node: &ManagedNode) {
        self.creates |= creates(node);
        self.spends_budget |= node.spends_budget;
        self.repairs |= node.repairing;
        self.recovers |= node.recovering;
    }
}

/// Who moves, found out from those that wait for a time, step by step over those that wait for them.
struct Movers<'a> {
    state: &'a ClusterState,
    nodes: BTreeSet<&'a LogicalNodeId>,
    groups: BTreeMap<&'a NodeGroupId, Moving>,
    run: Moving,
}

impl<'a> Movers<'a> {
    fn add(&mut self, id: &'a LogicalNodeId) {
        self.nodes.insert(id);
        if let Some(node) = self.state.nodes.get(id) {
            self.run.note(node);
            self.groups.entry(&node.record.desired.template.group_id).or_default().note(node);
        }
    }

    /// Returns whether somebody moves what this node is held for.
    fn move_for(&self, id: &LogicalNodeId, reason: &HeldReason) -> bool {
        let own = self.state.nodes.get(id).map(|node| &node.record.desired.template.group_id);
        let group = |id: Option<&NodeGroupId>| {
            id.and_then(|id| self.groups.get(id)).copied().unwrap_or_default()
        };
        let scoped = |scope: &BrakeScope| match scope {
            BrakeScope::Group(id) => group(Some(id)),
            BrakeScope::Run => self.run,
        };
        match reason {
            HeldReason::CreateLimit { .. } => group(own).creates,
            HeldReason::Budget { .. } => group(own).spends_budget,
            HeldReason::Brake { scope, .. } => scoped(scope).repairs,
            HeldReason::AwaitingRepair { scope, stuck: None } => scoped(scope).recovers,
            HeldReason::Canary { node } => self.nodes.contains(node),
            // No other reason says that it waits for counts.
            HeldReason::Pending { .. }
            | HeldReason::Backoff { .. }
            | HeldReason::AwaitingEndpoint
            | HeldReason::AwaitingJoin
            | HeldReason::Silent { .. }
            | HeldReason::RestartBackoff { .. }
            | HeldReason::Quarantined { .. }
            | HeldReason::Refused { .. }
            | HeldReason::Kept
            | HeldReason::CanaryFailed { .. }
            | HeldReason::Paused
            | HeldReason::AwaitingRepair { stuck: Some(_), .. }
            | HeldReason::AllocatorExhausted => false,
        }
    }
}

/// Checks the plan of a state in which nothing is left to do without an event.
pub(crate) fn check_plan(state: &ClusterState, plan: &ReconcilePlan, findings: &mut Findings) {
    for action in &plan.actions {
        findings.require(false, Rule::Progress, Some(action.node()), || {
            format!("left undone: {action}")
        });
    }
    let mut movers =
        Movers { state, nodes: BTreeSet::new(), groups: BTreeMap::new(), run: Moving::default() };
    for action in &plan.actions {
        movers.add(action.node());
    }
    let mut waiting = Vec::new();
    for (id, held) in &plan.held {
        match held.until {
            Until::At(_) | Until::On(Trigger::SpecChange | Trigger::Operator) => movers.add(id),
            Until::On(Trigger::GroupCounts) => waiting.push((id, held)),
        }
    }
    loop {
        let (moved, still): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(id, held)| movers.move_for(id, &held.reason));
        waiting = still;
        if moved.is_empty() {
            break;
        }
        for (id, _) in moved {
            movers.add(id);
        }
    }
    for (id, held) in waiting {
        findings.require(false, Rule::Progress, Some(id), || format!("nothing moves: {held}"));
    }
}
