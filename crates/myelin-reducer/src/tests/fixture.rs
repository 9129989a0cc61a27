//! Nodes in every stage, and what changed of them.

use std::time::{Duration, SystemTime};

use myelin_shape::{
    BootstrapSessionId, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec, expand_node_group,
};
use myelin_state::{
    BootstrapFacts, BootstrapStage, Connection, DeleteCause, ErrorClass, ExecEndpoint, LeaseFacts,
    ManagedNode, NodeEvent, NodeObservation, NodeStage, OperationError, OperationKind,
    OperationOutcome, PendingOperation, RetryPolicy, SwactorFacts,
};

use crate::{Folded, observe, transition};

pub(crate) const NOW: u64 = 1000;

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(crate) fn policy() -> RetryPolicy {
    RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() }
}

pub(crate) fn session() -> BootstrapSessionId {
    BootstrapSessionId(7)
}

pub(crate) fn lease() -> Box<LeaseFacts> {
    Box::new(LeaseFacts {
        provider: "fake".into(),
        lease_id: "lease".into(),
        provider_contract_id: "contract".into(),
        offer_id: None,
        destroy_handle: "handle".into(),
        provider_metadata: None,
        price: None,
    })
}

pub(crate) fn connection() -> Connection {
    let target = "target".into();
    Connection::Exec(ExecEndpoint { target })
}

/// Returns a node of attempt 3 that has come as far as `stage`.
pub(crate) fn node(stage: NodeStage) -> ManagedNode {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
    let spec = expand_node_group(&group).next().unwrap();
    let mut node = ManagedNode::new(NodeAttemptId(3), spec);
    let over = stage >= NodeStage::Failed;
    let way = if over { NodeStage::BootstrapRunning } else { stage };
    go(&mut node, way);
    if over {
        fold(&mut node, NodeEvent::LeaseGone);
    }
    if stage == NodeStage::Destroyed {
        transition::begin_delete(&mut node, DeleteCause::Failed, at(500), &policy());
        node.active_bootstrap = None;
        node.record.lease = None;
        node.record.connection = None;
        transition::mark_destroyed(&mut node, at(510));
    }
    node
}

fn go(node: &mut ManagedNode, stage: NodeStage) {
    let record = &mut node.record;
    record.stage = stage;
    if stage >= NodeStage::LeaseCreated {
        record.lease = Some(lease());
        record.ready_by = Some(at(1300));
    }
    if stage >= NodeStage::EndpointKnown {
        record.connection = Some(connection());
    }
    if stage >= NodeStage::BootstrapRunning {
        node.active_bootstrap = Some(session());
        record.bootstrap_by = Some(at(1100));
        record.bootstrap = Some(Box::new(BootstrapFacts {
            session: session(),
            stage: BootstrapStage::SshReady,
            last_sequence: 4,
            started_at: at(450),
        }));
    }
    if stage >= NodeStage::SwactorJoined {
        record.bootstrap_by = None;
        record.swactor =
            Some(Box::new(SwactorFacts { swactor_id: "agent".into(), joined_at: at(460) }));
    }
    if stage >= NodeStage::HandedOff {
        node.active_bootstrap = None;
        record.ready_by = None;
        record.handed_off = true;
        record.ready_since = Some(at(480));
        record.bootstrap.as_mut().unwrap().stage = BootstrapStage::Converged;
    }
}

pub(crate) fn operation() -> OperationId {
    OperationId { attempt: NodeAttemptId(3), sequence: 5 }
}

/// Returns the node with an effect under way.
pub(crate) fn pending(mut node: ManagedNode, kind: OperationKind) -> ManagedNode {
    node.next_operation_sequence = 6;
    node.pending = Some(Box::new(PendingOperation {
        id: operation(),
        kind,
        deadline: at(1120),
        expired: false,
    }));
    node
}

pub(crate) fn deleting(mut node: ManagedNode) -> ManagedNode {
    transition::begin_delete(&mut node, DeleteCause::Undesired, at(600), &policy());
    node
}

pub(crate) fn failure(class: ErrorClass) -> OperationOutcome {
    OperationOutcome::Failed(OperationError { class, message: "it broke".into() })
}

pub(crate) fn finished(outcome: OperationOutcome) -> NodeEvent {
    let operation = operation();
    NodeEvent::OperationFinished { operation, outcome }
}

pub(crate) fn fold(node: &mut ManagedNode, event: NodeEvent) -> Folded {
    let observation = NodeObservation {
        node: node.record.desired.logical_node_id.clone(),
        attempt: node.attempt,
        event,
    };
    observe(node, observation, at(NOW), &policy())
}

/// Renders the facts in which two versions of a node differ, with the later value.
pub(crate) fn changes(before: &ManagedNode, after: &ManagedNode) -> String {
    let (before, after) = (facts(before), facts(after));
    let differ = before.lines().zip(after.lines()).filter(|(l, r)| l != r);
    let differ: Vec<_> = differ.map(|(_, after)| after.to_owned()).collect();
    if differ.is_empty() { "nothing".into() } else { differ.join(", ") }
}

fn time(time: Option<SystemTime>) -> String {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    time.map_or_else(|| "-".into(), |time| format!("@{}", since(time).as_secs_f64()))
}

/// One fact a line.
fn facts(node: &ManagedNode) -> String {
    let record = &node.record;
    let retry = &node.retry;
    let bootstrap = record.bootstrap.as_deref();
    let on = |holds: bool| if holds { "yes" } else { "no" };
    let silence = record.silence.as_deref();
    [
        format!("attempt {}", node.attempt),
        format!("intent {:?}", node.intent),
        format!("cause {:?}", node.delete_cause),
        format!("stage {}", record.stage),
        format!("ready {}", on(node.is_ready())),
        format!(
            "pending {:?}",
            node.pending.as_deref().map(|pending| (pending.kind, pending.expired))
        ),
        format!("pending until {}", time(node.pending.as_deref().map(|pending| pending.deadline))),
        format!("next effect number {}", node.next_operation_sequence),
        format!("lease {}", on(record.lease.is_some())),
        format!("connection {}", on(record.connection.is_some())),
        format!("session {:?}", node.active_bootstrap.map(|session| session.0)),
        format!(
            "bootstrap {:?}",
            bootstrap.map(|facts| (facts.session.0, facts.stage, facts.last_sequence))
        ),
        format!("agent {:?}", record.swactor.as_deref().map(|facts| facts.swactor_id.as_str())),
        format!("handed off {}", on(record.handed_off)),
        format!("ready since {}", time(record.ready_since)),
        format!("lost at {}", time(silence.map(|silence| silence.lost_at))),
        format!("lost for good {}", time(silence.map(|silence| silence.deadline))),
        format!("ready by {}", time(record.ready_by)),
        format!("joined by {}", time(record.bootstrap_by)),
        format!("failed at {}", time(record.failed_at)),
        format!("failed because {:?}", record.failed_reason),
        format!("destroyed at {}", time(record.destroyed_at)),
        format!("failures {}", retry.consecutive_failures),
        format!("ended attempts {}", retry.ended_attempts),
        format!("failed cancels {}", retry.failed_cancels),
        format!("next effect {}", time(retry.next_effect_at)),
        format!("restart {}", time(retry.restart_at)),
        format!("last error {:?}", retry.last_error),
        format!("ambiguous {:?}", retry.ambiguous_operation),
        format!("ambiguous since {}", time(retry.ambiguous_since)),
        format!("recovering {}", on(node.recovering)),
        format!("repairing {}", on(node.repairing)),
        format!("spends budget {}", on(node.spends_budget)),
        format!("replace requested {}", on(node.replace_requested)),
        format!("keep released {}", on(node.keep_released)),
        format!("quarantine {}", on(node.quarantine.is_some())),
        format!("refused {:?}", node.refused.as_deref().map(|refusal| &refusal.message)),
    ]
    .join("\n")
}
