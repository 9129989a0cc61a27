//! A plan against the state it was made from.

use std::{collections::BTreeSet, time::SystemTime};

use myelin_decider::{NodeAction, PlannedEffect, ReconcilePlan};
use myelin_shape::LogicalNodeId;
use myelin_state::{
    ClusterState, DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeManagerCommand, NodeStage,
    OperationKind,
};

use crate::{
    desired::Desired,
    violation::{Findings, Rule},
};

/// Checks the plan of a whole pass.
pub(crate) fn check_plan(
    state: &ClusterState,
    desired: &Desired,
    plan: &ReconcilePlan,
    now: SystemTime,
    findings: &mut Findings,
) {
    order(plan, findings);
    findings.require(
        plan.observed_generation == desired.generation,
        Rule::Acknowledgment,
        None,
        || {
            format!(
                "generation {} evaluated, {} desired",
                plan.observed_generation, desired.generation
            )
        },
    );
    findings.require(plan.requeue_at.is_none_or(|time| time > now), Rule::Coalesced, None, || {
        "a pass is asked for now, by the pass that has just been".to_owned()
    });
    findings.require(!state.paused || plan.actions.is_empty(), Rule::Policy, None, || {
        format!("{} actions while paused", plan.actions.len())
    });
    for (node, held) in &plan.held {
        let waits = held.until.time().is_none_or(|time| time > now);
        findings.require(waits, Rule::NoWaiting, Some(node), || format!("held in vain: {held}"));
    }
    let mut next_attempt = state.next_attempt_id;
    for action in &plan.actions {
        check_action(state, desired, action, now, &mut next_attempt, findings);
    }
    coverage(state, desired, plan, findings);
}

/// One action per node, nodes in order, and none both acted on and held.
fn order(plan: &ReconcilePlan, findings: &mut Findings) {
    let actions: Vec<_> = plan.actions.iter().map(NodeAction::node).collect();
    let held: Vec<_> = plan.held.iter().map(|(node, _)| node).collect();
    for nodes in [&actions, &held] {
        for pair in nodes.windows(2) {
            findings.require(pair[0] < pair[1], Rule::OneAction, Some(pair[1]), || {
                format!("stands after {}", pair[0])
            });
        }
    }
    for node in held {
        findings.require(!actions.contains(&node), Rule::OneAction, Some(node), || {
            "is acted on and held".to_owned()
        });
    }
}

fn check_action(
    state: &ClusterState,
    desired: &Desired,
    action: &NodeAction,
    now: SystemTime,
    next_attempt: &mut u64,
    findings: &mut Findings,
) {
    let id = action.node();
    let node = state.nodes.get(id);
    if let NodeAction::Insert { attempt, desired: spec }
    | NodeAction::Restart { new_attempt: attempt, desired: spec, .. } = action
    {
        findings.require(attempt.0 == *next_attempt, Rule::DistinctIdentities, Some(id), || {
            format!("gets attempt {attempt}, {next_attempt} is next")
        });
        *next_attempt = next_attempt.saturating_add(1);
        findings.require(desired.wants(spec), Rule::LatestWins, Some(id), || {
            "starts with a spec that is not desired".to_owned()
        });
    }
    if let NodeAction::Insert { .. } = action {
        findings.require(node.is_none(), Rule::CleanupBeforeReuse, Some(id), || {
            "is inserted over a node".to_owned()
        });
        return;
    }
    let Some(node) = node else {
        findings.require(false, Rule::AttemptCorrelation, Some(id), || {
            "is acted on and does not exist".to_owned()
        });
        return;
    };
    match action {
        NodeAction::Insert { .. } => {}
        NodeAction::BeginDelete { expected_attempt, cause, .. } => {
            same_attempt(id, node, expected_attempt.0, findings);
            begin_delete(id, node, *cause, desired, now, findings);
        }
        NodeAction::MarkDestroyed { expected_attempt, .. } => {
            same_attempt(id, node, expected_attempt.0, findings);
            let left = node.record.lease.is_some()
                || node.active_bootstrap.is_some()
                || node.pending.is_some()
                || node.retry.ambiguous_operation == Some(OperationKind::CreateLease)
                || node.intent == NodeIntent::Active;
            findings.require(!left, Rule::CleanupBeforeReuse, Some(id), || {
                "is marked destroyed with something left".to_owned()
            });
        }
        NodeAction::Restart { expected_attempt, .. } => {
            same_attempt(id, node, expected_attempt.0, findings);
            destroyed(id, node, findings);
            let due = node.retry.restart_at.is_none_or(|time| time <= now);
            findings.require(due, Rule::LevelBased, Some(id), || {
                "restarts before its back-off is over".to_owned()
            });
            let template = desired.wanting(&node.record.desired).map(|group| &group.template);
            let quarantined = node.quarantine.as_deref().zip(template);
            findings.require(
                quarantined.is_none_or(|(quarantine, template)| quarantine.template != *template),
                Rule::Policy,
                Some(id),
                || "restarts out of quarantine".to_owned(),
            );
        }
        NodeAction::Reap { expected_attempt, .. } => {
            same_attempt(id, node, expected_attempt.0, findings);
            destroyed(id, node, findings);
            let wanted = desired.wanting(&node.record.desired).is_some();
            findings.require(!wanted, Rule::LatestWins, Some(id), || {
                "is reaped although it is desired".to_owned()
            });
        }
        NodeAction::Dispatch(effect) => {
            same_attempt(id, node, effect.operation.attempt.0, findings);
            dispatch(id, node, effect, desired, now, findings);
        }
    }
}

fn same_attempt(id: &LogicalNodeId, node: &ManagedNode, expected: u64, findings: &mut Findings) {
    findings.require(node.attempt.0 == expected, Rule::AttemptCorrelation, Some(id), || {
        format!("an action on attempt {expected}, the current one is {}", node.attempt)
    });
}

fn destroyed(id: &LogicalNodeId, node: &ManagedNode, findings: &mut Findings) {
    let destroyed = node.record.stage == NodeStage::Destroyed;
    findings.require(destroyed, Rule::CleanupBeforeReuse, Some(id), || {
        format!("is reused while {}", node.record.stage)
    });
}

fn begin_delete(
    id: &LogicalNodeId,
    node: &ManagedNode,
    cause: DeleteCause,
    desired: &Desired,
    now: SystemTime,
    findings: &mut Findings,
) {
    let record = &node.record;
    let wanted = desired.wanting(&record.desired).is_some();
    let same = desired.wants(&record.desired);
    let because = match cause {
        DeleteCause::Undesired => !wanted,
        DeleteCause::SpecChanged => wanted && !same,
        DeleteCause::Requested => same && node.replace_requested,
        DeleteCause::Failed => same && record.stage == NodeStage::Failed,
        DeleteCause::Lost => {
            let silence = record.silence.as_deref();
            same && silence.is_some_and(|silence| silence.deadline <= now)
        }
        DeleteCause::Abandoned => false,
    };
    let live = node.intent == NodeIntent::Active && record.stage != NodeStage::Destroyed;
    findings.require(live && because, Rule::LevelBased, Some(id), || {
        format!("deletion of a node that is {} begins: {cause}", record.stage)
    });
}

/// The rows of seed 1 §7.2 that dispatch, read backwards: an effect only where the facts ask for it.
fn dispatch(
    id: &LogicalNodeId,
    node: &ManagedNode,
    effect: &PlannedEffect,
    desired: &Desired,
    now: SystemTime,
    findings: &mut Findings,
) {
    let sequence = effect.operation.sequence;
    findings.require(
        sequence == node.next_operation_sequence && node.pending.is_none(),
        Rule::RecordBeforeDispatch,
        Some(id),
        || format!("effect {sequence} while {} is next", node.next_operation_sequence),
    );
    let due = node.retry.next_effect_at.is_none_or(|time| time <= now);
    let wanted = desired.wants(&node.record.desired);
    let active = node.intent == NodeIntent::Active && wanted && node.record.silence.is_none();
    let deleting = node.intent == NodeIntent::Deleting;
    let fits = due
        && node.record.stage != NodeStage::Destroyed
        && (active && goes_forward(node, &effect.command)
            || deleting && cleans_up(node, &effect.command));
    findings.require(fits, Rule::LevelBased, Some(id), || {
        format!("{} of a node that is {}", effect.command.kind(), node.record.stage)
    });
}

fn goes_forward(node: &ManagedNode, command: &NodeManagerCommand) -> bool {
    let record = &node.record;
    let live = record.stage < NodeStage::Failed && !record.handed_off;
    let leased = record.lease.is_some();
    let reachable = leased && record.connection.is_some();
    let joined = record.stage == NodeStage::SwactorJoined;
    live && match command {
        NodeManagerCommand::CreateLease { mode, .. } => {
            // What is refused is not asked for; what an earlier create may have made is looked for.
            let unsettled = node.retry.ambiguous_operation == Some(OperationKind::CreateLease);
            let refused = node.refused.is_some();
            let looks = *mode == LeaseMode::AdoptOnly && refused && unsettled;
            !leased && (looks || (*mode == LeaseMode::CreateOrAdopt && !refused))
        }
        NodeManagerCommand::LookupEndpoint { lease } => {
            !reachable && record.lease.as_deref() == Some(lease)
        }
        NodeManagerCommand::StartBootstrap { mode, lease, .. } => {
            *mode == LeaseMode::CreateOrAdopt
                && reachable
                && !joined
                && node.active_bootstrap.is_none()
                && record.lease.as_deref() == Some(lease)
        }
        NodeManagerCommand::BootstrapConvergenceObserved { provider, session } => {
            joined
                && reachable
                && *session == node.active_bootstrap
                && provider == record.desired.provider()
        }
        NodeManagerCommand::CancelBootstrap { .. } | NodeManagerCommand::DestroyLease { .. } => {
            false
        }
    }
}

fn cleans_up(node: &ManagedNode, command: &NodeManagerCommand) -> bool {
    let ambiguous = node.retry.ambiguous_operation;
    match command {
        NodeManagerCommand::CreateLease { mode, .. } => {
            *mode == LeaseMode::AdoptOnly && ambiguous == Some(OperationKind::CreateLease)
        }
        NodeManagerCommand::StartBootstrap { mode, .. } => {
            *mode == LeaseMode::AdoptOnly && ambiguous == Some(OperationKind::StartBootstrap)
        }
        NodeManagerCommand::CancelBootstrap { provider, session } => {
            node.active_bootstrap == Some(*session) && provider == node.record.desired.provider()
        }
        NodeManagerCommand::DestroyLease { lease } => {
            node.active_bootstrap.is_none() && node.record.lease.as_deref() == Some(lease)
        }
        NodeManagerCommand::LookupEndpoint { .. }
        | NodeManagerCommand::BootstrapConvergenceObserved { .. } => false,
    }
}

/// Every node is acted on, held for a reason, or as desired.
fn coverage(
    state: &ClusterState,
    desired: &Desired,
    plan: &ReconcilePlan,
    findings: &mut Findings,
) {
    let planned: BTreeSet<_> = plan
        .actions
        .iter()
        .map(NodeAction::node)
        .chain(plan.held.iter().map(|(node, _)| node))
        .collect();
    for (id, node) in &state.nodes {
        let as_desired = node.is_ready() && desired.wants(&node.record.desired);
        findings.require(as_desired || planned.contains(id), Rule::Isolation, Some(id), || {
            format!("is {} and neither acted on nor held", node.record.stage)
        });
    }
    for (group, wanted) in &desired.groups {
        for index in 0..wanted.count {
            let id = LogicalNodeId::slot(group, index);
            let seen = state.nodes.contains_key(&id) || planned.contains(&id);
            findings.require(seen, Rule::Isolation, Some(&id), || {
                "is missing, and neither inserted nor held".to_owned()
            });
        }
    }
}
