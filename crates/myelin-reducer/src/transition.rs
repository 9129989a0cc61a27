//! What the driver does to a node when it applies a planned action. Preconditions are the driver's to check.

use std::time::{Duration, SystemTime};

use myelin_shape::{LogicalNodeSpec, NodeAttemptId, OperationId};
use myelin_state::{
    DeleteCause, ManagedNode, NodeIntent, NodeStage, OperationKind, PendingOperation, RetryPolicy,
    RetryState, after, deadline,
};

use crate::{
    failure::{end_attempt, forget_failures_if_stable},
    operation::unsettled,
};

/// A timeout of nothing would be due before anybody could answer, and a deadline that is due when it is stored has no
/// moment at which it falls due.
pub(crate) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// Begins the cleanup of the attempt. Resource facts and a pending effect stay, so that its result can be folded.
///
/// The end of a lost attempt is recorded like a failure (`spec 1.5`). A back-off does not delay the cleanup, unless an
/// ambiguous effect is still to be settled.
pub fn begin_delete(
    node: &mut ManagedNode,
    cause: DeleteCause,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    let (was_ready, was_in_use) = (node.is_ready(), node.was_in_use());
    forget_failures_if_stable(node, now, policy);
    match cause {
        DeleteCause::Undesired | DeleteCause::SpecChanged | DeleteCause::Requested => {
            node.recovering = false;
            node.repairing = false;
            // A silent machine that was in use may be well, and only our network be gone: it is taken like a ready one.
            node.spends_budget |= was_ready || (cause == DeleteCause::SpecChanged && was_in_use);
        }
        DeleteCause::Lost => {
            end_attempt(node, "the agent was silent for too long", now, policy);
            node.repairing = was_in_use;
        }
        DeleteCause::Abandoned => {
            end_attempt(node, "an operator abandoned the lease", now, policy);
        }
        DeleteCause::Failed => {}
    }
    node.intent = NodeIntent::Deleting;
    node.delete_cause = Some(cause);
    node.replace_requested = false;
    node.keep_released = false;
    node.record.silence = None;
    node.record.ready_since = None;
    if node.retry.ambiguous_operation.is_none() {
        node.retry.next_effect_at = None;
    }
}

/// Gives a silent agent, once a silence, as long again to be heard. Returns whether it was given.
///
/// For the moment when it turns out that agents can be heard at all: after an outage of our own they dial again one by
/// one, and the first of them must not cost the others their machines.
pub fn hear_out(node: &mut ManagedNode, now: SystemTime, policy: &RetryPolicy) -> bool {
    let Some(silence) = node.record.silence.as_deref_mut() else {
        return false;
    };
    let was_given = silence.deadline > deadline(silence.lost_at, policy.lost_after);
    if !was_given {
        silence.deadline = deadline(now, policy.lost_after);
    }
    !was_given
}

/// Records that nothing of the attempt is left.
pub fn mark_destroyed(node: &mut ManagedNode, now: SystemTime) {
    node.record.stage = NodeStage::Destroyed;
    node.record.destroyed_at = Some(now);
    node.retry.next_effect_at = None;
    node.retry.ambiguous_operation = None;
    node.retry.ambiguous_since = None;
}

/// Starts a fresh attempt from the latest desired spec.
///
/// Failures stay counted until the new attempt is in ready steady state, unless the slot leaves quarantine by a change
/// of its spec: then they count from this release. Restarting with the spec that failed is a repair.
pub fn restart(node: &mut ManagedNode, attempt: NodeAttemptId, desired: LogicalNodeSpec) {
    let same = node.record.desired.same_template(&desired);
    let released = node.quarantine.is_some();
    let mut fresh = ManagedNode::new(attempt, desired);
    if !released {
        fresh.retry = RetryState {
            consecutive_failures: node.retry.consecutive_failures,
            ended_attempts: node.retry.ended_attempts,
            last_error: node.retry.last_error.take(),
            ..RetryState::default()
        };
    }
    fresh.recovering = node.recovering && same;
    fresh.repairing = fresh.recovering;
    fresh.spends_budget = node.spends_budget;
    *node = fresh;
}

/// Records an effect as pending and what asking for it means for the record (seed 1 §6).
pub fn record_dispatch(
    node: &mut ManagedNode,
    id: OperationId,
    kind: OperationKind,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    let timeout = deadline(now, policy.operation_timeout.max(SHORTEST_TIMEOUT));
    node.pending = Some(Box::new(PendingOperation { id, kind, deadline: timeout, expired: false }));
    node.next_operation_sequence = id.sequence.saturating_add(1);
    if node.intent == NodeIntent::Deleting {
        return;
    }
    let record = &mut node.record;
    if kind == OperationKind::CreateLease {
        record.stage = record.stage.max(NodeStage::LeaseRequested);
        // A repair that gave the brake's token back after a failed create was granted it again. Settling an ambiguous
        // create asks for nothing.
        let settles = node.retry.ambiguous_operation == Some(kind);
        node.repairing |= node.recovering && !settles;
    }
    if kind == OperationKind::StartBootstrap && record.bootstrap_by.is_none() {
        record.bootstrap_by = after(now, policy.bootstrap_timeout.max(SHORTEST_TIMEOUT));
    }
}

/// Gives an attempt whose deadlines passed while effects were paused as long again.
///
/// Nothing could be done for it meanwhile, so that it is not ready is no failure of its own. Returns whether any was
/// given.
pub fn resume(node: &mut ManagedNode, now: SystemTime, policy: &RetryPolicy) -> bool {
    let stage = node.record.stage;
    if node.intent == NodeIntent::Deleting || stage.is_handed_off() || stage >= NodeStage::Failed {
        return false;
    }
    let mut given = false;
    let mut again = |by: &mut Option<SystemTime>, timeout: Duration| {
        if by.is_some_and(|time| time <= now) {
            *by = after(now, timeout.max(SHORTEST_TIMEOUT));
            given = true;
        }
    };
    again(&mut node.record.ready_by, policy.ready_timeout);
    again(&mut node.record.bootstrap_by, policy.bootstrap_timeout);
    given
}

/// Begins the time of a pending effect that is handed out only now, after the time it was recorded with. Returns whether
/// it did.
pub fn resend(
    node: &mut ManagedNode,
    operation: OperationId,
    now: SystemTime,
    policy: &RetryPolicy,
) -> bool {
    let late = |pending: &&mut PendingOperation| {
        pending.id == operation && !pending.expired && pending.deadline <= now
    };
    let Some(pending) = node.pending.as_deref_mut().filter(late) else {
        return false;
    };
    pending.deadline = deadline(now, policy.operation_timeout.max(SHORTEST_TIMEOUT));
    true
}

/// What taking a node up after the end of its control plane has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// The effect that was under way.
    pub interrupted: Option<(OperationId, OperationKind)>,
    /// Whether a time runs anew.
    pub times: bool,
}

/// Takes a node up from a record that an earlier control plane has left (`spec 5`).
///
/// The result of an effect that was under way never comes: a create or start is unsettled now, anything else may be
/// repeated. Nothing could be heard or done meanwhile, so a silence counts from now, and an attempt whose times have
/// passed has them again.
pub fn take_up(node: &mut ManagedNode, now: SystemTime, policy: &RetryPolicy) -> TakenUp {
    let interrupted = node.pending.take().map(|pending| (pending.id, pending.kind));
    if let Some((_, kind)) = interrupted {
        unsettled(node, kind, now);
    }
    let mut times = resume(node, now, policy);
    if let Some(silence) = node.record.silence.as_deref_mut() {
        let by = deadline(now, policy.lost_after);
        times |= silence.deadline < by;
        silence.deadline = silence.deadline.max(by);
    }
    TakenUp { interrupted, times }
}

/// Notes that the pending effect's deadline has passed, and stores one for the executor's answer.
///
/// Returns the effect the executor must be asked to stop; `None` if none is due.
pub fn expire_pending(
    node: &mut ManagedNode,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Option<OperationId> {
    let pending = node.pending.as_deref_mut().filter(|pending| pending.deadline <= now)?;
    pending.expired = true;
    pending.deadline = deadline(now, policy.answer_timeout.max(SHORTEST_TIMEOUT));
    Some(pending.id)
}
