//! What the inventory is told of the loop's records, and what it has written down.

use myelin::runtime::{Error, Notice};
use myelin_inventory::{Life, StoreDoubt};
use myelin_state::EventKind;
use myelin_store::Fault;

use super::world::{World, workers};

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
async fn what_is_about_to_be_given_back_is_durable_first_or_not_given_back() {
    let world = World::converged(workers(1, "a")).await;
    let n_barriers = world.store.n_barriers();
    world.handle.record(collecting()).await.unwrap();
    assert_eq!(world.store.n_barriers(), n_barriers + 1);
    let told = world.events(&["collecting"]).await.pop().unwrap();
    assert_eq!((told.node.as_deref(), told.attempt), (Some("worker-7"), Some(3)));

    world.store.script([Some(Fault::Full); 2]);
    let refused = world.handle.record(collecting()).await;
    assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
    let doubt = world.handle.records().await.unwrap().doubt;
    assert!(matches!(doubt, Some(StoreDoubt::NotDurable(_))), "{doubt:?}");
    world.end().await;
}
