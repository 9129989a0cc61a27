//! What every observation means, row by row (seed 1 §7.1 and §11, `spec 1.4` and `1.5`).

use std::time::Duration;

use myelin_state::{
    BootstrapStage, ErrorClass, ManagedNode, NodeEvent, NodeStage, OperationKind, OperationOutcome,
    OperatorRequest,
};

use super::fixture::{
    at, changes, connection, deleting, failure, finished, fold, lease, node, pending, policy,
    session,
};
use crate::{Folded, transition};

/// Folds, and renders what changed.
fn check(name: &str, before: &ManagedNode, event: NodeEvent) -> String {
    let mut after = before.clone();
    let folded = fold(&mut after, event);
    let what = match folded {
        Folded::Applied => changes(before, &after),
        Folded::Ignored(reason) => {
            assert_eq!(after, *before, "{name}: ignored, and changed all the same");
            format!("ignored, {}", reason.code())
        }
    };
    format!("{name}: {what}\n")
}

fn creating() -> ManagedNode {
    pending(node(NodeStage::LeaseRequested), OperationKind::CreateLease)
}

fn looking_up() -> ManagedNode {
    pending(node(NodeStage::LeaseCreated), OperationKind::LookupEndpoint)
}

fn starting() -> ManagedNode {
    pending(node(NodeStage::EndpointKnown), OperationKind::StartBootstrap)
}

fn handing_off() -> ManagedNode {
    let kind = OperationKind::BootstrapConvergenceObserved;
    pending(node(NodeStage::SwactorJoined), kind)
}

fn cancelling() -> ManagedNode {
    let node = deleting(node(NodeStage::BootstrapRunning));
    pending(node, OperationKind::CancelBootstrap)
}

fn destroying() -> ManagedNode {
    let node = deleting(node(NodeStage::LeaseCreated));
    pending(node, OperationKind::DestroyLease)
}

fn ambiguous(mut node: ManagedNode, kind: OperationKind) -> ManagedNode {
    node.retry.ambiguous_operation = Some(kind);
    node.retry.ambiguous_since = Some(at(700));
    node
}

#[test]
fn results_that_worked_are_folded_as_the_table_says() {
    let created = |connection| OperationOutcome::LeaseCreated { lease: lease(), connection };
    let started = || OperationOutcome::BootstrapStarted { session: session() };
    let ambiguous_create = ambiguous(creating(), OperationKind::CreateLease);
    let lost_start =
        ambiguous(deleting(node(NodeStage::EndpointKnown)), OperationKind::StartBootstrap);
    let lost_start = pending(lost_start, OperationKind::StartBootstrap);
    let rows = [
        check("lease", &creating(), finished(created(None))),
        check("lease with endpoint", &creating(), finished(created(Some(connection())))),
        check("adopted lease", &ambiguous_create, finished(created(None))),
        check("lease of a deleted node", &deleting(creating()), finished(created(None))),
        check(
            "no lease",
            &deleting(ambiguous_create.clone()),
            finished(OperationOutcome::LeaseAbsent),
        ),
        check("endpoint", &looking_up(), finished(OperationOutcome::EndpointFound(connection()))),
        check("endpoint not ready", &looking_up(), finished(OperationOutcome::EndpointNotReady)),
        check("bootstrap started", &starting(), finished(started())),
        check("bootstrap of a deleted node", &deleting(starting()), finished(started())),
        check("no bootstrap", &lost_start, finished(OperationOutcome::BootstrapAbsent)),
        check("handed off", &handing_off(), finished(OperationOutcome::ConvergenceRecorded)),
        check("cancelled", &cancelling(), finished(OperationOutcome::BootstrapCancelled)),
        check("destroyed", &destroying(), finished(OperationOutcome::LeaseDestroyed)),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn failures_are_classified_by_effect_as_the_table_says() {
    let classes = [
        ErrorClass::Transient,
        ErrorClass::RateLimited(Duration::from_secs(90)),
        ErrorClass::NoCapacity,
        ErrorClass::Permanent,
        ErrorClass::Ambiguous,
        ErrorClass::AlreadyAbsent,
    ];
    let nodes = [creating(), looking_up(), starting(), handing_off(), cancelling(), destroying()];
    let mut rows = String::new();
    for before in &nodes {
        let kind = before.pending.as_deref().unwrap().kind;
        for class in classes {
            let name = format!("{kind} {class}");
            rows += &check(&name, before, finished(failure(class)));
        }
    }
    insta::assert_snapshot!(rows);
}

#[test]
fn a_start_that_fails_after_the_join_delays_and_ends_nothing() {
    let mut joined = starting();
    fold(&mut joined, NodeEvent::Joined { swactor: "agent".into() });
    let mut ready = joined.clone();
    ready.record.handed_off = true;
    ready.record.stage = NodeStage::Dormant;
    ready.record.ready_since = Some(at(900));
    let rows = [
        check("joined", &joined, finished(failure(ErrorClass::Transient))),
        check("ready", &ready, finished(failure(ErrorClass::Transient))),
        check(
            "ready, and it worked",
            &ready,
            finished(OperationOutcome::BootstrapStarted { session: session() }),
        ),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn the_last_cancel_that_may_fail_closes_our_side() {
    let mut before = cancelling();
    before.retry.failed_cancels = policy().max_cancel_failures - 1;
    let row = check("third", &before, finished(failure(ErrorClass::Transient)));
    insta::assert_snapshot!(row);
}

#[test]
fn an_answer_to_another_question_is_a_failure() {
    let rows = [
        check("create", &creating(), finished(OperationOutcome::LeaseDestroyed)),
        check("destroy", &destroying(), finished(OperationOutcome::LeaseAbsent)),
    ];
    insta::assert_snapshot!(rows.concat());
}

fn bootstrap(sequence: u64, stage: BootstrapStage) -> NodeEvent {
    NodeEvent::Bootstrap { session: session(), sequence, stage, message: None }
}

#[test]
fn reports_of_a_bootstrap_are_folded_in_their_order() {
    let running = node(NodeStage::BootstrapRunning);
    let other = NodeEvent::Bootstrap {
        session: myelin_shape::BootstrapSessionId(8),
        sequence: 9,
        stage: BootstrapStage::Closed,
        message: None,
    };
    let mut rows = vec![
        check("next", &running, bootstrap(5, BootstrapStage::BootChecking)),
        check("again", &running, bootstrap(4, BootstrapStage::BootChecking)),
        check("of another session", &running, other),
        check(
            "before the reply to the start",
            &starting(),
            bootstrap(1, BootstrapStage::SshConnecting),
        ),
        check("without a number", &starting(), bootstrap(0, BootstrapStage::SshConnecting)),
        check(
            "of no session",
            &node(NodeStage::EndpointKnown),
            bootstrap(1, BootstrapStage::Closed),
        ),
        check(
            "closed after the join",
            &node(NodeStage::SwactorJoined),
            bootstrap(5, BootstrapStage::Closed),
        ),
        check(
            "failed after the join",
            &node(NodeStage::SwactorJoined),
            bootstrap(5, BootstrapStage::StreamError),
        ),
        check("failed while deleted", &cancelling(), bootstrap(5, BootstrapStage::Closed)),
    ];
    for stage in BootstrapStage::ALL.into_iter().filter(|&stage| stage >= BootstrapStage::Converged)
    {
        rows.push(check(&format!("{stage:?} before the join"), &running, bootstrap(5, stage)));
    }
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn a_node_that_is_ready_stays_ready_since_the_same_time_whatever_ends_its_bootstrap() {
    let ready = node(NodeStage::Dormant);
    let since = ready.record.ready_since;
    let mut told = pending(ready.clone(), OperationKind::BootstrapConvergenceObserved);
    fold(&mut told, finished(OperationOutcome::ConvergenceRecorded));
    assert_eq!(told.record.ready_since, since);

    let mut unsettled = ambiguous(ready, OperationKind::StartBootstrap);
    let before = unsettled.clone();
    fold(&mut unsettled, bootstrap(5, BootstrapStage::Closed));
    unsettled.record.bootstrap.clone_from(&before.record.bootstrap);
    assert_eq!(unsettled, before, "what a start has left is looked for when the node is deleted");
}

#[test]
fn a_handoff_that_fails_when_it_is_over_delays_nothing() {
    let ready = pending(node(NodeStage::Dormant), OperationKind::BootstrapConvergenceObserved);
    for class in [ErrorClass::Transient, ErrorClass::Ambiguous, ErrorClass::Permanent] {
        let mut after = ready.clone();
        fold(&mut after, finished(failure(class)));
        assert_eq!(after.retry.next_effect_at, None, "{class}");
        assert!(after.pending.is_none() && after.is_ready(), "{class}");
    }
}

#[test]
fn agents_join_fall_silent_and_are_heard() {
    let swactor = || "agent".into();
    let joined = NodeEvent::Joined { swactor: swactor() };
    let silent = |last| NodeEvent::Silent { swactor: swactor(), last_contact: at(last) };
    let contact = || NodeEvent::Contact { swactor: swactor() };
    let stranger = NodeEvent::Contact { swactor: "stranger".into() };
    let mut quiet = node(NodeStage::Dormant);
    fold(&mut quiet, silent(990));
    let rows = [
        check("joined", &node(NodeStage::BootstrapRunning), joined.clone()),
        check("joined before the lease is known", &creating(), joined.clone()),
        check("joined again", &node(NodeStage::Dormant), joined.clone()),
        check("joined after the failure", &node(NodeStage::Failed), joined.clone()),
        check("joined while deleted", &cancelling(), joined),
        check("silent", &node(NodeStage::Dormant), silent(990)),
        check("silent before it was ready", &node(NodeStage::SwactorJoined), silent(990)),
        check("silent before the join", &node(NodeStage::BootstrapRunning), silent(990)),
        check("silent since the future", &node(NodeStage::Dormant), silent(2000)),
        check("silent still", &quiet, silent(995)),
        check("heard", &quiet, contact()),
        check("heard as ever", &node(NodeStage::Dormant), contact()),
        check("another one heard", &quiet, stranger),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn deadlines_of_the_record_end_attempts() {
    let due = |mut node: ManagedNode| {
        node.record.ready_by = node.record.ready_by.map(|_| at(1000));
        node
    };
    let late = |mut node: ManagedNode| {
        node.record.bootstrap_by = Some(at(999));
        node
    };
    let passed = || NodeEvent::DeadlinePassed;
    let rows = [
        check("nothing due", &node(NodeStage::BootstrapRunning), passed()),
        check("endpoint never found", &due(node(NodeStage::LeaseCreated)), passed()),
        check("join never settled", &due(node(NodeStage::SwactorJoined)), passed()),
        check("no join", &late(node(NodeStage::BootstrapRunning)), passed()),
        check("while deleted", &late(cancelling()), passed()),
        check("lease gone", &node(NodeStage::Dormant), NodeEvent::LeaseGone),
        check("lease gone before there was one", &creating(), NodeEvent::LeaseGone),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn the_tenth_ended_attempt_quarantines_the_slot() {
    let mut before = node(NodeStage::BootstrapRunning);
    (before.retry.ended_attempts, before.retry.consecutive_failures) = (9, 9);
    insta::assert_snapshot!(check("tenth", &before, NodeEvent::LeaseGone));
}

#[test]
fn a_node_that_was_ready_for_long_starts_its_count_anew() {
    let mut before = node(NodeStage::Dormant);
    (before.retry.ended_attempts, before.retry.consecutive_failures) = (4, 6);
    let young = check("ready for a while", &before, NodeEvent::LeaseGone);
    before.record.ready_since = Some(at(400));
    let old = check("ready for ten minutes", &before, NodeEvent::LeaseGone);
    insta::assert_snapshot!(young + &old);
}

#[test]
fn operators_are_obeyed() {
    let refused = {
        let mut node = creating();
        fold(&mut node, finished(failure(ErrorClass::Permanent)));
        node
    };
    let mut quarantined = node(NodeStage::BootstrapRunning);
    (quarantined.retry.ended_attempts, quarantined.retry.consecutive_failures) = (9, 9);
    fold(&mut quarantined, NodeEvent::LeaseGone);
    let ask = NodeEvent::Operator;
    let rows = [
        check("retry of a refused node", &refused, ask(OperatorRequest::Retry)),
        check("retry of a quarantined node", &quarantined, ask(OperatorRequest::Retry)),
        check(
            "retry of a destroyed node",
            &node(NodeStage::Destroyed),
            ask(OperatorRequest::Retry),
        ),
        check("retry of a ready node", &node(NodeStage::Dormant), ask(OperatorRequest::Retry)),
        check("replace", &node(NodeStage::Dormant), ask(OperatorRequest::Replace)),
        check("replace of a failed node", &node(NodeStage::Failed), ask(OperatorRequest::Replace)),
        check("abandon", &destroying(), ask(OperatorRequest::Abandon)),
        check("abandon of a ready node", &node(NodeStage::Dormant), ask(OperatorRequest::Abandon)),
        check(
            "abandon of a destroyed node",
            &node(NodeStage::Destroyed),
            ask(OperatorRequest::Abandon),
        ),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn deletion_is_irrevocable_whatever_is_observed() {
    let mut before = node(NodeStage::Dormant);
    transition::begin_delete(
        &mut before,
        myelin_state::DeleteCause::SpecChanged,
        at(900),
        &policy(),
    );
    for event in [
        NodeEvent::Joined { swactor: "agent".into() },
        NodeEvent::Contact { swactor: "agent".into() },
        NodeEvent::Operator(OperatorRequest::Retry),
    ] {
        let mut after = before.clone();
        fold(&mut after, event);
        assert_eq!(after.intent, myelin_state::NodeIntent::Deleting);
    }
}
