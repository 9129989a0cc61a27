//! The decision ladder: the next step of one node, from its stored facts alone (`spec 1.2`).

use std::{sync::Arc, time::SystemTime};

use myelin_shape::{LogicalNodeSpec, NodeTemplate};
use myelin_state::{
    DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeManagerCommand, NodeStage, OperationKind,
};

use crate::{Held, HeldReason, Trigger};

/// What one node needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeDecision {
    /// It is as desired.
    Steady,
    /// This, unless group policy holds it.
    Act(Step),
    /// Nothing now.
    Wait(Held),
}

/// A step, before ids are allocated and group policy has its say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin the cleanup of the attempt.
    BeginDelete(DeleteCause),
    /// Record that nothing of the attempt is left.
    MarkDestroyed,
    /// Start a fresh attempt.
    Restart,
    /// Stop managing the slot.
    Reap,
    /// Dispatch an effect of this kind.
    Dispatch(OperationKind, LeaseMode),
}

/// Decides the next step of one node.
///
/// Reads stored facts only: thresholds were sampled into deadlines and flags when observations were folded. Group
/// policy is not applied here.
pub fn reconcile_node(
    node: &ManagedNode,
    desired: Option<&LogicalNodeSpec>,
    now: SystemTime,
) -> NodeDecision {
    decide(node, desired.map(|spec| &spec.template), now)
}

/// As [`reconcile_node`], for a slot known by its group's template.
#[inline]
pub(crate) fn decide(
    node: &ManagedNode,
    desired: Option<&Arc<NodeTemplate>>,
    now: SystemTime,
) -> NodeDecision {
    if node.record.stage == NodeStage::Destroyed {
        return destroyed(node, desired, now);
    }
    match (node.intent, desired) {
        (NodeIntent::Deleting, _) => deleting(node, now),
        (NodeIntent::Active, None) => NodeDecision::Act(Step::BeginDelete(DeleteCause::Undesired)),
        (NodeIntent::Active, Some(desired)) => active(node, desired, now),
    }
}

/// Row 1.
fn destroyed(
    node: &ManagedNode,
    desired: Option<&Arc<NodeTemplate>>,
    now: SystemTime,
) -> NodeDecision {
    let Some(desired) = desired else {
        return NodeDecision::Act(Step::Reap);
    };
    if let Some(quarantine) =
        node.quarantine.as_deref().filter(|_| node.is_quarantined_for(desired))
    {
        let reason = HeldReason::Quarantined { failures: quarantine.failures };
        return NodeDecision::Wait(Held::on(reason, Trigger::SpecChange));
    }
    match node.retry.restart_at {
        Some(time) if time > now => {
            let failures = node.retry.consecutive_failures;
            NodeDecision::Wait(Held::at(HeldReason::RestartBackoff { failures }, time))
        }
        Some(_) | None => NodeDecision::Act(Step::Restart),
    }
}

/// Rows 2 to 6 and 9 of a desired node.
#[inline]
fn active(node: &ManagedNode, desired: &Arc<NodeTemplate>, now: SystemTime) -> NodeDecision {
    let current = &node.record.desired.template;
    if !NodeTemplate::same(current, desired) {
        return NodeDecision::Act(Step::BeginDelete(DeleteCause::SpecChanged));
    }
    if node.replace_requested {
        return NodeDecision::Act(Step::BeginDelete(DeleteCause::Requested));
    }
    if node.record.stage == NodeStage::Failed {
        return NodeDecision::Act(Step::BeginDelete(DeleteCause::Failed));
    }
    if let Some(silence) = node.record.silence.as_deref() {
        if silence.deadline <= now {
            return NodeDecision::Act(Step::BeginDelete(DeleteCause::Lost));
        }
        let reason = HeldReason::Silent { since: silence.lost_at };
        return NodeDecision::Wait(Held::at(reason, silence.deadline));
    }
    if let Some(held) = wait_for_effect(node, now) {
        return NodeDecision::Wait(held);
    }
    if node.record.stage.is_handed_off() {
        return NodeDecision::Steady;
    }
    forward(node)
}

/// Row 9: the next effect on the way to ready.
fn forward(node: &ManagedNode) -> NodeDecision {
    let dispatch = |kind| NodeDecision::Act(Step::Dispatch(kind, LeaseMode::CreateOrAdopt));
    let record = &node.record;
    if record.lease.is_none() {
        if let Some(refusal) = node.refused.as_deref() {
            if node.retry.ambiguous_operation == Some(OperationKind::CreateLease) {
                // What an earlier create may have made is still looked for; nothing new is asked for.
                let kind = OperationKind::CreateLease;
                return NodeDecision::Act(Step::Dispatch(kind, LeaseMode::AdoptOnly));
            }
            let node = record.desired.logical_node_id.clone();
            let reason = HeldReason::Refused { node, message: refusal.message.clone() };
            return NodeDecision::Wait(Held::on(reason, Trigger::SpecChange));
        }
        return dispatch(OperationKind::CreateLease);
    }
    if record.connection.is_none() {
        return dispatch(OperationKind::LookupEndpoint);
    }
    if record.stage == NodeStage::SwactorJoined {
        return dispatch(OperationKind::BootstrapConvergenceObserved);
    }
    if record.stage == NodeStage::BootstrapRunning && node.active_bootstrap.is_some() {
        // Without a deadline of its own the bootstrap would be waited for forever; `ready_by` bounds it too.
        let until = [record.bootstrap_by, record.ready_by].into_iter().flatten().min();
        let reason = HeldReason::AwaitingJoin;
        return NodeDecision::Wait(match until {
            Some(time) => Held::at(reason, time),
            None => Held::on(reason, Trigger::Operator),
        });
    }
    dispatch(OperationKind::StartBootstrap)
}

/// Rows 5 to 8 of a node that is being cleaned up.
fn deleting(node: &ManagedNode, now: SystemTime) -> NodeDecision {
    let effect = cleanup_effect(node);
    // `MarkDestroyed` is no effect, so a back-off does not delay it.
    let waits = effect.is_some() || node.pending.is_some();
    match wait_for_effect(node, now).filter(|_| waits) {
        Some(held) => NodeDecision::Wait(held),
        None => NodeDecision::Act(effect.unwrap_or(Step::MarkDestroyed)),
    }
}

/// Rows 7 and 8: what is still to be cleaned up, in order.
fn cleanup_effect(node: &ManagedNode) -> Option<Step> {
    let reachable = node.record.lease.is_some() && node.record.connection.is_some();
    let unsettled = node.retry.ambiguous_operation.filter(|kind| match kind {
        OperationKind::CreateLease => node.record.lease.is_none(),
        // Without a machine there is nothing a session could run on.
        OperationKind::StartBootstrap => node.active_bootstrap.is_none() && reachable,
        OperationKind::LookupEndpoint
        | OperationKind::BootstrapConvergenceObserved
        | OperationKind::CancelBootstrap
        | OperationKind::DestroyLease => false,
    });
    let cancel = node.active_bootstrap.map(|_| OperationKind::CancelBootstrap);
    let destroy = node.record.lease.as_ref().map(|_| OperationKind::DestroyLease);
    let kind = unsettled.or(cancel).or(destroy)?;
    Some(Step::Dispatch(kind, LeaseMode::AdoptOnly))
}

/// Rows 5 and 6.
fn wait_for_effect(node: &ManagedNode, now: SystemTime) -> Option<Held> {
    if let Some(pending) = node.pending.as_deref() {
        let reason = HeldReason::Pending { kind: pending.kind, expired: pending.expired };
        return Some(Held::at(reason, pending.deadline));
    }
    let time = node.retry.next_effect_at.filter(|&time| time > now)?;
    let probing = node.intent == NodeIntent::Active
        && node.record.stage == NodeStage::LeaseCreated
        && node.retry.consecutive_failures == 0;
    let failures = node.retry.consecutive_failures;
    let reason =
        if probing { HeldReason::AwaitingEndpoint } else { HeldReason::Backoff { failures } };
    Some(Held::at(reason, time))
}

/// Returns the earliest stored deadline of a node after `now`: when it must be looked at again without an event.
pub fn next_deadline(node: &ManagedNode, now: SystemTime) -> Option<SystemTime> {
    let record = &node.record;
    let is = |condition: bool, time: Option<SystemTime>| time.filter(|_| condition);
    let active = node.intent == NodeIntent::Active && record.stage < NodeStage::Failed;
    let underway = active && !record.stage.is_handed_off();
    let deadlines = [
        is(record.stage == NodeStage::Destroyed, node.retry.restart_at),
        is(record.stage != NodeStage::Destroyed, node.retry.next_effect_at),
        node.pending.as_deref().map(|pending| pending.deadline),
        is(active, record.silence.as_deref().map(|silence| silence.deadline)),
        is(underway, record.ready_by),
        is(underway && !record.stage.has_joined(), record.bootstrap_by),
    ];
    deadlines.into_iter().flatten().filter(|&time| time > now).min()
}

impl Step {
    /// Returns the command of a dispatching step, complete with the facts it needs.
    ///
    /// `None` for other steps, and where a fact is missing that the ladder has checked.
    pub fn command(self, node: &ManagedNode) -> Option<NodeManagerCommand> {
        let Self::Dispatch(kind, mode) = self else {
            return None;
        };
        let record = &node.record;
        let unsettled_since =
            node.retry.ambiguous_since.filter(|_| node.retry.ambiguous_operation == Some(kind));
        let lease = || record.lease.as_deref().cloned();
        Some(match kind {
            OperationKind::CreateLease => NodeManagerCommand::CreateLease {
                spec: record.desired.clone(),
                mode,
                unsettled_since,
            },
            OperationKind::LookupEndpoint => NodeManagerCommand::LookupEndpoint { lease: lease()? },
            OperationKind::StartBootstrap => NodeManagerCommand::StartBootstrap {
                spec: record.desired.clone(),
                lease: lease()?,
                connection: record.connection.clone()?,
                mode,
                unsettled_since,
            },
            OperationKind::BootstrapConvergenceObserved => {
                NodeManagerCommand::BootstrapConvergenceObserved {
                    provider: record.desired.provider().clone(),
                    session: node.active_bootstrap,
                }
            }
            OperationKind::CancelBootstrap => NodeManagerCommand::CancelBootstrap {
                provider: record.desired.provider().clone(),
                session: node.active_bootstrap?,
            },
            OperationKind::DestroyLease => NodeManagerCommand::DestroyLease { lease: lease()? },
        })
    }
}
