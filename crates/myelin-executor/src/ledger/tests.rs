use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use proptest::prelude::*;

use myelin_shape::{
    BootstrapSessionId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId, OperationId, RunId,
    RunNodeGroupSpec, expand_node_group,
};
use myelin_state::{
    ErrorClass, LeaseFacts, LeaseMode, NodeManagerCommand, OperationKind, OperationOutcome,
};

use super::{Admission, Ended, Ledger};
use crate::{Submission, outcome::failed};

fn spec() -> LogicalNodeSpec {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
    expand_node_group(&group).next().expect("one node")
}

fn create(mode: LeaseMode) -> NodeManagerCommand {
    NodeManagerCommand::CreateLease { spec: spec(), mode, unsettled_since: None }
}

fn cancel(session: u64) -> NodeManagerCommand {
    NodeManagerCommand::CancelBootstrap {
        provider: "fake".into(),
        session: BootstrapSessionId(session),
    }
}

fn id(attempt: u64, sequence: u64) -> OperationId {
    OperationId { attempt: NodeAttemptId(attempt), sequence }
}

fn node() -> LogicalNodeId {
    "worker-0".into()
}

fn submission(operation: OperationId, command: NodeManagerCommand) -> Arc<Submission> {
    let deadline = SystemTime::UNIX_EPOCH;
    Arc::new(Submission { node: node(), operation, command, generation: 1, deadline })
}

fn made() -> OperationOutcome {
    OperationOutcome::LeaseCreated {
        lease: Box::new(LeaseFacts {
            provider: "fake".into(),
            lease_id: "lease-1".into(),
            provider_contract_id: "lease-1".into(),
            offer_id: None,
            destroy_handle: "lease-1".into(),
            provider_metadata: None,
            price: None,
        }),
        connection: None,
    }
}

/// Returns a ledger whose attempt 1 has a create that was sent and given up.
fn expired() -> Ledger {
    let mut ledger = Ledger::beginning_at(SystemTime::UNIX_EPOCH);
    let create = submission(id(1, 0), create(LeaseMode::CreateOrAdopt));
    assert_eq!(ledger.submit(&create), Ok(Admission::Run));
    assert!(ledger.sent(id(1, 0)));
    let expiry = ledger.expire(&node(), id(1, 0)).expect("it is known");
    assert!(expiry.stop);
    ledger
}

#[test]
fn late_answer_is_kept_for_its_kind_until_something_settles_it() {
    let mut ledger = expired();
    assert_eq!(ledger.ended(id(1, 0), Some(made())), Ended::default());
    assert_eq!(ledger.late(NodeAttemptId(1), OperationKind::CreateLease), Some(&made()));
    assert_eq!(ledger.late(NodeAttemptId(1), OperationKind::StartBootstrap), None);
    let adopt = submission(id(1, 1), create(LeaseMode::AdoptOnly));
    assert_eq!(ledger.submit(&adopt), Ok(Admission::Run));
    let unclear = failed(ErrorClass::Ambiguous, "?");
    ledger.ended(id(1, 1), Some(unclear));
    assert!(ledger.late(NodeAttemptId(1), OperationKind::CreateLease).is_some());
    let again = submission(id(1, 2), create(LeaseMode::AdoptOnly));
    assert_eq!(ledger.submit(&again), Ok(Admission::Run));
    assert_eq!(ledger.ended(id(1, 2), Some(made())).report, Some(made()));
    assert_eq!(ledger.late(NodeAttemptId(1), OperationKind::CreateLease), None);
}

#[test]
fn late_failure_is_dropped() {
    let mut ledger = expired();
    let answer = failed(ErrorClass::NoCapacity, "none left");
    assert_eq!(ledger.ended(id(1, 0), Some(answer)), Ended::default());
    assert_eq!(ledger.late(NodeAttemptId(1), OperationKind::CreateLease), None);
}

#[test]
fn operation_behind_a_lingering_call_runs_when_that_has_ended() {
    let mut ledger = expired();
    let adopt = submission(id(1, 1), create(LeaseMode::AdoptOnly));
    let behind = Admission::Wait { behind: id(1, 0) };
    assert_eq!(ledger.submit(&adopt), Ok(behind));
    assert!(!ledger.sent(id(1, 1)), "it has no turn yet");
    let ended = ledger.ended(id(1, 0), None);
    assert_eq!((ended.report, ended.next), (None, Some(adopt)));
    assert!(ledger.sent(id(1, 1)));
}

#[test]
fn repeat_may_have_another_deadline() {
    let mut ledger = Ledger::beginning_at(SystemTime::UNIX_EPOCH);
    let first = submission(id(1, 0), cancel(1));
    ledger.submit(&first).expect("it is new");
    let mut repeat = Submission::clone(&first);
    repeat.deadline += std::time::Duration::from_secs(1);
    assert_eq!(ledger.submit(&Arc::new(repeat)), Ok(Admission::UnderWay));
}

#[test]
fn unsettled_attempt_of_an_earlier_process_may_have_made_something_until_the_ledger_began() {
    let begun_at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9);
    let mut ledger = Ledger::beginning_at(begun_at);
    for (attempt, mode) in [(1, LeaseMode::CreateOrAdopt), (2, LeaseMode::AdoptOnly)] {
        ledger.submit(&submission(id(attempt, 4), create(mode))).expect("it is new");
    }
    assert_eq!(ledger.maybe_made_at(NodeAttemptId(1)), None, "nothing of it is unknown");
    assert_eq!(ledger.maybe_made_at(NodeAttemptId(2)), Some(begun_at));
    ledger.ended(id(2, 4), Some(OperationOutcome::LeaseAbsent));
    assert_eq!(ledger.maybe_made_at(NodeAttemptId(2)), None, "it is settled");
}

#[test]
fn forgotten_attempt_leaves_nothing_behind() {
    let mut ledger = expired();
    assert_eq!(ledger.forget(&"worker-1".into(), NodeAttemptId(1)), None, "not its slot");
    assert_eq!(ledger.forget(&node(), NodeAttemptId(1)), Some(id(1, 0)));
    assert_eq!(ledger.ended(id(1, 0), Some(made())), Ended::default());
    assert!(ledger.is_empty());
}

/// What may happen to a ledger.
#[derive(Clone, Copy, Debug)]
enum Event {
    Submit { attempt: u64, sequence: u64, session: u64 },
    Send { attempt: u64, sequence: u64 },
    Expire { attempt: u64, sequence: u64 },
    End { attempt: u64, sequence: u64, answers: bool },
    Forget { attempt: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let operation = || (0..3_u64, 0..5_u64);
    prop_oneof![
        (operation(), 0..2_u64).prop_map(|((attempt, sequence), session)| Event::Submit {
            attempt,
            sequence,
            session
        }),
        operation().prop_map(|(attempt, sequence)| Event::Send { attempt, sequence }),
        operation().prop_map(|(attempt, sequence)| Event::Expire { attempt, sequence }),
        (operation(), any::<bool>()).prop_map(|((attempt, sequence), answers)| Event::End {
            attempt,
            sequence,
            answers
        }),
        (0..3_u64).prop_map(|attempt| Event::Forget { attempt }),
    ]
}

/// Who runs by the ledger's word, and what was reported.
#[derive(Default)]
struct Model {
    running: BTreeMap<u64, OperationId>,
    over: BTreeMap<OperationId, OperationOutcome>,
    forgotten: BTreeSet<u64>,
}

impl Model {
    fn start(&mut self, operation: OperationId) {
        let before = self.running.insert(operation.attempt.0, operation);
        assert_eq!(before, None, "two calls of one attempt run");
    }

    fn report(&mut self, operation: OperationId, outcome: &OperationOutcome) {
        let first = self.over.entry(operation).or_insert(outcome.clone());
        assert_eq!(first, outcome, "an operation has one outcome");
    }

    fn apply(&mut self, ledger: &mut Ledger, event: Event) {
        match event {
            Event::Submit { attempt, sequence, session } => {
                let command =
                    if sequence == 0 { create(LeaseMode::CreateOrAdopt) } else { cancel(session) };
                let operation = id(attempt, sequence);
                match ledger.submit(&submission(operation, command)) {
                    Ok(Admission::Run) => self.start(operation),
                    Ok(Admission::Recorded(outcome)) => self.report(operation, &outcome),
                    Ok(Admission::Wait { behind }) => {
                        assert_eq!(self.running.get(&attempt), Some(&behind));
                    }
                    Ok(Admission::UnderWay) | Err(_) => {}
                }
            }
            Event::Send { attempt, sequence } => {
                let operation = id(attempt, sequence);
                if ledger.sent(operation) {
                    assert_eq!(self.running.get(&attempt), Some(&operation));
                    assert!(!self.over.contains_key(&operation), "it was given up");
                }
            }
            Event::Expire { attempt, sequence } => {
                let operation = id(attempt, sequence);
                if let Some(expiry) = ledger.expire(&node(), operation) {
                    self.report(operation, &expiry.outcome);
                }
            }
            Event::End { attempt, sequence, answers } => {
                // Only what runs can end.
                let operation = id(attempt, sequence);
                if self.running.get(&attempt) != Some(&operation) {
                    return;
                }
                self.running.remove(&attempt);
                let ended = ledger.ended(operation, answers.then(made));
                if let Some(outcome) = ended.report {
                    assert!(!self.over.contains_key(&operation), "reported after it was over");
                    self.report(operation, &outcome);
                }
                if let Some(next) = ended.next {
                    self.start(next.operation);
                }
            }
            Event::Forget { attempt } => {
                // Attempt ids are never reused, so what runs on is nobody's any more.
                if ledger.forget(&node(), NodeAttemptId(attempt)).is_some() {
                    self.running.remove(&attempt);
                    self.over.retain(|operation, _| operation.attempt.0 != attempt);
                    self.forgotten.insert(attempt);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn one_call_an_attempt_and_one_outcome_an_operation(
        events in prop::collection::vec(event(), 0..60),
    ) {
        let (mut ledger, mut model) = (Ledger::beginning_at(SystemTime::UNIX_EPOCH), Model::default());
        for event in events {
            model.apply(&mut ledger, event);
            prop_assert!(ledger.len() <= 3);
        }
    }

    #[test]
    fn memory_is_one_entry_an_attempt_however_many_operations(
        n_attempts in 1..20_u64,
        n_operations in 1..40_u64,
    ) {
        let mut ledger = Ledger::beginning_at(SystemTime::UNIX_EPOCH);
        for sequence in 0..n_operations {
            for attempt in 0..n_attempts {
                let taken = ledger.submit(&submission(id(attempt, sequence), cancel(1)));
                prop_assert_eq!(taken, Ok(Admission::Run));
                ledger.sent(id(attempt, sequence));
                ledger.ended(id(attempt, sequence), Some(OperationOutcome::BootstrapCancelled));
            }
        }
        prop_assert_eq!(ledger.len() as u64, n_attempts);
    }
}
