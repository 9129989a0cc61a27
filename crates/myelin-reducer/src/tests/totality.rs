//! Every observation in every stage, and in states nobody would reach.

use std::time::Duration;

use proptest::{prelude::*, sample::select};

use myelin_shape::{BootstrapSessionId, NodeAttemptId, OperationId};
use myelin_state::{
    BootstrapStage, ErrorClass, ManagedNode, NodeEvent, NodeIntent, NodeObservation, NodeStage,
    OperationKind, OperationOutcome, OperatorRequest, RetryPolicy,
};

use super::fixture::{
    NOW, at, connection, deleting, failure, finished, fold, lease, node, operation, pending,
    policy, session,
};
use crate::{Folded, Ignored, observe};

fn outcomes() -> Vec<OperationOutcome> {
    let classes = [
        ErrorClass::Transient,
        ErrorClass::RateLimited(Duration::from_secs(90)),
        ErrorClass::NoCapacity,
        ErrorClass::Permanent,
        ErrorClass::Ambiguous,
        ErrorClass::AlreadyAbsent,
    ];
    let mut outcomes = vec![
        OperationOutcome::LeaseCreated { lease: lease(), connection: None },
        OperationOutcome::LeaseCreated { lease: lease(), connection: Some(connection()) },
        OperationOutcome::LeaseAbsent,
        OperationOutcome::EndpointFound(connection()),
        OperationOutcome::EndpointNotReady,
        OperationOutcome::BootstrapStarted { session: session() },
        OperationOutcome::BootstrapAbsent,
        OperationOutcome::ConvergenceRecorded,
        OperationOutcome::BootstrapCancelled,
        OperationOutcome::LeaseDestroyed,
    ];
    outcomes.extend(classes.map(failure));
    outcomes
}

fn events() -> Vec<NodeEvent> {
    let mut events: Vec<_> = outcomes().into_iter().map(finished).collect();
    for session in [session(), BootstrapSessionId(8)] {
        for sequence in [0, 4, 5] {
            events.extend(BootstrapStage::ALL.map(|stage| NodeEvent::Bootstrap {
                session,
                sequence,
                stage,
                message: None,
            }));
        }
    }
    for swactor in ["agent", "stranger"] {
        events.extend([
            NodeEvent::Joined { swactor: swactor.into() },
            NodeEvent::Contact { swactor: swactor.into() },
            NodeEvent::Silent { swactor: swactor.into(), last_contact: at(990) },
        ]);
    }
    let requests = [OperatorRequest::Retry, OperatorRequest::Replace, OperatorRequest::Abandon];
    events.extend(requests.map(NodeEvent::Operator));
    events.extend([NodeEvent::LeaseGone, NodeEvent::DeadlinePassed]);
    events
}

/// Every stage, to live and deleted, with nothing and with every effect under way.
fn nodes() -> Vec<ManagedNode> {
    let mut nodes = Vec::new();
    for stage in NodeStage::ALL {
        let live = node(stage);
        let mut intents = vec![live.clone()];
        if live.intent == NodeIntent::Active {
            intents.push(deleting(live));
        }
        for node in intents {
            if stage != NodeStage::Destroyed {
                nodes.extend(OperationKind::ALL.map(|kind| pending(node.clone(), kind)));
            }
            nodes.push(node);
        }
    }
    nodes
}

/// What holds for every node whatever was observed; the linter knows more, of states that a driver can reach.
fn holds(node: &ManagedNode) {
    let record = &node.record;
    assert_eq!(node.is_ready(), record.ready_since.is_some(), "{node:#?}");
    let deleting = node.intent == NodeIntent::Deleting;
    assert_eq!(deleting, node.delete_cause.is_some(), "{node:#?}");
    assert_eq!(record.failed_at.is_some(), record.failed_reason.is_some(), "{node:#?}");
    assert!(record.stage != NodeStage::Failed || record.failed_at.is_some(), "{node:#?}");
    let retry = &node.retry;
    assert_eq!(retry.ambiguous_operation.is_some(), retry.ambiguous_since.is_some(), "{node:#?}");
    assert!(!node.is_ready() || !node.recovering && !node.repairing, "{node:#?}");
    assert!(record.silence.is_none() || !deleting && record.stage.has_joined(), "{node:#?}");
}

#[test]
fn every_observation_is_accepted_in_every_stage() {
    for before in nodes() {
        for event in events() {
            let mut after = before.clone();
            let folded = fold(&mut after, event.clone());
            holds(&after);
            assert!(after.record.stage >= before.record.stage, "{event:?} of {before:#?}");
            assert!(before.intent == after.intent || after.intent == NodeIntent::Deleting);
            assert_eq!(after.record.desired, before.record.desired);
            if folded != Folded::Applied {
                assert_eq!(after, before, "{event:?} was ignored, and changed the node");
            }
        }
    }
}

#[test]
fn an_observation_of_another_attempt_changes_nothing() {
    for before in nodes() {
        for event in events() {
            for attempt in [2, 4] {
                let mut after = before.clone();
                let observation = NodeObservation {
                    node: "worker-0".into(),
                    attempt: NodeAttemptId(attempt),
                    event: event.clone(),
                };
                let folded = observe(&mut after, observation, at(NOW), &policy());
                assert_eq!(folded, Folded::Ignored(Ignored::StaleAttempt));
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn a_result_of_another_effect_changes_nothing() {
    for before in nodes() {
        for outcome in outcomes() {
            for sequence in [4, 6] {
                let mut after = before.clone();
                let operation = OperationId { sequence, ..operation() };
                let outcome = outcome.clone();
                let folded = fold(&mut after, NodeEvent::OperationFinished { operation, outcome });
                assert_eq!(folded, Folded::Ignored(Ignored::NotPending));
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn a_result_is_folded_once() {
    for before in nodes().into_iter().filter(|node| node.pending.is_some()) {
        for outcome in outcomes() {
            let mut once = before.clone();
            fold(&mut once, finished(outcome.clone()));
            let mut twice = once.clone();
            assert_eq!(fold(&mut twice, finished(outcome)), Folded::Ignored(Ignored::NotPending));
            assert_eq!(once, twice);
        }
    }
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let duration = || {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (0..10_000_u64).prop_map(Duration::from_secs)
        ]
    };
    (duration(), any::<u32>(), duration(), any::<u32>(), duration(), 0..3_u32).prop_map(
        |(initial_delay, factor, max_delay, jitter_percent, other, limit)| RetryPolicy {
            initial_delay,
            factor,
            max_delay,
            jitter_percent,
            ready_timeout: other,
            stable_after: other,
            lost_after: other,
            operation_timeout: other,
            endpoint_probe_interval: other,
            max_consecutive_failures: limit,
            max_cancel_failures: limit,
            ..RetryPolicy::default()
        },
    )
}

proptest! {
    /// Long rows of observations, under any policy, leave every node in order, and end in the same state every time.
    #[test]
    fn any_row_of_observations_is_accepted_and_has_one_outcome(
        before in select(nodes()),
        row in prop::collection::vec((select(events()), 0..100_u64), 0..30),
        kinds in prop::collection::vec(select(OperationKind::ALL.to_vec()), 0..30),
        policy in any_policy(),
    ) {
        let run = || {
            let mut node = before.clone();
            let mut now = at(NOW);
            let mut kinds = kinds.iter();
            for (event, later) in &row {
                now += Duration::from_secs(*later);
                if node.pending.is_none()
                    && !node.is_destroyed()
                    && let Some(&kind) = kinds.next()
                {
                    node = pending(node, kind);
                }
                let observation = NodeObservation {
                    node: "worker-0".into(),
                    attempt: node.attempt,
                    event: event.clone(),
                };
                let stage = node.record.stage;
                observe(&mut node, observation, now, &policy);
                holds(&node);
                assert!(node.record.stage >= stage);
            }
            node
        };
        prop_assert_eq!(run(), run());
    }
}
