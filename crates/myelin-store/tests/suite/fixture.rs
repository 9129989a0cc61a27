//! Clusters to store, and places to store them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use myelin_shape::{
    ClusterShape, ClusterUid, LogicalNodeId, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec,
    expand_node_group,
};
use myelin_state::{
    ClusterState, DriverEvent, EventKind, ManagedNode, NodeStage, OperationKind, PendingOperation,
    RetryPolicy,
};
use myelin_store::{
    Batch, Identity, Loaded, Options, Secret, Source, SqliteStore, Store, StoreError, StoredDesired,
};

pub(crate) fn identity() -> Identity {
    Identity {
        cluster: ClusterUid([0xab; 16]),
        run: RunId(7),
        begun_at: at(1),
        secret: Secret([3; 32]),
    }
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

pub(crate) fn group(count: u32) -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(7), "worker", count, "process")
}

/// A state with fresh attempts for every slot of a group.
pub(crate) fn state(count: u32) -> ClusterState {
    let mut state = ClusterState { observed_generation: 1, ..ClusterState::default() };
    for spec in expand_node_group(&group(count)) {
        let attempt = NodeAttemptId(state.next_attempt_id);
        state.next_attempt_id += 1;
        state.nodes.insert(spec.logical_node_id.clone(), ManagedNode::new(attempt, spec));
    }
    state.groups.insert("worker".into(), myelin_state::GroupRecord::default());
    state
}

pub(crate) fn ids(state: &ClusterState) -> Vec<LogicalNodeId> {
    state.nodes.keys().cloned().collect()
}

pub(crate) fn desired(generation: u64) -> StoredDesired {
    StoredDesired {
        shape: ClusterShape::new(RunId(7), generation, [group(3)]),
        retry: RetryPolicy::default(),
        source: Source { name: "c.yaml".into(), format: "yaml".into(), text: "run: 7\n".into() },
        accepted_at: at(2),
    }
}

/// A batch that names everything.
pub(crate) fn whole<'a>(
    seconds: u64,
    state: &'a ClusterState,
    nodes: &'a [LogicalNodeId],
) -> Batch<'a> {
    Batch { nodes, cluster: true, ..Batch::new(at(seconds), state) }
}

/// Records an effect of a node as pending; returns the event.
pub(crate) fn dispatch(
    state: &mut ClusterState,
    id: &LogicalNodeId,
    effect: OperationKind,
) -> DriverEvent {
    let node = state.nodes.get_mut(id).unwrap();
    let operation = OperationId { attempt: node.attempt, sequence: node.next_operation_sequence };
    node.next_operation_sequence += 1;
    node.record.stage = NodeStage::LeaseRequested;
    let pending =
        PendingOperation { id: operation, kind: effect, deadline: at(500), expired: false };
    node.pending = Some(Box::new(pending));
    event(id, node.attempt, EventKind::Dispatched { operation, effect })
}

pub(crate) fn event(id: &LogicalNodeId, attempt: NodeAttemptId, kind: EventKind) -> DriverEvent {
    DriverEvent { at: at(3), node: Some(id.clone()), attempt: Some(attempt), kind }
}

pub(crate) async fn create(dir: &Path) -> SqliteStore {
    SqliteStore::create(dir, &identity(), options()).await.unwrap()
}

/// Options under which nothing waits for long.
pub(crate) fn options() -> Options {
    Options { busy_timeout: Duration::from_millis(200), ..Options::default() }
}

/// Opens and loads, as a process that begins.
pub(crate) async fn load(dir: &Path) -> Result<Loaded, StoreError> {
    let store = SqliteStore::open(dir, options()).await?;
    let loaded = store.load().await?;
    store.close().await?;
    Ok(loaded)
}

/// Loads, as `status` does.
pub(crate) async fn look(dir: &Path) -> Result<Loaded, StoreError> {
    SqliteStore::open_read_only(dir, options()).await?.load().await
}

/// Puts a backup in place; returns where what was there is kept.
pub(crate) async fn restore(dir: &Path, backup: &Path) -> Result<Option<PathBuf>, StoreError> {
    SqliteStore::restore(dir, backup, &options()).await?.put_in_place(|| Ok(()))
}

/// Commits a whole state.
pub(crate) async fn commit(store: &dyn Store, seconds: u64, state: &ClusterState, barrier: bool) {
    let nodes = ids(state);
    store.commit(Batch { barrier, ..whole(seconds, state, &nodes) }).await.unwrap();
}

pub(crate) fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// A node further on.
pub(crate) fn advance(state: &mut ClusterState, id: &LogicalNodeId, stage: NodeStage) {
    let node = state.nodes.get_mut(id).unwrap();
    node.record.stage = stage;
    node.pending = None;
}

pub(crate) fn arc_count<T>(items: impl Iterator<Item = Arc<T>>) -> usize {
    let mut seen: Vec<_> = items.map(|item| Arc::as_ptr(&item).addr()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen.len()
}
