//! Every rule that is checked in each state: those of the linter, and that records and world agree.

use std::time::SystemTime;

use myelin_check::{Linter, Settled, Snapshot, converged};
use myelin_decider::reconcile;
use myelin_driver::ClusterDriver;
use myelin_shape::LogicalNodeId;
use myelin_state::{
    ClusterState, DeleteCause, DriverEvent, ErrorClass, ManagedNode, NodeIntent, NodeStage,
    OperationKind, RetryPolicy,
};

use crate::{
    Action,
    world::{Breach, World, lease},
};

/// What an action has led to.
#[derive(Debug)]
pub(crate) struct After<'a> {
    pub(crate) driver: &'a ClusterDriver,
    pub(crate) world: &'a World,
    /// What the driver says has happened.
    pub(crate) history: &'a [DriverEvent],
    /// When the driver wants to be woken.
    pub(crate) wake_at: Option<SystemTime>,
    pub(crate) now: SystemTime,
    pub(crate) action: Action,
    pub(crate) retry: &'a RetryPolicy,
    /// How many faults there were so far.
    pub(crate) spent: u8,
}

/// Lists the rules that are broken by what an action has made of a state.
pub(crate) fn check(before: &ClusterState, after: &After<'_>) -> Vec<Breach> {
    let mut breaches = lint(before, after);
    breaches.extend(compare_with_world(after));
    for (id, node) in &after.driver.state().nodes {
        let earlier = before.nodes.get(id).filter(|earlier| earlier.attempt == node.attempt);
        breaches.extend(refused_in_vain(id, earlier, node, after.action));
        breaches.extend(failed_too_often(id, earlier, node, after));
        breaches.extend(ended_in_vain(id, earlier, node, after.action));
    }
    breaches
}

/// Steps the linter from the state before to the one after, with a plan made from scratch.
fn lint(before: &ClusterState, after: &After<'_>) -> Vec<Breach> {
    let (state, now, wake_at) = (after.driver.state(), after.now, after.wake_at);
    let Some(desired) = after.driver.desired() else { return Vec::new() };
    let plan = match reconcile(state, desired, now) {
        Ok(plan) => plan,
        Err(errors) => return vec![errors.to_string()],
    };
    let snapshot = Snapshot {
        desired: Some(desired),
        plan: Some(&plan),
        history: Some(after.history),
        settled: Some(Settled { wake_at }),
        ..Snapshot::new(state, now)
    };
    let linted = Linter::restore(before).step(&snapshot);
    let mut breaches: Vec<_> =
        linted.err().map(|violations| violations.to_string()).into_iter().collect();
    let by_definition = converged(state, desired);
    // The definition knows no operators.
    let asked = state.nodes.values().any(|node| node.replace_requested);
    if (by_definition.is_ok() && !asked) != after.driver.convergence().converged {
        breaches.push(format!("converged or not? by definition {by_definition:?}"));
    }
    if plan.requeue_at != wake_at {
        breaches.push(format!("it waits for {wake_at:?}, and should for {:?}", plan.requeue_at));
    }
    if wake_at.is_some_and(|time| time <= now) {
        breaches.push("it wants to be woken at once, again and again".to_owned());
    }
    breaches
}

/// Checks that no machine is forgotten, and none is another attempt's.
fn compare_with_world(after: &After<'_>) -> Vec<Breach> {
    let nodes = &after.driver.state().nodes;
    let mut breaches = Vec::new();
    for (slot, world) in after.world.slots() {
        let node = nodes.get(&slot.id());
        let facts = node.and_then(|node| Some((node.attempt, node.record.lease.as_deref()?)));
        if let Some((attempt, facts)) = facts
            && *facts != lease(slot, attempt)
        {
            let lease = &facts.lease_id;
            breaches.push(format!("{slot}: attempt {attempt} has the lease {lease}"));
        }
        let Some(machine) = world.machine.as_ref().filter(|machine| machine.lives) else {
            continue;
        };
        let known = node.filter(|node| node.attempt == machine.attempt).is_some_and(|node| {
            let create = Some(OperationKind::CreateLease);
            let pending = node.pending.as_deref().map(|pending| pending.kind);
            node.record.lease.is_some()
                || pending == create
                || node.retry.ambiguous_operation == create
        });
        if !known {
            let attempt = machine.attempt;
            breaches.push(format!("{slot}: the lease of attempt {attempt} is forgotten"));
        }
    }
    breaches
}

/// Checks that a node is held for a refusal only if there was one.
///
/// Without this, a person who says `retry` would make a node that is held in vain look as if it healed itself.
fn refused_in_vain(
    id: &LogicalNodeId,
    before: Option<&ManagedNode>,
    node: &ManagedNode,
    action: Action,
) -> Option<Breach> {
    let refused = matches!(action, Action::Fails(slot, ErrorClass::Permanent) if slot.id() == *id);
    let was_held = before.is_some_and(|before| before.refused.is_some());
    let in_vain = node.refused.is_some() && !was_held && !refused;
    in_vain.then(|| format!("{id}: held for a refusal that nobody has spoken"))
}

/// Checks that attempts fail only for faults, each at most for one, and that a slot is quarantined for enough of them only.
fn failed_too_often(
    id: &LogicalNodeId,
    before: Option<&ManagedNode>,
    node: &ManagedNode,
    after: &After<'_>,
) -> Option<Breach> {
    let (failed, limit) = (node.retry.ended_attempts, after.retry.max_consecutive_failures);
    if failed > after.spent.into() {
        return Some(format!("{id}: {failed} attempts have failed after {} faults", after.spent));
    }
    let was_held = before.is_some_and(|before| before.quarantine.is_some());
    let in_vain = node.quarantine.is_some() && !was_held && failed < limit;
    in_vain.then(|| format!("{id}: quarantined after {failed} failed attempts of {limit}"))
}

/// Checks that no attempt fails for time in which nobody could do anything for it.
fn ended_in_vain(
    id: &LogicalNodeId,
    before: Option<&ManagedNode>,
    node: &ManagedNode,
    action: Action,
) -> Option<Breach> {
    let end = before.filter(|it| is_under_way(it)).and_then(|_| end(node));
    let in_vain = end.is_some_and(|cause| !may_end(action, cause));
    in_vain.then(|| format!("{id}: its attempt ends for time in which nothing could be done"))
}

fn is_under_way(node: &ManagedNode) -> bool {
    node.intent == NodeIntent::Active && node.record.stage < NodeStage::Failed
}

/// Returns how an attempt has failed, if it has.
fn end(node: &ManagedNode) -> Option<DeleteCause> {
    let failed = (node.record.stage == NodeStage::Failed).then_some(DeleteCause::Failed);
    node.delete_cause.filter(|&cause| cause == DeleteCause::Lost).or(failed)
}

/// Time in which nobody could do or hear anything is not held against an attempt. Whoever only does nothing, for a pause or
/// a full disk, hears agents all the same, so that a silence goes on.
fn may_end(action: Action, cause: DeleteCause) -> bool {
    let heard_nothing = matches!(action, Action::Crashes { .. });
    let did_nothing = matches!(action, Action::StandsStill(_) | Action::Resumes);
    !heard_nothing && (!did_nothing || cause == DeleteCause::Lost)
}
