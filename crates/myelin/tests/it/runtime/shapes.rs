//! Changes of what is desired.

use std::time::Duration;

use myelin_executor::fake::{CallKind, Step};

use super::world::{World, file, workers};

#[tokio::test(start_paused = true)]
async fn scaling_creates_and_removes_exactly_the_right_slots() {
    let world = World::converged(workers(3, "a")).await;
    let three = world.attempts().await;
    assert_eq!(three.keys().collect::<Vec<_>>(), ["worker-0", "worker-1", "worker-2"]);

    world.apply(workers(6, "a")).await.unwrap();
    world.until_converged().await;
    let six = world.attempts().await;
    assert_eq!(six.len(), 6);
    assert!(three.iter().all(|(node, attempt)| six[node] == *attempt), "the first three stay");

    world.apply(workers(2, "a")).await.unwrap();
    world.until_converged().await;
    let two = world.attempts().await;
    assert_eq!(two.keys().collect::<Vec<_>>(), ["worker-0", "worker-1"], "the highest go");
    assert!(two.iter().all(|(node, attempt)| three[node] == *attempt));
    assert_eq!(world.n_creates(), 6);
    assert_eq!(world.n_leases(), 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_highest_indices_go_first_when_only_one_may_go_at_a_time() {
    let groups = |count| {
        let policy = "policy: {max_unavailable: 1}";
        file(&format!("[{{id: worker, count: {count}, provider: fake, {policy}}}]"), "")
    };
    let world = World::converged(groups(12)).await;
    world.fake.always(CallKind::Destroy, Step::Slow(Duration::from_secs(5)));
    world.apply(groups(9)).await.unwrap();
    world.until_converged().await;
    let gone = world.events(&["delete_began"]).await;
    let gone: Vec<_> = gone.iter().filter_map(|event| event.node.as_deref()).collect();
    assert_eq!(gone, ["worker-11", "worker-10", "worker-9"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_image_replaces_every_node_under_a_new_attempt() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    world.apply(workers(3, "b")).await.unwrap();
    world.until_converged().await;
    let after = world.attempts().await;
    let newest = before.values().max().unwrap();
    assert!(after.values().all(|attempt| attempt > newest), "{before:?} {after:?}");
    assert_eq!(world.n_creates(), 6);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_policy_replaces_nothing() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    let policy = "policy: {max_unavailable: 1, on_failure: keep}";
    let changed = format!("[{{id: worker, count: 3, provider: fake, image: a, {policy}}}]");
    let applied = world.apply(file(&changed, "retry: {lost_after: 30s}")).await.unwrap();
    assert_eq!(applied.generation, 2);
    let fields: Vec<_> = applied.plan.fields.iter().map(|field| field.field.as_str()).collect();
    assert_eq!(fields, ["policy.max_unavailable", "policy.on_failure", "retry.lost_after"]);
    world.until_converged().await;
    assert_eq!(world.attempts().await, before);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_three_shapes_applied_quickly_the_second_may_be_skipped() {
    let world = World::converged(workers(3, "a")).await;
    world.fake.always(CallKind::Destroy, Step::Slow(Duration::from_secs(5)));
    for image in ["b", "c"] {
        world.apply(workers(3, image)).await.unwrap();
    }
    world.until_converged().await;
    assert_eq!(world.n_creates(), 6, "nothing was ever made of the second");
    assert_eq!(world.handle.status().await.unwrap().observed_generation, 3);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn flipping_back_while_deleting_starts_fresh_attempts() {
    let world = World::converged(workers(3, "a")).await;
    let before = world.attempts().await;
    world.fake.always(CallKind::Destroy, Step::Slow(Duration::from_secs(5)));
    world.apply(workers(3, "b")).await.unwrap();
    world.until("all are deleting", |nodes| nodes.iter().all(|it| it.state == "deleting")).await;
    world.apply(workers(3, "a")).await.unwrap();
    world.until_converged().await;
    let after = world.attempts().await;
    assert!(after.iter().all(|(node, attempt)| before[node] != *attempt), "deletion is final");
    assert_eq!(world.n_creates(), 6);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_file_again_changes_nothing() {
    let world = World::converged(workers(3, "a")).await;
    let applied = world.apply(workers(3, "a")).await.unwrap();
    assert_eq!(applied.generation, 1);
    assert!(!applied.plan.has_changes());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_what_is_held_and_touches_nothing() {
    let groups = |image: &str| {
        let rolling = format!(
            "{{id: worker, count: 3, provider: fake, image: {image}, policy: {{max_unavailable: 1}}}}"
        );
        file(&format!("[{rolling}]"), "")
    };
    let world = World::converged(groups("a")).await;
    let calls = world.fake.calls().len();
    let plan = world.handle.plan(groups("b")).await.unwrap();
    let shown: Vec<_> = plan
        .changes
        .iter()
        .map(|it| (it.node.as_str(), it.held.as_ref().map(|held| held.code.as_str())))
        .collect();
    let budget = Some("budget");
    assert_eq!(shown, [("worker-2", None), ("worker-1", budget), ("worker-0", budget)]);
    assert_eq!(plan.ready_taken, 3);
    assert_eq!(plan.fields[0].field, "shape.image");
    assert!(plan.fields[0].replaces);
    assert_eq!(world.fake.calls().len(), calls);
    assert!(world.handle.status().await.unwrap().converged);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_begins_with_one_node_of_a_large_group() {
    let world = World::new();
    let plan = world.handle.plan(workers(6, "a")).await.unwrap();
    let held = plan.changes.iter().filter(|change| change.held.is_some()).count();
    assert_eq!((plan.changes.len(), held), (6, 5));
    world.agents.never_join(|_| true);
    world.apply(workers(6, "a")).await.unwrap();
    world.until("one is booting", |nodes| nodes[0].state == "booting").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.n_creates(), 1);
    let other = world.explain("worker-5").await;
    assert_eq!(other.node.why.text, "worker-0 proves the new template first");
    world.agents.never_join(|_| false);
    world.until_converged().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_generation_and_a_loss_nobody_agreed_to_are_refused() {
    let world = World::converged(workers(3, "a")).await;
    let stale = world.handle.apply(workers(2, "a"), Some(7), true).await.unwrap_err();
    assert_eq!(stale.to_string(), "generation 7 was expected, but 1 is desired by now");
    let loss = world.handle.apply(workers(2, "a"), None, false).await.unwrap_err();
    assert_eq!(loss.to_string(), "nodes that are ready now would be deleted or replaced: 1");
    let mut other = workers(2, "a");
    other.run = myelin_shape::RunId(2);
    let other = world.apply(other).await.unwrap_err();
    assert_eq!(other.to_string(), "the file is of run 2, this is run 1");
    let unknown = file("[{id: worker, count: 1, provider: fog}]", "");
    let unknown = world.apply(unknown).await.unwrap_err();
    assert_eq!(unknown.to_string(), "group worker: there is no provider \"fog\"; known: fake");
    let status = world.handle.status().await.unwrap();
    assert_eq!((status.generation, status.converged), (1, true));
    world.handle.apply(workers(4, "a"), Some(1), false).await.unwrap();
    world.until_converged().await;
    world.end().await;
}
