//! Group policy, counted from scratch: what a plan may take, start and repair (`spec 1.6`).

use std::collections::{BTreeMap, BTreeSet};

use myelin_decider::{HeldReason, NodeAction, ReconcilePlan};
use myelin_shape::{FirstNode, Limit, LogicalNodeId, NodeGroupId, OnFailure};
use myelin_state::{
    ClusterState, DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeManagerCommand, NodeStage,
    OperationKind,
};

use crate::{
    desired::{Desired, Group},
    violation::{Findings, Rule},
};

/// What is counted in a group or in the run, before a plan and by it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    creating: u32,
    taken: u32,
    unhealthy: u32,
    repairing: u32,
    starts_create: u32,
    takes_ready: u32,
    starts_repair: u32,
    ends_silent: u32,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.creating += other.creating;
        self.taken += other.taken;
        self.unhealthy += other.unhealthy;
        self.repairing += other.repairing;
        self.starts_create += other.starts_create;
        self.takes_ready += other.takes_ready;
        self.starts_repair += other.starts_repair;
        self.ends_silent += other.ends_silent;
    }
}

/// Checks what a plan grants against the counts of the state it was made from.
pub(crate) fn check_plan(
    state: &ClusterState,
    desired: &Desired,
    plan: &ReconcilePlan,
    findings: &mut Findings,
) {
    let actions: BTreeMap<_, _> = plan.actions.iter().map(|a| (a.node(), a)).collect();
    let held_by_template = held_by_template(plan);
    let mut groups: BTreeMap<&NodeGroupId, Tally> = BTreeMap::new();
    let mut run = Tally::default();
    for (id, node) in &state.nodes {
        let action = actions.get(id).copied();
        let mut tally = tally(node, action, desired);
        if held_by_template.contains(&id) {
            // It waits for another node or for a person, and others may be repaired meanwhile.
            tally.repairing = 0;
        }
        groups.entry(&node.record.desired.template.group_id).or_default().add(tally);
        run.add(tally);
    }
    for (id, group) in &desired.groups {
        let tally = groups.get(id).copied().unwrap_or_default();
        limits(id, group, tally, findings);
        trial(state, id, group, &actions, findings);
        refusal(state, group, &actions, findings);
        let memory = state.groups.get(id).is_some_and(|group| group.brake.silent_machine_ended);
        let limit = brake_limit(group.policy.max_unhealthy, u64::from(group.count));
        brake(&format!("group {id}"), limit, tally, memory, findings);
    }
    let limit = brake_limit(desired.policy.max_unhealthy, desired.total());
    brake("the run", limit, run, state.brake.silent_machine_ended, findings);
}

fn held_by_template(plan: &ReconcilePlan) -> BTreeSet<&LogicalNodeId> {
    let held = plan.held.iter().filter(|(_, held)| {
        matches!(
            held.reason,
            HeldReason::Refused { .. }
                | HeldReason::Canary { .. }
                | HeldReason::CanaryFailed { .. }
        )
    });
    held.map(|(node, _)| node).collect()
}

/// Counts one node, and what is planned for it.
fn tally(node: &ManagedNode, action: Option<&NodeAction>, desired: &Desired) -> Tally {
    let active = node.intent == NodeIntent::Active;
    let wanting = desired.wanting(&node.record.desired);
    let group = wanting.filter(|group| *group.template == *node.record.desired.template);
    let kept = active
        && group.is_some_and(|group| may_be_kept(node, group))
        && begins_delete(action) != Some(DeleteCause::Failed);
    let counted = group.is_some() && !kept && node.quarantine.is_none() && node.refused.is_none();
    let silent = active && node.record.silence.is_some();
    let creating = creates(node);
    let restarts = matches!(action, Some(NodeAction::Restart { .. }));
    let cause = begins_delete(action);
    let taken = matches!(
        cause,
        Some(DeleteCause::Undesired | DeleteCause::SpecChanged | DeleteCause::Requested)
    );
    let in_use = node.record.handed_off && !node.recovering;
    let ends_silent = cause == Some(DeleteCause::Lost) && in_use;
    let repair_due = counted && node.recovering && !node.repairing;
    let restarts = restarts && node.record.stage == NodeStage::Destroyed;
    let goes_on = !creating && starts_create(action);
    let limited = desired.groups.contains_key(&node.record.desired.template.group_id);
    Tally {
        creating: u32::from(creating),
        taken: u32::from(node.spends_budget),
        unhealthy: u32::from(counted && (silent || node.recovering)),
        repairing: u32::from(counted && node.repairing),
        starts_create: u32::from(!creating && starts_create(action)),
        takes_ready: u32::from(limited && taken && node.is_ready()),
        starts_repair: u32::from(ends_silent || repair_due && (restarts || goes_on)),
        ends_silent: u32::from(ends_silent),
    }
}

fn begins_delete(action: Option<&NodeAction>) -> Option<DeleteCause> {
    if let Some(NodeAction::BeginDelete { cause, .. }) = action {
        return Some(*cause);
    }
    None
}

fn may_be_kept(node: &ManagedNode, group: &Group) -> bool {
    node.record.stage == NodeStage::Failed
        && group.policy.on_failure == OnFailure::Keep
        && !node.keep_released
}

/// Whether a create of the node is pending or ambiguous.
pub(crate) fn creates(node: &ManagedNode) -> bool {
    let pending = node.pending.as_deref().map(|pending| pending.kind);
    pending == Some(OperationKind::CreateLease)
        || node.retry.ambiguous_operation == Some(OperationKind::CreateLease)
}

fn starts_create(action: Option<&NodeAction>) -> bool {
    let Some(NodeAction::Dispatch(effect)) = action else {
        return false;
    };
    matches!(effect.command, NodeManagerCommand::CreateLease { mode: LeaseMode::CreateOrAdopt, .. })
}

fn limits(id: &NodeGroupId, group: &Group, tally: Tally, findings: &mut Findings) {
    let creating = tally.creating + tally.starts_create;
    let limit = group.policy.max_in_flight_creates;
    findings.require(tally.starts_create == 0 || creating <= limit, Rule::Policy, None, || {
        format!("group {id}: {creating} creates in flight, at most {limit} may be")
    });
    let Some(limit) = group.policy.max_unavailable.map(|limit| limit.of(group.count).max(1)) else {
        return;
    };
    let taken = tally.taken + tally.takes_ready;
    findings.require(tally.takes_ready == 0 || taken <= limit, Rule::Policy, None, || {
        format!("group {id}: {taken} ready nodes taken, at most {limit} may be")
    });
}

/// A template nobody was ready with starts with one node.
fn trial(
    state: &ClusterState,
    id: &NodeGroupId,
    group: &Group,
    actions: &BTreeMap<&LogicalNodeId, &NodeAction>,
    findings: &mut Findings,
) {
    let record = state.groups.get(id);
    let proven = record.into_iter().flat_map(|record| &record.proven);
    let is_proven = proven.into_iter().any(|template| **template == *group.template);
    if is_proven || group.policy.first_node(group.count) == FirstNode::All {
        return;
    }
    let starts = |(node, action): (&&LogicalNodeId, &&NodeAction)| {
        let found = state.nodes.get(*node)?;
        let slot = &found.record.desired;
        let of_group = slot.template.group_id == *id && slot.index < group.count;
        let replaced =
            matches!(action, NodeAction::BeginDelete { cause: DeleteCause::SpecChanged, .. })
                && found.record.stage.is_handed_off();
        let created = !creates(found) && starts_create(Some(action));
        (of_group && (replaced || created)).then(|| (*node).clone())
    };
    let started: Vec<_> = actions.iter().filter_map(starts).collect();
    findings.require(started.len() <= 1, Rule::Policy, started.last(), || {
        format!("group {id}: {} nodes start with an unproven template", started.len())
    });
    let canary = record.and_then(|record| record.canary.as_ref()).filter(|canary| {
        *canary.template == *group.template
            && state.nodes.get(&canary.node).is_some_and(|node| {
                let slot = &node.record.desired;
                // One that was given up for another template, and came back with that, proves nothing.
                let proves =
                    node.intent == NodeIntent::Deleting || *slot.template == *group.template;
                proves && slot.index < group.count
            })
    });
    if let Some((canary, started)) = canary.zip(started.first()) {
        findings.require(canary.node == *started, Rule::Policy, Some(started), || {
            format!("group {id}: starts although {} is the canary", canary.node)
        });
    }
}

/// While a node of a template is refused, no other one is leased.
fn refusal(
    state: &ClusterState,
    group: &Group,
    actions: &BTreeMap<&LogicalNodeId, &NodeAction>,
    findings: &mut Findings,
) {
    let of_group = |node: &ManagedNode| {
        let slot = &node.record.desired;
        slot.index < group.count && *slot.template == *group.template
    };
    let refused = state.nodes.iter().find(|(_, node)| {
        node.intent == NodeIntent::Active && node.refused.is_some() && of_group(node)
    });
    let Some((refused, _)) = refused else { return };
    for (id, action) in actions {
        let starts = state.nodes.get(*id).is_some_and(|node| of_group(node) && !creates(node))
            && starts_create(Some(action));
        findings.require(!starts, Rule::Policy, Some(id), || {
            format!("is leased although {refused} was refused")
        });
    }
}

/// Above how many failing nodes a scope's brake is on; a single node has none.
pub(crate) fn brake_limit(limit: Limit, total: u64) -> Option<u32> {
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    let least = limit.of(total).max(2);
    (total >= 2).then(|| least.min(total - 1))
}

fn brake(scope: &str, limit: Option<u32>, tally: Tally, memory: bool, findings: &mut Findings) {
    findings.require(tally.ends_silent == 0 || !memory, Rule::Policy, None, || {
        format!("brake of {scope}: a second silent machine ends before a repair is ready")
    });
    let Some(limit) = limit.filter(|&limit| tally.unhealthy > limit) else {
        return;
    };
    let repairs = tally.repairing + tally.starts_repair;
    findings.require(tally.starts_repair == 0 || repairs == 1, Rule::Policy, None, || {
        format!(
            "brake of {scope}: {} of {} repairs start with {} nodes failing, limit {limit}",
            tally.starts_repair, repairs, tally.unhealthy
        )
    });
}
