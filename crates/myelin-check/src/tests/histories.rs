//! Histories that can't have led to the state, or that no driver may have.

use myelin_shape::{NodeAttemptId, OperationId};
use myelin_state::{
    ClusterState, DeleteCause, DriverEvent, ErrorClass, EventKind, NodeIntent, NodeStage,
    OperationKind, Silence,
};

use super::fixture::{NOW, at, copy, found, lease, node, shape, state};
use crate::{Linter, Rule, Snapshot, Violations};

/// What happened between two states.
struct Case {
    before: ClusterState,
    after: ClusterState,
    history: Vec<DriverEvent>,
}

impl Case {
    fn happens(&mut self, index: u32, kind: EventKind) {
        let found = node(&mut self.before, index);
        self.history.push(DriverEvent {
            at: at(NOW),
            node: Some(found.record.desired.logical_node_id.clone()),
            attempt: Some(found.attempt),
            kind,
        });
    }

    /// Makes ready nodes of all, whose agents fall silent.
    fn all_silent(&mut self) {
        let ready = node(&mut self.before, 0).clone();
        for index in 0..6 {
            copy(node(&mut self.before, index), &ready);
            copy(node(&mut self.after, index), &ready);
            self.happens(index, EventKind::Silent);
        }
    }

    fn lost(&mut self, index: u32) {
        self.happens(index, EventKind::DeleteBegan { cause: DeleteCause::Lost });
    }

    fn check(&self) -> Result<(), Violations> {
        let shape = shape();
        Linter::restore(&self.before).step(&Snapshot {
            desired: Some(&shape),
            history: Some(&self.history),
            ..Snapshot::new(&self.after, at(NOW))
        })
    }
}

/// Makes the outcome of the create of `worker-2` unknown.
fn ambiguous(state: &mut ClusterState) {
    let node = node(state, 2);
    node.pending = None;
    node.retry.ambiguous_operation = Some(OperationKind::CreateLease);
    node.retry.ambiguous_since = Some(at(900));
}

/// Makes the agent of `worker-0` silent.
fn silent(state: &mut ClusterState) {
    let record = &mut node(state, 0).record;
    record.ready_since = None;
    record.silence = Some(Box::new(Silence { lost_at: at(990), deadline: at(1035) }));
}

fn operation(attempt: u64, sequence: u64) -> OperationId {
    OperationId { attempt: NodeAttemptId(attempt), sequence }
}

fn dispatched(attempt: u64, sequence: u64) -> EventKind {
    EventKind::Dispatched {
        operation: operation(attempt, sequence),
        effect: OperationKind::CreateLease,
    }
}

fn succeeded(attempt: u64, sequence: u64) -> EventKind {
    EventKind::Succeeded {
        operation: operation(attempt, sequence),
        effect: OperationKind::CreateLease,
    }
}

type Doctor = (&'static str, Rule, fn(&mut Case));

const DOCTORED: &[Doctor] = &[
    ("an effect submitted and not recorded", Rule::RecordBeforeDispatch, |case| {
        case.happens(1, dispatched(1, 0));
    }),
    ("an effect recorded and not submitted", Rule::RecordBeforeDispatch, |case| {
        node(&mut case.before, 2).pending = None;
    }),
    ("two effects at once", Rule::RecordBeforeDispatch, |case| {
        case.happens(2, dispatched(2, 1));
    }),
    ("an effect number used again", Rule::DistinctIdentities, |case| {
        case.happens(2, succeeded(2, 0));
        case.happens(2, dispatched(2, 0));
    }),
    ("an attempt used again", Rule::DistinctIdentities, |case| {
        case.happens(5, EventKind::Restarted { previous: NodeAttemptId(5) });
    }),
    ("a restart before the end", Rule::CleanupBeforeReuse, |case| {
        case.happens(4, EventKind::Restarted { previous: NodeAttemptId(4) });
    }),
    ("a slot gone before the end", Rule::CleanupBeforeReuse, |case| {
        case.happens(4, EventKind::Reaped);
    }),
    ("a slot inserted twice", Rule::CleanupBeforeReuse, |case| {
        case.happens(4, EventKind::Inserted);
    }),
    ("destroyed with an effect under way", Rule::CleanupBeforeReuse, |case| {
        case.happens(2, EventKind::Destroyed);
    }),
    ("the end of an effect that was over", Rule::AttemptCorrelation, |case| {
        case.happens(2, succeeded(2, 0));
        case.happens(2, succeeded(2, 0));
    }),
    ("news of another attempt", Rule::AttemptCorrelation, |case| {
        case.happens(0, EventKind::Ready);
        case.history[0].attempt = Some(NodeAttemptId(3));
    }),
    ("a change nobody made", Rule::SingleOwner, |case| {
        node(&mut case.after, 3).retry.restart_at = None;
    }),
    ("a change by an ignored observation", Rule::SingleOwner, |case| {
        case.happens(3, EventKind::Ignored { reason: "stale_attempt".into() });
        node(&mut case.after, 3).record.lease = Some(lease("other"));
    }),
    ("a node that vanished", Rule::SingleOwner, |case| {
        case.after.nodes.pop_last();
    }),
    ("a generation that goes back", Rule::Acknowledgment, |case| {
        case.after.observed_generation = 2;
    }),
    ("a desired generation that goes back", Rule::LatestWins, |case| {
        for generation in [5, 4] {
            case.happens(0, EventKind::DesiredAccepted { generation });
        }
    }),
    ("an allocator that goes back", Rule::DistinctIdentities, |case| {
        case.before.next_attempt_id = 9;
    }),
    ("a stage that goes back", Rule::Record, |case| {
        case.happens(1, EventKind::Ready);
        node(&mut case.before, 1).record.stage = NodeStage::SwactorJoined;
    }),
    ("an attempt that is resurrected", Rule::CleanupBeforeReuse, |case| {
        case.happens(0, EventKind::Ready);
        let found = node(&mut case.before, 0);
        (found.intent, found.delete_cause) = (NodeIntent::Deleting, Some(DeleteCause::Failed));
    }),
    ("a create beside a lease", Rule::OneLease, |case| case.happens(1, dispatched(1, 0))),
    ("a lease without a create", Rule::OneLease, |case| {
        case.happens(0, EventKind::Ready);
        node(&mut case.before, 0).record.lease = None;
    }),
    ("a lease that goes without a destroy", Rule::OneLease, |case| {
        case.happens(4, EventKind::TimeGiven);
        node(&mut case.after, 4).record.lease = None;
    }),
    ("another lease in the same attempt", Rule::OneLease, |case| {
        case.happens(1, EventKind::TimeGiven);
        node(&mut case.after, 1).record.lease = Some(lease("other"));
    }),
    ("cleaned up with a lease left", Rule::OneLease, |case| {
        case.happens(4, EventKind::Destroyed);
        let model = node(&mut case.after, 5).clone();
        copy(node(&mut case.after, 4), &model);
    }),
    ("a destroy of nothing", Rule::OneLease, |case| {
        let (operation, effect) = (operation(2, 1), OperationKind::DestroyLease);
        case.happens(2, EventKind::Dispatched { operation, effect });
    }),
    ("an ambiguous create that is forgotten", Rule::OneLease, |case| {
        ambiguous(&mut case.before);
        case.happens(2, EventKind::TimeGiven);
        node(&mut case.after, 2).pending = None;
    }),
    ("an ambiguous create settled by a failure", Rule::OneLease, |case| {
        ambiguous(&mut case.before);
        let (operation, effect) = (operation(2, 1), OperationKind::CreateLease);
        case.happens(2, EventKind::Dispatched { operation, effect });
        let class = ErrorClass::Transient;
        case.happens(2, EventKind::EffectFailed { operation, effect, class, error: "no".into() });
        let after = node(&mut case.after, 2);
        (after.pending, after.next_operation_sequence) = (None, 2);
    }),
    ("cleaned up with an ambiguous create", Rule::OneLease, |case| {
        ambiguous(&mut case.before);
        case.happens(2, EventKind::DeleteBegan { cause: DeleteCause::Undesired });
        case.happens(2, EventKind::Destroyed);
    }),
    ("a time to become ready that moves", Rule::StoredOnce, |case| {
        case.happens(1, EventKind::Silent);
        node(&mut case.after, 1).record.ready_by = Some(at(1900));
    }),
    ("a time that is given again before it has passed", Rule::StoredOnce, |case| {
        case.happens(1, EventKind::TimeGiven);
        node(&mut case.after, 1).record.bootstrap_by = Some(at(1900));
    }),
    ("an effect's deadline that moves", Rule::StoredOnce, |case| {
        case.happens(2, EventKind::TimeGiven);
        node(&mut case.after, 2).pending.as_mut().unwrap().deadline = at(1200);
    }),
    ("a time of the next attempt that moves", Rule::StoredOnce, |case| {
        case.happens(3, EventKind::TimeGiven);
        node(&mut case.after, 3).retry.restart_at = Some(at(1020));
    }),
    ("a last contact that moves", Rule::StoredOnce, |case| {
        silent(&mut case.before);
        silent(&mut case.after);
        case.happens(0, EventKind::HeardOut);
        node(&mut case.after, 0).record.silence.as_mut().unwrap().lost_at = at(995);
    }),
    ("a time to be heard that moves", Rule::StoredOnce, |case| {
        silent(&mut case.before);
        silent(&mut case.after);
        case.happens(0, EventKind::Silent);
        node(&mut case.after, 0).record.silence.as_mut().unwrap().deadline = at(1040);
    }),
    ("an agent that is heard out twice", Rule::StoredOnce, |case| {
        silent(&mut case.before);
        silent(&mut case.after);
        case.happens(0, EventKind::HeardOut);
        case.happens(0, EventKind::HeardOut);
    }),
    ("a repair nobody has begun", Rule::Flags, |case| {
        case.happens(4, EventKind::TimeGiven);
        node(&mut case.after, 4).repairing = true;
    }),
    ("a repair that goes on after its create has failed", Rule::Flags, |case| {
        for state in [&mut case.before, &mut case.after] {
            (node(state, 2).recovering, node(state, 2).repairing) = (true, true);
        }
        let (operation, effect) = (operation(2, 0), OperationKind::CreateLease);
        let class = ErrorClass::Transient;
        case.happens(2, EventKind::EffectFailed { operation, effect, class, error: "no".into() });
        node(&mut case.after, 2).pending = None;
    }),
    ("a ready node that is taken and spends nothing", Rule::Flags, |case| {
        case.happens(0, EventKind::DeleteBegan { cause: DeleteCause::Undesired });
        let after = node(&mut case.after, 0);
        (after.intent, after.delete_cause) = (NodeIntent::Deleting, Some(DeleteCause::Undesired));
        after.record.ready_since = None;
    }),
    ("a node that was not ready and spends the budget", Rule::Flags, |case| {
        case.happens(1, EventKind::DeleteBegan { cause: DeleteCause::Undesired });
        let after = node(&mut case.after, 1);
        (after.intent, after.delete_cause) = (NodeIntent::Deleting, Some(DeleteCause::Undesired));
        after.spends_budget = true;
    }),
    ("a second healthy machine of an outage", Rule::OneHealthyMachine, |case| {
        case.all_silent();
        case.lost(0);
        case.lost(1);
    }),
    ("an outage that is forgotten", Rule::OneHealthyMachine, |case| {
        case.all_silent();
        case.lost(0);
    }),
    ("an event from the future", Rule::Time, |case| {
        case.happens(0, EventKind::Ready);
        case.history[0].at = at(NOW + 1);
    }),
    ("events out of order", Rule::Time, |case| {
        case.happens(0, EventKind::Ready);
        case.happens(0, EventKind::Ready);
        case.history[1].at = at(NOW - 1);
    }),
];

fn case() -> Case {
    Case { before: state(), after: state(), history: Vec::new() }
}

#[test]
fn a_step_in_which_nothing_happens_breaks_no_rule() {
    assert_eq!(case().check(), Ok(()));
}

/// Returns whether a second machine may be ended in an outage, after this has become of the first.
fn may_go_on_after(repair: fn(&mut Case)) -> bool {
    let mut case = case();
    case.all_silent();
    case.lost(0);
    repair(&mut case);
    case.lost(1);
    let again = |violation: &crate::Violation| {
        violation.rule == Rule::OneHealthyMachine && violation.node == Some("worker-1".into())
    };
    !case.check().unwrap_err().0.iter().any(again)
}

/// Lets the first machine be followed by another.
fn restarts(case: &mut Case) {
    case.happens(0, EventKind::Destroyed);
    happens_to_the_next(case, EventKind::Restarted { previous: NodeAttemptId(0) });
}

fn happens_to_the_next(case: &mut Case, kind: EventKind) {
    case.happens(0, kind);
    case.history.last_mut().unwrap().attempt = Some(NodeAttemptId(6));
}

#[test]
fn an_outage_goes_on_only_after_a_repair_is_ready_or_is_not_to_be_waited_for() {
    assert!(!may_go_on_after(|_| {}));
    assert!(!may_go_on_after(restarts));
    assert!(!may_go_on_after(|case| {
        restarts(case);
        happens_to_the_next(case, EventKind::AttemptFailed { reason: "it broke".into() });
    }));
    assert!(may_go_on_after(|case| {
        restarts(case);
        happens_to_the_next(case, EventKind::Ready);
    }));
    assert!(may_go_on_after(|case| {
        restarts(case);
        let cause = DeleteCause::Requested;
        happens_to_the_next(case, EventKind::DeleteBegan { cause });
    }));
}

#[test]
fn deadlines_may_move_where_that_is_said() {
    let mut case = case();
    silent(&mut case.before);
    silent(&mut case.after);
    case.happens(0, EventKind::HeardOut);
    node(&mut case.after, 0).record.silence.as_mut().unwrap().deadline = at(1045);
    node(&mut case.before, 1).record.bootstrap_by = Some(at(995));
    case.happens(1, EventKind::TimeGiven);
    let (operation, effect) = (operation(2, 0), OperationKind::CreateLease);
    node(&mut case.before, 2).pending.as_mut().unwrap().deadline = at(999);
    case.happens(2, EventKind::Expired { operation, effect });
    node(&mut case.after, 2).pending.as_mut().unwrap().expired = true;
    assert_eq!(case.check(), Ok(()));
}

#[test]
fn every_check_of_a_history_fires() {
    let doctored = DOCTORED.iter().map(|(name, rule, doctor)| {
        let mut case = case();
        doctor(&mut case);
        found(name, *rule, case.check())
    });
    insta::assert_snapshot!(doctored.collect::<String>());
}

#[test]
fn a_machine_that_is_nobodys_is_of_no_current_attempt() {
    let mut case = case();
    let (provider, lease) = ("process".into(), "i-1".into());
    case.happens(0, EventKind::Collecting { provider, lease });
    case.history[0].attempt = Some(NodeAttemptId(0));
    assert_eq!(case.check(), Ok(()));
}
