//! Counts and waiting lines, kept with every change instead of recounted in a pass (`8-speed.md`).
//!
//! Only nodes that are not as desired have an entry: at rest the index is empty, whatever the size of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use myelin_shape::{LogicalNodeId, LogicalNodeSpec, NodeGroupId, OnFailure};
use myelin_state::{
    DeleteCause, LeaseMode, ManagedNode, NodeIntent, NodeStage, OperationKind, after,
};

use crate::{
    NodeDecision, Topology,
    progression::{Step, next_deadline},
    topology::GroupTopology,
};

/// A slot as the index knows it: the number of its group here, and its position in the group.
///
/// Comparing two numbers is what makes the index cheap; ids are made from them where they leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotKey {
    pub(crate) group: u32,
    pub(crate) index: u32,
}

/// What one node adds to the counts of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one bit per count")]
pub(crate) struct Facts {
    pub(crate) unhealthy: bool,
    pub(crate) recovering: bool,
    pub(crate) repairing: bool,
    pub(crate) spends: bool,
    pub(crate) creating: bool,
    pub(crate) refused: bool,
    /// Failed, and not repaired without a person.
    pub(crate) stuck: bool,
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
    /// Its create failed and gave the brake's token back; it goes on with another create.
    pub(crate) creates: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: SlotKey,
    pub(crate) facts: Facts,
    pub(crate) line: Option<Line>,
    pub(crate) deadline: Option<SystemTime>,
}

impl Entry {
    fn is_waiting_repair(&self) -> bool {
        self.facts.repairing && self.line == Some(Line::Create)
    }

    fn is_retry(&self) -> bool {
        matches!(self.line, Some(Line::Repair(RepairKey { creates: true, .. })))
    }

    fn is_of_repair(&self) -> bool {
        self.facts.repairing || self.facts.stuck || matches!(self.line, Some(Line::Repair(_)))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) unhealthy: u32,
    /// Slots that failed and have not been ready since, quarantined ones and the like among them.
    pub(crate) recovering: u32,
    pub(crate) repairing: u32,
    pub(crate) spends: u32,
    pub(crate) creating: u32,
    /// Those of `recovering` that are not repaired without a person.
    pub(crate) stuck: u32,
}

impl Counts {
    fn add(&mut self, facts: Facts) {
        self.unhealthy += u32::from(facts.unhealthy);
        self.recovering += u32::from(facts.recovering);
        self.repairing += u32::from(facts.repairing);
        self.spends += u32::from(facts.spends);
        self.creating += u32::from(facts.creating);
        self.stuck += u32::from(facts.stuck);
    }

    fn remove(&mut self, facts: Facts) {
        self.unhealthy -= u32::from(facts.unhealthy);
        self.recovering -= u32::from(facts.recovering);
        self.repairing -= u32::from(facts.repairing);
        self.spends -= u32::from(facts.spends);
        self.creating -= u32::from(facts.creating);
        self.stuck -= u32::from(facts.stuck);
    }
}

/// Counts and lines of one group. Lines hold slot indices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupIndex {
    pub(crate) id: NodeGroupId,
    /// What is desired of the group, here too so that its number finds it.
    pub(crate) desired: Option<GroupTopology>,
    pub(crate) counts: Counts,
    pub(crate) refused: BTreeSet<u32>,
    pub(crate) create: BTreeSet<u32>,
    pub(crate) replace: BTreeSet<u32>,
    pub(crate) replace_silent: BTreeSet<u32>,
    pub(crate) keep: BTreeSet<(SystemTime, u32)>,
    pub(crate) repair: BTreeSet<RepairKey>,
    /// Those of `repair` that want to create a lease.
    pub(crate) retries: BTreeSet<u32>,
    pub(crate) stuck: BTreeSet<u32>,
    /// Nodes under repair that wait in `create`.
    pub(crate) waiting_repairs: BTreeSet<u32>,
}

impl GroupIndex {
    fn new(id: NodeGroupId, desired: Option<GroupTopology>) -> Self {
        Self {
            id,
            desired,
            counts: Counts::default(),
            refused: BTreeSet::new(),
            create: BTreeSet::new(),
            replace: BTreeSet::new(),
            replace_silent: BTreeSet::new(),
            keep: BTreeSet::new(),
            repair: BTreeSet::new(),
            retries: BTreeSet::new(),
            stuck: BTreeSet::new(),
            waiting_repairs: BTreeSet::new(),
        }
    }

    fn add(&mut self, entry: &Entry) {
        self.counts.add(entry.facts);
        if entry.facts.refused {
            self.refused.insert(entry.key.index);
        }
        if entry.facts.stuck {
            self.stuck.insert(entry.key.index);
        }
        if entry.is_waiting_repair() {
            self.waiting_repairs.insert(entry.key.index);
        }
        if entry.is_retry() {
            self.retries.insert(entry.key.index);
        }
        match entry.line {
            Some(Line::Create) => self.create.insert(entry.key.index),
            Some(Line::Replace) => self.replace.insert(entry.key.index),
            Some(Line::ReplaceSilent) => self.replace_silent.insert(entry.key.index),
            Some(Line::Keep(since)) => self.keep.insert((since, entry.key.index)),
            Some(Line::Repair(key)) => self.repair.insert(key),
            None => false,
        };
    }

    fn remove(&mut self, entry: &Entry) {
        self.counts.remove(entry.facts);
        if entry.facts.refused {
            self.refused.remove(&entry.key.index);
        }
        if entry.facts.stuck {
            self.stuck.remove(&entry.key.index);
        }
        if entry.is_waiting_repair() {
            self.waiting_repairs.remove(&entry.key.index);
        }
        if entry.is_retry() {
            self.retries.remove(&entry.key.index);
        }
        match entry.line {
            Some(Line::Create) => self.create.remove(&entry.key.index),
            Some(Line::Replace) => self.replace.remove(&entry.key.index),
            Some(Line::ReplaceSilent) => self.replace_silent.remove(&entry.key.index),
            Some(Line::Keep(since)) => self.keep.remove(&(since, entry.key.index)),
            Some(Line::Repair(key)) => self.repair.remove(&key),
            None => false,
        };
    }
}

/// The index of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub(crate) entries: BTreeMap<SlotKey, Entry>,
    pub(crate) groups: Vec<GroupIndex>,
    numbers: BTreeMap<NodeGroupId, u32>,
    pub(crate) run: Counts,
    deadlines: BTreeSet<(SystemTime, SlotKey)>,
    /// Groups whose counts or lines have moved since they were last granted from.
    pub(crate) moved: BTreeSet<u32>,
    /// Groups with repairs waiting.
    pub(crate) repairs: BTreeSet<u32>,
    /// Groups with nodes under repair that wait for a machine.
    pub(crate) waiting_repairs: BTreeSet<u32>,
    /// Groups with nodes that are not repaired without a person.
    pub(crate) stuck: BTreeSet<u32>,
    /// Whether the run's counts of failing nodes or repairs have moved.
    pub(crate) run_moved: bool,
}

impl Index {
    /// Returns the number of a group, a new one at first sight.
    pub(crate) fn number(&mut self, id: &NodeGroupId, topology: &Topology) -> u32 {
        if let Some(&number) = self.numbers.get(id) {
            return number;
        }
        let number = u32::try_from(self.groups.len()).expect("a shape has fewer groups than nodes");
        self.groups.push(GroupIndex::new(id.clone(), topology.groups.get(id).cloned()));
        self.numbers.insert(id.clone(), number);
        number
    }

    /// Takes over what is desired of every group from now on.
    pub(crate) fn retarget(&mut self, topology: &Topology) {
        for group in &mut self.groups {
            group.desired = topology.groups.get(&group.id).cloned();
        }
    }

    /// Returns whether most of the groups known are no longer desired; then the index is made anew.
    pub(crate) fn is_mostly_stale(&self, desired_groups: usize) -> bool {
        self.groups.len() > 2 * desired_groups + 64
    }

    pub(crate) fn find(&self, slot: &LogicalNodeSpec) -> Option<SlotKey> {
        let group = self.find_group(slot.group_id())?;
        Some(SlotKey { group, index: slot.index })
    }

    pub(crate) fn find_group(&self, id: &NodeGroupId) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    pub(crate) fn counts(&self, id: &NodeGroupId) -> Counts {
        let group = self.find_group(id);
        group.map_or_else(Counts::default, |number| self.groups[number as usize].counts)
    }

    pub(crate) fn id(&self, key: SlotKey) -> LogicalNodeId {
        LogicalNodeId::slot(&self.groups[key.group as usize].id, key.index)
    }

    /// Replaces what is known of a node; `None` for a node that is as desired, or gone. Returns whether anything was
    /// known.
    pub(crate) fn set(&mut self, key: SlotKey, entry: Option<Entry>) -> bool {
        let old = match entry {
            Some(entry) => self.entries.insert(key, entry),
            None => self.entries.remove(&key),
        };
        let deadline = entry.and_then(|entry| entry.deadline);
        let old_deadline = old.and_then(|entry| entry.deadline);
        if deadline != old_deadline {
            self.rearm(key, old_deadline, deadline);
        }
        let weight = |entry: Option<Entry>| entry.map(|entry| (entry.facts, entry.line));
        if weight(old) != weight(entry) {
            self.reweigh(old, entry);
        }
        old.is_some()
    }

    fn rearm(&mut self, key: SlotKey, old: Option<SystemTime>, deadline: Option<SystemTime>) {
        if let Some(time) = old {
            self.deadlines.remove(&(time, key));
        }
        if let Some(time) = deadline {
            self.deadlines.insert((time, key));
        }
    }

    fn reweigh(&mut self, old: Option<Entry>, new: Option<Entry>) {
        let Some(number) = old.or(new).map(|entry| entry.key.group) else {
            return;
        };
        let before = self.run;
        let group = &mut self.groups[number as usize];
        if let Some(entry) = &old {
            group.remove(entry);
            self.run.remove(entry.facts);
        }
        if let Some(entry) = &new {
            group.add(entry);
            self.run.add(entry.facts);
        }
        let repairs = |entry: Option<Entry>| entry.is_some_and(|entry| entry.is_of_repair());
        if repairs(old) || repairs(new) {
            note_if(&mut self.repairs, number, !group.repair.is_empty());
            note_if(&mut self.waiting_repairs, number, !group.waiting_repairs.is_empty());
            note_if(&mut self.stuck, number, !group.stuck.is_empty());
        }
        self.moved.insert(number);
        self.run_moved |=
            (before.unhealthy, before.repairing) != (self.run.unhealthy, self.run.repairing);
    }

    /// Takes a node's deadline back: it is acted on, and looked at again for that reason.
    pub(crate) fn disarm(&mut self, key: SlotKey) {
        if let Some(entry) = self.entries.get_mut(&key)
            && let Some(time) = entry.deadline.take()
        {
            self.deadlines.remove(&(time, key));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Returns a node's deadline if it is due and was not taken yet.
    pub(crate) fn due(&self, key: SlotKey, now: SystemTime) -> Option<SystemTime> {
        self.entries.get(&key)?.deadline.filter(|&time| time <= now)
    }

    /// Returns the nodes whose deadline is due, and takes those deadlines back.
    pub(crate) fn take_due(&mut self, now: SystemTime) -> Vec<LogicalNodeId> {
        let due = self.deadlines.iter().take_while(|(time, _)| *time <= now);
        let keys: Vec<_> = due.map(|&(_, key)| key).collect();
        let disarm = |key| {
            self.disarm(key);
            self.id(key)
        };
        keys.into_iter().map(disarm).collect()
    }
}

fn note_if(groups: &mut BTreeSet<u32>, number: u32, holds: bool) {
    if holds {
        groups.insert(number);
    } else {
        groups.remove(&number);
    }
}

/// Classifies a node that is not as desired; `group` is its group, if that is desired.
pub(crate) fn entry(
    key: SlotKey,
    node: &ManagedNode,
    decision: &NodeDecision,
    group: Option<&GroupTopology>,
    now: SystemTime,
) -> Entry {
    let slot = &node.record.desired;
    let current = group.filter(|group| group.wants(slot) && group.has_template(&slot.template));
    let line = line(node, decision, group);
    let deadline = match (line, decision) {
        (Some(Line::Keep(failed_at)), _) => {
            // An effect may still be under way in what is kept.
            let kept_until = kept_until(failed_at, group).filter(|&time| time > now);
            kept_until.into_iter().chain(next_deadline(node, now)).min()
        }
        (None, NodeDecision::Act(_)) => None,
        (_, NodeDecision::Act(_) | NodeDecision::Wait(_) | NodeDecision::Steady) => {
            next_deadline(node, now)
        }
    };
    let facts = facts(node, group.filter(|group| group.wants(slot)), current);
    Entry { key, facts, line, deadline }
}

pub(crate) fn kept_until(
    failed_at: SystemTime,
    group: Option<&GroupTopology>,
) -> Option<SystemTime> {
    group.and_then(|group| after(failed_at, group.policy.keep_for))
}

/// `wanting` is the group if it wants the slot; `group`, if it does with the template of the current attempt.
fn facts(
    node: &ManagedNode,
    wanting: Option<&GroupTopology>,
    group: Option<&GroupTopology>,
) -> Facts {
    let active = node.intent == NodeIntent::Active;
    let kept = active && group.is_some_and(|group| may_be_kept(node, group));
    let refused = active && node.refused.is_some() && group.is_some();
    let counted =
        !refused && !kept && group.is_some_and(|group| !node.is_quarantined_for(&group.template));
    let silent = active && node.record.silence.is_some();
    let creating =
        [node.pending.as_deref().map(|pending| pending.kind), node.retry.ambiguous_operation];
    Facts {
        unhealthy: (wanting.is_some() && silent) || (counted && node.recovering),
        recovering: node.recovering,
        repairing: counted && node.repairing,
        spends: node.spends_budget,
        creating: creating.contains(&Some(OperationKind::CreateLease)),
        refused,
        stuck: node.recovering
            && group.is_some_and(|group| refused || node.is_quarantined_for(&group.template)),
    }
}

fn may_be_kept(node: &ManagedNode, group: &GroupTopology) -> bool {
    node.record.stage == NodeStage::Failed
        && group.policy.on_failure == OnFailure::Keep
        && !node.keep_released
}

/// Returns the line a decided step waits in, if group policy has a say in it.
pub(crate) fn line(
    node: &ManagedNode,
    decision: &NodeDecision,
    group: Option<&GroupTopology>,
) -> Option<Line> {
    let NodeDecision::Act(step) = decision else {
        return None;
    };
    let slot = &node.record.desired;
    let group = group?;
    let record = &node.record;
    match step {
        Step::Dispatch(OperationKind::CreateLease, LeaseMode::CreateOrAdopt) => {
            // An ambiguous create is under way already; settling it asks for no more room.
            let unsettled = node.retry.ambiguous_operation == Some(OperationKind::CreateLease);
            (!unsettled).then(|| create_line(node, group))
        }
        Step::BeginDelete(
            DeleteCause::Undesired | DeleteCause::SpecChanged | DeleteCause::Requested,
        ) if node.is_ready() => Some(Line::Replace),
        Step::BeginDelete(DeleteCause::SpecChanged) if record.stage.is_handed_off() => {
            Some(Line::ReplaceSilent)
        }
        Step::BeginDelete(DeleteCause::Failed) if may_be_kept(node, group) => {
            record.failed_at.map(Line::Keep)
        }
        Step::BeginDelete(DeleteCause::Lost) if node.was_in_use() => {
            let since = record.lost_at()?;
            Some(Line::Repair(RepairKey { silent: true, since, index: slot.index, creates: false }))
        }
        Step::Restart => {
            let since = node.retry.restart_at.or(record.destroyed_at);
            let since = since.filter(|_| needs_token(node, group))?;
            Some(Line::Repair(RepairKey {
                silent: false,
                since,
                index: slot.index,
                creates: false,
            }))
        }
        Step::BeginDelete(_) | Step::MarkDestroyed | Step::Reap | Step::Dispatch(..) => None,
    }
}

/// A repair whose create failed has given the brake's token to others: it asks for it again (`spec 1.6`).
fn create_line(node: &ManagedNode, group: &GroupTopology) -> Line {
    if !needs_token(node, group) {
        return Line::Create;
    }
    // Without a back-off it was released by a person, and goes first.
    let since = node.retry.next_effect_at.unwrap_or(SystemTime::UNIX_EPOCH);
    let index = node.record.desired.index;
    Line::Repair(RepairKey { silent: false, since, index, creates: true })
}

fn needs_token(node: &ManagedNode, group: &GroupTopology) -> bool {
    node.recovering && !node.repairing && group.has_template(&node.record.desired.template)
}
