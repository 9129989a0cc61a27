use std::{
    collections::BTreeSet,
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use insta::assert_snapshot;
use proptest::prelude::*;

use myelin_api::{AgentKey, JoinSecret};
use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};
use myelin_state::{NodeEvent, NodeObservation};

use crate::{Membership, Timing};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(attempt: u64) -> AttemptKey {
    AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: "worker-0".into(),
        attempt: NodeAttemptId(attempt),
    }
}

fn agent(name: u8) -> AgentKey {
    AgentKey::new([name; 16])
}

/// One step of a script; `a` and `b` are two agents, connections count from 1.
#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u8, u64),
    WrongToken(u8, u64),
    Contact(u64, u64),
    Disconnect(u64, u64),
    Expect(u8, u64),
    Retire(u64),
    Tick,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn name(swactor: &str) -> char {
    (b'a'..=b'b').find(|&name| agent(name).swactor().as_str() == swactor).unwrap().into()
}

fn render(observation: &NodeObservation) -> String {
    let attempt = observation.attempt;
    match &observation.event {
        NodeEvent::Joined { swactor } => format!("{attempt}: joined {}", name(swactor.as_str())),
        NodeEvent::Contact { swactor } => format!("{attempt}: contact {}", name(swactor.as_str())),
        NodeEvent::Silent { swactor, last_contact } => {
            let name = name(swactor.as_str());
            format!("{attempt}: silent {name} since {}", seconds(*last_contact))
        }
        NodeEvent::OperationFinished { .. }
        | NodeEvent::Bootstrap { .. }
        | NodeEvent::LeaseGone
        | NodeEvent::DeadlinePassed
        | NodeEvent::Operator(_) => panic!("membership does not observe {observation:?}"),
    }
}

fn apply(membership: &mut Membership, step: Step, now: SystemTime) -> String {
    let secret = JoinSecret::new([1; 32]);
    match step {
        Step::Join(name, attempt) => {
            let token = secret.token(&key(attempt));
            match membership.join(&key(attempt), &token, &agent(name), now) {
                Ok(joined) => format!("connection {}", joined.connection),
                Err(refusal) => refusal.to_string(),
            }
        }
        Step::WrongToken(name, attempt) => {
            let token = secret.token(&key(attempt + 1));
            let refusal = membership.join(&key(attempt), &token, &agent(name), now);
            refusal.unwrap_err().to_string()
        }
        Step::Contact(attempt, connection) => {
            membership.contact(&key(attempt), connection, now).to_string()
        }
        Step::Disconnect(attempt, connection) => {
            membership.disconnect(&key(attempt), connection);
            String::new()
        }
        Step::Expect(name, attempt) => {
            membership.expect(&key(attempt), &agent(name).swactor(), now);
            String::new()
        }
        Step::Retire(attempt) => format!("{} forgotten", membership.retire(&key(attempt)).len()),
        Step::Tick => {
            membership.tick(now);
            String::new()
        }
    }
}

/// Runs a script against a membership with a silence of six seconds, and renders what came of each step.
fn check(script: &[(u64, Step)]) -> String {
    let mut membership = Membership::new(JoinSecret::new([1; 32]), Timing::default());
    let mut shown = String::new();
    for &(time, step) in script {
        let result = apply(&mut membership, step, at(time));
        let told: Vec<_> = membership.take_observations().map(|told| render(&told)).collect();
        writeln!(shown, "{time:>3} {step:?}: {result} {told:?}").unwrap();
    }
    let deadline = membership.next_deadline().map(seconds);
    writeln!(shown, "next deadline {deadline:?}").unwrap();
    shown
}

const A: u8 = b'a';
const B: u8 = b'b';

#[test]
fn the_first_agent_to_present_a_token_is_the_attempts() {
    assert_snapshot!(check(&[
        (1, Step::WrongToken(A, 1)),
        (1, Step::Join(A, 1)),
        (2, Step::Join(A, 1)),
        (3, Step::Join(B, 1)),
        (4, Step::Contact(1, 2)),
    ]));
}

#[test]
fn silence_is_told_once_and_ends_with_the_next_contact() {
    assert_snapshot!(check(&[
        (1, Step::Join(A, 1)),
        (3, Step::Contact(1, 1)),
        (9, Step::Tick),
        (10, Step::Tick),
        (11, Step::Tick),
        (12, Step::Contact(1, 1)),
        (13, Step::Contact(1, 1)),
    ]));
}

#[test]
fn a_closed_connection_is_silence_at_once_and_a_replaced_one_is_none() {
    assert_snapshot!(check(&[
        (1, Step::Join(A, 1)),
        (2, Step::Contact(1, 1)),
        (5, Step::Disconnect(1, 1)),
        (5, Step::Disconnect(1, 1)),
        (6, Step::Join(A, 1)),
        (7, Step::Join(A, 1)),
        (8, Step::Disconnect(1, 2)),
        (8, Step::Contact(1, 2)),
        (9, Step::Contact(1, 3)),
    ]));
}

#[test]
fn an_expected_agent_is_silent_from_our_own_start_on() {
    assert_snapshot!(check(&[
        (100, Step::Expect(A, 1)),
        (106, Step::Tick),
        (107, Step::Tick),
        (108, Step::Join(B, 1)),
        (109, Step::Join(A, 1)),
        (110, Step::Expect(B, 1)),
    ]));
}

#[test]
fn an_expected_agent_is_unconnected_until_it_joins_and_a_lost_one_again() {
    let mut membership = Membership::new(JoinSecret::new([1; 32]), Timing::default());
    let mut unconnected = |step| {
        apply(&mut membership, step, SystemTime::UNIX_EPOCH);
        membership.n_unheard()
    };
    assert_eq!(unconnected(Step::Expect(A, 1)), 1);
    assert_eq!(unconnected(Step::Expect(B, 2)), 2);
    assert_eq!(unconnected(Step::Join(A, 1)), 1);
    assert_eq!(unconnected(Step::Retire(2)), 0);
    assert_eq!(unconnected(Step::Join(B, 3)), 0);
    assert_eq!(unconnected(Step::Disconnect(3, 2)), 1);
}

#[test]
fn a_retired_attempt_and_its_predecessors_are_gone() {
    assert_snapshot!(check(&[
        (1, Step::Join(A, 1)),
        (2, Step::Join(B, 2)),
        (3, Step::Retire(2)),
        (3, Step::Disconnect(2, 2)),
        (4, Step::Contact(2, 2)),
        (5, Step::Join(B, 2)),
        (6, Step::Join(A, 1)),
        (7, Step::Retire(1)),
        (8, Step::Join(B, 2)),
        (9, Step::Expect(A, 1)),
        (10, Step::Join(A, 3)),
        (11, Step::Tick),
    ]));
}

fn step() -> impl Strategy<Value = Step> {
    let attempt = 1_u64..4;
    prop_oneof![
        (A..=B, attempt.clone()).prop_map(|(name, attempt)| Step::Join(name, attempt)),
        (attempt.clone(), 1_u64..9).prop_map(|(attempt, number)| Step::Contact(attempt, number)),
        (attempt.clone(), 1_u64..9).prop_map(|(attempt, number)| Step::Disconnect(attempt, number)),
        (A..=B, attempt.clone()).prop_map(|(name, attempt)| Step::Expect(name, attempt)),
        attempt.prop_map(Step::Retire),
        Just(Step::Tick),
    ]
}

proptest! {
    #[test]
    fn silence_and_contact_alternate_and_deadlines_are_never_left_behind(
        script in prop::collection::vec((0_u64..5, step()), 0..60),
    ) {
        let mut membership = Membership::new(JoinSecret::new([1; 32]), Timing::default());
        let mut silent = BTreeSet::new();
        let mut now = 0;
        for (pause, step) in script {
            now += pause;
            apply(&mut membership, step, at(now));
            for told in membership.take_observations() {
                if let NodeEvent::Contact { .. } = told.event {
                    prop_assert!(silent.remove(&told.attempt), "contact is news after silence only");
                } else if let NodeEvent::Silent { last_contact, .. } = told.event {
                    prop_assert!(silent.insert(told.attempt), "silence is told once");
                    prop_assert!(last_contact <= at(now));
                }
            }
            if let Step::Retire(attempt) = step {
                silent.retain(|known| known.0 > attempt);
                prop_assert!(membership.last_contact(&key(attempt)).is_none());
            }
        }
        membership.tick(at(now + 7));
        prop_assert_eq!(membership.next_deadline(), None, "after a long silence everybody is silent");
    }
}
