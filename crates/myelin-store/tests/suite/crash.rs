use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use myelin_state::{ClusterState, NodeStage, OperationKind};
use myelin_store::{Batch, Options, SqliteStore, Store};

use crate::fixture::{advance, at, copy_files, dispatch, identity, ids, load, options, state};

/// Options whose hook copies the files as a crash would leave them.
fn photographed(live: PathBuf, album: PathBuf) -> (Options, Arc<Mutex<Vec<PathBuf>>>) {
    let copies = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&copies);
    let hook = move |n: u64| {
        let copy = album.join(n.to_string());
        copy_files(&live, &copy);
        taken.lock().unwrap().push(copy);
    };
    (Options { after_commit: Some(Arc::new(hook)), ..options() }, copies)
}

#[tokio::test]
async fn a_crash_after_any_durable_write_loses_nothing_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    std::fs::create_dir(&live).unwrap();
    let (options, copies) = photographed(live.clone(), dir.path().to_owned());
    let store = SqliteStore::create(&live, &identity(), options).await.unwrap();
    let mut state = state(4);
    let nodes = ids(&state);
    // The database and the mark; then what each durable write of the commits leaves.
    let mut expected = vec![ClusterState::default(); 2];
    for (n, id) in nodes.iter().enumerate() {
        let event = dispatch(&mut state, id, OperationKind::CreateLease);
        let batch = Batch {
            nodes: &nodes,
            cluster: true,
            events: &[event],
            ..Batch::new(at(n as u64), &state)
        };
        store.commit(Batch { barrier: true, ..batch }).await.unwrap();
        expected.extend([state.clone(), state.clone()]);
        advance(&mut state, id, NodeStage::LeaseCreated);
        store.commit(Batch { nodes: &nodes, ..Batch::new(at(n as u64), &state) }).await.unwrap();
        expected.push(state.clone());
    }
    let copies = copies.lock().unwrap().clone();
    assert_eq!(copies.len(), expected.len());
    for (copy, expected) in copies.iter().zip(expected) {
        assert_eq!(load(copy).await.unwrap().state, expected, "{}", copy.display());
    }
}

#[tokio::test]
async fn a_store_that_was_half_made_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("state.db.new"), "half").unwrap();
    let store = SqliteStore::create(dir.path(), &identity(), options()).await.unwrap();
    assert_eq!(store.load().await.unwrap().identity, identity());
}
