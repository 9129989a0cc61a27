//! Counts and waiting lines, kept with every change instead of recounted in a pass (`8-speed.md`).
//!
//! Only nodes that are not as desired have an entry: at rest the index is empty, whatever the size of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use myelin_shape::{LogicalNodeId, NodeGroupId, OnFailure};
use myelin_state::{
    DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeStage, OperationKind, after,
};

use crate::{
    NodeDecision, Topology,
    progression::{Step, next_deadline},
    topology::GroupTopology,
};

/// What one node adds to the counts of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one bit per count")]
pub(crate) struct Facts {
    pub(crate) unhealthy: bool,
    pub(crate) repairing: bool,
    pub(crate) spends: bool,
    pub(crate) creating: bool,
    pub(crate) refused: bool,
}

/// Which of its group's waiting lines a node is in, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Wants to create a lease.
    Create,
    /// Is ready and is to be taken on purpose.
    Replace,
    /// As `Replace`, but its agent is silent.
    ReplaceSilent,
    /// Has failed, and may be kept; oldest failure first.
    Keep(SystemTime),
    /// Is to be repaired.
    Repair(RepairKey),
}

/// Order of repairs: those with no machine left to lose first, longest waiting first (`spec 1.6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RepairKey {
    pub(crate) silent: bool,
    pub(crate) since: SystemTime,
    pub(crate) index: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) group: NodeGroupId,
    pub(crate) index: u32,
    pub(crate) facts: Facts,
    pub(crate) line: Option<Line>,
    pub(crate) deadline: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) unhealthy: u32,
    pub(crate) repairing: u32,
    pub(crate) spends: u32,
    pub(crate) creating: u32,
}

impl Counts {
    fn add(&mut self, facts: Facts) {
        self.unhealthy += u32::from(facts.unhealthy);
        self.repairing += u32::from(facts.repairing);
        self.spends += u32::from(facts.spends);
        self.creating += u32::from(facts.creating);
    }

    fn remove(&mut self, facts: Facts) {
        self.unhealthy -= u32::from(facts.unhealthy);
        self.repairing -= u32::from(facts.repairing);
        self.spends -= u32::from(facts.spends);
        self.creating -= u32::from(facts.creating);
    }
}

/// Counts and lines of one group. Lines hold slot indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupIndex {
    pub(crate) counts: Counts,
    pub(crate) refused: BTreeSet<u32>,
    pub(crate) create: BTreeSet<u32>,
    pub(crate) replace: BTreeSet<u32>,
    pub(crate) replace_silent: BTreeSet<u32>,
    pub(crate) keep: BTreeSet<(SystemTime, u32)>,
    pub(crate) repair: BTreeSet<RepairKey>,
}

impl GroupIndex {
    fn add(&mut self, entry: &Entry) {
        self.counts.add(entry.facts);
        if entry.facts.refused {
            self.refused.insert(entry.index);
        }
        match entry.line {
            Some(Line::Create) => self.create.insert(entry.index),
            Some(Line::Replace) => self.replace.insert(entry.index),
            Some(Line::ReplaceSilent) => self.replace_silent.insert(entry.index),
            Some(Line::Keep(since)) => self.keep.insert((since, entry.index)),
            Some(Line::Repair(key)) => self.repair.insert(key),
            None => false,
        };
    }

    fn remove(&mut self, entry: &Entry) {
        self.counts.remove(entry.facts);
        if entry.facts.refused {
            self.refused.remove(&entry.index);
        }
        match entry.line {
            Some(Line::Create) => self.create.remove(&entry.index),
            Some(Line::Replace) => self.replace.remove(&entry.index),
            Some(Line::ReplaceSilent) => self.replace_silent.remove(&entry.index),
            Some(Line::Keep(since)) => self.keep.remove(&(since, entry.index)),
            Some(Line::Repair(key)) => self.repair.remove(&key),
            None => false,
        };
    }
}

/// The index of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) entries: BTreeMap<LogicalNodeId, Entry>,
    pub(crate) groups: BTreeMap<NodeGroupId, GroupIndex>,
    pub(crate) run: Counts,
    deadlines: BTreeSet<(SystemTime, LogicalNodeId)>,
    /// Groups whose counts or lines have moved since they were last granted from.
    pub(crate) moved: BTreeSet<NodeGroupId>,
    /// Groups with repairs waiting.
    pub(crate) repairs: BTreeSet<NodeGroupId>,
    /// Whether the run's counts of failing nodes or repairs have moved.
    pub(crate) run_moved: bool,
}

impl Index {
    /// Replaces what is known of a node; `None` for a node that is as desired, or gone.
    pub(crate) fn set(&mut self, id: &LogicalNodeId, entry: Option<&Entry>) {
        let old = match entry {
            Some(entry) => self.entries.insert(id.clone(), entry.clone()),
            None => self.entries.remove(id),
        };
        let deadline = entry.and_then(|entry| entry.deadline);
        let old_deadline = old.as_ref().and_then(|entry| entry.deadline);
        if deadline != old_deadline {
            self.rearm(id, old_deadline, deadline);
        }
        let old = old.as_ref();
        let weight = |entry: Option<&Entry>| entry.map(|entry| (entry.facts, entry.line));
        if weight(old) != weight(entry) {
            self.reweigh(old, entry);
        }
    }

    fn rearm(&mut self, id: &LogicalNodeId, old: Option<SystemTime>, deadline: Option<SystemTime>) {
        if let Some(time) = old {
            self.deadlines.remove(&(time, id.clone()));
        }
        if let Some(time) = deadline {
            self.deadlines.insert((time, id.clone()));
        }
    }

    fn reweigh(&mut self, old: Option<&Entry>, new: Option<&Entry>) {
        let run = self.run;
        for (entry, adds) in old
            .map(|entry| (entry, false))
            .into_iter()
            .chain(new.map(|e| (e, true)))
        {
            if !self.groups.contains_key(&entry.group) {
                self.groups
                    .insert(entry.group.clone(), GroupIndex::default());
            }
            let group = self.groups.get_mut(&entry.group).expect("just inserted");
            if adds {
                group.add(entry);
                self.run.add(entry.facts);
            } else {
                group.remove(entry);
                self.run.remove(entry.facts);
            }
            if group.repair.is_empty() {
                self.repairs.remove(&entry.group);
            } else {
                self.repairs.insert(entry.group.clone());
            }
            if !self.moved.contains(&entry.group) {
                self.moved.insert(entry.group.clone());
            }
        }
        self.run_moved |=
            (run.unhealthy, run.repairing) != (self.run.unhealthy, self.run.repairing);
    }

    /// Takes a node's deadline back: it is acted on, and looked at again for that reason.
    pub(crate) fn disarm(&mut self, id: &LogicalNodeId) {
        if let Some(entry) = self.entries.get_mut(id)
            && let Some(time) = entry.deadline.take()
        {
            self.deadlines.remove(&(time, id.clone()));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Returns the nodes whose deadline is due.
    pub(crate) fn due(&self, now: SystemTime) -> impl Iterator<Item = &LogicalNodeId> {
        self.deadlines
            .iter()
            .take_while(move |(time, _)| *time <= now)
            .map(|(_, id)| id)
    }
}

/// Classifies a node that is not as desired.
pub(crate) fn entry(
    node: &ManagedNode,
    decision: &NodeDecision,
    topology: &Topology,
    now: SystemTime,
) -> Entry {
    let slot = &node.record.desired;
    let group = topology
        .wanting(slot)
        .filter(|group| group.has_template(&slot.template));
    let line = line(node, decision, topology);
    let deadline = match (line, decision) {
        (Some(Line::Keep(failed_at)), _) => {
            kept_until(failed_at, topology.groups.get(slot.group_id()))
        }
        (None, NodeDecision::Act(_)) => None,
        (_, NodeDecision::Act(_) | NodeDecision::Wait(_) | NodeDecision::Steady) => {
            next_deadline(node, now)
        }
    };
    Entry {
        group: slot.group_id().clone(),
        index: slot.index,
        facts: facts(node, group),
        line,
        deadline: deadline.filter(|&time| time > now),
    }
}

pub(crate) fn kept_until(
    failed_at: SystemTime,
    group: Option<&GroupTopology>,
) -> Option<SystemTime> {
    group.and_then(|group| after(failed_at, group.policy.keep_for))
}

/// `group` is given if it wants the slot with the template of its current attempt.
fn facts(node: &ManagedNode, group: Option<&GroupTopology>) -> Facts {
    let active = node.intent == NodeIntent::Active;
    let kept = active && group.is_some_and(|group| may_be_kept(node, group));
    let refused = active && node.refused.is_some() && group.is_some();
    let counted =
        !refused && !kept && group.is_some_and(|group| !node.is_quarantined_for(&group.template));
    let silent = active && node.record.silence.is_some();
    let creating = [
        node.pending.as_deref().map(|pending| pending.kind),
        node.retry.ambiguous_operation,
    ];
    Facts {
        unhealthy: counted && (silent || node.recovering),
        repairing: counted && node.repairing,
        spends: node.spends_budget,
        creating: creating.contains(&Some(OperationKind::CreateLease)),
        refused,
    }
}

fn may_be_kept(node: &ManagedNode, group: &GroupTopology) -> bool {
    node.record.stage == NodeStage::Failed
        && group.policy.on_failure == OnFailure::Keep
        && !node.keep_released
}

/// Returns the line a decided step waits in, if group policy has a say in it.
fn line(node: &ManagedNode, decision: &NodeDecision, topology: &Topology) -> Option<Line> {
    let NodeDecision::Act(step) = decision else {
        return None;
    };
    let slot = &node.record.desired;
    let group = topology.groups.get(slot.group_id())?;
    let record = &node.record;
    match step {
        Step::Dispatch(OperationKind::CreateLease, LeaseMode::CreateOrAdopt) => {
            // An ambiguous create is under way already; settling it asks for no more room.
            let unsettled = node.retry.ambiguous_operation == Some(OperationKind::CreateLease);
            (!unsettled).then_some(Line::Create)
        }
        Step::BeginDelete(DeleteCause::Undesired | DeleteCause::SpecChanged) if node.is_ready() => {
            Some(Line::Replace)
        }
        Step::BeginDelete(DeleteCause::SpecChanged) if record.stage.is_handed_off() => {
            Some(Line::ReplaceSilent)
        }
        Step::BeginDelete(DeleteCause::Failed) if may_be_kept(node, group) => {
            record.failed_at.map(Line::Keep)
        }
        Step::BeginDelete(DeleteCause::Lost) => {
            let since = record.lost_at()?;
            Some(Line::Repair(RepairKey {
                silent: true,
                since,
                index: slot.index,
            }))
        }
        Step::Restart => {
            let repair = node.recovering && !node.repairing && group.has_template(&slot.template);
            let since = node
                .retry
                .restart_at
                .or(record.destroyed_at)
                .filter(|_| repair)?;
            Some(Line::Repair(RepairKey {
                silent: false,
                since,
                index: slot.index,
            }))
        }
        Step::BeginDelete(_) | Step::MarkDestroyed | Step::Reap | Step::Dispatch(..) => None,
    }
}
