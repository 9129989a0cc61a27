//! What happened, followed event by event.

use std::collections::BTreeMap;

use myelin_shape::{LogicalNodeId, NodeAttemptId};
use myelin_state::{ClusterState, DeleteCause, DriverEvent, EventKind};

use crate::{
    desired::Desired,
    outage::Outages,
    slot::Slot,
    violation::{Findings, Rule},
};

/// What the history says about a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    slots: BTreeMap<LogicalNodeId, Slot>,
    outages: Outages,
    next_attempt: u64,
    generation: Option<u64>,
}

impl Ledger {
    /// Returns what a state says about the history before it.
    pub(crate) fn of(state: &ClusterState) -> Self {
        let slots = state.nodes.iter().map(|(id, node)| (id.clone(), Slot::of(id, node)));
        Self {
            slots: slots.collect(),
            outages: Outages::of(state),
            next_attempt: state.next_attempt_id,
            generation: None,
        }
    }

    /// Takes over what is desired from now on.
    pub(crate) fn retarget(&mut self, desired: &Desired) {
        self.outages.recount(self.slots.values(), desired);
    }

    /// Follows one event.
    pub(crate) fn follow(
        &mut self,
        event: &DriverEvent,
        desired: Option<&Desired>,
        findings: &mut Findings,
    ) {
        if let EventKind::DesiredAccepted { generation } = event.kind {
            let rises = self.generation.is_none_or(|last| last < generation);
            findings.require(rises, Rule::LatestWins, None, || {
                format!("generation {generation} accepted after {:?}", self.generation)
            });
            self.generation = Some(generation);
        }
        let (Some(id), Some(attempt)) = (&event.node, event.attempt) else {
            return;
        };
        let changed_nothing =
            matches!(event.kind, EventKind::Ignored { .. } | EventKind::Discarded { .. });
        // A lease that is nobody's was made for an attempt that is over.
        if changed_nothing || event.kind.is_of_inventory() {
            return;
        }
        let before = self.slots.get(id).cloned();
        if event.kind == (EventKind::DeleteBegan { cause: DeleteCause::Lost })
            && let Some((slot, desired)) = before.as_ref().zip(desired)
        {
            self.outages.gave_up(id, slot, desired, findings);
        }
        self.follow_node(id, attempt, &event.kind, desired, findings);
        if let Some(desired) = desired {
            self.outages.moved(before.as_ref(), self.slots.get(id), desired);
        }
    }

    fn follow_node(
        &mut self,
        id: &LogicalNodeId,
        attempt: NodeAttemptId,
        kind: &EventKind,
        desired: Option<&Desired>,
        findings: &mut Findings,
    ) {
        if *kind == EventKind::Inserted {
            let fresh = !self.slots.contains_key(id);
            findings.require(fresh, Rule::CleanupBeforeReuse, Some(id), || {
                "was inserted over a node".to_owned()
            });
            self.start(id, attempt, findings);
            self.slots.insert(id.clone(), Slot::new(id, attempt, desired));
        } else if let EventKind::Restarted { previous } = kind {
            self.start(id, attempt, findings);
            let slot = self
                .slots
                .entry(id.clone())
                .or_insert_with(|| Slot::new(id, NodeAttemptId(u64::MAX), None));
            findings.require(slot.is_over(*previous), Rule::CleanupBeforeReuse, Some(id), || {
                format!("restarted before attempt {previous} was destroyed")
            });
            slot.restart(id, attempt, desired);
        } else {
            self.follow_attempt(id, attempt, kind, findings);
        }
    }

    fn start(&mut self, id: &LogicalNodeId, attempt: NodeAttemptId, findings: &mut Findings) {
        findings.require(
            attempt.0 >= self.next_attempt,
            Rule::DistinctIdentities,
            Some(id),
            || format!("attempt {attempt} started after {} others", self.next_attempt),
        );
        self.next_attempt = self.next_attempt.max(attempt.0.saturating_add(1));
    }

    /// Follows what happened to the current attempt of a managed slot.
    fn follow_attempt(
        &mut self,
        id: &LogicalNodeId,
        attempt: NodeAttemptId,
        kind: &EventKind,
        findings: &mut Findings,
    ) {
        let Some(slot) = self.slots.get_mut(id).filter(|slot| slot.attempt == attempt) else {
            findings.require(false, Rule::AttemptCorrelation, Some(id), || {
                format!("{kind}, but attempt {attempt} is not the current one")
            });
            return;
        };
        if *kind == EventKind::Reaped {
            findings.require(slot.is_over(attempt), Rule::CleanupBeforeReuse, Some(id), || {
                "reaped before it was destroyed".to_owned()
            });
            self.slots.remove(id);
        } else {
            slot.follow(id, kind, findings);
        }
    }

    /// Compares what the history says with the state it has led to.
    pub(crate) fn compare(
        &mut self,
        state: &ClusterState,
        desired: Option<&Desired>,
        findings: &mut Findings,
    ) {
        for (id, node) in &state.nodes {
            let Some(slot) = self.slots.get_mut(id) else {
                findings.require(false, Rule::SingleOwner, Some(id), || {
                    "appeared without an event".to_owned()
                });
                continue;
            };
            slot.compare(id, node, findings);
        }
        for id in self.slots.keys() {
            findings.require(state.nodes.contains_key(id), Rule::SingleOwner, Some(id), || {
                "vanished without an event".to_owned()
            });
        }
        if let Some(desired) = desired {
            // What was not told until now, such as the spec of an attempt, may count.
            self.outages.recount(self.slots.values(), desired);
        }
        self.outages.compare(state, findings);
        findings.require(
            self.next_attempt <= state.next_attempt_id,
            Rule::DistinctIdentities,
            None,
            || {
                format!(
                    "{} attempts allocated, {} started",
                    state.next_attempt_id, self.next_attempt
                )
            },
        );
    }
}
