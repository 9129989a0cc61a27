//! What the inventory is told of the loop's records, and what it has written down.

use std::time::Duration;

use myelin::runtime::{Error, Notice};
use myelin_inventory::{Life, StoreDoubt};
use myelin_state::EventKind;
use myelin_store::Fault;

use super::world::{World, file, workers};

fn collecting() -> Notice {
    let kind = EventKind::Collecting { provider: "fake".into(), lease: "i-9".into() };
    Notice { of: Some(("worker-7".into(), myelin_shape::NodeAttemptId(3))), kind }
}

#[tokio::test(start_paused = true)]
async fn the_records_name_every_machine_and_when_its_agent_was_heard() {
    let world = World::converged(workers(3, "a")).await;
    let view = world.handle.records().await.unwrap();
    assert_eq!((view.n_leases(), view.next_attempt_id, view.doubt), (3, 3, None));
    assert!(view.slots.values().all(|slot| slot.life == Life::Live));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_records_follow_what_is_wanted_in_how_long_a_create_may_take() {
    let world = World::converged(workers(1, "a")).await;
    let before = world.handle.records().await.unwrap();
    let groups = "[{id: worker, count: 1, provider: fake, image: a}]";
    let patient = file(groups, "retry: {operation_timeout: 1h}");
    let applied = world.apply(patient).await.unwrap();
    let after = world.handle.records().await.unwrap();
    assert!(before.longest_create < Duration::from_mins(10), "{:?}", before.longest_create);
    assert!(after.longest_create > Duration::from_hours(1));
    assert_eq!((before.generation, after.generation), (1, applied.generation));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn machines_carry_the_generation_they_were_decided_under() {
    let world = World::converged(workers(1, "a")).await;
    world.apply(workers(2, "a")).await.unwrap();
    world.until_converged().await;
    let mut leases = world.leases();
    leases.sort_by(|a, b| a.key.cmp(&b.key));
    let generations: Vec<_> = leases.iter().map(|lease| lease.generation).collect();
    assert_eq!(generations, [Some(1), Some(2)]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_about_to_be_given_back_is_durable_first_or_not_given_back() {
    let world = World::converged(workers(1, "a")).await;
    let n_barriers = world.store.n_barriers();
    world.handle.record(collecting()).await.unwrap();
    assert_eq!(world.store.n_barriers(), n_barriers + 1);
    let told = world.events(&["collecting"]).await.pop().unwrap();
    assert_eq!((told.node.as_deref(), told.attempt), (Some("worker-7"), Some(3)));

    world.store.script([Some(Fault::Full); 2]);
    let delayed = world.handle.record(collecting()).await;
    assert!(matches!(delayed, Err(Error::Unrecorded { .. })), "{delayed:?}");
    let refused = world.handle.record(collecting()).await;
    assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
    let doubt = world.handle.records().await.unwrap().doubt;
    assert!(matches!(doubt, Some(StoreDoubt::NotDurable(_))), "{doubt:?}");
    world.until_recorded().await;
    assert_eq!(
        world.events(&["collecting"]).await.len(),
        2,
        "what was delayed is there, not what was refused"
    );
    world.end().await;
}
