//! The pure observation reducer: facts in, state changed, nothing emitted.
//!
//! [`observe`] folds one observation into one node. It is total: every observation is accepted in every stage, and what
//! does not apply changes nothing and says so ([`Ignored`]). Time and policy are arguments; deadlines and jitter are
//! sampled once, here, and stored. The functions of [`transition`] apply what the decider planned.
//!
//! Reading order: [`observe`], [`Folded`], [`transition`], [`backoff`].
//!
//! ```
//! use std::time::SystemTime;
//! use myelin_reducer::{Folded, observe};
//! use myelin_shape::{NodeAttemptId, RunId, RunNodeGroupSpec, expand_node_group};
//! use myelin_state::{ManagedNode, NodeEvent, NodeObservation, NodeStage, RetryPolicy};
//!
//! let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
//! let spec = expand_node_group(&group).next().expect("one node");
//! let mut node = ManagedNode::new(NodeAttemptId(0), spec);
//! let joined = NodeObservation {
//!     node: "worker-0".into(),
//!     attempt: NodeAttemptId(0),
//!     event: NodeEvent::Joined { swactor: "agent".into() },
//! };
//! let folded = observe(&mut node, joined, SystemTime::UNIX_EPOCH, &RetryPolicy::default());
//! assert_eq!(folded, Folded::Applied);
//! assert_eq!(node.record.stage, NodeStage::SwactorJoined);
//! ```

mod agent;
mod backoff;
mod failure;
mod operation;
mod operator;
pub mod transition;

use std::time::SystemTime;

use myelin_state::{ManagedNode, NodeEvent, NodeObservation, NodeStage, RetryPolicy};

pub use crate::backoff::backoff;

/// What became of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Folded {
    /// It changed the node.
    Applied,
    /// It changed nothing.
    Ignored(Ignored),
}

/// Why an observation changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// It is about another attempt than the current one.
    StaleAttempt,
    /// It is the result of an effect that is not pending.
    NotPending,
    /// It is about another bootstrap session than the attempt's.
    OtherSession,
    /// It is not later than the last one of its stream.
    OldSequence,
    /// It is about another agent than the recorded one.
    OtherAgent,
    /// It means nothing in the node's stage.
    NotApplicable,
}

impl Ignored {
    /// Returns a stable name of the reason, for metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::StaleAttempt => "stale_attempt",
            Self::NotPending => "not_pending",
            Self::OtherSession => "other_session",
            Self::OldSequence => "old_sequence",
            Self::OtherAgent => "other_agent",
            Self::NotApplicable => "not_applicable",
        }
    }
}

const NOT_APPLICABLE: Folded = Folded::Ignored(Ignored::NotApplicable);

/// Folds one observation into the node it is about (seed 1 §7.1, §11; `spec 1.4`, `1.5`).
pub fn observe(
    node: &mut ManagedNode,
    observation: NodeObservation,
    now: SystemTime,
    retry: &RetryPolicy,
) -> Folded {
    if observation.attempt != node.attempt {
        return Folded::Ignored(Ignored::StaleAttempt);
    }
    match observation.event {
        NodeEvent::OperationFinished { operation, outcome } => {
            operation::finished(node, operation, outcome, now, retry)
        }
        NodeEvent::Bootstrap { session, sequence, stage, message } => {
            let update = agent::BootstrapUpdate { session, sequence, stage, message };
            agent::bootstrap(node, update, now, retry)
        }
        NodeEvent::Joined { swactor } => agent::joined(node, swactor, now),
        NodeEvent::Contact { swactor } => agent::contact(node, &swactor, now),
        NodeEvent::Silent { swactor, last_contact } => {
            agent::silent(node, &swactor, last_contact, now, retry)
        }
        NodeEvent::LeaseGone if node.record.lease.is_some() => {
            failure::end_attempt(node, "the lease no longer exists", now, retry)
        }
        NodeEvent::LeaseGone => NOT_APPLICABLE,
        NodeEvent::DeadlinePassed => deadline_passed(node, now, retry),
        NodeEvent::Operator(request) => operator::asked(node, request, now, retry),
    }
}

/// Applies the record's deadlines that are due (`spec 1.4`).
fn deadline_passed(node: &mut ManagedNode, now: SystemTime, retry: &RetryPolicy) -> Folded {
    let record = &node.record;
    if record.stage.is_handed_off() || record.stage >= NodeStage::Failed {
        return NOT_APPLICABLE;
    }
    let due = |deadline: Option<SystemTime>| deadline.is_some_and(|deadline| deadline <= now);
    if due(record.bootstrap_by) && !record.stage.has_joined() {
        return failure::end_attempt(node, "the agent did not join in time", now, retry);
    }
    if due(record.ready_by) {
        return failure::end_attempt(node, "the node was not ready in time", now, retry);
    }
    NOT_APPLICABLE
}

#[cfg(test)]
mod tests;
