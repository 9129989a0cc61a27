//! Arbitrary states: every field of every record takes values of its own.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use proptest::{collection, option, prelude::*, sample::select};

use myelin_shape::{
    BootstrapSessionId, LogicalNodeSpec, NodeAttemptId, NodeTemplate, OperationId, RunId,
    RunNodeGroupSpec, SecretRef,
};
use myelin_state::{
    BootstrapFacts, BootstrapStage, BrakeRecord, Canary, ClusterState, Connection, DeleteCause,
    ExecEndpoint, GroupRecord, LeaseFacts, ManagedNode, NodeIntent, NodeRecord, NodeStage,
    OperationKind, PendingOperation, Price, Quarantine, Refusal, RetryState, Silence, SshEndpoint,
    SwactorFacts,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,8}", "[a-z0-9-]{0,40}"]
}

fn message() -> impl Strategy<Value = Box<str>> {
    text().prop_map(String::into_boxed_str)
}

fn time() -> impl Strategy<Value = SystemTime> {
    let parts = (0..250_000_000_000_u64, 0..1_000_000_000_u32);
    parts.prop_map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos))
}

/// A few templates, so that nodes and groups share them.
fn template() -> impl Strategy<Value = Arc<NodeTemplate>> {
    (0..4_u32, option::of(0.0..1e9_f64)).prop_map(|(n, rate)| {
        let mut group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
        group.shape.image = format!("image-{n}");
        group.shape.min_up_mbps = rate.filter(|_| n == 3);
        Arc::new(group.template())
    })
}

fn lease() -> impl Strategy<Value = Box<LeaseFacts>> {
    let metadata = option::of(collection::btree_map(text(), text(), 0..3).prop_map(Box::new));
    (text(), text(), option::of(text()), metadata, option::of(any::<u64>())).prop_map(
        |(lease_id, handle, offer_id, provider_metadata, price)| {
            Box::new(LeaseFacts {
                provider: "process".into(),
                lease_id: lease_id.into(),
                provider_contract_id: "contract".into(),
                offer_id: offer_id.map(Into::into),
                destroy_handle: handle.into(),
                provider_metadata,
                price: price.map(|micro_usd_per_hour| Price { micro_usd_per_hour }),
            })
        },
    )
}

fn connection() -> impl Strategy<Value = Connection> {
    let ssh = (text(), any::<u16>(), option::of(text())).prop_map(|(host, port, host_key)| {
        let auth_ref = SecretRef::Env("KEY".into());
        Connection::Ssh(Box::new(SshEndpoint {
            host,
            port,
            user: "root".into(),
            auth_ref,
            host_key,
        }))
    });
    let exec = text().prop_map(|target| Connection::Exec(ExecEndpoint { target: target.into() }));
    prop_oneof![ssh, exec]
}

fn bootstrap() -> impl Strategy<Value = Box<BootstrapFacts>> {
    let stage = select(&BootstrapStage::ALL[..]);
    (any::<u64>(), stage, any::<u64>(), time()).prop_map(
        |(session, stage, last_sequence, started_at)| {
            Box::new(BootstrapFacts {
                session: BootstrapSessionId(session),
                stage,
                last_sequence,
                started_at,
            })
        },
    )
}

fn swactor() -> impl Strategy<Value = Box<SwactorFacts>> {
    (text(), time())
        .prop_map(|(id, joined_at)| Box::new(SwactorFacts { swactor_id: id.into(), joined_at }))
}

fn silence() -> impl Strategy<Value = Box<Silence>> {
    (time(), time()).prop_map(|(lost_at, deadline)| Box::new(Silence { lost_at, deadline }))
}

fn record() -> impl Strategy<Value = NodeRecord> {
    let spec = (template(), any::<u32>(), text()).prop_map(|(template, index, id)| {
        LogicalNodeSpec { logical_node_id: id.into(), index, template }
    });
    (
        (spec, select(&NodeStage::ALL[..]), option::of(lease()), option::of(connection())),
        (option::of(bootstrap()), option::of(swactor()), option::of(silence()), any::<bool>()),
        collection::vec(option::of(time()), 5),
        option::of(message()),
    )
        .prop_map(|((desired, stage, lease, connection), facts, times, failed_reason)| {
            let (bootstrap, swactor, silence, handed_off) = facts;
            NodeRecord {
                desired,
                stage,
                lease,
                connection,
                bootstrap,
                swactor,
                handed_off,
                ready_since: times[0],
                silence,
                ready_by: times[1],
                bootstrap_by: times[2],
                failed_reason,
                failed_at: times[3],
                destroyed_at: times[4],
            }
        })
}

fn kind() -> impl Strategy<Value = OperationKind> {
    select(&OperationKind::ALL[..])
}

fn pending() -> impl Strategy<Value = Box<PendingOperation>> {
    let parts = (any::<(u64, u64)>(), kind(), time(), any::<bool>());
    parts.prop_map(|((attempt, sequence), kind, deadline, expired)| {
        let id = OperationId { attempt: NodeAttemptId(attempt), sequence };
        Box::new(PendingOperation { id, kind, deadline, expired })
    })
}

fn retry() -> impl Strategy<Value = RetryState> {
    let times = collection::vec(option::of(time()), 3);
    let retry = (any::<[u32; 3]>(), times, option::of(message()), option::of(kind()));
    let retry = retry.prop_map(|(counts, times, last_error, ambiguous_operation)| RetryState {
        consecutive_failures: counts[0],
        ended_attempts: counts[1],
        failed_cancels: counts[2],
        next_effect_at: times[0],
        restart_at: times[1],
        last_error,
        ambiguous_operation,
        ambiguous_since: times[2],
    });
    prop_oneof![Just(RetryState::default()), retry]
}

fn quarantine() -> impl Strategy<Value = Box<Quarantine>> {
    (template(), any::<u32>(), time())
        .prop_map(|(template, failures, since)| Box::new(Quarantine { template, failures, since }))
}

fn refusal() -> impl Strategy<Value = Box<Refusal>> {
    (message(), time()).prop_map(|(message, at)| Box::new(Refusal { message, at }))
}

fn node() -> impl Strategy<Value = ManagedNode> {
    let intent = select(&[NodeIntent::Active, NodeIntent::Deleting][..]);
    let cause = select(&[DeleteCause::Undesired, DeleteCause::Lost, DeleteCause::Failed][..]);
    (
        (any::<u64>(), intent, record(), option::of(any::<u64>())),
        (option::of(pending()), any::<u64>(), retry()),
        (option::of(cause), any::<[bool; 5]>()),
        (option::of(quarantine()), option::of(refusal())),
    )
        .prop_map(|(start, effects, (delete_cause, flags), (quarantine, refused))| {
            let (attempt, intent, record, session) = start;
            let (pending, next_operation_sequence, retry) = effects;
            let [recovering, repairing, spends_budget, replace_requested, keep_released] = flags;
            ManagedNode {
                attempt: NodeAttemptId(attempt),
                intent,
                record,
                active_bootstrap: session.map(BootstrapSessionId),
                pending,
                next_operation_sequence,
                retry,
                delete_cause,
                recovering,
                repairing,
                spends_budget,
                replace_requested,
                keep_released,
                quarantine,
                refused,
            }
        })
}

fn brake() -> impl Strategy<Value = BrakeRecord> {
    any::<bool>().prop_map(|silent_machine_ended| BrakeRecord { silent_machine_ended })
}

fn group() -> impl Strategy<Value = GroupRecord> {
    let canary = (text(), template());
    let canary = canary.prop_map(|(node, template)| Canary { node: node.into(), template });
    (collection::vec(template(), 0..=GroupRecord::MOST_PROVEN), option::of(canary), brake())
        .prop_map(|(proven, canary, brake)| GroupRecord { proven, canary, brake })
}

/// Ids from few, so that a later state changes, removes and brings back nodes of an earlier one.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ab]",
        Just("a long id with 'quotes' and \0, ünd more".to_owned())
    ]
}

/// States that may follow one another: the counters only grow.
pub(crate) fn states() -> impl Strategy<Value = Vec<ClusterState>> {
    let state = (
        (0..9_u64, 0..9_u64),
        collection::btree_map(id(), node(), 0..4),
        collection::btree_map(id(), group(), 0..3),
        (brake(), any::<bool>()),
    );
    collection::vec(state, 1..5).prop_map(|states| {
        let (mut generation, mut attempt) = (0, 0);
        let mut result = Vec::new();
        for ((generations, attempts), nodes, groups, (brake, paused)) in states {
            generation += generations;
            attempt += attempts;
            result.push(ClusterState {
                observed_generation: generation,
                next_attempt_id: attempt,
                nodes: nodes.into_iter().map(|(id, node)| (id.into(), node)).collect(),
                groups: groups.into_iter().map(|(id, group)| (id.into(), group)).collect(),
                brake,
                paused,
            });
        }
        result
    })
}
