//! Agents that die, agents that are silent, and a network of our own that is gone.

use std::time::Duration;

use myelin::runtime::Target;
use myelin_state::OperatorRequest;
use tokio::time::sleep;

use super::world::{World, workers};

fn minutes(n: u64) -> Duration {
    Duration::from_mins(n)
}

fn n_ready(nodes: &[myelin::view::NodeView]) -> usize {
    nodes.iter().filter(|node| node.ready).count()
}

#[tokio::test(start_paused = true)]
async fn a_killed_agent_ends_its_attempt_and_a_new_one_becomes_ready() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    world.agents.kill("worker-1");
    world.until("it is silent", |nodes| nodes[1].state == "silent").await;
    world.until_converged().await;
    let after = world.attempts().await;
    assert!(after["worker-1"] > before["worker-1"]);
    assert_eq!((after["worker-0"], after["worker-2"]), (before["worker-0"], before["worker-2"]));
    let ended = world.events(&["delete_began"]).await;
    assert_eq!(ended[0].text, "cleanup began: agent lost");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn silence_shorter_than_lost_after_loses_nothing() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    for _ in 0..20 {
        world.agents.stop("worker-1");
        world.until("it is silent", |nodes| !nodes[1].ready).await;
        sleep(Duration::from_secs(37)).await;
        world.agents.go_on("worker-1");
        world.until_converged().await;
    }
    assert_eq!(world.attempts().await, before);
    assert_eq!(world.n_creates(), 3);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn ten_agents_killed_at_once_are_repaired_one_at_a_time_and_then_at_full_speed() {
    let world = World::converged(workers(10, "a")).await;
    for index in 0..10 {
        world.agents.kill(&format!("worker-{index}"));
    }
    world.until("the brake shows", |nodes| nodes.iter().any(|it| it.why.code == "brake")).await;
    let held = world.nodes().await;
    let held = held.iter().find(|it| it.why.code == "brake").unwrap();
    assert_eq!(held.why.text, "brake of group worker: 10 nodes failing, limit 4, 1 under repair");
    assert!(world.handle.status().await.unwrap().groups[0].brake.on);
    let mut most_under_repair = 0;
    while world.handle.status().await.unwrap().groups[0].brake.on {
        let brake = world.handle.status().await.unwrap().groups[0].brake.clone();
        most_under_repair = brake.repairs.max(most_under_repair);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(most_under_repair, 1, "a trickle");
    world.until_converged().await;
    assert_eq!(world.n_creates(), 20, "each was repaired once");

    // Below the limit nothing is held, and both are repaired side by side.
    world.agents.kill("worker-3");
    world.agents.kill("worker-7");
    world
        .until("both restart together", |nodes| nodes.iter().filter(|it| !it.ready).count() == 2)
        .await;
    world.until_converged().await;
    let began = world.events(&["delete_began"]).await;
    let last: Vec<_> = began.iter().rev().take(2).map(|event| event.at).collect();
    assert_eq!(last[0], last[1], "both at once");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_cut_off_ends_at_most_one_machine_however_long() {
    let world = World::converged(workers(10, "a")).await;
    let before = world.attempts().await;
    world.handle.sever(true).await.unwrap();
    for _ in 0..48 {
        sleep(minutes(15)).await;
        assert!(world.n_leases() >= 9, "at most one machine is ended");
    }
    let nodes = world.nodes().await;
    let held = |code: &str| nodes.iter().filter(|node| node.why.code == code).count();
    assert_eq!(held("brake") + held("awaiting_repair"), 9, "{nodes:#?}");
    // Whoever took the place of the one could never join, and after ten tries waits for a person.
    assert_eq!(held("quarantined"), 1, "{nodes:#?}");
    world.handle.sever(false).await.unwrap();
    world.until("nine are ready", |nodes| n_ready(nodes) == 9).await;
    let named = Target::Named("worker".to_owned());
    world.handle.operator(named, OperatorRequest::Retry).await.unwrap();
    world.until_converged().await;
    let after = world.attempts().await;
    let n_lost = after.iter().filter(|(node, attempt)| before[*node] != **attempt).count();
    assert_eq!(n_lost, 1, "{before:?} {after:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_cut_costs_nothing() {
    let world = World::converged(workers(10, "a")).await;
    let before = world.attempts().await;
    world.handle.sever(true).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(n_ready(&world.nodes().await), 0);
    world.handle.sever(false).await.unwrap();
    world.until_converged().await;
    assert_eq!(world.attempts().await, before);
    world.end().await;
}
