//! What happened, followed event by event.

use std::collections::BTreeMap;

use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_state::{ClusterState, DriverEvent, EventKind, OperatorRequest};

use crate::violation::{Findings, Rule};

/// What the history says about a managed slot.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    attempt: NodeAttemptId,
    next_sequence: u64,
    open: Option<OperationId>,
    destroyed: bool,
}

impl Slot {
    fn new(attempt: NodeAttemptId) -> Self {
        Self { attempt, next_sequence: 0, open: None, destroyed: false }
    }

    fn dispatched(&mut self, id: &LogicalNodeId, operation: OperationId, findings: &mut Findings) {
        let fresh = operation.attempt == self.attempt && operation.sequence >= self.next_sequence;
        findings.require(fresh, Rule::DistinctIdentities, Some(id), || {
            format!("effect {operation} submitted, {} is next", self.next_sequence)
        });
        let alone = self.open.is_none() && !self.destroyed;
        findings.require(alone, Rule::RecordBeforeDispatch, Some(id), || {
            format!("effect {operation} submitted beside another, or after the end")
        });
        self.open = Some(operation);
        self.next_sequence = operation.sequence.saturating_add(1);
    }
}

/// What the history says about a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    slots: BTreeMap<LogicalNodeId, Slot>,
    next_attempt: u64,
    generation: Option<u64>,
}

impl Ledger {
    /// Returns what a state says about the history before it.
    pub(crate) fn of(state: &ClusterState) -> Self {
        let slot = |node: &myelin_state::ManagedNode| Slot {
            attempt: node.attempt,
            next_sequence: node.next_operation_sequence,
            open: node.pending.as_deref().map(|pending| pending.id),
            destroyed: node.is_destroyed(),
        };
        Self {
            slots: state.nodes.iter().map(|(id, node)| (id.clone(), slot(node))).collect(),
            next_attempt: state.next_attempt_id,
            generation: None,
        }
    }

    /// Follows one event.
    pub(crate) fn follow(&mut self, event: &DriverEvent, findings: &mut Findings) {
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
        if event.kind == EventKind::Inserted {
            let fresh = !self.slots.contains_key(id);
            findings.require(fresh, Rule::CleanupBeforeReuse, Some(id), || {
                "was inserted over a node".to_owned()
            });
            self.start(id, attempt, findings);
        } else if let EventKind::Restarted { previous } = &event.kind {
            let slot = self.slots.get(id);
            let clean = slot.is_some_and(|slot| slot.attempt == *previous && slot.destroyed);
            findings.require(clean, Rule::CleanupBeforeReuse, Some(id), || {
                format!("restarted before attempt {previous} was destroyed")
            });
            self.start(id, attempt, findings);
        } else if !matches!(event.kind, EventKind::Ignored { .. } | EventKind::Discarded { .. }) {
            self.follow_attempt(id, attempt, &event.kind, findings);
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
        self.slots.insert(id.clone(), Slot::new(attempt));
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
        if let EventKind::Dispatched { operation, .. } = kind {
            slot.dispatched(id, *operation, findings);
        } else if let EventKind::Succeeded { operation, .. }
        | EventKind::EffectFailed { operation, .. } = kind
        {
            let current = slot.open.take() == Some(*operation);
            findings.require(current, Rule::AttemptCorrelation, Some(id), || {
                format!("effect {operation} ended, which was not under way")
            });
        } else if let EventKind::Expired { operation, .. } = kind {
            let current = slot.open == Some(*operation);
            findings.require(current, Rule::RecordBeforeDispatch, Some(id), || {
                format!("effect {operation} timed out, which was not under way")
            });
        } else if let EventKind::OperatorAsked { request: OperatorRequest::Abandon } = kind {
            slot.open = None;
        } else if *kind == EventKind::Destroyed {
            let clean = slot.open.is_none() && !slot.destroyed;
            findings.require(clean, Rule::CleanupBeforeReuse, Some(id), || {
                "destroyed twice, or with an effect under way".to_owned()
            });
            slot.destroyed = true;
        } else if *kind == EventKind::Reaped {
            findings.require(slot.destroyed, Rule::CleanupBeforeReuse, Some(id), || {
                "reaped before it was destroyed".to_owned()
            });
            self.slots.remove(id);
        }
    }

    /// Compares what the history says with the state it has led to.
    pub(crate) fn compare(&self, state: &ClusterState, findings: &mut Findings) {
        for (id, node) in &state.nodes {
            let pending = node.pending.as_deref().map(|pending| pending.id);
            let Some(slot) = self.slots.get(id) else {
                findings.require(false, Rule::SingleOwner, Some(id), || {
                    "appeared without an event".to_owned()
                });
                continue;
            };
            findings.require(slot.open == pending, Rule::RecordBeforeDispatch, Some(id), || {
                format!("{pending:?} is pending, {:?} was submitted", slot.open)
            });
            let same = slot.attempt == node.attempt
                && slot.next_sequence == node.next_operation_sequence
                && slot.destroyed == node.is_destroyed();
            findings.require(same, Rule::SingleOwner, Some(id), || {
                format!("is at attempt {}, the history at {}", node.attempt, slot.attempt)
            });
        }
        for id in self.slots.keys() {
            findings.require(state.nodes.contains_key(id), Rule::SingleOwner, Some(id), || {
                "vanished without an event".to_owned()
            });
        }
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
