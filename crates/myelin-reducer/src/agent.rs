//! Folding of what bootstraps and agents report (seed 1 §7.1, `spec 1.5`).

use std::time::SystemTime;

use myelin_shape::{BootstrapSessionId, SwactorId};
use myelin_state::{
    BootstrapFacts, BootstrapStage, ManagedNode, NodeIntent, NodeStage, OperationKind, RetryPolicy,
    Silence, SwactorFacts, deadline,
};

use crate::{
    Folded, Ignored, NOT_APPLICABLE,
    failure::{end_attempt, forget_failures_if_stable},
    operation::settled,
};

pub(crate) struct BootstrapUpdate {
    pub(crate) session: BootstrapSessionId,
    pub(crate) sequence: u64,
    pub(crate) stage: BootstrapStage,
    pub(crate) message: Option<Box<str>>,
}

/// Updates stage and sequence facts; a bootstrap that ends before the join ends the attempt.
pub(crate) fn bootstrap(
    node: &mut ManagedNode,
    update: BootstrapUpdate,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Folded {
    if !is_session_of(node, update.session) {
        return Folded::Ignored(Ignored::OtherSession);
    }
    let known = node.record.bootstrap.as_deref();
    let known = known.filter(|facts| facts.session == update.session);
    if update.sequence <= known.map_or(0, |facts| facts.last_sequence) {
        return Folded::Ignored(Ignored::OldSequence);
    }
    let facts = session_facts(node, update.session, now);
    facts.last_sequence = update.sequence;
    if !facts.stage.is_terminal() {
        facts.stage = update.stage;
    }
    let ended = update.stage == BootstrapStage::Closed || update.stage.is_failure();
    let joined = node.record.stage.has_joined();
    if ended && !joined {
        let message = update.message.unwrap_or_else(|| describe(update.stage).into());
        end_attempt(node, &message, now, policy);
    } else if update.stage == BootstrapStage::Closed && becomes_ready(node) {
        handed_off(node, now);
    }
    Folded::Applied
}

/// The end of a session changes nothing about a node that was handed off before it.
fn becomes_ready(node: &ManagedNode) -> bool {
    node.intent == NodeIntent::Active && !node.record.stage.is_handed_off()
}

/// A report may overtake the reply to the start that made its session.
fn is_session_of(node: &ManagedNode, session: BootstrapSessionId) -> bool {
    if let Some(active) = node.active_bootstrap {
        return active == session;
    }
    let starting = node.pending.as_deref().map(|pending| pending.kind);
    let unsettled = node.retry.ambiguous_operation;
    [starting, unsettled].contains(&Some(OperationKind::StartBootstrap))
}

/// Returns the facts of a session, fresh ones if the record holds those of another.
pub(crate) fn session_facts(
    node: &mut ManagedNode,
    session: BootstrapSessionId,
    now: SystemTime,
) -> &mut BootstrapFacts {
    let known = node.record.bootstrap.take().filter(|facts| facts.session == session);
    node.record.bootstrap.insert(known.unwrap_or_else(|| {
        Box::new(BootstrapFacts {
            session,
            stage: BootstrapStage::Created,
            last_sequence: 0,
            started_at: now,
        })
    }))
}

fn describe(stage: BootstrapStage) -> &'static str {
    match stage {
        BootstrapStage::SshConnectFailed => "the machine could not be reached",
        BootstrapStage::BootCheckFailed => "a verify command failed",
        BootstrapStage::StartFailed => "the agent could not be started",
        BootstrapStage::SwactorJoinFailed => "the agent ended before it joined",
        BootstrapStage::StreamError => "the bootstrap's output was lost",
        BootstrapStage::Cancelled => "the bootstrap was cancelled",
        BootstrapStage::Created
        | BootstrapStage::SshConnecting
        | BootstrapStage::SshReady
        | BootstrapStage::StdoutStreaming
        | BootstrapStage::BootChecking
        | BootstrapStage::SwactorStarting
        | BootstrapStage::WaitingForSwactorJoin
        | BootstrapStage::Converged
        | BootstrapStage::Closed => "the bootstrap ended before the agent joined",
    }
}

/// Ends our side of the bootstrap: the agent is in charge.
pub(crate) fn handed_off(node: &mut ManagedNode, now: SystemTime) {
    node.active_bootstrap = None;
    settled(node, OperationKind::StartBootstrap);
    let record = &mut node.record;
    record.stage = record.stage.max(NodeStage::Dormant);
    record.handed_off = true;
    record.ready_by = None;
    record.bootstrap_by = None;
    if let Some(facts) = record.bootstrap.as_deref_mut().filter(|facts| !facts.stage.is_terminal())
    {
        facts.stage = BootstrapStage::Converged;
    }
    became_ready(node, now);
}

/// What ends with becoming ready; a silent node is not ready, however far it got.
fn became_ready(node: &mut ManagedNode, now: SystemTime) {
    if !node.is_ready() {
        return;
    }
    node.record.ready_since.get_or_insert(now);
    node.retry.next_effect_at = None;
    node.recovering = false;
    node.repairing = false;
    node.spends_budget = false;
    node.quarantine = None;
}

fn is_recorded(node: &ManagedNode, swactor: &SwactorId) -> bool {
    node.record.swactor.as_deref().is_some_and(|facts| facts.swactor_id == *swactor)
}

pub(crate) fn joined(node: &mut ManagedNode, swactor: SwactorId, now: SystemTime) -> Folded {
    if node.intent == NodeIntent::Deleting || node.record.stage >= NodeStage::Failed {
        return NOT_APPLICABLE;
    }
    if node.record.swactor.is_some() {
        return contact(node, &swactor, now);
    }
    let record = &mut node.record;
    record.swactor = Some(Box::new(SwactorFacts { swactor_id: swactor, joined_at: now }));
    record.stage = record.stage.max(NodeStage::SwactorJoined);
    record.bootstrap_by = None;
    Folded::Applied
}

pub(crate) fn contact(node: &mut ManagedNode, swactor: &SwactorId, now: SystemTime) -> Folded {
    if node.record.swactor.is_none() {
        return NOT_APPLICABLE;
    }
    if !is_recorded(node, swactor) {
        return Folded::Ignored(Ignored::OtherAgent);
    }
    if node.intent == NodeIntent::Deleting || node.record.silence.take().is_none() {
        return NOT_APPLICABLE;
    }
    became_ready(node, now);
    Folded::Applied
}

/// Nothing is destroyed for silence; only the deadline for it is sampled, once.
pub(crate) fn silent(
    node: &mut ManagedNode,
    swactor: &SwactorId,
    last_contact: SystemTime,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Folded {
    if node.record.swactor.is_some() && !is_recorded(node, swactor) {
        return Folded::Ignored(Ignored::OtherAgent);
    }
    let joined = node.intent == NodeIntent::Active && node.record.stage.has_joined();
    if !joined || node.record.silence.is_some() {
        return NOT_APPLICABLE;
    }
    forget_failures_if_stable(node, now, policy);
    let lost_at = last_contact.min(now);
    let silence = Silence { lost_at, deadline: deadline(lost_at, policy.lost_after) };
    node.record.silence = Some(Box::new(silence));
    node.record.ready_since = None;
    Folded::Applied
}
