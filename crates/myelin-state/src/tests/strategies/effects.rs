//! Effects asked for, and what is learned of them.

use proptest::{option, prelude::*, sample::select};

use myelin_shape::NodeAttemptId;

use crate::{
    ErrorClass, LeaseMode, NodeEvent, NodeManagerCommand, NodeObservation, OperationError,
    OperationOutcome, OperatorRequest,
};

use super::{
    bootstrap_stage, connection, duration, lease, maybe_time, message, node_id, operation_id,
    session, slot, swactor_id, text, time,
};

pub(crate) fn command() -> impl Strategy<Value = NodeManagerCommand> {
    let mode = || select(&[LeaseMode::CreateOrAdopt, LeaseMode::AdoptOnly][..]);
    let start = (slot(), lease(), connection(), mode(), maybe_time());
    prop_oneof![
        (slot(), mode(), maybe_time()).prop_map(|(spec, mode, unsettled_since)| {
            NodeManagerCommand::CreateLease { spec, mode, unsettled_since }
        }),
        lease().prop_map(|lease| NodeManagerCommand::LookupEndpoint { lease }),
        start.prop_map(|(spec, lease, connection, mode, unsettled_since)| {
            NodeManagerCommand::StartBootstrap { spec, lease, connection, mode, unsettled_since }
        }),
        (text(), option::of(session())).prop_map(|(provider, session)| {
            NodeManagerCommand::BootstrapConvergenceObserved { provider: provider.into(), session }
        }),
        (text(), session()).prop_map(|(provider, session)| {
            NodeManagerCommand::CancelBootstrap { provider: provider.into(), session }
        }),
        lease().prop_map(|lease| NodeManagerCommand::DestroyLease { lease }),
    ]
}

fn error() -> impl Strategy<Value = OperationError> {
    let class = prop_oneof![
        Just(ErrorClass::Transient),
        duration().prop_map(ErrorClass::RateLimited),
        Just(ErrorClass::NoCapacity),
        Just(ErrorClass::Permanent),
        Just(ErrorClass::Ambiguous),
        Just(ErrorClass::AlreadyAbsent),
    ];
    (class, message()).prop_map(|(class, message)| OperationError { class, message })
}

fn outcome() -> impl Strategy<Value = OperationOutcome> {
    let created = (lease().prop_map(Box::new), option::of(connection()));
    prop_oneof![
        created
            .prop_map(|(lease, connection)| OperationOutcome::LeaseCreated { lease, connection }),
        Just(OperationOutcome::LeaseAbsent),
        connection().prop_map(OperationOutcome::EndpointFound),
        Just(OperationOutcome::EndpointNotReady),
        session().prop_map(|session| OperationOutcome::BootstrapStarted { session }),
        Just(OperationOutcome::BootstrapAbsent),
        Just(OperationOutcome::ConvergenceRecorded),
        Just(OperationOutcome::BootstrapCancelled),
        Just(OperationOutcome::LeaseDestroyed),
        error().prop_map(OperationOutcome::Failed),
    ]
}

fn event() -> impl Strategy<Value = NodeEvent> {
    let finished = (operation_id(), outcome());
    let bootstrap = (session(), any::<u64>(), bootstrap_stage(), option::of(message()));
    let request =
        select(&[OperatorRequest::Retry, OperatorRequest::Replace, OperatorRequest::Abandon][..]);
    prop_oneof![
        finished
            .prop_map(|(operation, outcome)| NodeEvent::OperationFinished { operation, outcome }),
        bootstrap.prop_map(|(session, sequence, stage, message)| NodeEvent::Bootstrap {
            session,
            sequence,
            stage,
            message,
        }),
        swactor_id().prop_map(|swactor| NodeEvent::Joined { swactor }),
        swactor_id().prop_map(|swactor| NodeEvent::Contact { swactor }),
        (swactor_id(), time())
            .prop_map(|(swactor, last_contact)| NodeEvent::Silent { swactor, last_contact }),
        Just(NodeEvent::LeaseGone),
        Just(NodeEvent::DeadlinePassed),
        request.prop_map(NodeEvent::Operator),
    ]
}

pub(crate) fn observation() -> impl Strategy<Value = NodeObservation> {
    (node_id(), any::<u64>(), event()).prop_map(|(node, attempt, event)| NodeObservation {
        node,
        attempt: NodeAttemptId(attempt),
        event,
    })
}
