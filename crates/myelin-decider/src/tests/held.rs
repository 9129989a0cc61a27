//! What is said of nodes that are held.

use myelin_shape::NodeAttemptId;
use myelin_state::{DeleteCause, OperationKind};

use super::fixture::at;
use crate::{BrakeScope, Brakes, HeldReason, NodeAction};

#[test]
fn every_reason_has_a_name_of_its_own_and_is_told_with_its_numbers() {
    let (node, scope) = (|| "worker-1".into(), || BrakeScope::Group("worker".into()));
    let kind = OperationKind::CreateLease;
    let reasons = [
        HeldReason::Pending { kind, expired: false },
        HeldReason::Pending { kind, expired: true },
        HeldReason::Backoff { failures: 2 },
        HeldReason::AwaitingEndpoint,
        HeldReason::AwaitingJoin,
        HeldReason::Silent { since: at(980) },
        HeldReason::RestartBackoff { failures: 3 },
        HeldReason::Quarantined { failures: 10 },
        HeldReason::Refused { node: node(), message: "no such image".into() },
        HeldReason::Kept,
        HeldReason::Budget { unavailable: 1, limit: 2 },
        HeldReason::Canary { node: node() },
        HeldReason::CanaryFailed { node: node() },
        HeldReason::CreateLimit { in_flight: 5, limit: 5 },
        HeldReason::Brake { scope: scope(), unhealthy: 4, limit: 2, repairs: 1 },
        HeldReason::AwaitingRepair { scope: BrakeScope::Run, stuck: None },
        HeldReason::AwaitingRepair { scope: scope(), stuck: Some(node()) },
        HeldReason::Paused,
        HeldReason::AllocatorExhausted,
    ];
    let lines: Vec<_> =
        reasons.iter().map(|reason| format!("{}: {reason}", reason.code())).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_machine_that_is_ended_under_a_brake_is_said_to_be() {
    let told = |group, run| {
        let action = NodeAction::BeginDelete {
            node: "worker-1".into(),
            expected_attempt: NodeAttemptId(3),
            cause: DeleteCause::Lost,
            brakes: Brakes { group, run },
        };
        action.to_string().contains("brake")
    };
    assert_eq!([told(false, false), told(true, false), told(false, true)], [false, true, true]);
}
