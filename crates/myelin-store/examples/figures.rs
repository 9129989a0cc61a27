//! What durability costs: `cargo run --release -p myelin-store --example figures`.
//!
//! Writes 10⁴ nodes, then changes each eight times in batches of 256, every other batch a barrier, with one event for each
//! change, in a directory below the current one.

use std::time::{Duration, Instant, SystemTime};

use myelin_shape::{
    ClusterUid, LogicalNodeId, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec,
    expand_node_group,
};
use myelin_state::{
    ClusterState, Connection, DriverEvent, EventKind, ExecEndpoint, LeaseFacts, ManagedNode,
    NodeStage, OperationKind, PendingOperation,
};
use myelin_store::{Batch, Identity, Options, Secret, SqliteStore, Store, StoreError};

const N_NODES: u32 = 10_000;
const N_CHANGES: u64 = 8;
const BATCH: usize = 256;

#[expect(clippy::print_stdout, reason = "what it is for")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(".")?;
    let identity = Identity {
        cluster: ClusterUid([1; 16]),
        run: RunId(1),
        begun_at: SystemTime::now(),
        secret: Secret([2; 32]),
    };
    let store = SqliteStore::create(dir.path(), &identity, Options::default()).await?;
    let mut state = ClusterState::default();
    for spec in expand_node_group(&RunNodeGroupSpec::new(RunId(1), "worker", N_NODES, "process")) {
        let node = ManagedNode::new(NodeAttemptId(state.next_attempt_id), spec);
        state.next_attempt_id += 1;
        state.nodes.insert(node.record.desired.logical_node_id.clone(), node);
    }
    let ids: Vec<_> = state.nodes.keys().cloned().collect();
    let first = Instant::now();
    store
        .commit(Batch { nodes: &ids, barrier: true, ..Batch::new(SystemTime::now(), &state) })
        .await?;
    report("first commit of all", first.elapsed(), u64::from(N_NODES));
    for events in [false, true] {
        for every in [u64::MAX, 2, 1] {
            change_all(&store, &mut state, &ids, events, every).await?;
        }
    }
    let load = Instant::now();
    store.load().await?;
    report("load", load.elapsed(), u64::from(N_NODES));
    store.close().await?;
    let bytes = std::fs::metadata(dir.path().join("state.db"))?.len();
    println!("state.db: {bytes} bytes");
    Ok(())
}

async fn change_all(
    store: &SqliteStore,
    state: &mut ClusterState,
    ids: &[LogicalNodeId],
    events: bool,
    barrier_every: u64,
) -> Result<(), StoreError> {
    let mut n_commits = 0;
    let mut spent = Duration::ZERO;
    for sequence in 0..N_CHANGES {
        for nodes in ids.chunks(BATCH) {
            let happened: Vec<_> = nodes.iter().map(|id| change(state, id, sequence)).collect();
            n_commits += 1;
            let barrier = n_commits % barrier_every == 0;
            let happened = if events { &happened[..] } else { &[] };
            let batch =
                Batch { nodes, events: happened, barrier, ..Batch::new(SystemTime::now(), state) };
            let commit = Instant::now();
            store.commit(batch).await?;
            spent += commit.elapsed();
        }
    }
    let barriers = if barrier_every == u64::MAX { 0 } else { n_commits / barrier_every };
    let what = format!("{n_commits} commits of {BATCH}, {barriers} barriers, events: {events}");
    report(&what, spent, u64::from(N_NODES) * N_CHANGES);
    Ok(())
}

/// Changes a node as a life does: something is pending, then it is done.
fn change(state: &mut ClusterState, id: &LogicalNodeId, sequence: u64) -> DriverEvent {
    let node = state.nodes.get_mut(id).expect("the node is there");
    let operation = OperationId { attempt: node.attempt, sequence };
    let effect = OperationKind::CreateLease;
    node.next_operation_sequence += 1;
    node.record.stage = NodeStage::EndpointKnown;
    node.record.lease = Some(Box::new(LeaseFacts {
        provider: "process".into(),
        lease_id: "0123456789abcdef0123456789abcdef.1.worker-1.1".into(),
        provider_contract_id: "contract".into(),
        offer_id: None,
        destroy_handle: "0123456789abcdef0123456789abcdef.1.worker-1.1".into(),
        provider_metadata: None,
        price: None,
    }));
    let target = "state/leases/0123456789abcdef.1.worker-1.1";
    node.record.connection = Some(Connection::Exec(ExecEndpoint { target: target.into() }));
    let kind = if sequence.is_multiple_of(2) {
        let pending = PendingOperation {
            id: operation,
            kind: effect,
            deadline: SystemTime::now(),
            expired: false,
        };
        node.pending = Some(Box::new(pending));
        EventKind::Dispatched { operation, effect }
    } else {
        node.pending = None;
        EventKind::Succeeded { operation, effect }
    };
    DriverEvent { at: SystemTime::now(), node: Some(id.clone()), attempt: Some(node.attempt), kind }
}

#[expect(clippy::print_stdout, reason = "what it is for")]
fn report(what: &str, spent: Duration, n: u64) {
    let each = spent.as_secs_f64() * 1e6 / f64::from(u32::try_from(n).expect("a small number"));
    println!("{what}: {:.1} ms, {each:.2} µs each", spent.as_secs_f64() * 1e3);
}
