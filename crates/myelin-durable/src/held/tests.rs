use std::time::{Duration, SystemTime};

use myelin_driver::{ClusterDriver, Desired};
use myelin_shape::{ClusterShape, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec};
use myelin_state::{
    ErrorClass, NodeIntent, OperationError, OperationKind, OperationOutcome, PendingOperation,
    SwactorFacts,
};
use proptest::prelude::*;

use super::*;

const SESSION: BootstrapSessionId = BootstrapSessionId(1);

/// Returns the state of a cluster of two nodes that are to be bootstrapped, and one of which has joined.
fn state() -> ClusterState {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 2, "fake");
    let desired = Desired::new(ClusterShape::new(RunId(1), 1, [group]));
    let mut driver = ClusterDriver::new(myelin_driver::Options::default());
    driver.handle(at(0), Event::Desired(Box::new(desired)));
    let mut state = driver.state().clone();
    for (node, joined) in state.nodes.values_mut().zip([true, false]) {
        assert_eq!(node.intent, NodeIntent::Active);
        let id = OperationId { attempt: node.attempt, sequence: 7 };
        let kind = OperationKind::StartBootstrap;
        node.pending =
            Some(Box::new(PendingOperation { id, kind, deadline: at(60), expired: false }));
        if joined {
            node.active_bootstrap = Some(SESSION);
            let facts = SwactorFacts { swactor_id: "agent".into(), joined_at: at(1) };
            node.record.swactor = Some(Box::new(facts));
            node.record.stage = myelin_state::NodeStage::SwactorJoined;
        }
    }
    state
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + seconds)
}

fn observed(node: u8, attempt: u64, event: NodeEvent) -> Event {
    let node = if node == 0 { "worker-0" } else { "worker-1" };
    Event::Observed(NodeObservation { node: node.into(), attempt: NodeAttemptId(attempt), event })
}

fn held(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let (mut held, state) = (Held::default(), state());
    for event in events {
        held.push(event, &state);
    }
    held.take().collect()
}

/// Returns what an agent of a node says on its `n`th way in and out.
fn flap(node: u8, n: u64) -> [Event; 3] {
    let swactor = || "agent".into();
    [
        observed(node, u64::from(node), NodeEvent::Joined { swactor: swactor() }),
        observed(node, u64::from(node), NodeEvent::Contact { swactor: swactor() }),
        observed(
            node,
            u64::from(node),
            NodeEvent::Silent { swactor: swactor(), last_contact: at(n) },
        ),
    ]
}

#[test]
fn agents_that_come_and_go_for_a_day_cost_a_handful_of_events() {
    let day = (0..40_000).flat_map(|n| flap(u8::from(n % 2 == 1), n));
    let kept = held(day);
    assert_eq!(kept.len(), 6, "{kept:#?}");
    assert_eq!(kept[5], flap(1, 39_999)[2], "the last of them is");
}

#[test]
fn what_nobody_waits_for_is_not_kept() {
    let lost = OperationError { class: ErrorClass::Transient, message: "x".into() };
    let finished = |attempt: u64, sequence| {
        let operation = OperationId { attempt: NodeAttemptId(attempt), sequence };
        let outcome = OperationOutcome::Failed(lost.clone());
        observed(0, attempt, NodeEvent::OperationFinished { operation, outcome })
    };
    let kept = held([
        Event::Tick,
        Event::Wake,
        observed(0, 9, NodeEvent::LeaseGone),
        finished(0, 6),
        finished(9, 7),
        finished(0, 7),
        finished(0, 7),
        Event::Resume,
    ]);
    assert_eq!(kept, [finished(0, 7), Event::Resume]);
}

fn event() -> impl Strategy<Value = NodeEvent> {
    let stage = prop_oneof![
        Just(BootstrapStage::BootChecking),
        Just(BootstrapStage::WaitingForSwactorJoin),
        Just(BootstrapStage::Closed),
        Just(BootstrapStage::SwactorJoinFailed),
    ];
    // The first agent of an attempt is its only one: the membership sees to that.
    let swactor = || Just("agent".into());
    let outcome = prop_oneof![
        Just(OperationOutcome::BootstrapStarted { session: SESSION }),
        Just(OperationOutcome::Failed(OperationError {
            class: ErrorClass::Ambiguous,
            message: "lost".into(),
        })),
    ];
    prop_oneof![
        2 => stage.prop_map(|stage| {
            NodeEvent::Bootstrap { session: SESSION, sequence: 0, stage, message: None }
        }),
        2 => swactor().prop_map(|swactor| NodeEvent::Joined { swactor }),
        2 => swactor().prop_map(|swactor| NodeEvent::Contact { swactor }),
        2 => (swactor(), 0..50_u64).prop_map(|(swactor, n)| NodeEvent::Silent { swactor, last_contact: at(n) }),
        1 => (outcome, 6..8_u64).prop_map(|(outcome, sequence)| {
            let operation = OperationId { attempt: NodeAttemptId(0), sequence };
            NodeEvent::OperationFinished { operation, outcome }
        }),
    ]
}

/// Makes streams of what bootstraps report, each of a node's only session, which end with an end that may be repeated, and says of which attempt
/// results are.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = (0..2_u8, prop_oneof![9 => Just(0), 1 => Just(5_u64)], event());
    prop::collection::vec(one, 0..60).prop_map(|events| {
        let mut ends = BTreeMap::new();
        let number = |(at, (node, off, mut event)): (usize, (u8, u64, NodeEvent))| {
            let attempt = u64::from(node) + off;
            if let NodeEvent::Bootstrap { sequence, stage, .. } = &mut event {
                let end = ends.get(&(node, attempt)).copied();
                (*sequence, *stage) = end.unwrap_or((1 + at as u64, *stage));
                if *stage > BootstrapStage::Converged {
                    ends.insert((node, attempt), (*sequence, *stage));
                }
            }
            if let NodeEvent::OperationFinished { operation, .. } = &mut event {
                operation.attempt = NodeAttemptId(attempt);
            }
            observed(node, attempt, event)
        };
        events.into_iter().enumerate().map(number).collect()
    })
}

/// Returns what matters of the nodes after some events.
fn folded(events: impl IntoIterator<Item = Event>) -> String {
    let mut driver = ClusterDriver::restore(myelin_driver::Options::default(), state());
    for event in events {
        driver.fold(at(100), event);
    }
    let nodes = driver.state().nodes.values().map(|node| {
        let record = &node.record;
        format!(
            "{:?} {:?} {:?} {:?} silent {} failures {} ended {} unsettled {:?} {:?}",
            record.stage,
            node.pending.as_deref().map(|pending| pending.id),
            record.swactor.as_deref().map(|facts| &facts.swactor_id),
            node.active_bootstrap,
            record.silence.is_some(),
            node.retry.consecutive_failures,
            node.retry.ended_attempts,
            node.retry.ambiguous_operation,
            record.failed_reason,
        )
    });
    nodes.collect::<Vec<_>>().join("\n")
}

proptest! {
    #[test]
    fn what_is_kept_leads_to_the_same_as_all_of_it(events in events()) {
        prop_assert_eq!(folded(held(events.clone())), folded(events));
    }
}
