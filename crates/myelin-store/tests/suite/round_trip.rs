use std::{collections::BTreeSet, sync::Arc};

use myelin_shape::LogicalNodeId;
use myelin_state::{Canary, ClusterState};
use myelin_store::{Batch, MemoryStore, Setting, Store};
use proptest::prelude::*;

use crate::{
    fixture::{arc_count, at, commit, create, desired, identity, ids, load, look, state, whole},
    strategies,
};

/// Every node of either state.
fn changed(before: &ClusterState, after: &ClusterState) -> Vec<LogicalNodeId> {
    let ids: BTreeSet<_> = before.nodes.keys().chain(after.nodes.keys()).cloned().collect();
    let differs = |id: &LogicalNodeId| before.nodes.get(id) != after.nodes.get(id);
    ids.into_iter().filter(differs).collect()
}

/// Commits states one after the other, each as what changed since the one before.
async fn commit_all(store: &dyn Store, states: &[ClusterState]) {
    let mut before = ClusterState::default();
    for (n, state) in states.iter().enumerate() {
        let nodes = changed(&before, state);
        let cluster = before.groups != state.groups;
        let barrier = n % 2 == 1;
        let batch = Batch { nodes: &nodes, cluster, barrier, ..Batch::new(at(n as u64), state) };
        store.commit(batch).await.unwrap();
        before = state.clone();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_committed_in_pieces_is_loaded(states in strategies::states()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (loaded, seen, kept) = runtime.block_on(async {
            let store = create(dir.path()).await;
            commit_all(&store, &states).await;
            let seen = look(dir.path()).await.unwrap();
            drop(store);
            let memory = MemoryStore::new(identity());
            commit_all(&memory, &states).await;
            (load(dir.path()).await.unwrap(), seen, memory.load().await.unwrap())
        });
        prop_assert_eq!(&loaded.state, states.last().unwrap());
        prop_assert_eq!(&loaded, &seen);
        prop_assert_eq!(&loaded, &kept);
    }
}

#[tokio::test]
async fn identity_settings_and_what_is_wanted_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let address = "127.0.0.1:4711".parse().unwrap();
    store.set(Setting::Address(address)).await.unwrap();
    store.set(Setting::Provider("process".into(), "old".into())).await.unwrap();
    store.set(Setting::Provider("process".into(), "host-1".into())).await.unwrap();
    let unasked = [(("process".into(), "lease-1".into()), at(7))].into();
    store.set(Setting::Unasked(unasked)).await.unwrap();
    let (state, desired) = (state(1), desired(4));
    store.commit(Batch { desired: Some(&desired), ..Batch::new(at(9), &state) }).await.unwrap();
    drop(store);
    let loaded = load(dir.path()).await.unwrap();
    assert_eq!(loaded.identity, identity());
    assert_eq!(loaded.settings.address, Some(address));
    assert_eq!(loaded.settings.providers["process"], "host-1");
    let unasked: Vec<_> = loaded.settings.unasked.into_iter().collect();
    assert_eq!(unasked, [(("process".into(), "lease-1".into()), at(7))]);
    assert_eq!(loaded.desired, Some(desired));
    assert_eq!((loaded.now, loaded.acted_generation), (at(9), 4));
    assert!(loaded.state.nodes.is_empty(), "a node that no batch names is not stored");
}

#[tokio::test]
async fn equal_templates_are_one_after_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let mut state = state(5);
    let template =
        Arc::new(state.nodes.values().next().unwrap().record.desired.template.as_ref().clone());
    let group = state.groups.values_mut().next().unwrap();
    group.proven.push(Arc::clone(&template));
    group.canary = Some(Canary { node: "worker-0".into(), template });
    commit(&store, 1, &state, true).await;
    drop(store);
    let loaded = load(dir.path()).await.unwrap().state;
    assert_eq!(loaded, state);
    let group = loaded.groups.values().next().unwrap();
    let nodes = loaded.nodes.values().map(|node| Arc::clone(&node.record.desired.template));
    let canary = group.canary.iter().map(|canary| Arc::clone(&canary.template));
    assert_eq!(arc_count(nodes.chain(group.proven.iter().cloned()).chain(canary)), 1);
}

#[tokio::test]
async fn templates_that_nothing_names_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let mut state = state(1);
    for n in 0..100 {
        let node = state.nodes.values_mut().next().unwrap();
        let mut template = node.record.desired.template.as_ref().clone();
        template.shape.image = format!("image-{n}");
        node.record.desired.template = Arc::new(template);
        commit(&store, n, &state, false).await;
    }
    drop(store);
    assert_eq!(load(dir.path()).await.unwrap().state, state);
    let n_templates = crate::raw::number(dir.path(), "SELECT count(*) FROM templates").await;
    assert!(n_templates <= 20, "{n_templates}");
}

#[tokio::test]
async fn a_second_process_reads_while_one_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let (first, nodes) = (state(2), ids(&state(3)));
    commit(&store, 1, &first, true).await;
    assert_eq!(look(dir.path()).await.unwrap().state, first);
    let second = state(3);
    store.commit(whole(2, &second, &nodes)).await.unwrap();
    assert_eq!(look(dir.path()).await.unwrap().state, second);
    store.close().await.unwrap();
    assert!(!dir.path().join("state.db-wal").exists());
    assert_eq!(look(dir.path()).await.unwrap().state, second);
}

#[tokio::test]
async fn the_columns_for_people_say_what_the_record_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let mut state = state(2);
    let node = state.nodes.values_mut().next().unwrap();
    node.record.stage = myelin_state::NodeStage::Dormant;
    commit(&store, 1, &state, false).await;
    let sql = "SELECT group_concat(id || ' ' || group_id || ' ' || attempt || ' ' || stage || ' ' || ready, '; ') FROM nodes";
    insta::assert_snapshot!(
        crate::raw::text(dir.path(), sql).await,
        @"worker-0 worker 0 dormant 1; worker-1 worker 1 new 0"
    );
    insta::assert_snapshot!(crate::raw::text(dir.path(), "SELECT now FROM cluster").await, @"2027-01-15T08:00:01.000Z");
}
