//! Histories that can't have led to the state, or that no driver may have.

use myelin_shape::{NodeAttemptId, OperationId};
use myelin_state::{
    ClusterState, DeleteCause, DriverEvent, EventKind, NodeIntent, NodeStage, OperationKind,
};

use super::fixture::{NOW, at, found, lease, node, shape, state};
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

    fn check(&self) -> Result<(), Violations> {
        let shape = shape();
        Linter::restore(&self.before).step(&Snapshot {
            desired: Some(&shape),
            history: Some(&self.history),
            ..Snapshot::new(&self.after, at(NOW))
        })
    }
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

#[test]
fn every_check_of_a_history_fires() {
    let doctored = DOCTORED.iter().map(|(name, rule, doctor)| {
        let mut case = case();
        doctor(&mut case);
        found(name, *rule, case.check())
    });
    insta::assert_snapshot!(doctored.collect::<String>());
}
