//! What the driver does to nodes, and how long failures delay.

use std::time::Duration;

use myelin_shape::{NodeAttemptId, OperationId};
use myelin_state::{DeleteCause, ManagedNode, NodeEvent, NodeStage, OperationKind, RetryPolicy};

use super::fixture::{at, changes, fold, node, pending, policy};
use crate::{backoff, transition};

fn check(name: &str, before: &ManagedNode, change: impl FnOnce(&mut ManagedNode)) -> String {
    let mut after = before.clone();
    change(&mut after);
    format!("{name}: {}\n", changes(before, &after))
}

#[test]
fn deletion_begins_differently_for_every_cause() {
    let causes = [
        DeleteCause::Undesired,
        DeleteCause::SpecChanged,
        DeleteCause::Requested,
        DeleteCause::Failed,
        DeleteCause::Lost,
        DeleteCause::Abandoned,
    ];
    let mut rows = String::new();
    for cause in causes {
        let before = if cause == DeleteCause::Failed {
            node(NodeStage::Failed)
        } else {
            node(NodeStage::Dormant)
        };
        rows += &check(&cause.to_string(), &before, |node| {
            transition::begin_delete(node, cause, at(1000), &policy());
        });
    }
    insta::assert_snapshot!(rows);
}

#[test]
fn cleanup_is_not_delayed_by_the_back_off_of_a_settled_effect() {
    let mut before = node(NodeStage::LeaseRequested);
    before.retry.next_effect_at = Some(at(1060));
    let begin = |node: &mut ManagedNode| {
        transition::begin_delete(node, DeleteCause::Undesired, at(1000), &policy());
    };
    let settled = check("settled", &before, begin);
    before.retry.ambiguous_operation = Some(OperationKind::CreateLease);
    before.retry.ambiguous_since = Some(at(990));
    insta::assert_snapshot!(settled + &check("ambiguous", &before, begin));
}

#[test]
fn a_restart_keeps_what_the_slot_has_been_through() {
    let mut before = node(NodeStage::Destroyed);
    before.spends_budget = true;
    let same = before.record.desired.clone();
    let mut other = same.clone();
    std::sync::Arc::make_mut(&mut other.template).shape.image = "new".into();
    let mut quarantined = before.clone();
    quarantined.quarantine = Some(Box::new(myelin_state::Quarantine {
        template: same.template.clone(),
        failures: 10,
        since: at(900),
    }));
    let attempt = NodeAttemptId(9);
    let rows = [
        check("same spec", &before, |node| {
            transition::restart(node, attempt, same);
        }),
        check("other spec", &before, |node| {
            transition::restart(node, attempt, other.clone());
        }),
        check("out of quarantine", &quarantined, |node| {
            transition::restart(node, attempt, other);
        }),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn an_effect_is_recorded_with_its_deadline_before_it_is_submitted() {
    let record = |kind| {
        move |node: &mut ManagedNode| {
            let id = OperationId { attempt: node.attempt, sequence: node.next_operation_sequence };
            transition::record_dispatch(node, id, kind, at(1000), &policy());
        }
    };
    let rows = [
        check("create", &node(NodeStage::New), record(OperationKind::CreateLease)),
        check("start", &node(NodeStage::EndpointKnown), record(OperationKind::StartBootstrap)),
        check("destroy", &node(NodeStage::Failed), record(OperationKind::DestroyLease)),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn an_expired_effect_gets_a_short_deadline_for_its_answer() {
    let mut before = pending(node(NodeStage::LeaseCreated), OperationKind::LookupEndpoint);
    assert_eq!(transition::expire_pending(&mut before.clone(), at(1119), &policy()), None);
    let row = check("time-out", &before, |node| {
        assert!(transition::expire_pending(node, at(1120), &policy()).is_some());
    });
    insta::assert_snapshot!(row);
    transition::expire_pending(&mut before, at(1120), &policy());
    assert!(transition::expire_pending(&mut before, at(1125), &policy()).is_some(), "asked again");
}

#[test]
fn delays_double_up_to_their_cap() {
    let delays = (1..=8).map(|failures| backoff(&policy(), NodeAttemptId(1), failures).as_secs());
    assert_eq!(delays.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(backoff(&policy(), NodeAttemptId(1), u32::MAX), Duration::from_mins(1));
}

#[test]
fn jitter_only_ever_lengthens_a_delay_and_differs_between_attempts() {
    let policy = RetryPolicy::default();
    let delays: Vec<_> =
        (0..100).map(|attempt| backoff(&policy, NodeAttemptId(attempt), 3)).collect();
    let (least, most) = (Duration::from_secs(4), Duration::from_millis(4800));
    assert!(delays.iter().all(|delay| (least..=most).contains(delay)));
    let distinct: std::collections::BTreeSet<_> = delays.iter().collect();
    assert!(distinct.len() > 80, "{} different delays of 100", distinct.len());
    assert_eq!(
        delays[7],
        backoff(&policy, NodeAttemptId(7), 3),
        "sampled from what is stored alone"
    );
}

#[test]
fn a_deadline_that_cannot_be_represented_is_never() {
    let policy = RetryPolicy {
        initial_delay: Duration::MAX,
        max_delay: Duration::MAX,
        ..RetryPolicy::default()
    };
    let mut node = node(NodeStage::BootstrapRunning);
    node.retry.consecutive_failures = u32::MAX;
    let observation = myelin_state::NodeObservation {
        node: "worker-0".into(),
        attempt: node.attempt,
        event: NodeEvent::LeaseGone,
    };
    crate::observe(&mut node, observation, at(1000), &policy);
    assert_eq!(node.retry.restart_at, Some(myelin_state::never()));
    assert_eq!(node.retry.consecutive_failures, u32::MAX);
    fold(&mut node, NodeEvent::DeadlinePassed);
}
