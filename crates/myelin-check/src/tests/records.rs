//! Records whose facts do not fit together.

use myelin_shape::{NodeAttemptId, OperationId, expand_node_group};
use myelin_state::{
    ClusterState, DeleteCause, NodeIntent, NodeStage, OperationKind, Quarantine, Refusal, Silence,
};

use super::fixture::{NOW, at, found, group, lease, node, shape, state};
use crate::{Rule, Snapshot, check};

type Doctor = (&'static str, Rule, fn(&mut ClusterState));

const DOCTORED: &[Doctor] = &[
    ("an attempt twice", Rule::DistinctIdentities, |state| {
        node(state, 1).attempt = NodeAttemptId(0);
    }),
    ("an attempt that was not allocated", Rule::DistinctIdentities, |state| {
        state.next_attempt_id = 5;
    }),
    ("the record of another slot", Rule::DistinctIdentities, |state| {
        node(state, 0).record.desired = expand_node_group(&group()).nth(1).unwrap();
    }),
    ("an effect of another attempt", Rule::DistinctIdentities, |state| {
        let id = OperationId { attempt: NodeAttemptId(1), sequence: 0 };
        node(state, 2).pending.as_mut().unwrap().id = id;
    }),
    ("an effect that was not recorded", Rule::RecordBeforeDispatch, |state| {
        node(state, 2).next_operation_sequence = 0;
    }),
    ("deletion without a cause", Rule::Record, |state| {
        node(state, 4).delete_cause = None;
    }),
    ("a cause without deletion", Rule::Record, |state| {
        node(state, 0).delete_cause = Some(DeleteCause::Lost);
    }),
    ("destroyed without a time", Rule::Record, |state| {
        node(state, 5).record.destroyed_at = None;
    }),
    ("destroyed with a lease", Rule::CleanupBeforeReuse, |state| {
        node(state, 5).record.lease = Some(lease("left"));
    }),
    ("destroyed with a session", Rule::CleanupBeforeReuse, |state| {
        let session = node(state, 1).active_bootstrap;
        node(state, 5).active_bootstrap = session;
    }),
    ("destroyed with an ambiguous create", Rule::CleanupBeforeReuse, |state| {
        let retry = &mut node(state, 5).retry;
        retry.ambiguous_operation = Some(OperationKind::CreateLease);
        retry.ambiguous_since = Some(at(900));
    }),
    ("destroyed and to live", Rule::CleanupBeforeReuse, |state| {
        let node = node(state, 5);
        (node.intent, node.delete_cause) = (NodeIntent::Active, None);
    }),
    ("a request for what is deleted", Rule::Record, |state| {
        node(state, 4).replace_requested = true;
    }),
    ("ready without a time", Rule::Record, |state| {
        node(state, 0).record.ready_since = None;
    }),
    ("ready and under repair", Rule::Record, |state| {
        let node = node(state, 0);
        (node.recovering, node.repairing) = (true, true);
    }),
    ("ready and unavailable", Rule::Record, |state| {
        node(state, 0).spends_budget = true;
    }),
    ("ready without an agent", Rule::Record, |state| {
        node(state, 0).record.swactor = None;
    }),
    ("ready with a session", Rule::Record, |state| {
        let session = node(state, 1).active_bootstrap;
        node(state, 0).active_bootstrap = session;
    }),
    ("ready with a deadline for that", Rule::Record, |state| {
        node(state, 0).record.ready_by = Some(at(2000));
    }),
    ("silent before the join", Rule::Record, |state| {
        let silence = Silence { lost_at: at(900), deadline: at(945) };
        node(state, 1).record.silence = Some(Box::new(silence));
    }),
    ("failed without a reason", Rule::Record, |state| {
        node(state, 3).record.failed_reason = None;
    }),
    ("failed, but alive", Rule::Record, |state| {
        node(state, 3).record.stage = NodeStage::BootstrapRunning;
    }),
    ("quarantined while it lives", Rule::Record, |state| {
        let template = node(state, 0).record.desired.template.clone();
        let quarantine = Quarantine { template, failures: 10, since: at(900) };
        node(state, 1).quarantine = Some(Box::new(quarantine));
    }),
    ("refused and leased", Rule::Record, |state| {
        let refusal = Refusal { message: "no".into(), at: at(900) };
        node(state, 1).refused = Some(Box::new(refusal));
    }),
    ("under repair without a failure", Rule::Record, |state| {
        node(state, 2).repairing = true;
    }),
    ("given up without a failure", Rule::Record, |state| {
        node(state, 1).keep_released = true;
    }),
    ("ambiguous without a time", Rule::Record, |state| {
        node(state, 2).retry.ambiguous_operation = Some(OperationKind::CreateLease);
    }),
    ("an ambiguous look-up", Rule::Record, |state| {
        let retry = &mut node(state, 1).retry;
        retry.ambiguous_operation = Some(OperationKind::LookupEndpoint);
        retry.ambiguous_since = Some(at(900));
    }),
    ("more ends than failures", Rule::Record, |state| {
        node(state, 3).retry.ended_attempts = 2;
    }),
    ("one lease for two nodes", Rule::OneLease, |state| {
        let lease = node(state, 0).record.lease.clone();
        node(state, 1).record.lease = lease;
    }),
    ("reachable without a lease", Rule::Record, |state| {
        node(state, 1).record.lease = None;
    }),
    ("a stage without its facts", Rule::Record, |state| {
        node(state, 1).record.stage = NodeStage::LeaseCreated;
    }),
    ("a fact from the future", Rule::Time, |state| {
        node(state, 3).record.failed_at = Some(at(1001));
    }),
    ("a generation nobody wanted", Rule::Acknowledgment, |state| state.observed_generation = 4),
];

fn checked(state: &ClusterState) -> Result<(), crate::Violations> {
    let shape = shape();
    check(&Snapshot { desired: Some(&shape), ..Snapshot::new(state, at(NOW)) })
}

#[test]
fn a_healthy_state_breaks_no_rule() {
    assert_eq!(checked(&state()), Ok(()));
}

#[test]
fn every_check_of_a_record_fires() {
    let doctored = DOCTORED.iter().map(|(name, rule, doctor)| {
        let mut state = state();
        doctor(&mut state);
        found(name, *rule, checked(&state))
    });
    insta::assert_snapshot!(doctored.collect::<String>());
}
