//! What the history says of one slot.

use std::{fmt, sync::Arc};

use myelin_shape::{
    LogicalNodeId, NodeAttemptId, NodeGroupId, NodeTemplate, OnFailure, OperationId,
};
use myelin_state::{
    DeleteCause, ErrorClass, EventKind, ManagedNode, NodeIntent, NodeStage, OperationKind,
    OperatorRequest,
};

use crate::{
    desired::{Desired, Group},
    violation::{Findings, Rule},
};

/// What is known of an attempt's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    /// There is none.
    Nothing,
    /// A create has ended in this step. The record says with what.
    Answered,
    /// A create may have made one. Only another create can find out, or a person.
    Unsettled,
    /// There is one.
    Leased,
}

impl Machine {
    fn of(node: &ManagedNode) -> Self {
        if node.record.lease.is_some() {
            return Self::Leased;
        }
        match node.retry.ambiguous_operation {
            Some(OperationKind::CreateLease) => Self::Unsettled,
            Some(_) | None => Self::Nothing,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "none",
            Self::Answered => "just asked for",
            Self::Unsettled => "unsettled",
            Self::Leased => "leased",
        })
    }
}

/// What policy counts of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each compared by itself")]
pub(crate) struct Flags {
    pub(crate) ready: bool,
    pub(crate) recovering: bool,
    pub(crate) repairing: bool,
    pub(crate) spends_budget: bool,
}

impl Flags {
    fn of(node: &ManagedNode) -> Self {
        Self {
            ready: node.record.ready_since.is_some(),
            recovering: node.recovering,
            repairing: node.repairing,
            spends_budget: node.spends_budget,
        }
    }
}

/// What the history says about a managed slot.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one attempt")]
pub(crate) struct Slot {
    pub(crate) attempt: NodeAttemptId,
    pub(crate) group: NodeGroupId,
    pub(crate) flags: Flags,
    index: u32,
    template: Option<Arc<NodeTemplate>>,
    next_sequence: u64,
    open: Option<(OperationId, OperationKind)>,
    machine: Machine,
    handed_off: bool,
    silent: bool,
    heard_out: bool,
    /// Failed, and its cleanup had not begun when the step did: until then it may be one that is kept.
    lies_failed: bool,
    /// Quarantined or refused in this attempt.
    given_up: bool,
    destroyed: bool,
    /// Whether all that the flags depend on was told.
    is_told: bool,
}

impl Slot {
    /// Returns a slot with a fresh attempt.
    pub(crate) fn new(
        id: &LogicalNodeId,
        attempt: NodeAttemptId,
        desired: Option<&Desired>,
    ) -> Self {
        let (group, index) = id.as_str().rsplit_once('-').unwrap_or((id.as_str(), ""));
        let desired = desired.and_then(|desired| desired.groups.get(group));
        Self {
            attempt,
            group: group.into(),
            flags: Flags::default(),
            // No group wants the last index.
            index: index.parse().unwrap_or(u32::MAX),
            template: desired.map(|group| Arc::clone(&group.template)),
            next_sequence: 0,
            open: None,
            machine: Machine::Nothing,
            handed_off: false,
            silent: false,
            heard_out: false,
            lies_failed: false,
            given_up: false,
            destroyed: false,
            is_told: true,
        }
    }

    /// Returns what a record says about the history before it.
    pub(crate) fn of(id: &LogicalNodeId, node: &ManagedNode) -> Self {
        let record = &node.record;
        Self {
            flags: Flags::of(node),
            template: Some(Arc::clone(&record.desired.template)),
            next_sequence: node.next_operation_sequence,
            open: node.pending.as_deref().map(|pending| (pending.id, pending.kind)),
            machine: Machine::of(node),
            handed_off: record.handed_off,
            silent: record.silence.is_some(),
            lies_failed: record.stage == NodeStage::Failed && node.intent == NodeIntent::Active,
            given_up: node.quarantine.is_some() || node.refused.is_some(),
            destroyed: record.stage == NodeStage::Destroyed,
            ..Self::new(id, node.attempt, None)
        }
    }

    /// Starts the next attempt. Failing again with what failed is still the same trouble.
    pub(crate) fn restart(
        &mut self,
        id: &LogicalNodeId,
        attempt: NodeAttemptId,
        desired: Option<&Desired>,
    ) {
        let fresh = Self::new(id, attempt, desired);
        let same = self.template == fresh.template;
        let recovering = self.flags.recovering && same;
        let flags = Flags {
            ready: false,
            recovering,
            repairing: recovering,
            spends_budget: self.flags.spends_budget,
        };
        let is_told = self.is_told && desired.is_some();
        *self = Self { flags, is_told, ..fresh };
    }

    /// Returns whether this is the attempt, and nothing is left of it.
    pub(crate) fn is_over(&self, attempt: NodeAttemptId) -> bool {
        self.attempt == attempt && self.destroyed
    }

    /// Returns whether the attempt's machine was of use, and nothing has failed since.
    pub(crate) fn is_in_use(&self) -> bool {
        self.handed_off && !self.flags.recovering
    }

    /// Returns whether the slot surely counts as failing. What is given up or kept does not.
    pub(crate) fn is_failing(&self, desired: &Desired) -> bool {
        let group = desired.groups.get(&self.group).filter(|group| self.index < group.count);
        let kept = |group: &Group| self.lies_failed && group.policy.on_failure == OnFailure::Keep;
        group.is_some_and(|group| {
            let same = self.template.as_ref() == Some(&group.template);
            self.silent || self.flags.recovering && same && !self.given_up && !kept(group)
        })
    }

    /// Follows what happened to the current attempt.
    pub(crate) fn follow(&mut self, id: &LogicalNodeId, kind: &EventKind, findings: &mut Findings) {
        self.follow_effects(id, kind, findings);
        self.follow_flags(kind);
        if *kind == EventKind::HeardOut {
            let first = self.silent && !self.heard_out;
            findings.require(first, Rule::StoredOnce, Some(id), || {
                "an agent gets more time to be heard than once a silence".to_owned()
            });
            self.heard_out = true;
        }
    }

    fn follow_effects(&mut self, id: &LogicalNodeId, kind: &EventKind, findings: &mut Findings) {
        if let EventKind::Dispatched { operation, effect } = kind {
            self.dispatched(id, *operation, *effect, findings);
        } else if let EventKind::Succeeded { operation, effect } = kind {
            self.ended(id, *operation, findings);
            match effect {
                OperationKind::CreateLease => self.machine = Machine::Answered,
                OperationKind::DestroyLease => self.machine = Machine::Nothing,
                OperationKind::LookupEndpoint
                | OperationKind::StartBootstrap
                | OperationKind::BootstrapConvergenceObserved
                | OperationKind::CancelBootstrap => {}
            }
        } else if let EventKind::EffectFailed { operation, effect, class, .. } = kind {
            self.ended(id, *operation, findings);
            // A failed look at what an earlier create has made settles nothing.
            if *effect == OperationKind::CreateLease && self.machine != Machine::Unsettled {
                let unknown = *class == ErrorClass::Ambiguous;
                self.machine = if unknown { Machine::Unsettled } else { Machine::Answered };
            }
        } else if let EventKind::Interrupted { operation, effect } = kind {
            self.ended(id, *operation, findings);
            if *effect == OperationKind::CreateLease {
                self.machine = Machine::Unsettled;
            }
        } else if let EventKind::Expired { operation, .. } = kind {
            let current = self.open.is_some_and(|(open, _)| open == *operation);
            findings.require(current, Rule::RecordBeforeDispatch, Some(id), || {
                format!("effect {operation} timed out, which was not under way")
            });
        } else if let EventKind::OperatorAsked { request: OperatorRequest::Abandon } = kind {
            (self.open, self.machine) = (None, Machine::Nothing);
        } else if *kind == EventKind::Destroyed {
            let clean = self.open.is_none() && !self.destroyed;
            findings.require(clean, Rule::CleanupBeforeReuse, Some(id), || {
                "destroyed twice, or with an effect under way".to_owned()
            });
            let gone = matches!(self.machine, Machine::Nothing | Machine::Answered);
            findings.require(gone, Rule::OneLease, Some(id), || {
                format!("cleaned up, but its machine is {}", self.machine)
            });
            (self.destroyed, self.machine) = (true, Machine::Nothing);
        }
    }

    fn dispatched(
        &mut self,
        id: &LogicalNodeId,
        operation: OperationId,
        effect: OperationKind,
        findings: &mut Findings,
    ) {
        let fresh = operation.attempt == self.attempt && operation.sequence >= self.next_sequence;
        findings.require(fresh, Rule::DistinctIdentities, Some(id), || {
            format!("effect {operation} submitted, {} is next", self.next_sequence)
        });
        let alone = self.open.is_none() && !self.destroyed;
        findings.require(alone, Rule::RecordBeforeDispatch, Some(id), || {
            format!("effect {operation} submitted beside another, or after the end")
        });
        let fits = match effect {
            OperationKind::CreateLease => self.machine != Machine::Leased,
            OperationKind::LookupEndpoint
            | OperationKind::StartBootstrap
            | OperationKind::DestroyLease => {
                matches!(self.machine, Machine::Leased | Machine::Answered)
            }
            OperationKind::BootstrapConvergenceObserved | OperationKind::CancelBootstrap => true,
        };
        findings.require(fits, Rule::OneLease, Some(id), || {
            format!("{effect} submitted while its machine is {}", self.machine)
        });
        self.open = Some((operation, effect));
        self.next_sequence = operation.sequence.saturating_add(1);
    }

    fn ended(&mut self, id: &LogicalNodeId, operation: OperationId, findings: &mut Findings) {
        let current = self.open.take().is_some_and(|(open, _)| open == operation);
        findings.require(current, Rule::AttemptCorrelation, Some(id), || {
            format!("effect {operation} ended, which was not under way")
        });
    }

    /// The life of the flags policy counts (`spec 1.6`), told from outside.
    fn follow_flags(&mut self, kind: &EventKind) {
        let flags = &mut self.flags;
        if *kind == EventKind::Ready {
            *flags = Flags { ready: true, ..Flags::default() };
            self.given_up = false;
        } else if let EventKind::AttemptFailed { .. } = kind {
            flags.fail();
            (self.silent, self.lies_failed) = (false, true);
        } else if let EventKind::DeleteBegan { cause } = kind {
            let in_use = self.handed_off && !flags.recovering;
            let taken = flags.ready || *cause == DeleteCause::SpecChanged && in_use;
            if cause.is_voluntary() {
                (flags.recovering, flags.repairing) = (false, false);
                flags.spends_budget |= taken;
            } else if *cause != DeleteCause::Failed && !self.lies_failed {
                flags.fail();
                // The end of a machine that may be well is a repair; that of one that never was is not.
                flags.repairing = *cause == DeleteCause::Lost && in_use;
            }
            flags.ready = false;
            self.silent = false;
        } else if let EventKind::EffectFailed { effect, class, .. } = kind {
            // Who waits for a machine to come or to go lets another one be repaired. It may have come already where that
            // is not known.
            flags.repairing &= match effect {
                OperationKind::CreateLease => *class == ErrorClass::Ambiguous,
                OperationKind::CancelBootstrap | OperationKind::DestroyLease => false,
                OperationKind::LookupEndpoint
                | OperationKind::StartBootstrap
                | OperationKind::BootstrapConvergenceObserved => true,
            };
        } else if let EventKind::Dispatched { effect: OperationKind::CreateLease, .. } = kind {
            // Who goes on after a failed create was let to. Settling an earlier one asks nobody.
            flags.repairing |= flags.recovering && self.machine != Machine::Unsettled;
        } else if let EventKind::Advanced { to, .. } = kind {
            self.handed_off |= matches!(to, NodeStage::HandedOff | NodeStage::Dormant);
        } else if let EventKind::Quarantined { .. } | EventKind::Refused { .. } = kind {
            self.given_up = true;
        } else if let EventKind::Silent | EventKind::Heard = kind {
            flags.ready = false;
            (self.silent, self.heard_out) = (*kind == EventKind::Silent, false);
        }
    }

    /// Compares what the history says with the record it has led to, and learns what it does not say.
    pub(crate) fn compare(
        &mut self,
        id: &LogicalNodeId,
        node: &ManagedNode,
        findings: &mut Findings,
    ) {
        let pending = node.pending.as_deref().map(|pending| pending.id);
        let open = self.open.map(|(open, _)| open);
        findings.require(open == pending, Rule::RecordBeforeDispatch, Some(id), || {
            format!("{pending:?} is pending, {open:?} was submitted")
        });
        let destroyed = node.record.stage == NodeStage::Destroyed;
        let same = self.attempt == node.attempt
            && self.next_sequence == node.next_operation_sequence
            && self.destroyed == destroyed;
        findings.require(same, Rule::SingleOwner, Some(id), || {
            format!("is at attempt {}, the history at {}", node.attempt, self.attempt)
        });
        if self.attempt != node.attempt {
            return;
        }
        let found = Machine::of(node);
        let machine = if self.machine == Machine::Answered { found } else { self.machine };
        findings.require(machine == found, Rule::OneLease, Some(id), || {
            format!("its machine is {found}, by the history {machine}")
        });
        let flags = Flags::of(node);
        if !self.is_told {
            (self.flags, self.is_told) = (flags, true);
        }
        findings.require(self.flags == flags, Rule::Flags, Some(id), || {
            format!("counts as {flags}, by the history as {}", self.flags)
        });
        self.machine = machine;
        self.lies_failed &= node.intent == NodeIntent::Active;
        self.template = Some(Arc::clone(&node.record.desired.template));
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.ready, "ready"),
            (self.recovering, "recovering"),
            (self.repairing, "under repair"),
            (self.spends_budget, "taken while ready"),
        ];
        let names: Vec<_> =
            names.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

impl Flags {
    fn fail(&mut self) {
        *self = Self { ready: false, recovering: true, repairing: false, ..*self };
    }
}
