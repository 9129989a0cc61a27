//! Nothing leaves before its record is durable.

use std::time::Duration;

use myelin::runtime::{Error, Notice, Target};
use myelin_state::{EventKind, NodeEvent, NodeObservation, OperatorRequest};
use myelin_store::Fault;
use tokio::time::sleep;

use super::world::{World, workers};

/// How often a commit is tried in an hour.
const HOUR: usize = 3600;

#[tokio::test(start_paused = true)]
async fn a_failed_commit_submits_nothing_and_all_of_it_follows_later() {
    for fault in [Fault::Full, Fault::Locked, Fault::AnswerLost, Fault::Damaged] {
        let world = World::new();
        world.store.script([Some(fault); 3]);
        let delayed = world.apply(workers(3, "a")).await;
        assert!(matches!(delayed, Err(Error::Unrecorded { .. })), "{delayed:?}");
        assert_eq!(world.n_creates(), 0, "{fault:?}");
        let status = world.handle.status().await.unwrap();
        assert!(status.trouble.is_some(), "it is said that nothing is done: {status:?}");
        let refused = world.handle.pause(true).await;
        assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
        world.until_converged().await;
        assert_eq!(world.n_leases(), 3, "{fault:?}");
        assert_eq!(world.handle.status().await.unwrap().trouble, None);
        world.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_between_costs_nothing_but_time() {
    let world = World::converged(workers(3, "a")).await;
    let faults = (0..200).map(|n| (n % 3 == 0).then_some(Fault::Locked));
    world.store.script(faults);
    while let Err(error) = world.apply(workers(6, "b")).await {
        assert!(matches!(error, Error::Store { .. } | Error::Unrecorded { .. }), "{error:?}");
        sleep(Duration::from_millis(100)).await;
    }
    world.until_converged().await;
    assert_eq!(world.n_leases(), 6);
    assert_eq!(world.n_creates(), 9);
    world.check();
}

#[tokio::test(start_paused = true)]
async fn creates_and_destroys_follow_commits_that_outlive_a_loss_of_power() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.store.n_barriers();
    assert!(before >= 1);
    world.apply(workers(2, "a")).await.unwrap();
    world.until_converged().await;
    assert!(world.store.n_barriers() > before);
    world.check();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_recorded_yet_is_told_as_such_and_takes_effect_once_it_is() {
    let world = World::converged(workers(2, "a")).await;
    let before = world.attempts().await;
    let n_commits = world.store.n_commits();
    world.store.script([Some(Fault::Full); 5]);
    let named = || Target::Node("worker-1".into());
    let delayed = world.handle.operator(named(), OperatorRequest::Replace).await;
    assert!(matches!(delayed, Err(Error::Unrecorded { .. })), "{delayed:?}");
    assert_eq!(world.store.n_commits(), n_commits, "and so it is");
    let refused = world.handle.operator(named(), OperatorRequest::Replace).await;
    assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
    world.until("the word takes effect", |nodes| !nodes[1].ready).await;
    world.until_converged().await;
    let after = world.attempts().await;
    assert_eq!(after["worker-0"], before["worker-0"]);
    assert_eq!(world.events(&["operator_asked"]).await.len(), 1, "the first and not the second");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn down_that_is_not_recorded_yet_says_so_each_time_and_goes_on_once_it_is() {
    let world = World::converged(workers(2, "a")).await;
    world.store.script([Some(Fault::Full); 60]);
    for _ in 0..3 {
        let delayed = world.handle.down().await;
        assert!(matches!(delayed, Err(Error::Unrecorded { .. })), "{delayed:?}");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.n_leases(), 2);
    }
    world.until("all nodes are gone", <[_]>::is_empty).await;
    assert_eq!(world.n_leases(), 0);
    world.handle.down().await.unwrap();
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_boots_while_the_store_takes_nothing_is_not_given_up_for_that() {
    for n_before in 1..8 {
        let world = World::new();
        // It fails from one commit on: each time the node is at another place.
        let faults = (0..HOUR + n_before).map(|n| (n >= n_before).then_some(Fault::Full));
        world.store.script(faults);
        world.apply(workers(1, "a")).await.unwrap();
        sleep(Duration::from_mins(61)).await;
        world.until_converged().await;
        assert_eq!((world.n_creates(), world.n_leases()), (1, 1), "{n_before} commits before");
        world.check();
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_and_goes_while_the_store_takes_nothing_is_as_it_was_last() {
    let world = World::converged(workers(2, "a")).await;
    let before = world.attempts().await;
    let agent = world.explain("worker-1").await.agent.unwrap().agent;
    world.store.script([Some(Fault::Full); HOUR]);
    world.handle.pause(true).await.unwrap_err();
    let said = |event| NodeObservation {
        node: "worker-1".into(),
        attempt: myelin_shape::NodeAttemptId(before["worker-1"]),
        event,
    };
    let swactor = || agent.as_str().into();
    for _ in 0..50_000 {
        let last_contact = world.fake.clock().now();
        let silent = NodeEvent::Silent { swactor: swactor(), last_contact };
        world.observations.send(said(silent)).unwrap();
        world.observations.send(said(NodeEvent::Contact { swactor: swactor() })).unwrap();
    }
    sleep(Duration::from_mins(61)).await;
    world.handle.pause(false).await.unwrap();
    world.until_converged().await;
    assert_eq!(world.attempts().await, before);
    let told = world.events(&["silent", "heard"]).await;
    assert!(told.len() <= 2, "of {} only the last matters", told.len());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_notes_that_cannot_be_written_the_last_are_kept() {
    let world = World::converged(workers(1, "a")).await;
    world.store.script([Some(Fault::Full); 30]);
    world.handle.pause(true).await.unwrap_err();
    for n in 0..1000 {
        let kind = EventKind::StraysLeft { reason: n.to_string().into() };
        world.handle.note(Notice { of: None, kind });
        // They are handed over one by one: there is no room for many.
        world.handle.status().await.unwrap();
    }
    world.until_recorded().await;
    let told = world.events(&["strays_left"]).await;
    assert_eq!(told.len(), 256);
    assert!(told[255].text.contains("999"), "{}", told[255].text);
    world.handle.pause(false).await.unwrap();
    world.end().await;
}
