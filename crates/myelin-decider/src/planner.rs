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
/// The index follows the state only as far as it is told: every node whose record has changed must be
/// [looked at](Self::look_at) or be among the nodes given to [`plan`](Self::plan), and every group whose
/// [`GroupRecord`](myelin_state::GroupRecord) changed must have been [touched](Self::touch_group). For the same state it
/// gives the same plan as a fresh planner that looks at every node; only `held` is limited to the nodes looked at.
#[derive(Clone, Debug)]
pub struct Planner {
    topology: Topology,
    index: Index,
    /// Slots that may have no node yet.
    unchecked: BTreeMap<NodeGroupId, Range<u32>>,
    paused: bool,
    /// The template looked up last with the number of its group: nodes of a group are looked at together.
    last: Option<(Arc<NodeTemplate>, u32)>,
    /// What the next plan has to say of the nodes looked at since the last one; of several looks the last one counts.
    looks: Vec<Look>,
}

/// What a node looked at needs.
#[derive(Clone, Debug)]
struct Look {
    id: LogicalNodeId,
    key: SlotKey,
    needs: Needs,
}

#[derive(Clone, Debug)]
enum Needs {
    /// Nothing any more.
    Nothing,
    /// This action.
    Action(NodeAction),
    /// Nothing now.
    Wait(Held),
    /// This action, once group policy grants it.
    Grant(NodeAction, Line),
}

/// Room for looks that is kept from pass to pass, so that neither a great pass is remembered nor a small one allocates.
const LOOKS_KEPT: usize = 1024;

/// What one pass collects.
#[derive(Default)]
struct Pass {
    actions: Vec<NodeAction>,
    held: Vec<(LogicalNodeId, Held)>,
    /// The nodes looked at whose action group policy has a say in.
    waiting: BTreeMap<SlotKey, (NodeAction, Line)>,
}

impl Planner {
    /// Returns a planner that has looked at no node yet.
    pub fn new(topology: Topology) -> Self {
        let slots = topology.groups.iter().map(|(id, group)| (id.clone(), 0..group.count));
        let unchecked = slots.collect();
        let (index, looks) = (Index::default(), Vec::new());
        Self { topology, index, unchecked, paused: false, last: None, looks }
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

    /// Returns the nodes with a deadline that is due, each deadline once; they must be looked at next.
    pub fn take_due(&mut self, now: SystemTime) -> Vec<LogicalNodeId> {
        self.index.take_due(now)
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

    /// Returns how many looks the next plan is made from.
    pub fn n_looks(&self) -> usize {
        self.looks.len()
    }

    /// Returns whether a plan could do anything without being given a node.
    pub fn has_work(&self) -> bool {
        let moved =
            || !self.unchecked.is_empty() || !self.index.moved.is_empty() || self.index.run_moved;
        !self.looks.is_empty() || (!self.paused && moved())
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

    /// Decides the next step of the nodes looked at and of the given ones, and of those whose group's counts moved.
    pub fn plan(
        &mut self,
        state: &ClusterState,
        touched: impl IntoIterator<Item = LogicalNodeId>,
        now: SystemTime,
    ) -> ReconcilePlan {
        self.paused = state.paused;
        for id in touched {
            // A node that is gone was taken out of the index when it was removed.
            if let Some(node) = state.nodes.get(id.as_str()) {
                self.look_at(node, state.paused, now);
            }
        }
        let mut pass = self.take_looks();
        if state.paused {
            self.hold_missing(state, &mut pass);
        } else {
            self.insert_missing(state, &mut pass);
            self.grant(state, now, &mut pass);
        }
        self.finish(state, pass)
    }

    fn take_looks(&mut self) -> Pass {
        let looks = &mut self.looks;
        let actions = Vec::with_capacity(looks.len());
        let mut pass = Pass { actions, ..Pass::default() };
        // What is looked at comes in sorted runs, which a stable sort merges; looks are large, so their places are sorted.
        let mut order: Vec<usize> = (0..looks.len()).collect();
        order.sort_by(|&left, &right| looks[left].id.cmp(&looks[right].id));
        for (place, &at) in order.iter().enumerate() {
            let next = order.get(place + 1);
            if next.is_some_and(|&next| looks[next].key == looks[at].key) {
                continue;
            }
            let Look { id, key, needs } = &mut looks[at];
            match mem::replace(needs, Needs::Nothing) {
                Needs::Nothing => {}
                Needs::Action(action) => pass.actions.push(action),
                Needs::Wait(held) => pass.held.push((id.clone(), held)),
                Needs::Grant(action, line) => {
                    pass.waiting.insert(*key, (action, line));
                }
            }
        }
        looks.clear();
        looks.shrink_to(LOOKS_KEPT);
        pass
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
        self.settle(key, &slot.logical_node_id);
    }

    /// Notes that nothing is to be done for a slot.
    fn settle(&mut self, key: SlotKey, id: &LogicalNodeId) {
        // What was not unsettled was not looked at before with another result.
        if self.index.set(key, None) {
            self.looks.push(Look { id: id.clone(), key, needs: Needs::Nothing });
        }
    }

    /// Notes what a node needs now, for the next [`plan`](Self::plan). `paused` says whether all effects are.
    pub fn look_at(&mut self, node: &ManagedNode, paused: bool, now: SystemTime) {
        let key = self.key(&node.record.desired);
        let group = self.desired(key);
        let decision = match decision(node, group, now) {
            NodeDecision::Act(_) if paused => {
                NodeDecision::Wait(Held::on(HeldReason::Paused, Trigger::Operator))
            }
            NodeDecision::Steady => {
                return self.settle(key, &node.record.desired.logical_node_id);
            }
            NodeDecision::Wait(held) => NodeDecision::Wait(unless_paused(paused, held, now)),
            decision @ NodeDecision::Act(_) => decision,
        };
        let mut entry = index::entry(key, node, &decision, group, now);
        if let Some(due) = self.index.due(key, now) {
            // It has fallen due and was not acted on yet: this look comes from an observation that was folded before.
            entry.deadline = Some(due);
        }
        self.index.set(key, Some(entry));
        if let Some(Line::Keep(_)) = entry.line {
            // How long it is kept depends on the time, and not on counts alone.
            self.index.moved.insert(key.group);
        }
        let id = node.record.desired.logical_node_id.clone();
        let needs = match decision {
            NodeDecision::Act(step) => match (self.action(node, step), entry.line) {
                (Some(action), Some(line)) => Needs::Grant(action, line),
                (Some(action), None) => Needs::Action(action),
                (None, _) => Needs::Nothing,
            },
            NodeDecision::Wait(held) => Needs::Wait(held),
            NodeDecision::Steady => Needs::Nothing,
        };
        self.looks.push(Look { id, key, needs });
    }

    /// Makes a step an action. Attempt ids are allocated at the end of the pass, brakes noted with the grant.
    fn action(&self, node: &ManagedNode, step: Step) -> Option<NodeAction> {
        let id = node.record.desired.logical_node_id.clone();
        let expected_attempt = node.attempt;
        Some(match step {
            Step::BeginDelete(cause) => {
                let brakes = Brakes::default();
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

    fn grant(&mut self, state: &ClusterState, now: SystemTime, pass: &mut Pass) {
        let mut granted = Granted::default();
        let mut memo = Brakings::default();
        for (key, brakes) in self.policy(state, now).grant(&mut granted) {
            self.index.disarm(key);
            let looked_at = pass.waiting.remove(&key).map(|(action, _)| action);
            let mut action =
                looked_at.or_else(|| self.action_of_waiting(state, &self.index.id(key), now));
            if let Some(NodeAction::BeginDelete { brakes: noted, .. }) = &mut action {
                *noted = brakes;
            }
            pass.actions.extend(action);
        }
        for (key, (action, line)) in mem::take(&mut pass.waiting) {
            let held = self.policy(state, now).held(key, line, &granted, &mut memo);
            pass.held.extend(held.map(|held| (action.node().clone(), held)));
        }
        self.index.moved.clear();
        self.index.run_moved = granted.uncovers_failure;
    }

    /// The step of a node that waited in a line since an earlier pass.
    fn action_of_waiting(
        &self,
        state: &ClusterState,
        id: &LogicalNodeId,
        now: SystemTime,
    ) -> Option<NodeAction> {
        let node = state.nodes.get(id)?;
        let group = self.topology.groups.get(node.record.desired.group_id());
        match decision(node, group, now) {
            NodeDecision::Act(step) => self.action(node, step),
            NodeDecision::Steady | NodeDecision::Wait(_) => None,
        }
    }

    /// Sorts, and allocates attempt ids in order.
    fn finish(&self, state: &ClusterState, mut pass: Pass) -> ReconcilePlan {
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
                return Explanation::Held(unless_paused(state.paused, held, now));
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
fn unless_paused(paused: bool, held: Held, now: SystemTime) -> Held {
    let passed = held.until.time().is_some_and(|time| time <= now);
    if paused && passed { Held::on(HeldReason::Paused, Trigger::Operator) } else { held }
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
