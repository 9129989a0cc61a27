//! The operator's words.

use std::time::Duration;

use myelin::{
    runtime::{Error, Target},
    view::NodeView,
};
use myelin_executor::fake::{CallKind, Step};
use myelin_state::{ErrorClass, OperatorRequest};
use tokio::time::sleep;

use super::world::{World, file, workers};

fn node(id: &str) -> Target {
    Target::Node(id.into())
}

#[tokio::test(start_paused = true)]
async fn a_replaced_node_gets_a_fresh_attempt_and_no_other_does() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    let concerned = world.handle.operator(node("worker-1"), OperatorRequest::Replace).await;
    assert_eq!(concerned.unwrap(), ["worker-1"]);
    world.until("it is taken", |nodes| !nodes[1].ready).await;
    world.until_converged().await;
    let after = world.attempts().await;
    let changed: Vec<_> = after.iter().filter(|(id, attempt)| before[*id] != **attempt).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].0, "worker-1");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_while_paused_and_everything_is_explained() {
    let world = World::new();
    assert!(world.handle.pause(true).await.unwrap());
    assert!(!world.handle.pause(true).await.unwrap(), "paused already");
    world.apply(workers(3, "a")).await.unwrap();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.fake.calls().len(), 0);
    for node in world.nodes().await {
        assert_eq!(node.why.code, "paused", "{node:#?}");
        assert_eq!(world.explain(&node.node).await.next, "it goes on with `myelin resume`");
    }
    assert!(world.handle.pause(false).await.unwrap());
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_keeps_no_machine_when_the_cluster_is_taken_down() {
    let world = World::converged(workers(3, "a")).await;
    world.handle.pause(true).await.unwrap();
    world.handle.down().await.unwrap();
    world.until("all are gone", <[NodeView]>::is_empty).await;
    let refused = world.apply(workers(3, "a")).await.unwrap_err();
    assert_eq!(refused.to_string(), "the cluster is being taken down");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_machine_is_not_waited_for() {
    let world = World::converged(workers(2, "a")).await;
    world.fake.always(CallKind::Destroy, Step::fail(ErrorClass::Transient, "the host is on fire"));
    world.apply(workers(1, "a")).await.unwrap();
    sleep(Duration::from_hours(1)).await;
    let stuck = world.explain("worker-1").await;
    assert_eq!(stuck.node.state, "deleting");
    assert!(stuck.retry.last_error.unwrap().contains("the host is on fire"));
    world.handle.operator(node("worker-1"), OperatorRequest::Abandon).await.unwrap();
    world.until_converged().await;
    assert_eq!(world.n_leases(), 2, "whether it exists is the operator's word");
    world.check();
}

#[tokio::test(start_paused = true)]
async fn a_kept_machine_goes_on_retry() {
    let policy = "policy: {on_failure: keep}";
    let groups = format!("[{{id: worker, count: 2, provider: fake, {policy}}}]");
    let world = World::new();
    world.agents.never_join(|key| key.node.as_str() == "worker-0");
    world.apply(file(&groups, "retry: {bootstrap_timeout: 30s}")).await.unwrap();
    world.until("it is kept", |nodes| nodes[0].state == "kept").await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.n_leases(), 2, "the failed machine is still there");
    world.agents.never_join(|_| false);
    world.handle.operator(node("worker-0"), OperatorRequest::Retry).await.unwrap();
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn words_that_do_not_apply_are_refused_with_the_reason() {
    let world = World::converged(workers(2, "a")).await;
    let ask = async |target, request| world.handle.operator(target, request).await.unwrap_err();
    let nothing = ask(node("worker-0"), OperatorRequest::Retry).await;
    assert_eq!(nothing.to_string(), "worker-0: nothing to retry, it is ready: as desired");
    let unknown = ask(node("woker-0"), OperatorRequest::Replace).await;
    let Error::Unknown { near, .. } = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(near.as_deref(), Some("worker-0"));
    let unknown = ask(Target::Named("wörker".to_owned()), OperatorRequest::Retry).await;
    assert_eq!(unknown.to_string(), "there is no node or group \"wörker\"");
    let none = world.handle.explain("x".into()).await.unwrap_err();
    assert_eq!(none.to_string(), "there is no node or group \"x\"");
    world.end().await;
}
