//! Arbitrary values of every public type.

use std::{ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use proptest::{collection, option, prelude::*, string::string_regex};

use crate::{
    AttemptKey, BootSpec, ClusterShape, ClusterUid, DesiredNodeShape, FirstNode, GroupPolicy,
    Limit, LogicalNodeId, LogicalNodeSpec, Mount, NodeAttemptId, NodeTemplate, OnFailure,
    OperationId, RunId, RunNodeGroupSpec, RunPolicy, SecretRef, SwarmJoinSpec, SwarmJoinTemplate,
};

/// Ids of the grammar.
pub(crate) fn valid_id(n_bytes: RangeInclusive<usize>) -> impl Strategy<Value = String> {
    n_bytes.prop_flat_map(|n_bytes| {
        let regex = match n_bytes {
            1 => "[a-z0-9]".to_owned(),
            n_bytes => format!("[a-z0-9][a-z0-9-]{{{}}}[a-z0-9]", n_bytes - 2),
        };
        string_regex(&regex).unwrap()
    })
}

/// Any text: ids are not checked when they are read.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,8}", "[a-z0-9-]{0,40}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    collection::vec(text(), 0..3)
}

fn path() -> impl Strategy<Value = PathBuf> {
    text().prop_map(PathBuf::from)
}

fn paths() -> impl Strategy<Value = Vec<PathBuf>> {
    collection::vec(path(), 0..3)
}

fn map() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    collection::btree_map(text(), text(), 0..3)
}

fn finite() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    NORMAL | SUBNORMAL | ZERO | POSITIVE | NEGATIVE
}

pub(crate) fn run_id() -> impl Strategy<Value = RunId> {
    any::<u64>().prop_map(RunId)
}

pub(crate) fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![any::<u32>().prop_map(Limit::Count), (0..=100_u8).prop_map(Limit::Percent),]
}

pub(crate) fn node_shape() -> impl Strategy<Value = DesiredNodeShape> {
    let size = || option::of(any::<u32>());
    let rate = || option::of(finite());
    (
        (text(), any::<u32>(), size(), size(), option::of(text())),
        (size(), rate(), rate(), rate(), any::<bool>(), map()),
    )
        .prop_map(|((image, disk_gb, cpu, memory_mb, gpu_name), rest)| {
            let (min_gpu_ram_mb, min_down_mbps, min_up_mbps, min_reliability, verified, labels) =
                rest;
            DesiredNodeShape {
                image,
                disk_gb,
                cpu,
                memory_mb,
                gpu_name,
                min_gpu_ram_mb,
                min_down_mbps,
                min_up_mbps,
                min_reliability,
                require_verified: verified,
                provider_labels: labels,
            }
        })
}

pub(crate) fn mount() -> impl Strategy<Value = Mount> {
    (path(), path(), any::<bool>()).prop_map(|(source, target, read_only)| Mount {
        source,
        target,
        read_only,
    })
}

pub(crate) fn boot() -> impl Strategy<Value = BootSpec> {
    let maybe = || option::of(text());
    (
        (maybe(), texts(), maybe(), paths()),
        (paths(), map(), texts(), collection::vec(mount(), 0..3)),
    )
        .prop_map(|((ssh_user, verify_commands, start, stdout_sources), rest)| {
            let (stderr_sources, env, args, mounts) = rest;
            BootSpec {
                ssh_user,
                verify_commands,
                start_swactor_command: start,
                stdout_sources,
                stderr_sources,
                env,
                args,
                mounts,
            }
        })
}

pub(crate) fn secret_ref() -> impl Strategy<Value = SecretRef> {
    prop_oneof![
        Just(SecretRef::Cluster),
        text().prop_map(SecretRef::Env),
        path().prop_map(SecretRef::File),
    ]
}

pub(crate) fn join_template() -> impl Strategy<Value = SwarmJoinTemplate> {
    (option::of(text()), secret_ref()).prop_map(|(orch_swactor_addr, join_token_ref)| {
        SwarmJoinTemplate { orch_swactor_addr, join_token_ref }
    })
}

pub(crate) fn join_spec() -> impl Strategy<Value = SwarmJoinSpec> {
    slot().prop_map(|slot| slot.swarm_join())
}

pub(crate) fn group_policy() -> impl Strategy<Value = GroupPolicy> {
    let first_node = prop_oneof![Just(FirstNode::Canary), Just(FirstNode::All)];
    let on_failure = prop_oneof![Just(OnFailure::Replace), Just(OnFailure::Keep)];
    let keep_for = (0..1_000_000_000_u64, 0..1_000_000_000_u32);
    (
        (option::of(limit()), limit(), option::of(first_node)),
        (any::<u32>(), on_failure, any::<u32>(), keep_for),
    )
        .prop_map(|((max_unavailable, max_unhealthy, first_node), rest)| {
            let (max_in_flight_creates, on_failure, keep_limit, (seconds, nanos)) = rest;
            GroupPolicy {
                max_unavailable,
                max_unhealthy,
                first_node,
                max_in_flight_creates,
                on_failure,
                keep_limit,
                keep_for: Duration::new(seconds, nanos),
            }
        })
}

pub(crate) fn run_policy() -> impl Strategy<Value = RunPolicy> {
    limit().prop_map(|max_unhealthy| RunPolicy { max_unhealthy })
}

pub(crate) fn group() -> impl Strategy<Value = RunNodeGroupSpec> {
    (
        (run_id(), text(), text(), any::<u32>(), text()),
        (node_shape(), boot(), join_template(), group_policy()),
    )
        .prop_map(|((run_id, group_id, role, count, provider), rest)| {
            let (shape, boot, swarm_join, policy) = rest;
            RunNodeGroupSpec {
                run_id,
                group_id: group_id.into(),
                role: role.into(),
                count,
                provider: provider.into(),
                shape,
                boot,
                swarm_join,
                policy,
            }
        })
}

pub(crate) fn template() -> impl Strategy<Value = NodeTemplate> {
    group().prop_map(|group| group.template())
}

pub(crate) fn slot() -> impl Strategy<Value = LogicalNodeSpec> {
    (template(), any::<u32>()).prop_map(|(template, index)| LogicalNodeSpec {
        logical_node_id: LogicalNodeId::slot(&template.group_id, index),
        index,
        template: Arc::new(template),
    })
}

pub(crate) fn cluster_shape() -> impl Strategy<Value = ClusterShape> {
    (run_id(), any::<u64>(), collection::vec(group(), 0..3), run_policy()).prop_map(
        |(run_id, generation, groups, policy)| ClusterShape { run_id, generation, groups, policy },
    )
}

pub(crate) fn operation_id() -> impl Strategy<Value = OperationId> {
    any::<(u64, u64)>()
        .prop_map(|(attempt, sequence)| OperationId { attempt: NodeAttemptId(attempt), sequence })
}

pub(crate) fn attempt_key() -> impl Strategy<Value = AttemptKey> {
    (any::<[u8; 16]>(), run_id(), text(), any::<u64>()).prop_map(|(cluster, run, node, attempt)| {
        AttemptKey {
            cluster: ClusterUid(cluster),
            run,
            node: node.into(),
            attempt: NodeAttemptId(attempt),
        }
    })
}
