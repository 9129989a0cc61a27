//! Clusters made by hand, a line per node.

use std::time::{Duration, SystemTime};

use myelin_shape::{
    BootstrapSessionId, ClusterShape, LogicalNodeId, NodeAttemptId, OperationId, RunId,
    RunNodeGroupSpec, expand_node_group,
};
use myelin_state::{
    ClusterState, Connection, DeleteCause, ExecEndpoint, LeaseFacts, ManagedNode, NodeIntent,
    NodeStage, OperationKind, PendingOperation, Quarantine, Refusal, Silence, SwactorFacts,
};

use crate::reconcile;

/// The time of every plan.
pub(crate) const NOW: u64 = 1000;

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(crate) fn group(id: &str, count: u32) -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(1), id, count, "fake")
}

pub(crate) fn workers(count: u32) -> RunNodeGroupSpec {
    group("worker", count)
}

pub(crate) fn image(mut group: RunNodeGroupSpec, image: &str) -> RunNodeGroupSpec {
    group.shape.image = image.into();
    group
}

pub(crate) fn shape(groups: impl IntoIterator<Item = RunNodeGroupSpec>) -> ClusterShape {
    ClusterShape::new(RunId(1), 1, groups)
}

/// Makes a node of a slot. `make` brings it into its state.
pub(crate) fn node(
    group: &RunNodeGroupSpec,
    index: u32,
    make: fn(&mut ManagedNode),
) -> ManagedNode {
    let spec = expand_node_group(group).nth(index as usize).unwrap();
    let mut node = ManagedNode::new(NodeAttemptId(u64::from(index)), spec);
    make(&mut node);
    node
}

/// A state of these nodes, of which the proven template of every group is the desired one.
pub(crate) fn state(nodes: impl IntoIterator<Item = ManagedNode>) -> ClusterState {
    let mut state = ClusterState { next_attempt_id: 100, ..ClusterState::default() };
    for node in nodes {
        let slot = &node.record.desired;
        let record = state.groups.entry(slot.group_id().clone()).or_default();
        record.proven = vec![slot.template.clone()];
        state.nodes.insert(slot.logical_node_id.clone(), node);
    }
    state
}

/// Every slot of a group in the same state.
pub(crate) fn all(group: &RunNodeGroupSpec, make: fn(&mut ManagedNode)) -> ClusterState {
    state((0..group.count).map(|index| node(group, index, make)))
}

pub(crate) fn change(state: &mut ClusterState, id: &str, make: fn(&mut ManagedNode)) {
    let node = state.nodes.get_mut(&LogicalNodeId::from(id)).unwrap();
    let (attempt, spec) = (node.attempt, node.record.desired.clone());
    *node = ManagedNode::new(attempt, spec);
    make(node);
}

/// Plans, and renders the plan.
pub(crate) fn plan(state: &ClusterState, shape: &ClusterShape) -> String {
    reconcile(state, shape, at(NOW)).unwrap().to_string()
}

pub(crate) fn new(_: &mut ManagedNode) {}

pub(crate) fn leased(node: &mut ManagedNode) {
    node.record.stage = NodeStage::LeaseCreated;
    node.record.ready_by = Some(at(1900));
    node.record.lease = Some(Box::new(LeaseFacts {
        provider: "fake".into(),
        lease_id: "lease".into(),
        provider_contract_id: "contract".into(),
        offer_id: None,
        destroy_handle: "handle".into(),
        provider_metadata: None,
        price: None,
    }));
}

pub(crate) fn reachable(node: &mut ManagedNode) {
    leased(node);
    node.record.stage = NodeStage::EndpointKnown;
    let target = "target".into();
    node.record.connection = Some(Connection::Exec(ExecEndpoint { target }));
}

pub(crate) fn booting(node: &mut ManagedNode) {
    reachable(node);
    node.record.stage = NodeStage::BootstrapRunning;
    node.record.bootstrap_by = Some(at(1600));
    node.active_bootstrap = Some(BootstrapSessionId(7));
}

pub(crate) fn joined(node: &mut ManagedNode) {
    booting(node);
    node.record.stage = NodeStage::SwactorJoined;
    node.record.bootstrap_by = None;
    node.record.swactor =
        Some(Box::new(SwactorFacts { swactor_id: "agent".into(), joined_at: at(900) }));
}

pub(crate) fn ready(node: &mut ManagedNode) {
    joined(node);
    node.active_bootstrap = None;
    node.record.stage = NodeStage::Dormant;
    node.record.ready_by = None;
    node.record.handed_off = true;
    node.record.ready_since = Some(at(900));
}

pub(crate) fn silent(node: &mut ManagedNode) {
    ready(node);
    node.record.ready_since = None;
    let silence = Silence { lost_at: at(980), deadline: at(1025) };
    node.record.silence = Some(Box::new(silence));
}

pub(crate) fn lost(node: &mut ManagedNode) {
    silent(node);
    let silence = Silence { lost_at: at(900), deadline: at(945) };
    node.record.silence = Some(Box::new(silence));
}

pub(crate) fn failed(node: &mut ManagedNode) {
    booting(node);
    node.record.stage = NodeStage::Failed;
    node.record.failed_at = Some(at(990));
    node.record.failed_reason = Some("it broke".into());
    node.retry.consecutive_failures = 2;
    node.retry.restart_at = Some(at(1010));
    node.recovering = true;
}

/// Being deleted with everything left.
pub(crate) fn deleting(node: &mut ManagedNode) {
    failed(node);
    node.intent = NodeIntent::Deleting;
    node.delete_cause = Some(DeleteCause::Failed);
}

pub(crate) fn deleting_leased(node: &mut ManagedNode) {
    deleting(node);
    node.active_bootstrap = None;
}

pub(crate) fn deleting_bare(node: &mut ManagedNode) {
    deleting_leased(node);
    node.record.lease = None;
    node.record.connection = None;
}

pub(crate) fn destroyed(node: &mut ManagedNode) {
    deleting_bare(node);
    node.record.stage = NodeStage::Destroyed;
    node.record.destroyed_at = Some(at(995));
}

pub(crate) fn due(node: &mut ManagedNode) {
    destroyed(node);
    node.retry.restart_at = Some(at(NOW));
}

pub(crate) fn pending(node: &mut ManagedNode, kind: OperationKind) {
    node.next_operation_sequence = 1;
    node.pending = Some(Box::new(PendingOperation {
        id: OperationId { attempt: node.attempt, sequence: 0 },
        kind,
        deadline: at(1120),
        expired: false,
    }));
}

pub(crate) fn creating(node: &mut ManagedNode) {
    node.record.stage = NodeStage::LeaseRequested;
    pending(node, OperationKind::CreateLease);
}

pub(crate) fn ambiguous(node: &mut ManagedNode, kind: OperationKind) {
    node.retry.ambiguous_operation = Some(kind);
    node.retry.ambiguous_since = Some(at(970));
}

pub(crate) fn quarantined(node: &mut ManagedNode) {
    due(node);
    node.quarantine = Some(Box::new(Quarantine {
        template: node.record.desired.template.clone(),
        failures: 10,
        since: at(900),
    }));
}

pub(crate) fn repairing(node: &mut ManagedNode) {
    creating(node);
    (node.recovering, node.repairing) = (true, true);
}

pub(crate) fn create_failed(node: &mut ManagedNode) {
    node.recovering = true;
    node.retry.consecutive_failures = 2;
    node.retry.next_effect_at = Some(at(950));
}

pub(crate) fn refused(node: &mut ManagedNode) {
    let refusal = Refusal { message: "no such image".into(), at: at(900) };
    node.refused = Some(Box::new(refusal));
}
