//! Application of planned actions: preconditions first, then the transition, then the record of it.

use std::{collections::BTreeMap, sync::Arc};

use myelin_decider::{Brakes, NodeAction, PlannedEffect};
use myelin_reducer::transition;
use myelin_shape::{LogicalNodeId, LogicalNodeSpec, NodeAttemptId};
use myelin_state::{
    ClusterState, DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeManagerCommand, RetryPolicy,
};

use crate::{ClusterDriver, EventKind, Submission, fold::look};

/// Below this share of the existing nodes, fresh ones are inserted one by one; above, the map is built anew, which
/// packs it densely.
const BULK_SHARE: usize = 4;

impl ClusterDriver {
    /// Applies the actions that are still valid; discarded ones are planned anew.
    pub(crate) fn apply_all(&mut self, actions: Vec<NodeAction>) {
        let policy = Arc::clone(&self.retry);
        let mut allocator_valid = true;
        let mut fresh = Vec::new();
        // Each changes one node and is told once; a fresh cluster would grow these over and over.
        self.effects.changed.nodes.reserve(actions.len());
        self.effects.changed.events.reserve(actions.len());
        let dispatched =
            actions.iter().filter(|action| matches!(action, NodeAction::Dispatch(_))).count();
        self.effects.submit.reserve(dispatched);
        for action in actions {
            let action = match action {
                NodeAction::Dispatch(effect) => {
                    self.dispatch(effect, &policy);
                    continue;
                }
                action @ (NodeAction::Insert { .. }
                | NodeAction::BeginDelete { .. }
                | NodeAction::MarkDestroyed { .. }
                | NodeAction::Restart { .. }
                | NodeAction::Reap { .. }) => action,
            };
            let allocates =
                matches!(action, NodeAction::Insert { .. } | NodeAction::Restart { .. });
            if (allocates && !allocator_valid) || !self.is_valid(&action) {
                allocator_valid &= !allocates;
                self.discard(&action);
            } else if let NodeAction::Insert { attempt, desired } = action {
                self.state.next_attempt_id += 1;
                let id = desired.logical_node_id.clone();
                let node = ManagedNode::new(attempt, desired);
                look(&mut self.planner, &node, self.state.paused, self.now);
                self.effects.changed.nodes.push(id.clone());
                self.emit_of(Some(id.clone()), Some(attempt), EventKind::Inserted);
                fresh.push((id, node));
            } else {
                self.apply(action, &policy);
            }
        }
        self.insert_all(fresh);
    }

    fn can_allocate(&self, attempt: NodeAttemptId) -> bool {
        attempt.0 == self.state.next_attempt_id && attempt.0.checked_add(1).is_some()
    }

    fn insert_all(&mut self, fresh: Vec<(LogicalNodeId, ManagedNode)>) {
        self.effects.changed.cluster |= !fresh.is_empty();
        self.counters.applied += fresh.len() as u64;
        if fresh.len() * BULK_SHARE >= self.state.nodes.len() {
            self.state.nodes.append(&mut fresh.into_iter().collect::<BTreeMap<_, _>>());
        } else {
            self.state.nodes.extend(fresh);
        }
    }

    /// Applies one action whose preconditions hold. Inserts are collected by the caller.
    fn apply(&mut self, action: NodeAction, policy: &RetryPolicy) {
        self.counters.applied += 1;
        match action {
            NodeAction::Insert { .. } | NodeAction::Dispatch(_) => {}
            NodeAction::BeginDelete { node, cause, brakes, .. } => {
                self.begin_delete(&node, cause, brakes, policy);
            }
            NodeAction::MarkDestroyed { node: id, expected_attempt } => {
                transition::mark_destroyed(valid(&mut self.state, &id), self.now);
                self.changed(&id);
                self.emit_of(Some(id), Some(expected_attempt), EventKind::Destroyed);
            }
            NodeAction::Restart { node: id, expected_attempt, new_attempt, desired } => {
                self.state.next_attempt_id += 1;
                self.effects.changed.cluster = true;
                self.effects.forget.push((id.clone(), expected_attempt));
                transition::restart(valid(&mut self.state, &id), new_attempt, desired);
                self.changed(&id);
                let kind = EventKind::Restarted { previous: expected_attempt };
                self.emit_of(Some(id), Some(new_attempt), kind);
            }
            NodeAction::Reap { node: id, expected_attempt } => {
                if let Some((node, planner)) =
                    self.state.nodes.remove(&id).zip(self.planner.as_mut())
                {
                    planner.remove(&node.record.desired);
                }
                self.effects.changed.nodes.push(id.clone());
                self.effects.forget.push((id.clone(), expected_attempt));
                self.emit_of(Some(id), Some(expected_attempt), EventKind::Reaped);
            }
        }
    }

    fn is_valid(&self, action: &NodeAction) -> bool {
        let node = self.state.nodes.get(action.node());
        if let NodeAction::Insert { attempt, .. } = action {
            return node.is_none() && self.can_allocate(*attempt);
        }
        let Some(node) = node else { return false };
        match action {
            NodeAction::Insert { .. } | NodeAction::Dispatch(_) => false,
            NodeAction::BeginDelete { expected_attempt, .. } => {
                node.attempt == *expected_attempt
                    && node.intent == NodeIntent::Active
                    && !node.is_destroyed()
            }
            NodeAction::MarkDestroyed { expected_attempt, .. } => {
                node.attempt == *expected_attempt
                    && node.intent == NodeIntent::Deleting
                    && !node.is_destroyed()
                    && node.pending.is_none()
                    && node.active_bootstrap.is_none()
                    && node.record.lease.is_none()
            }
            NodeAction::Restart { expected_attempt, new_attempt, .. } => {
                node.attempt == *expected_attempt
                    && node.is_destroyed()
                    && self.can_allocate(*new_attempt)
            }
            NodeAction::Reap { expected_attempt, .. } => {
                node.attempt == *expected_attempt && node.is_destroyed()
            }
        }
    }

    fn discard(&mut self, action: &NodeAction) {
        self.counters.discarded += 1;
        tracing::debug!(%action, "stale action discarded");
        self.emit(Some(action.node()), EventKind::Discarded { action: action.to_string().into() });
        self.touched.push(action.node().clone());
        let Some(planner) = &mut self.planner else {
            return;
        };
        if let NodeAction::Insert { desired, .. } = action {
            planner.recheck_group(desired.group_id());
        }
        if let Some(node) = self.state.nodes.get(action.node()) {
            planner.touch_group(node.record.desired.group_id());
        }
    }

    /// Records the canary, if a step of this slot starts the trial of its group's template.
    fn note_canary(&mut self, slot: &LogicalNodeSpec) {
        let Some(planner) = &mut self.planner else {
            return;
        };
        let Some(canary) = planner.canary_of(&self.state, slot) else {
            return;
        };
        planner.touch_group(slot.group_id());
        self.state.groups.entry(slot.group_id().clone()).or_default().canary = Some(canary);
        self.effects.changed.cluster = true;
    }

    fn begin_delete(
        &mut self,
        id: &LogicalNodeId,
        cause: DeleteCause,
        brakes: Brakes,
        policy: &RetryPolicy,
    ) {
        let node = valid(&mut self.state, id);
        let in_use = node.record.stage.is_handed_off();
        let quarantined = node.quarantine.is_some();
        transition::begin_delete(node, cause, self.now, policy);
        let slot = node.record.desired.clone();
        let (group, attempt) = (slot.group_id().clone(), Some(node.attempt));
        let quarantine = node.quarantine.as_deref().filter(|_| !quarantined);
        let failures = quarantine.map(|quarantine| quarantine.failures);
        if cause == DeleteCause::SpecChanged && in_use {
            self.note_canary(&slot);
        }
        self.changed(id);
        self.emit_of(Some(id.clone()), attempt, EventKind::DeleteBegan { cause });
        if let Some(failures) = failures {
            let kind = EventKind::Quarantined { failures };
            self.emit_of(Some(id.clone()), attempt, kind);
        }
        if brakes.group {
            self.braked.insert(group.clone());
            self.state.groups.entry(group.clone()).or_default().brake.silent_machine_ended = true;
        }
        self.state.brake.silent_machine_ended |= brakes.run;
        if (brakes.group || brakes.run)
            && let Some(planner) = &mut self.planner
        {
            planner.touch_group(&group);
            planner.touch_run();
            self.effects.changed.cluster = true;
        }
    }

    /// Records the effect, then hands it out (seed 1 §6).
    fn dispatch(&mut self, effect: PlannedEffect, policy: &RetryPolicy) {
        let now = self.now;
        let node = self
            .state
            .nodes
            .get_mut(effect.node.as_str())
            .filter(|node| can_dispatch(node, &effect));
        let Some(node) = node else {
            return self.discard(&NodeAction::Dispatch(effect));
        };
        let PlannedEffect { node: id, operation, command } = effect;
        let kind = command.kind();
        transition::record_dispatch(node, operation, kind, now, policy);
        let deadline = node.pending.as_deref().map_or(now, |pending| pending.deadline);
        if let Some(planner) = &mut self.planner {
            planner.refresh(node, now);
        }
        self.counters.applied += 1;
        if let NodeManagerCommand::CreateLease { spec, mode: LeaseMode::CreateOrAdopt, .. } =
            &command
        {
            self.note_canary(spec);
        }
        self.effects.changed.nodes.push(id.clone());
        let event = EventKind::Dispatched { operation, effect: kind };
        self.emit_of(Some(id.clone()), Some(operation.attempt), event);
        let generation = self.generation();
        self.effects.submit.push(Submission { node: id, operation, command, generation, deadline });
    }
}

fn can_dispatch(node: &ManagedNode, effect: &PlannedEffect) -> bool {
    node.attempt == effect.operation.attempt
        && node.next_operation_sequence == effect.operation.sequence
        && node.pending.is_none()
        && !node.is_destroyed()
}

fn valid<'a>(state: &'a mut ClusterState, node: &LogicalNodeId) -> &'a mut ManagedNode {
    state.nodes.get_mut(node).expect("the action's preconditions hold")
}
