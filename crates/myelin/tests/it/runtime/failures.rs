//! Providers that refuse, bootstraps that fail, calls that hang.

use std::time::Duration;

use myelin::view::NodeView;
use myelin_executor::fake::{CallKind, REFUSED_IMAGE, Step};
use myelin_shape::AttemptKey;
use myelin_state::{BootstrapStage, ErrorClass};
use tokio::time::sleep;

use super::world::{World, file, workers};

/// Lets the first bootstrap of a node fail.
fn fail_bootstrap(world: &World, node: &str) -> bool {
    let sessions = world.fake.sessions();
    let of_node = |key: &&AttemptKey| key.node.as_str() == node;
    let Some(key) = sessions.iter().map(|it| &it.key).rfind(of_node) else {
        return false;
    };
    let words = Some("`test -e /data` exited with 1");
    let event = world.fake.bootstrap_event(key, BootstrapStage::BootCheckFailed, words);
    event.is_some_and(|event| world.observations.send(event).is_ok())
}

#[tokio::test(start_paused = true)]
async fn a_failed_bootstrap_is_cleaned_up_at_once_and_restarted_later() {
    let world = World::new();
    world.agents.never_join(|_| true);
    world.apply(workers(1, "a")).await.unwrap();
    let mut delays = Vec::new();
    for _ in 0..3 {
        world.until("it boots", |nodes| nodes[0].state == "booting").await;
        assert!(fail_bootstrap(&world, "worker-0"));
        world.until("it is cleaned up", |nodes| nodes[0].state == "restarting").await;
        assert_eq!(world.n_leases(), 0, "the machine goes at once");
        let node = world.explain("worker-0").await;
        assert_eq!(node.retry.last_error.as_deref(), Some("`test -e /data` exited with 1"));
        let failed = world.events(&["attempt_failed"]).await.pop().unwrap();
        delays.push(node.node.why.until.unwrap().duration_since(failed.at).as_secs());
    }
    assert!(delays.is_sorted() && delays[2] >= 4, "each delay is longer: {delays:?}");
    world.agents.never_join(|_| false);
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_image_is_held_for_the_group_with_the_providers_words_all_night() {
    let world = World::new();
    world.apply(workers(3, REFUSED_IMAGE)).await.unwrap();
    world.until("all are refused", |nodes| nodes.iter().all(|it| it.state == "refused")).await;
    let asked = world.n_creates();
    sleep(Duration::from_hours(12)).await;
    assert_eq!(world.n_creates(), asked, "it is not asked for again");
    for node in world.nodes().await {
        assert_eq!(node.why.code, "refused");
        assert!(node.why.text.ends_with("no such image"), "{}", node.why.text);
        assert_eq!(
            node.why.until_event.as_deref(),
            Some("its group changes in the file, or `myelin retry`")
        );
    }
    assert!(world.handle.is_stuck().await.unwrap());
    world.apply(workers(3, "a")).await.unwrap();
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_of_twenty_with_an_impossible_image_costs_one_create() {
    let world = World::new();
    world.apply(workers(20, REFUSED_IMAGE)).await.unwrap();
    world.until("all are refused", |nodes| nodes.iter().all(|it| it.state == "refused")).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.n_creates(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_never_joins_costs_one_machine_at_a_time_of_a_large_group() {
    let world = World::new();
    world.agents.never_join(|_| true);
    world.apply(workers(20, "a")).await.unwrap();
    for _ in 0..60 {
        sleep(Duration::from_mins(5)).await;
        assert!(world.n_leases() <= 1);
    }
    assert_eq!(world.n_creates(), 10, "then the slot is quarantined");
    let other = world.explain("worker-19").await;
    assert_eq!(other.node.why.code, "canary_failed");
    assert!(world.handle.is_stuck().await.unwrap());
    world.agents.never_join(|_| false);
    world.apply(workers(20, "b")).await.unwrap();
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_fails_ten_times_is_quarantined_until_somebody_says_retry() {
    let world = World::new();
    world.agents.never_join(|key| key.node.as_str() == "worker-1");
    let retry = "retry: {bootstrap_timeout: 30s, max_consecutive_failures: 3}";
    let groups = "[{id: worker, count: 2, provider: fake}]";
    world.apply(file(groups, retry)).await.unwrap();
    let quarantined = |nodes: &[NodeView]| nodes[1].state == "quarantined";
    world.until("it is quarantined", quarantined).await;
    let asked = world.n_creates();
    sleep(Duration::from_hours(12)).await;
    assert_eq!((world.n_creates(), asked), (4, 4));
    assert!(world.handle.is_stuck().await.unwrap());
    world.agents.never_join(|_| false);
    let named = myelin::runtime::Target::Named("worker".to_owned());
    let retry = myelin_state::OperatorRequest::Retry;
    let released = world.handle.operator(named, retry).await.unwrap();
    assert_eq!(released, ["worker-1"]);
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_replies_and_calls_that_hang_leave_no_second_machine() {
    let world = World::new();
    let steps = [
        Step::LoseReply,
        Step::Hang,
        Step::Ignore,
        Step::fail(ErrorClass::Transient, "try later"),
        Step::fail(ErrorClass::RateLimited(Duration::from_secs(30)), "slow down"),
        Step::Panic,
        Step::Late(Duration::from_mins(3)),
    ];
    for kind in [CallKind::Create, CallKind::Start, CallKind::Destroy, CallKind::Cancel] {
        for step in &steps {
            world.fake.script(kind, step.clone());
        }
    }
    world.apply(workers(4, "a")).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_hours(6);
    while !world.handle.status().await.unwrap().converged {
        assert!(tokio::time::Instant::now() < deadline, "{:#?}", world.nodes().await);
        sleep(Duration::from_secs(1)).await;
    }
    world.apply(workers(4, "b")).await.unwrap();
    sleep(Duration::from_hours(6)).await;
    world.until_converged().await;
    world.end().await;
}
