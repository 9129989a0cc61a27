//! Nothing leaves before its record is durable.

use std::time::Duration;

use myelin::runtime::Error;
use myelin_store::Fault;
use tokio::time::sleep;

use super::world::{World, workers};

#[tokio::test(start_paused = true)]
async fn a_failed_commit_submits_nothing_and_all_of_it_follows_later() {
    for fault in [Fault::Full, Fault::Locked, Fault::AnswerLost, Fault::Damaged] {
        let world = World::new();
        world.store.script([Some(fault); 3]);
        let refused = world.apply(workers(3, "a")).await;
        assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
        assert_eq!(world.n_creates(), 0, "{fault:?}");
        let refused = world.handle.pause(true).await;
        assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
        world.until_converged().await;
        assert_eq!(world.n_leases(), 3, "{fault:?}");
        world.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_between_costs_nothing_but_time() {
    let world = World::converged(workers(3, "a")).await;
    let faults = (0..200).map(|n| (n % 3 == 0).then_some(Fault::Locked));
    world.store.script(faults);
    while let Err(error) = world.apply(workers(6, "b")).await {
        assert!(matches!(error, Error::Store { .. }), "{error:?}");
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
