//! The incremental form of [`reconcile`](crate::reconcile): looks at touched nodes, keeps the rest in an index.

mod coverage;

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc, time::SystemTime};

use myelin_shape::{
    LogicalNodeId, LogicalNodeSpec, NodeAttemptId, NodeGroupId, NodeTemplate, OperationId,
};
use myelin_state::{Canary, ClusterState, ManagedNode};

use crate::{
    BrakeStatus, Brakes, Held, HeldReason, NodeAction, NodeDecision, PlannedEffect, ReconcilePlan,
    Step, Topology, Trigger, Until,
    brake::Brakings,
    grant::{Granted, Policy},
    index::{self, Index, Line, SlotKey},
    progression::decide,
    topology::GroupTopology,
};

/// Why a node is where it is, and when it is looked at again.
#[derive(Clone, Debug, PartialEq)]
pub enum Explanation {
    /// The slot is neither desired nor managed.
    Unknown,
    /// It is as desired.
    Steady,
    /// It is desired, and its first attempt starts with the next pass.
    Missing,
    /// This step is next.
    Next(Step),
    /// It is not acted on.
    Held(Held),
}

/// The decider with a memory: an index of the nodes that are not as desired.
///
/// The index follows the state only through [`plan`](Self::plan): every node whose record changed since the last call
/// must be among the nodes it is given, and every group whose [`GroupRecord`](myelin_state::GroupRecord) changed must
/// have been [touched](Self::touch_group). For the same state it gives the same plan as a fresh planner that looks at
/// every node; only `held` is limited to the nodes looked at.
#[derive(Clone, Debug)]
pub struct Planner {
    topology: Topology,
    index: Index,
    /// Slots that may have no node yet.
    unchecked: BTreeMap<NodeGroupId, Range<u32>>,
    paused: bool,
    /// The template looked up last with the number of its group: nodes of a group are looked at together.
    last: Option<(Arc<NodeTemplate>, u32)>,
}

/// What one pass collects.
#[derive(Default)]
struct Pass<'a> {
    actions: Vec<NodeAction>,
    held: Vec<(LogicalNodeId, Held)>,
    waiting: BTreeMap<SlotKey, Waiting<'a>>,
}

/// A node looked at whose step group policy has a say in.
struct Waiting<'a> {
    id: LogicalNodeId,
    node: &'a ManagedNode,
    step: Step,
    line: Line,
}

impl Planner {
    /// Returns a planner that has looked at no node yet.
    pub fn new(topology: Topology) -> Self {
        let slots = topology.groups.iter().map(|(id, group)| (id.clone(), 0..group.count));
        let unchecked = slots.collect();
        Self { topology, index: Index::default(), unchecked, paused: false, last: None }
    }

    /// Returns the desired set.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Notes that the group's record has changed.
    pub fn touch_group(&mut self, group: &NodeGroupId) {
        let number = self.index.number(group, &self.topology);
        self.index.moved.insert(number);
    }

    /// Notes that what the run's brake remembers has changed.
    pub fn touch_run(&mut self) {
        self.index.run_moved = true;
    }

    /// Returns the nodes with a deadline that is due; they must be looked at next.
    pub fn due(&self, now: SystemTime) -> impl Iterator<Item = LogicalNodeId> {
        self.index.due(now)
    }

    /// Returns the nodes that are not as desired.
    pub fn unsettled(&self) -> impl Iterator<Item = LogicalNodeId> {
        self.index.entries.keys().map(|&key| self.index.id(key))
    }

    /// Returns how many nodes are not as desired.
    pub fn n_unsettled(&self) -> usize {
        self.index.entries.len()
    }

    /// Returns whether every node looked at is as desired, no desired one is missing, and none is left over.
    pub fn is_settled(&self, state: &ClusterState) -> bool {
        self.index.entries.is_empty()
            && self.unchecked.is_empty()
            && state.nodes.len() as u64 == self.topology.total()
    }

    /// Returns whether a plan could do anything without a node being touched.
    pub fn has_work(&self) -> bool {
        !self.paused
            && (!self.unchecked.is_empty() || !self.index.moved.is_empty() || self.index.run_moved)
    }

    /// Returns the earliest stored deadline of any node.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.index.next_deadline()
    }

    /// Returns whether a repair may still become ready, in a group or in the whole run, and something fails that waits
    /// for that.
    pub fn awaits_repair(&self, group: Option<&NodeGroupId>) -> bool {
        let counts = match group {
            Some(group) => self.index.counts(group),
            None => self.index.run,
        };
        counts.unhealthy > 0 && counts.recovering > 0
    }

    /// Returns the brake of a group, if there is such a group.
    pub fn group_brake(&self, state: &ClusterState, group: &NodeGroupId) -> Option<BrakeStatus> {
        let desk = self.policy(state, SystemTime::UNIX_EPOCH);
        desk.group_brake(group)
    }

    /// Returns the brake of the run.
    pub fn run_brake(&self, state: &ClusterState) -> BrakeStatus {
        self.policy(state, SystemTime::UNIX_EPOCH).run_brake(0)
    }

    /// Returns the canary record that starts with a step of this slot: with its create, or with the end of an attempt
    /// that was in use. `None` unless the step starts the trial of its group's template.
    pub fn canary_of(&self, state: &ClusterState, slot: &LogicalNodeSpec) -> Option<Canary> {
        let group = self.topology.wanting(slot)?;
        let starts = self.policy(state, SystemTime::UNIX_EPOCH).starts_trial(slot.group_id());
        starts.then(|| Canary {
            node: slot.logical_node_id.clone(),
            template: Arc::clone(&group.template),
        })
    }

    fn policy<'a>(&'a self, state: &'a ClusterState, now: SystemTime) -> Policy<'a> {
        Policy { topology: &self.topology, index: &self.index, state, now }
    }

    /// Decides the next step of the given nodes, which must be sorted, and of those whose group's counts moved.
    pub fn plan(
        &mut self,
        state: &ClusterState,
        touched: impl IntoIterator<Item = LogicalNodeId>,
        now: SystemTime,
    ) -> ReconcilePlan {
        self.paused = state.paused;
        let mut pass = Pass::default();
        for id in touched {
            self.look_at(state, id, now, &mut pass);
        }
        if state.paused {
            self.hold_missing(state, &mut pass);
        } else {
            self.insert_missing(state, &mut pass);
            self.grant(state, now, &mut pass);
        }
        self.finish(state, pass)
    }

    fn key(&mut self, slot: &LogicalNodeSpec) -> SlotKey {
        let group = match &self.last {
            Some((template, group)) if Arc::ptr_eq(template, &slot.template) => *group,
            _ => {
                let group = self.index.number(slot.group_id(), &self.topology);
                self.last = Some((Arc::clone(&slot.template), group));
                group
            }
        };
        SlotKey { group, index: slot.index }
    }

    fn desired(&self, key: SlotKey) -> Option<&GroupTopology> {
        self.index.groups[key.group as usize].desired.as_ref()
    }

    /// Notes what a node needs without planning for it, because an effect of it was just recorded.
    pub fn refresh(&mut self, node: &ManagedNode, now: SystemTime) {
        let key = self.key(&node.record.desired);
        let group = self.desired(key);
        let decision = decision(node, group, now);
        let unsettled = decision != NodeDecision::Steady;
        let entry = unsettled.then(|| index::entry(key, node, &decision, group, now));
        self.index.set(key, entry);
    }

    /// Notes that a slot is no longer managed.
    pub fn remove(&mut self, slot: &LogicalNodeSpec) {
        let key = self.key(slot);
        self.index.set(key, None);
    }

    fn look_at<'a>(
        &mut self,
        state: &'a ClusterState,
        id: LogicalNodeId,
        now: SystemTime,
        pass: &mut Pass<'a>,
    ) {
        // A node that is gone was taken out of the index when it was removed.
        let Some(node) = state.nodes.get(id.as_str()) else {
            return;
        };
        let key = self.key(&node.record.desired);
        let group = self.desired(key);
        let decision = match decision(node, group, now) {
            NodeDecision::Act(_) if state.paused => {
                NodeDecision::Wait(Held::on(HeldReason::Paused, Trigger::Operator))
            }
            NodeDecision::Steady => return self.index.set(key, None),
            NodeDecision::Wait(held) => NodeDecision::Wait(unless_paused(state, held, now)),
            decision @ NodeDecision::Act(_) => decision,
        };
        let entry = index::entry(key, node, &decision, group, now);
        self.index.set(key, Some(entry));
        if let Some(Line::Keep(_)) = entry.line {
            // How long it is kept depends on the time, and not on counts alone.
            self.index.moved.insert(key.group);
        }
        match (entry.line, decision) {
            (Some(line), NodeDecision::Act(step)) => {
                pass.waiting.insert(key, Waiting { id, node, step, line });
            }
            (None, NodeDecision::Act(step)) => {
                pass.actions.extend(self.action(node, id, step, Brakes::default()));
            }
            (_, NodeDecision::Wait(held)) => pass.held.push((id, held)),
            (_, NodeDecision::Steady) => {}
        }
    }

    /// Makes a step an action. Attempt ids are allocated at the end of the pass.
    fn action(
        &self,
        node: &ManagedNode,
        id: LogicalNodeId,
        step: Step,
        brakes: Brakes,
    ) -> Option<NodeAction> {
        let expected_attempt = node.attempt;
        Some(match step {
            Step::BeginDelete(cause) => {
                NodeAction::BeginDelete { node: id, expected_attempt, cause, brakes }
            }
            Step::MarkDestroyed => NodeAction::MarkDestroyed { node: id, expected_attempt },
            Step::Reap => NodeAction::Reap { node: id, expected_attempt },
            Step::Restart => {
                let slot = &node.record.desired;
                let desired = self.topology.wanting(slot)?.spec(slot.index);
                let new_attempt = UNALLOCATED;
                NodeAction::Restart { node: id, expected_attempt, new_attempt, desired }
            }
            Step::Dispatch(..) => NodeAction::Dispatch(PlannedEffect {
                node: id,
                operation: OperationId {
                    attempt: expected_attempt,
                    sequence: node.next_operation_sequence,
                },
                command: step.command(node)?,
            }),
        })
    }

    fn grant(&mut self, state: &ClusterState, now: SystemTime, pass: &mut Pass<'_>) {
        let mut granted = Granted::default();
        let mut memo = Brakings::default();
        for (key, brakes) in self.policy(state, now).grant(&mut granted) {
            self.index.disarm(key);
            let action = match pass.waiting.remove(&key) {
                Some(Waiting { id, node, step, .. }) => self.action(node, id, step, brakes),
                None => self.action_of_waiting(state, self.index.id(key), now, brakes),
            };
            pass.actions.extend(action);
        }
        for (key, Waiting { id, line, .. }) in mem::take(&mut pass.waiting) {
            let held = self.policy(state, now).held(key, line, &granted, &mut memo);
            pass.held.extend(held.map(|held| (id, held)));
        }
        self.index.moved.clear();
        self.index.run_moved = false;
    }

    /// The step of a node that waited in a line since an earlier pass.
    fn action_of_waiting(
        &self,
        state: &ClusterState,
        id: LogicalNodeId,
        now: SystemTime,
        brakes: Brakes,
    ) -> Option<NodeAction> {
        let node = state.nodes.get(&id)?;
        let group = self.topology.groups.get(node.record.desired.group_id());
        match decision(node, group, now) {
            NodeDecision::Act(step) => self.action(node, id, step, brakes),
            NodeDecision::Steady | NodeDecision::Wait(_) => None,
        }
    }

    /// Sorts, and allocates attempt ids in order.
    fn finish(&self, state: &ClusterState, mut pass: Pass<'_>) -> ReconcilePlan {
        pass.actions.sort_by(|left, right| left.node().cmp(right.node()));
        let mut next = state.next_attempt_id;
        pass.actions.retain_mut(|action| {
            let (NodeAction::Insert { attempt, .. }
            | NodeAction::Restart { new_attempt: attempt, .. }) = action
            else {
                return true;
            };
            *attempt = NodeAttemptId(next);
            if let Some(following) = next.checked_add(1) {
                next = following;
                return true;
            }
            let held = Held::on(HeldReason::AllocatorExhausted, Trigger::Operator);
            pass.held.push((action.node().clone(), held));
            false
        });
        pass.held.sort_by(|(left, _), (right, _)| left.cmp(right));
        ReconcilePlan {
            actions: pass.actions,
            observed_generation: self.topology.generation,
            requeue_at: self.index.next_deadline(),
            held: pass.held,
        }
    }

    /// Says why a node is where it is, from the state the index follows.
    pub fn explain(
        &self,
        state: &ClusterState,
        id: &LogicalNodeId,
        now: SystemTime,
    ) -> Explanation {
        let Some(node) = state.nodes.get(id) else {
            return if self.is_missing(id) {
                held_anyway(state, true).map_or(Explanation::Missing, Explanation::Held)
            } else {
                Explanation::Unknown
            };
        };
        let group = self.topology.groups.get(node.record.desired.group_id());
        let step = match decision(node, group, now) {
            NodeDecision::Steady => return Explanation::Steady,
            NodeDecision::Wait(held) => {
                return Explanation::Held(unless_paused(state, held, now));
            }
            NodeDecision::Act(step) => step,
        };
        let waits = |key: SlotKey| {
            let line = index::line(node, &NodeDecision::Act(step), group)?;
            self.policy(state, now).held(key, line, &Granted::default(), &mut Brakings::default())
        };
        let held = held_anyway(state, step == Step::Restart)
            .or_else(|| self.index.find(&node.record.desired).and_then(waits));
        held.map_or(Explanation::Next(step), Explanation::Held)
    }
}

fn decision(node: &ManagedNode, group: Option<&GroupTopology>, now: SystemTime) -> NodeDecision {
    let group = group.filter(|group| group.wants(&node.record.desired));
    decide(node, group.map(|group| &group.template), now)
}

/// Says what holds every step of a run, or every one that starts an attempt.
fn held_anyway(state: &ClusterState, starts_attempt: bool) -> Option<Held> {
    let exhausted = state.next_attempt_id.checked_add(1).is_none();
    let reason = if state.paused {
        HeldReason::Paused
    } else if starts_attempt && exhausted {
        HeldReason::AllocatorExhausted
    } else {
        return None;
    };
    Some(Held::on(reason, Trigger::Operator))
}

/// A time that has passed while effects are paused ends nothing; the pause is what is waited for then.
fn unless_paused(state: &ClusterState, held: Held, now: SystemTime) -> Held {
    let passed = held.until.time().is_some_and(|time| time <= now);
    held_anyway(state, false).filter(|_| passed).unwrap_or(held)
}

/// Stands in an action until [`Planner::finish`] allocates.
const UNALLOCATED: NodeAttemptId = NodeAttemptId(u64::MAX);

impl Until {
    /// Returns the time, if a time ends the hold.
    pub fn time(self) -> Option<SystemTime> {
        match self {
            Self::At(time) => Some(time),
            Self::On(_) => None,
        }
    }
}
