//! The rules over several steps.

use std::{collections::BTreeMap, time::SystemTime};

use myelin_shape::LogicalNodeId;
use myelin_state::{ClusterState, DriverEvent, EventKind, ManagedNode, NodeIntent};

use crate::{
    Snapshot, Violations, deadline,
    desired::Desired,
    history::Ledger,
    plan, policy, record,
    violation::{Findings, Rule},
    waiting,
};

/// Follows a driver from step to step.
///
/// Every step costs time in proportion to the cluster: it is for tests and simulations, not for the loop itself.
#[derive(Clone, Debug, Default)]
pub struct Linter {
    ledger: Ledger,
    previous: Option<ClusterState>,
    desired: Option<Desired>,
    now: Option<SystemTime>,
}

impl Linter {
    /// Returns a linter of a cluster that does not exist yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a linter of a cluster whose earlier history is not known.
    pub fn restore(state: &ClusterState) -> Self {
        Self { ledger: Ledger::of(state), previous: Some(state.clone()), ..Self::default() }
    }

    /// Checks the next step.
    ///
    /// # Errors
    ///
    /// Everything that breaks a rule.
    pub fn step(&mut self, snapshot: &Snapshot<'_>) -> Result<(), Violations> {
        let mut findings = Findings::default();
        let Snapshot { state, now, .. } = *snapshot;
        record::check_state(state, now, &mut findings);
        self.note_desired(snapshot);
        if let Some(desired) = &self.desired {
            findings.require(
                state.observed_generation <= desired.generation,
                Rule::Acknowledgment,
                None,
                || format!("generation {} evaluated", state.observed_generation),
            );
            if let Some(plan) = snapshot.plan {
                plan::check_plan(state, desired, plan, now, &mut findings);
                policy::check_plan(state, desired, plan, &mut findings);
                if snapshot.settled.is_some() {
                    waiting::check_plan(state, plan, &mut findings);
                }
            }
        }
        let looks_ahead = snapshot.plan.is_some() || snapshot.settled.is_some();
        if let Some(desired) = self.desired.as_ref().filter(|_| looks_ahead) {
            let Snapshot { plan, settled, .. } = *snapshot;
            deadline::check_covered(state, desired, plan, settled, now, &mut findings);
        }
        if let Some(history) = snapshot.history {
            self.follow(history, now, &mut findings);
            self.ledger.compare(state, self.desired.as_ref(), &mut findings);
            if let Some(previous) = &self.previous {
                progress(previous, state, history, &mut findings);
            }
        }
        self.previous = Some(state.clone());
        findings.into_result()
    }

    fn note_desired(&mut self, snapshot: &Snapshot<'_>) {
        let known = self.desired.as_ref().map(|desired| desired.generation);
        if let Some(shape) = snapshot.desired.filter(|shape| known != Some(shape.generation)) {
            self.ledger.retarget(self.desired.insert(Desired::new(shape)));
        }
    }

    fn follow(&mut self, history: &[DriverEvent], now: SystemTime, findings: &mut Findings) {
        // Of several generations at once, only the last is known.
        let accepted =
            history.iter().filter(|it| matches!(it.kind, EventKind::DesiredAccepted { .. }));
        let known = self.previous.is_some() || accepted.count() <= 1;
        let desired = self.desired.as_ref().filter(|_| known);
        for event in history {
            let in_order = self.now.is_none_or(|last| last <= event.at) && event.at <= now;
            findings.require(in_order, Rule::Time, event.node.as_ref(), || {
                format!("out of order: {}", event.kind)
            });
            self.now = Some(event.at);
            self.ledger.follow(event, desired, findings);
        }
    }
}

/// Compares two states with what happened between them.
fn progress(
    before: &ClusterState,
    after: &ClusterState,
    history: &[DriverEvent],
    findings: &mut Findings,
) {
    findings.require(
        before.observed_generation <= after.observed_generation,
        Rule::Acknowledgment,
        None,
        || format!("generation {} evaluated again", after.observed_generation),
    );
    findings.require(
        before.next_attempt_id <= after.next_attempt_id,
        Rule::DistinctIdentities,
        None,
        || format!("the allocator goes back to {}", after.next_attempt_id),
    );
    let moved = |event: &&DriverEvent| !matches!(event.kind, EventKind::Ignored { .. });
    let mut events: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in history.iter().filter(moved) {
        if let Some(node) = &event.node {
            events.entry(node).or_default().push(event);
        }
    }
    for (id, node) in &after.nodes {
        if let Some(earlier) = before.nodes.get(id) {
            let events = events.get(id).map_or(&[][..], Vec::as_slice);
            node_progress(id, earlier, node, events, findings);
        }
    }
}

fn node_progress(
    id: &LogicalNodeId,
    before: &ManagedNode,
    after: &ManagedNode,
    events: &[&DriverEvent],
    findings: &mut Findings,
) {
    if before == after {
        return;
    }
    findings.require(before.attempt <= after.attempt, Rule::DistinctIdentities, Some(id), || {
        format!("attempt {} follows {}", after.attempt, before.attempt)
    });
    if before.attempt != after.attempt {
        return;
    }
    findings.require(
        !events.is_empty() || only_bootstrap_differs(before, after),
        Rule::SingleOwner,
        Some(id),
        || format!("changed without an event while {}", after.record.stage),
    );
    findings.require(
        before.next_operation_sequence <= after.next_operation_sequence,
        Rule::DistinctIdentities,
        Some(id),
        || format!("the next effect is {} again", after.next_operation_sequence),
    );
    findings.require(before.record.stage <= after.record.stage, Rule::Record, Some(id), || {
        format!("{} follows {}", after.record.stage, before.record.stage)
    });
    findings.require(
        before.intent == after.intent || after.intent == NodeIntent::Deleting,
        Rule::CleanupBeforeReuse,
        Some(id),
        || "an attempt is resurrected".to_owned(),
    );
    findings.require(
        before.record.desired == after.record.desired,
        Rule::LatestWins,
        Some(id),
        || "the spec of an attempt changes".to_owned(),
    );
    let leases = before.record.lease.as_deref().zip(after.record.lease.as_deref());
    findings.require(
        leases.is_none_or(|(before, after)| before == after),
        Rule::OneLease,
        Some(id),
        || "has another lease in the same attempt".to_owned(),
    );
    deadline::check_moves(id, before, after, events, findings);
}

/// Reports of a running bootstrap are too many for the history.
fn only_bootstrap_differs(before: &ManagedNode, after: &ManagedNode) -> bool {
    let mut expected = before.clone();
    expected.record.bootstrap.clone_from(&after.record.bootstrap);
    expected == *after
}
