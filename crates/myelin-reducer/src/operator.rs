//! Folding of an operator's words about one node (`spec 1.4`, `6.2`).

use std::time::SystemTime;

use myelin_state::{
    DeleteCause, ManagedNode, NodeIntent, NodeStage, OperationKind, OperatorRequest, RetryPolicy,
};

use crate::{Folded, NOT_APPLICABLE, transition};

pub(crate) fn asked(
    node: &mut ManagedNode,
    request: OperatorRequest,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Folded {
    match request {
        OperatorRequest::Retry => retry(node),
        OperatorRequest::Replace => replace(node),
        OperatorRequest::Abandon => abandon(node, now, policy),
    }
}

/// Releases everything that holds the node; failures count from here.
fn retry(node: &mut ManagedNode) -> Folded {
    let kept = node.record.stage == NodeStage::Failed && node.intent == NodeIntent::Active;
    let held = node.quarantine.is_some()
        || node.refused.is_some()
        || node.retry.next_effect_at.is_some()
        || node.retry.restart_at.is_some()
        || (kept && !node.keep_released);
    if !held {
        return NOT_APPLICABLE;
    }
    node.quarantine = None;
    node.refused = None;
    node.keep_released |= kept;
    node.retry.next_effect_at = None;
    node.retry.restart_at = None;
    node.retry.consecutive_failures = 0;
    node.retry.ended_attempts = 0;
    Folded::Applied
}

fn replace(node: &mut ManagedNode) -> Folded {
    let live = node.intent == NodeIntent::Active && node.record.stage < NodeStage::Failed;
    if !live || node.replace_requested {
        return NOT_APPLICABLE;
    }
    node.replace_requested = true;
    Folded::Applied
}

/// Believes the operator that nothing of the attempt exists any more.
///
/// Not while a create is under way: what it makes would be nobody's.
fn abandon(node: &mut ManagedNode, now: SystemTime, policy: &RetryPolicy) -> Folded {
    let creating = node.pending.as_deref().is_some_and(|p| p.kind == OperationKind::CreateLease);
    if node.is_destroyed() || creating {
        return NOT_APPLICABLE;
    }
    if node.intent == NodeIntent::Active {
        transition::begin_delete(node, DeleteCause::Abandoned, now, policy);
    }
    node.pending = None;
    node.active_bootstrap = None;
    node.record.lease = None;
    node.record.connection = None;
    node.retry.ambiguous_operation = None;
    node.retry.ambiguous_since = None;
    node.retry.next_effect_at = None;
    Folded::Applied
}
