//! A cluster with a node in every kind of state, in which every rule holds.

use std::time::{Duration, SystemTime};

use myelin_shape::{
    BootstrapSessionId, ClusterShape, LogicalNodeId, NodeAttemptId, OperationId, RunId,
    RunNodeGroupSpec, expand_node_group,
};
use myelin_state::{
    BootstrapFacts, BootstrapStage, ClusterState, Connection, DeleteCause, ExecEndpoint,
    LeaseFacts, ManagedNode, NodeIntent, NodeStage, OperationKind, PendingOperation, SwactorFacts,
};

use crate::{Rule, Violations};

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The time of every snapshot.
pub(crate) const NOW: u64 = 1000;

pub(crate) fn group() -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(1), "worker", 6, "fake")
}

pub(crate) fn shape() -> ClusterShape {
    ClusterShape::new(RunId(1), 3, [group()])
}

pub(crate) fn lease(name: &str) -> Box<LeaseFacts> {
    Box::new(LeaseFacts {
        provider: "fake".into(),
        lease_id: name.into(),
        provider_contract_id: name.into(),
        offer_id: None,
        destroy_handle: name.into(),
        provider_metadata: None,
        price: None,
    })
}

/// The lease of an attempt.
pub(crate) fn lease_of(attempt: NodeAttemptId) -> Box<LeaseFacts> {
    lease(&format!("lease-{attempt}"))
}

fn leased(node: &mut ManagedNode) {
    node.record.lease = Some(lease_of(node.attempt));
    node.record.stage = NodeStage::LeaseCreated;
    node.record.ready_by = Some(at(1800));
}

fn reachable(node: &mut ManagedNode) {
    leased(node);
    let target = "target".into();
    node.record.connection = Some(Connection::Exec(ExecEndpoint { target }));
    node.record.stage = NodeStage::EndpointKnown;
}

fn booting(node: &mut ManagedNode) {
    reachable(node);
    let session = BootstrapSessionId(7);
    node.active_bootstrap = Some(session);
    node.record.bootstrap = Some(Box::new(BootstrapFacts {
        session,
        stage: BootstrapStage::SshReady,
        last_sequence: 1,
        started_at: at(900),
    }));
    node.record.bootstrap_by = Some(at(1500));
    node.record.stage = NodeStage::BootstrapRunning;
}

fn ready(node: &mut ManagedNode) {
    booting(node);
    node.active_bootstrap = None;
    node.record.swactor =
        Some(Box::new(SwactorFacts { swactor_id: "agent".into(), joined_at: at(950) }));
    node.record.handed_off = true;
    node.record.stage = NodeStage::Dormant;
    node.record.ready_since = Some(at(960));
    node.record.ready_by = None;
    node.record.bootstrap_by = None;
}

fn failed(node: &mut ManagedNode) {
    booting(node);
    node.record.stage = NodeStage::Failed;
    node.record.failed_reason = Some("it broke".into());
    node.record.failed_at = Some(at(990));
    node.retry.restart_at = Some(at(1010));
    node.retry.consecutive_failures = 1;
    node.retry.ended_attempts = 1;
    node.recovering = true;
}

fn deleting(node: &mut ManagedNode) {
    failed(node);
    node.intent = NodeIntent::Deleting;
    node.delete_cause = Some(DeleteCause::Failed);
}

fn destroyed(node: &mut ManagedNode) {
    deleting(node);
    node.active_bootstrap = None;
    node.record.lease = None;
    node.record.connection = None;
    node.record.stage = NodeStage::Destroyed;
    node.record.destroyed_at = Some(at(995));
}

fn creating(node: &mut ManagedNode) {
    node.record.stage = NodeStage::LeaseRequested;
    node.next_operation_sequence = 1;
    node.pending = Some(Box::new(PendingOperation {
        id: OperationId { attempt: node.attempt, sequence: 0 },
        kind: OperationKind::CreateLease,
        deadline: at(1100),
        expired: false,
    }));
}

/// Makes a node as another one is, but for what is its own.
pub(crate) fn copy(node: &mut ManagedNode, model: &ManagedNode) {
    let (attempt, spec) = (node.attempt, node.record.desired.clone());
    *node = model.clone();
    node.attempt = attempt;
    node.record.desired = spec;
    node.record.lease = node.record.lease.is_some().then(|| lease_of(attempt));
}

/// Ready, booting, creating, failed, deleting, destroyed: `worker-0` to `worker-5`.
pub(crate) fn state() -> ClusterState {
    let make = [ready, booting, creating, failed, deleting, destroyed];
    let nodes = expand_node_group(&group()).zip(make).map(|(spec, make)| {
        let id = spec.logical_node_id.clone();
        let mut node = ManagedNode::new(NodeAttemptId(u64::from(spec.index)), spec);
        make(&mut node);
        (id, node)
    });
    let mut state = ClusterState {
        observed_generation: 3,
        next_attempt_id: 6,
        nodes: nodes.collect(),
        ..ClusterState::default()
    };
    let template = state.nodes.values().next().unwrap().record.desired.template.clone();
    state.groups.entry("worker".into()).or_default().proven = vec![template];
    state
}

pub(crate) fn node(state: &mut ClusterState, index: u32) -> &mut ManagedNode {
    let id = LogicalNodeId::slot(&"worker".into(), index);
    state.nodes.get_mut(&id).unwrap()
}

/// Renders what was found, after checking that the expected rule is among it.
pub(crate) fn found(name: &str, expected: Rule, result: Result<(), Violations>) -> String {
    let violations = result.expect_err(name);
    let rules: Vec<_> = violations.0.iter().map(|violation| violation.rule).collect();
    assert!(rules.contains(&expected), "{name}: {violations}");
    format!("# {name}\n{violations}\n")
}
