//! Random histories through the real loop.

use std::time::Duration;

use myelin::runtime::Target;
use myelin_state::OperatorRequest;
use proptest::prelude::*;
use tokio::time::sleep;

use super::world::{World, file};

#[derive(Clone, Debug)]
enum Move {
    Apply { count: u32, image: &'static str },
    Kill(usize),
    Stop(usize),
    GoOn(usize),
    Sever(bool),
    Pause(bool),
    Replace(usize),
    Retry,
    NeverJoin(bool),
    Wait(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => (0..7_u32, prop::sample::select(vec!["a", "b", "refused"]))
            .prop_map(|(count, image)| Move::Apply { count, image }),
        2 => (0..7_usize).prop_map(Move::Kill),
        1 => (0..7_usize).prop_map(Move::Stop),
        1 => (0..7_usize).prop_map(Move::GoOn),
        1 => any::<bool>().prop_map(Move::Sever),
        1 => any::<bool>().prop_map(Move::Pause),
        1 => (0..7_usize).prop_map(Move::Replace),
        1 => Just(Move::Retry),
        1 => any::<bool>().prop_map(Move::NeverJoin),
        5 => (0..200_u64).prop_map(Move::Wait),
    ];
    prop::collection::vec(one, 1..20)
}

fn group(count: u32, image: &str) -> myelin::file::ClusterFile {
    let policy = "policy: {max_unavailable: 2}";
    let group = format!("{{id: worker, count: {count}, provider: fake, image: {image}, {policy}}}");
    file(&format!("[{group}]"), "retry: {bootstrap_timeout: 1m}")
}

async fn play(world: &World, next: Move) {
    let worker = |index: usize| format!("worker-{index}");
    match next {
        Move::Apply { count, image } => {
            world.apply(group(count, image)).await.unwrap();
        }
        Move::Kill(index) => world.agents.kill_if_there(&worker(index)),
        Move::Stop(index) => world.agents.stop_if_there(&worker(index)),
        Move::GoOn(index) => world.agents.go_on_if_there(&worker(index)),
        Move::Sever(severed) => world.handle.sever(severed).await.unwrap(),
        Move::Pause(paused) => {
            world.handle.pause(paused).await.unwrap();
        }
        Move::Replace(index) => {
            let node = Target::Node(worker(index).into());
            world.handle.operator(node, OperatorRequest::Replace).await.ok();
        }
        Move::Retry => retry(world).await,
        Move::NeverJoin(never) => world.agents.never_join(move |_| never),
        Move::Wait(seconds) => sleep(Duration::from_secs(seconds)).await,
    }
}

async fn retry(world: &World) {
    let group = Target::Named("worker".to_owned());
    world.handle.operator(group, OperatorRequest::Retry).await.ok();
}

/// Plays a history, ends all trouble, and checks that the cluster comes to what is desired and then to nothing.
async fn run(history: Vec<Move>) {
    let world = World::new();
    for next in history {
        play(&world, next).await;
    }
    world.agents.never_join(|_| false);
    world.handle.sever(false).await.unwrap();
    world.handle.pause(false).await.unwrap();
    for index in 0..7 {
        world.agents.go_on_if_there(&format!("worker-{index}"));
    }
    world.apply(group(4, "a")).await.unwrap();
    retry(&world).await;
    world.until_converged().await;
    world.end().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The linter and the search for nodes without a reason look at every step; see `world`.
    #[test]
    fn any_history_keeps_every_rule_and_says_why_every_node_is_where_it_is(history in moves()) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(history));
    }
}
