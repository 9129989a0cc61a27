//! Facts of one record that must fit together.

use std::{collections::BTreeMap, time::SystemTime};

use myelin_shape::LogicalNodeId;
use myelin_state::{ClusterState, ManagedNode, NodeIntent, NodeStage, OperationKind};

use crate::violation::{Findings, Rule};

/// Checks every record of a state.
pub(crate) fn check_state(state: &ClusterState, now: SystemTime, findings: &mut Findings) {
    let mut attempts: Vec<_> = state.nodes.iter().map(|(id, node)| (node.attempt, id)).collect();
    attempts.sort_unstable();
    for pair in attempts.windows(2) {
        findings.require(pair[0].0 != pair[1].0, Rule::DistinctIdentities, Some(pair[1].1), || {
            format!("attempt {} is also that of {}", pair[1].0, pair[0].1)
        });
    }
    leases(state, findings);
    for (id, node) in &state.nodes {
        findings.require(
            node.attempt.0 < state.next_attempt_id,
            Rule::DistinctIdentities,
            Some(id),
            || format!("attempt {} of {} allocated ones", node.attempt, state.next_attempt_id),
        );
        check_node(id, node, now, findings);
    }
}

/// A lease is of one attempt.
fn leases(state: &ClusterState, findings: &mut Findings) {
    let mut holders = BTreeMap::new();
    for (id, node) in &state.nodes {
        let Some(lease) = node.record.lease.as_deref() else { continue };
        let other = holders.insert((&lease.provider, &lease.lease_id), id);
        findings.require(other.is_none(), Rule::OneLease, Some(id), || {
            format!("has lease {}, as {}", lease.lease_id, other.map_or("", LogicalNodeId::as_str))
        });
    }
}

fn check_node(id: &LogicalNodeId, node: &ManagedNode, now: SystemTime, findings: &mut Findings) {
    let mut broken = |rule, holds: bool, seen: &str| {
        findings.require(holds, rule, Some(id), || seen.to_owned());
    };
    identity(id, node, &mut broken);
    deletion(node, &mut broken);
    liveness(node, &mut broken);
    failure(node, &mut broken);
    stages(node, &mut broken);
    times(node, now, &mut broken);
}

fn identity(id: &LogicalNodeId, node: &ManagedNode, require: &mut impl FnMut(Rule, bool, &str)) {
    let slot = &node.record.desired;
    let expected = LogicalNodeId::slot(&slot.template.group_id, slot.index);
    require(
        Rule::DistinctIdentities,
        slot.logical_node_id == *id && expected == *id,
        "the record is of another slot",
    );
    if let Some(pending) = node.pending.as_deref() {
        require(
            Rule::DistinctIdentities,
            pending.id.attempt == node.attempt,
            "the pending effect is of another attempt",
        );
        require(
            Rule::RecordBeforeDispatch,
            pending.id.sequence.checked_add(1) == Some(node.next_operation_sequence),
            "the pending effect is not the last one recorded",
        );
    }
}

fn deletion(node: &ManagedNode, require: &mut impl FnMut(Rule, bool, &str)) {
    let deleting = node.intent == NodeIntent::Deleting;
    let record = &node.record;
    require(
        Rule::Record,
        deleting == node.delete_cause.is_some(),
        "a cause of deletion without deletion, or the other way round",
    );
    require(
        Rule::Record,
        (record.stage == NodeStage::Destroyed) == record.destroyed_at.is_some(),
        "destroyed without a time, or the other way round",
    );
    require(
        Rule::Record,
        !deleting || !node.replace_requested && !node.keep_released,
        "a request for an attempt that is being cleaned up",
    );
    if record.stage == NodeStage::Destroyed {
        let nothing_left = record.lease.is_none()
            && record.connection.is_none()
            && node.active_bootstrap.is_none()
            && node.pending.is_none()
            && node.retry.ambiguous_operation.is_none();
        require(
            Rule::CleanupBeforeReuse,
            deleting && nothing_left,
            "destroyed with something left of the attempt",
        );
    }
}

fn liveness(node: &ManagedNode, require: &mut impl FnMut(Rule, bool, &str)) {
    let record = &node.record;
    let handed_off = matches!(record.stage, NodeStage::HandedOff | NodeStage::Dormant);
    let joined = handed_off || record.stage == NodeStage::SwactorJoined;
    let active = node.intent == NodeIntent::Active;
    let ready = active && handed_off && record.silence.is_none();
    require(
        Rule::Record,
        ready == record.ready_since.is_some(),
        "ready without a time, or the other way round",
    );
    require(
        Rule::Record,
        !ready || !(node.recovering || node.repairing || node.spends_budget),
        "ready and still counted as recovering, repairing or unavailable",
    );
    require(
        Rule::Record,
        record.silence.is_none() || active && joined,
        "silence of an agent that has not joined, or is given up",
    );
    require(Rule::Record, !joined || record.swactor.is_some(), "joined, but no agent is recorded");
    require(
        Rule::Record,
        !handed_off || record.handed_off && !(active && node.active_bootstrap.is_some()),
        "handed off with a live bootstrap session",
    );
    require(
        Rule::Record,
        !handed_off || record.ready_by.is_none(),
        "handed off with a deadline for becoming ready",
    );
    require(
        Rule::Record,
        !joined || record.bootstrap_by.is_none(),
        "joined with a deadline for joining",
    );
}

fn failure(node: &ManagedNode, require: &mut impl FnMut(Rule, bool, &str)) {
    let record = &node.record;
    let failed = record.stage == NodeStage::Failed;
    require(
        Rule::Record,
        record.failed_at.is_some() == record.failed_reason.is_some()
            && (!failed || record.failed_at.is_some())
            && (record.stage >= NodeStage::Failed || record.failed_at.is_none()),
        "failed without reason and time, or the other way round",
    );
    let over = record.stage >= NodeStage::Failed || node.intent == NodeIntent::Deleting;
    require(
        Rule::Record,
        node.quarantine
            .as_deref()
            .is_none_or(|quarantine| over && *quarantine.template == *record.desired.template),
        "quarantined while an attempt lives, or for another spec",
    );
    require(
        Rule::Record,
        node.refused.is_none() || record.lease.is_none(),
        "refused by the provider that leased it",
    );
    require(Rule::Record, !node.repairing || node.recovering, "under repair without having failed");
    require(
        Rule::Record,
        !node.keep_released || failed,
        "given up for inspection without having failed",
    );
    let retry = &node.retry;
    require(
        Rule::Record,
        retry.ambiguous_operation.is_some() == retry.ambiguous_since.is_some()
            && retry.ambiguous_operation.is_none_or(OperationKind::creates),
        "an ambiguous effect without a time, or one that makes nothing",
    );
    require(
        Rule::Record,
        retry.ended_attempts <= retry.consecutive_failures,
        "more ended attempts than failures",
    );
}

fn stages(node: &ManagedNode, require: &mut impl FnMut(Rule, bool, &str)) {
    let record = &node.record;
    let leased = record.lease.is_some();
    let reachable = leased && record.connection.is_some();
    require(Rule::Record, leased || record.connection.is_none(), "reachable without a lease");
    require(
        Rule::Record,
        leased || node.active_bootstrap.is_none(),
        "a bootstrap session without a lease",
    );
    let active = node.intent == NodeIntent::Active;
    let holds = match record.stage {
        NodeStage::New | NodeStage::LeaseRequested => !leased,
        NodeStage::LeaseCreated => leased && !reachable,
        NodeStage::EndpointKnown => reachable && node.active_bootstrap.is_none(),
        NodeStage::BootstrapRunning | NodeStage::HandedOff | NodeStage::Dormant => reachable,
        NodeStage::SwactorJoined | NodeStage::Failed | NodeStage::Destroyed => true,
    };
    require(Rule::Record, !active || holds, "the stage does not fit the facts");
    require(Rule::Record, !active || record.stage != NodeStage::Destroyed, "destroyed and to live");
}

fn times(node: &ManagedNode, now: SystemTime, require: &mut impl FnMut(Rule, bool, &str)) {
    let record = &node.record;
    let facts = [
        record.failed_at,
        record.destroyed_at,
        record.ready_since,
        record.lost_at(),
        record.swactor.as_deref().map(|facts| facts.joined_at),
        record.bootstrap.as_deref().map(|facts| facts.started_at),
        node.retry.ambiguous_since,
        node.quarantine.as_deref().map(|quarantine| quarantine.since),
        node.refused.as_deref().map(|refusal| refusal.at),
    ];
    let past = facts.into_iter().flatten().all(|time| time <= now);
    require(Rule::Time, past, "a fact from the future");
}
