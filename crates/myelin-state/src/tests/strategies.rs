//! Arbitrary values of every public type.

mod effects;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use proptest::{collection, option, prelude::*, sample::select};

use myelin_shape::{
    BootstrapSessionId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId, NodeTemplate, OperationId,
    RunId, RunNodeGroupSpec, SecretRef, SwactorId,
};

use crate::{
    BootstrapFacts, BootstrapStage, BrakeRecord, Canary, ClusterState, Connection, DeleteCause,
    ExecEndpoint, GroupRecord, LeaseFacts, ManagedNode, NodeIntent, NodeRecord, NodeStage,
    OperationKind, PendingOperation, Price, Quarantine, Refusal, RetryPolicy, RetryState, Silence,
    SshEndpoint, SwactorFacts,
};

pub(crate) use self::effects::{command, observation};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,8}", "[a-z0-9-]{0,40}"]
}

fn message() -> impl Strategy<Value = Box<str>> {
    text().prop_map(String::into_boxed_str)
}

fn duration() -> impl Strategy<Value = Duration> {
    let parts = (0..1_000_000_000_u64, 0..1_000_000_000_u32);
    parts.prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn time() -> impl Strategy<Value = SystemTime> {
    duration().prop_map(|since| SystemTime::UNIX_EPOCH + since)
}

fn maybe_time() -> impl Strategy<Value = Option<SystemTime>> {
    option::of(time())
}

fn session() -> impl Strategy<Value = BootstrapSessionId> {
    any::<u64>().prop_map(BootstrapSessionId)
}

fn swactor_id() -> impl Strategy<Value = SwactorId> {
    text().prop_map(SwactorId::from)
}

fn operation_id() -> impl Strategy<Value = OperationId> {
    any::<(u64, u64)>()
        .prop_map(|(attempt, sequence)| OperationId { attempt: NodeAttemptId(attempt), sequence })
}

fn node_id() -> impl Strategy<Value = LogicalNodeId> {
    text().prop_map(LogicalNodeId::from)
}

/// Templates that differ; the whole of them is the business of the crate they are from.
fn template() -> impl Strategy<Value = Arc<NodeTemplate>> {
    (text(), text(), text(), option::of(0.0..1e9_f64)).prop_map(|(group, provider, image, rate)| {
        let mut group = RunNodeGroupSpec::new(RunId(1), &group, 1, &provider);
        group.shape.image = image;
        group.shape.min_up_mbps = rate;
        Arc::new(group.template())
    })
}

fn slot() -> impl Strategy<Value = LogicalNodeSpec> {
    (template(), any::<u32>()).prop_map(|(template, index)| LogicalNodeSpec {
        logical_node_id: LogicalNodeId::slot(&template.group_id, index),
        index,
        template,
    })
}

pub(crate) fn lease() -> impl Strategy<Value = LeaseFacts> {
    let metadata = collection::btree_map(text(), text(), 0..3).prop_map(Box::new);
    let price = any::<u64>().prop_map(|micro_usd_per_hour| Price { micro_usd_per_hour });
    (
        (text(), text(), text(), option::of(text())),
        (text(), option::of(metadata), option::of(price)),
    )
        .prop_map(|((provider, lease_id, contract, offer_id), rest)| {
            let (handle, provider_metadata, price) = rest;
            LeaseFacts {
                provider: provider.into(),
                lease_id: lease_id.into(),
                provider_contract_id: contract.into(),
                offer_id: offer_id.map(Into::into),
                destroy_handle: handle.into(),
                provider_metadata,
                price,
            }
        })
}

fn secret_ref() -> impl Strategy<Value = SecretRef> {
    prop_oneof![
        Just(SecretRef::Cluster),
        text().prop_map(SecretRef::Env),
        text().prop_map(|path| SecretRef::File(PathBuf::from(path))),
    ]
}

pub(crate) fn connection() -> impl Strategy<Value = Connection> {
    let ssh = (text(), any::<u16>(), text(), secret_ref(), option::of(text()));
    let ssh = ssh.prop_map(|(host, port, user, auth_ref, host_key)| SshEndpoint {
        host,
        port,
        user,
        auth_ref,
        host_key,
    });
    let exec = text().prop_map(|target| ExecEndpoint { target: target.into() });
    prop_oneof![
        ssh.prop_map(|endpoint| Connection::Ssh(Box::new(endpoint))),
        exec.prop_map(Connection::Exec),
    ]
}

fn bootstrap_stage() -> impl Strategy<Value = BootstrapStage> {
    select(&BootstrapStage::ALL[..])
}

fn bootstrap() -> impl Strategy<Value = BootstrapFacts> {
    let parts = (session(), bootstrap_stage(), any::<u64>(), time());
    parts.prop_map(|(session, stage, last_sequence, started_at)| BootstrapFacts {
        session,
        stage,
        last_sequence,
        started_at,
    })
}

fn swactor() -> impl Strategy<Value = SwactorFacts> {
    (swactor_id(), time())
        .prop_map(|(swactor_id, joined_at)| SwactorFacts { swactor_id, joined_at })
}

fn silence() -> impl Strategy<Value = Silence> {
    (time(), time()).prop_map(|(lost_at, deadline)| Silence { lost_at, deadline })
}

pub(crate) fn record() -> impl Strategy<Value = NodeRecord> {
    (
        (slot(), select(&NodeStage::ALL[..]), option::of(lease()), option::of(connection())),
        (option::of(bootstrap()), option::of(swactor()), option::of(silence()), any::<bool>()),
        (maybe_time(), maybe_time(), maybe_time()),
        (option::of(message()), maybe_time(), maybe_time()),
    )
        .prop_map(|(start, facts, deadlines, end)| {
            let (desired, stage, lease, connection) = start;
            let (bootstrap, swactor, silence, handed_off) = facts;
            let (ready_since, ready_by, bootstrap_by) = deadlines;
            let (failed_reason, failed_at, destroyed_at) = end;
            NodeRecord {
                desired,
                stage,
                lease: lease.map(Box::new),
                connection,
                bootstrap: bootstrap.map(Box::new),
                swactor: swactor.map(Box::new),
                handed_off,
                ready_since,
                silence: silence.map(Box::new),
                ready_by,
                bootstrap_by,
                failed_reason,
                failed_at,
                destroyed_at,
            }
        })
}

fn kind() -> impl Strategy<Value = OperationKind> {
    select(&OperationKind::ALL[..])
}

pub(crate) fn pending() -> impl Strategy<Value = PendingOperation> {
    let parts = (operation_id(), kind(), time(), any::<bool>());
    parts.prop_map(|(id, kind, deadline, expired)| PendingOperation { id, kind, deadline, expired })
}

pub(crate) fn retry_state() -> impl Strategy<Value = RetryState> {
    (
        any::<(u32, u32, u32)>(),
        (maybe_time(), maybe_time(), option::of(message())),
        (option::of(kind()), maybe_time()),
    )
        .prop_map(|(counts, (next_effect_at, restart_at, last_error), ambiguous)| RetryState {
            consecutive_failures: counts.0,
            ended_attempts: counts.1,
            failed_cancels: counts.2,
            next_effect_at,
            restart_at,
            last_error,
            ambiguous_operation: ambiguous.0,
            ambiguous_since: ambiguous.1,
        })
}

pub(crate) fn retry_policy() -> impl Strategy<Value = RetryPolicy> {
    let durations = collection::vec(duration(), 9);
    (durations, any::<[u32; 4]>()).prop_map(|(durations, numbers)| RetryPolicy {
        initial_delay: durations[0],
        factor: numbers[0],
        max_delay: durations[1],
        jitter_percent: numbers[1],
        operation_timeout: durations[2],
        answer_timeout: durations[3],
        endpoint_probe_interval: durations[4],
        ready_timeout: durations[5],
        bootstrap_timeout: durations[6],
        stable_after: durations[7],
        lost_after: durations[8],
        max_consecutive_failures: numbers[2],
        max_cancel_failures: numbers[3],
    })
}

fn delete_cause() -> impl Strategy<Value = DeleteCause> {
    select(
        &[
            DeleteCause::Undesired,
            DeleteCause::SpecChanged,
            DeleteCause::Requested,
            DeleteCause::Failed,
            DeleteCause::Lost,
            DeleteCause::Abandoned,
        ][..],
    )
}

fn quarantine() -> impl Strategy<Value = Quarantine> {
    (template(), any::<u32>(), time()).prop_map(|(template, failures, since)| Quarantine {
        template,
        failures,
        since,
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (message(), time()).prop_map(|(message, at)| Refusal { message, at })
}

pub(crate) fn node() -> impl Strategy<Value = ManagedNode> {
    let intent = select(&[NodeIntent::Active, NodeIntent::Deleting][..]);
    (
        (any::<u64>(), intent, record(), option::of(session())),
        (option::of(pending()), any::<u64>(), retry_state()),
        (option::of(delete_cause()), any::<[bool; 5]>()),
        (option::of(quarantine()), option::of(refusal())),
    )
        .prop_map(|(start, effects, (delete_cause, flags), (quarantine, refused))| {
            let (attempt, intent, record, active_bootstrap) = start;
            let (pending, next_operation_sequence, retry) = effects;
            let [recovering, repairing, spends_budget, replace_requested, keep_released] = flags;
            ManagedNode {
                attempt: NodeAttemptId(attempt),
                intent,
                record,
                active_bootstrap,
                pending: pending.map(Box::new),
                next_operation_sequence,
                retry,
                delete_cause,
                recovering,
                repairing,
                spends_budget,
                replace_requested,
                keep_released,
                quarantine: quarantine.map(Box::new),
                refused: refused.map(Box::new),
            }
        })
}

fn brake() -> impl Strategy<Value = BrakeRecord> {
    any::<bool>().prop_map(|silent_machine_ended| BrakeRecord { silent_machine_ended })
}

fn group_record() -> impl Strategy<Value = GroupRecord> {
    let canary = (node_id(), template()).prop_map(|(node, template)| Canary { node, template });
    let proven = collection::vec(template(), 0..=GroupRecord::MOST_PROVEN);
    let parts = (proven, option::of(canary), brake());
    parts.prop_map(|(proven, canary, brake)| GroupRecord { proven, canary, brake })
}

pub(crate) fn cluster() -> impl Strategy<Value = ClusterState> {
    (
        any::<(u64, u64)>(),
        collection::btree_map(node_id(), node(), 0..3),
        collection::btree_map(text(), group_record(), 0..3),
        (brake(), any::<bool>()),
    )
        .prop_map(
            |((observed_generation, next_attempt_id), nodes, groups, (brake, paused))| {
                let groups: BTreeMap<_, _> =
                    groups.into_iter().map(|(id, group)| (id.into(), group)).collect();
                ClusterState { observed_generation, next_attempt_id, nodes, groups, brake, paused }
            },
        )
}
