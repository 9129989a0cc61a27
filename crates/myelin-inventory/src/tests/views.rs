//! What a view takes from a state.

use myelin_shape::{NodeAttemptId, RunId, RunNodeGroupSpec, expand_node_group};
use myelin_state::{ClusterState, ManagedNode, NodeIntent, NodeStage, OperationKind, SwactorFacts};

use super::fixture::*;
use crate::{Life, Slot, View};

fn check(change: impl FnOnce(&mut ManagedNode)) -> Slot {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
    let spec = expand_node_group(&group).next().expect("one node");
    let mut node = ManagedNode::new(NodeAttemptId(3), spec.clone());
    change(&mut node);
    let mut state = ClusterState { next_attempt_id: 4, ..ClusterState::default() };
    state.nodes.insert(spec.logical_node_id, node);
    let view = View::of(CLUSTER, RunId(1), &state, 9);
    assert_eq!(view.next_attempt_id, 4);
    view.slots["worker-0"].clone()
}

#[test]
fn fresh_attempt_is_live_and_knows_its_digest() {
    let slot = check(|_| ());
    assert_eq!((slot.attempt, slot.life), (NodeAttemptId(3), Life::Live));
    assert_eq!(slot.digest.expect("no lease yet").len(), 32);
    assert!(!slot.may_be_creating);
}

#[test]
fn unknown_create_may_be_creating_and_an_unknown_start_may_not() {
    let ambiguous =
        |kind| check(move |node| node.retry.ambiguous_operation = Some(kind)).may_be_creating;
    assert!(ambiguous(OperationKind::CreateLease));
    assert!(!ambiguous(OperationKind::StartBootstrap));
}

#[test]
fn failed_and_deleting_attempts_are_ending_and_destroyed_ones_over() {
    let at_stage = |stage| check(move |node| node.record.stage = stage).life;
    assert_eq!(at_stage(NodeStage::Dormant), Life::Live);
    assert_eq!(at_stage(NodeStage::Failed), Life::Ending);
    assert_eq!(at_stage(NodeStage::Destroyed), Life::Over);
    assert_eq!(check(|node| node.intent = NodeIntent::Deleting).life, Life::Ending);
}

#[test]
fn join_says_that_the_lease_existed() {
    let joined = |node: &mut ManagedNode| {
        node.record.swactor =
            Some(Box::new(SwactorFacts { swactor_id: "agent".into(), joined_at: at(50) }));
    };
    assert_eq!(check(joined).existed_at, None, "without a lease there is nothing to tell of");
    let with_lease = check(|node| {
        joined(node);
        node.record.lease = Some(Box::new(lease("lease-1")));
    });
    assert_eq!(with_lease.existed_at, Some(at(50)));
    assert_eq!(with_lease.digest, None);
}

#[test]
fn contacts_are_asked_for_by_attempt() {
    let view = view([("worker-0", leased(3, "lease-1"))]);
    let view = view.heard(|key| (key.attempt == NodeAttemptId(3)).then(|| at(9)));
    assert_eq!(view.slots["worker-0"].last_contact, Some(at(9)));
}
