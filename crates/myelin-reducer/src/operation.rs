//! Folding of results of effects (seed 1 §7.1, §11).

use std::time::SystemTime;

use myelin_shape::{BootstrapSessionId, OperationId};
use myelin_state::{
    BootstrapStage, Connection, ErrorClass, LeaseFacts, ManagedNode, NodeIntent, NodeStage,
    OperationError, OperationKind, OperationOutcome, Refusal, RetryPolicy, after, deadline,
};

use crate::{
    Folded, Ignored,
    agent::{handed_off, session_facts},
    failure::{Delay, count, delay_effect, end_attempt},
    transition::SHORTEST_TIMEOUT,
};

/// Folds the result of an effect, if it is the pending one.
pub(crate) fn finished(
    node: &mut ManagedNode,
    operation: OperationId,
    outcome: OperationOutcome,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Folded {
    let Some(kind) = node.pending.as_deref().filter(|p| p.id == operation).map(|p| p.kind) else {
        return Folded::Ignored(Ignored::NotPending);
    };
    node.pending = None;
    match (kind, outcome) {
        (_, OperationOutcome::Failed(error)) => failed(node, kind, error, now, policy),
        (OperationKind::CreateLease, OperationOutcome::LeaseCreated { lease, connection }) => {
            lease_created(node, lease, connection, now, policy);
        }
        (OperationKind::CreateLease, OperationOutcome::LeaseAbsent)
        | (OperationKind::StartBootstrap, OperationOutcome::BootstrapAbsent) => {
            succeeded(node);
            settled(node, kind);
        }
        (OperationKind::LookupEndpoint, OperationOutcome::EndpointFound(connection)) => {
            succeeded(node);
            endpoint_known(node, connection);
        }
        (OperationKind::LookupEndpoint, OperationOutcome::EndpointNotReady) => {
            node.retry.next_effect_at = Some(deadline(now, policy.endpoint_probe_interval));
        }
        (OperationKind::StartBootstrap, OperationOutcome::BootstrapStarted { session }) => {
            bootstrap_started(node, session, now);
        }
        (OperationKind::BootstrapConvergenceObserved, OperationOutcome::ConvergenceRecorded) => {
            succeeded(node);
            handed_off(node, now);
        }
        (OperationKind::CancelBootstrap, OperationOutcome::BootstrapCancelled) => {
            succeeded(node);
            bootstrap_closed(node);
        }
        (OperationKind::DestroyLease, OperationOutcome::LeaseDestroyed) => {
            succeeded(node);
            lease_destroyed(node);
        }
        // An executor that answers another question must not leave the node waiting for an answer that never comes.
        (
            _,
            OperationOutcome::LeaseCreated { .. }
            | OperationOutcome::LeaseAbsent
            | OperationOutcome::EndpointFound(_)
            | OperationOutcome::EndpointNotReady
            | OperationOutcome::BootstrapStarted { .. }
            | OperationOutcome::BootstrapAbsent
            | OperationOutcome::ConvergenceRecorded
            | OperationOutcome::BootstrapCancelled
            | OperationOutcome::LeaseDestroyed,
        ) => {
            let class = if kind.creates() { ErrorClass::Ambiguous } else { ErrorClass::Transient };
            let message = format!("the executor answered {kind} with the result of another effect");
            failed(node, kind, OperationError { class, message: message.into() }, now, policy);
        }
    }
    Folded::Applied
}

fn succeeded(node: &mut ManagedNode) {
    node.retry.next_effect_at = None;
}

/// The outcome of an earlier, ambiguous effect of this kind is known now.
pub(crate) fn settled(node: &mut ManagedNode, kind: OperationKind) {
    if node.retry.ambiguous_operation == Some(kind) {
        node.retry.ambiguous_operation = None;
        node.retry.ambiguous_since = None;
    }
}

fn lease_created(
    node: &mut ManagedNode,
    lease: Box<LeaseFacts>,
    connection: Option<Connection>,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    succeeded(node);
    settled(node, OperationKind::CreateLease);
    node.refused = None;
    let record = &mut node.record;
    record.lease = Some(lease);
    record.stage = record.stage.max(NodeStage::LeaseCreated);
    if record.ready_by.is_none() && !record.handed_off {
        record.ready_by = after(now, policy.ready_timeout.max(SHORTEST_TIMEOUT));
    }
    if let Some(connection) = connection {
        endpoint_known(node, connection);
    }
}

fn endpoint_known(node: &mut ManagedNode, connection: Connection) {
    node.record.connection = Some(connection);
    node.record.stage = node.record.stage.max(NodeStage::EndpointKnown);
}

fn bootstrap_started(node: &mut ManagedNode, session: BootstrapSessionId, now: SystemTime) {
    succeeded(node);
    settled(node, OperationKind::StartBootstrap);
    // A bootstrap may be over before the reply to its start is here.
    if node.intent == NodeIntent::Deleting || !node.record.handed_off {
        node.active_bootstrap = Some(session);
    }
    node.retry.failed_cancels = 0;
    session_facts(node, session, now);
    node.record.stage = node.record.stage.max(NodeStage::BootstrapRunning);
}

/// Clears the session and keeps its terminal facts.
fn bootstrap_closed(node: &mut ManagedNode) {
    node.active_bootstrap = None;
    node.retry.failed_cancels = 0;
    let facts = node.record.bootstrap.as_deref_mut();
    if let Some(facts) = facts.filter(|facts| !facts.stage.is_terminal()) {
        facts.stage = BootstrapStage::Cancelled;
    }
}

fn lease_destroyed(node: &mut ManagedNode) {
    node.record.lease = None;
    node.record.connection = None;
    // Nothing runs on a machine that is gone.
    settled(node, OperationKind::StartBootstrap);
}

fn failed(
    node: &mut ManagedNode,
    kind: OperationKind,
    error: OperationError,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    if error.class == ErrorClass::Ambiguous {
        unsettled(node, kind, now);
    }
    let active = node.intent == NodeIntent::Active;
    let message = error.to_string();
    match (kind, error.class) {
        (OperationKind::CancelBootstrap, ErrorClass::AlreadyAbsent) => {
            succeeded(node);
            bootstrap_closed(node);
            return;
        }
        (OperationKind::DestroyLease, ErrorClass::AlreadyAbsent) => {
            succeeded(node);
            lease_destroyed(node);
            return;
        }
        (OperationKind::CreateLease, ErrorClass::Permanent) if active => {
            // It waits for another spec or an operator, not for a time.
            refused(node, error.message, now);
            count(node, &message);
            return;
        }
        // A join may have made it a node before this reply.
        (OperationKind::StartBootstrap, class)
            if active && ends_attempt(class) && !node.record.stage.has_joined() =>
        {
            end_attempt(node, &message, now, policy);
            return;
        }
        (OperationKind::CancelBootstrap, _) => cancel_failed(node, policy),
        (OperationKind::StartBootstrap, _) if !active => adoption_failed(node, policy),
        // The node is ready without it.
        (OperationKind::StartBootstrap | OperationKind::BootstrapConvergenceObserved, _)
            if active && node.record.handed_off =>
        {
            count(node, &message);
            return;
        }
        _ => {}
    }
    // The brake's token goes to another repair while this one waits for its machine to come or to go. A create that may
    // have made one is not over yet.
    let waits = match kind {
        OperationKind::CreateLease => error.class != ErrorClass::Ambiguous,
        OperationKind::CancelBootstrap | OperationKind::DestroyLease => true,
        OperationKind::LookupEndpoint
        | OperationKind::StartBootstrap
        | OperationKind::BootstrapConvergenceObserved => false,
    };
    node.repairing &= !waits;
    delay_effect(node, &message, delay(error.class, now), now, policy);
}

fn ends_attempt(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Transient
        | ErrorClass::NoCapacity
        | ErrorClass::Permanent
        | ErrorClass::AlreadyAbsent => true,
        // Both are tried again under `ready_by`: one to learn the outcome, one because nothing was tried.
        ErrorClass::Ambiguous | ErrorClass::RateLimited(_) => false,
    }
}

fn delay(class: ErrorClass, now: SystemTime) -> Delay {
    match class {
        ErrorClass::RateLimited(wait) => Delay::NotBefore(deadline(now, wait)),
        ErrorClass::Permanent => Delay::Longest,
        ErrorClass::Transient
        | ErrorClass::NoCapacity
        | ErrorClass::Ambiguous
        | ErrorClass::AlreadyAbsent => Delay::Backoff,
    }
}

/// An earlier create whose outcome is unknown stays unsettled: what was refused may have been the look-up for it.
fn refused(node: &mut ManagedNode, message: Box<str>, now: SystemTime) {
    node.refused = Some(Box::new(Refusal { message, at: now }));
    node.repairing = false;
}

/// What may have made something must be looked for before it is asked for again.
pub(crate) fn unsettled(node: &mut ManagedNode, kind: OperationKind, now: SystemTime) {
    if kind.creates() {
        node.retry.ambiguous_operation = Some(kind);
        node.retry.ambiguous_since.get_or_insert(now);
    }
}

/// Nor must looking for a session whose start has no known outcome.
fn adoption_failed(node: &mut ManagedNode, policy: &RetryPolicy) {
    node.retry.failed_cancels = node.retry.failed_cancels.saturating_add(1);
    if node.retry.failed_cancels >= policy.max_cancel_failures {
        settled(node, OperationKind::StartBootstrap);
    }
}

/// A cancel must not block cleanup: after some tries our side is closed, and destroying the lease ends the rest.
fn cancel_failed(node: &mut ManagedNode, policy: &RetryPolicy) {
    node.retry.failed_cancels = node.retry.failed_cancels.saturating_add(1);
    if node.retry.failed_cancels >= policy.max_cancel_failures {
        bootstrap_closed(node);
    }
}
