//! Group policy: which of the decided steps may be taken now (`spec 1.6`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use myelin_shape::{FirstNode, Limit, LogicalNodeId, NodeGroupId};
use myelin_state::{ClusterState, GroupRecord};

use crate::{
    BrakeScope, Held, HeldReason, Topology, Trigger,
    index::{GroupIndex, Index, Line, RepairKey, kept_until},
    plan::Brakes,
    topology::GroupTopology,
};

/// How a brake stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrakeStatus {
    /// How many nodes of the scope fail.
    pub unhealthy: u32,
    /// Above how many the brake is on; `None` for a scope of one node, which has no brake.
    pub limit: Option<u32>,
    /// How many repairs of the scope are under way.
    pub repairs: u32,
}

impl BrakeStatus {
    /// The limit is at least 2 nodes, and less than all: losing everything always trips, since then the fault is more
    /// likely ours than theirs.
    fn new(policy: Limit, total: u32, unhealthy: u32, repairs: u32) -> Self {
        let limit = (total > 1).then(|| policy.of(total).max(2).min(total - 1));
        Self {
            unhealthy,
            limit,
            repairs,
        }
    }

    /// Returns whether repair is a trickle.
    pub fn is_on(&self) -> bool {
        self.limit.is_some_and(|limit| self.unhealthy > limit)
    }

    fn has_room(&self) -> bool {
        !self.is_on() || self.repairs == 0
    }

    fn held(&self, scope: BrakeScope) -> HeldReason {
        let Self {
            unhealthy,
            limit,
            repairs,
        } = *self;
        HeldReason::Brake {
            scope,
            unhealthy,
            limit: limit.unwrap_or(u32::MAX),
            repairs,
        }
    }
}

/// What one pass has granted so far, per group.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    groups: BTreeMap<NodeGroupId, GroupGrants>,
    run_repairs: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupGrants {
    creates: u32,
    taken: u32,
    repairs: u32,
}

impl Granted {
    fn group(&self, id: &NodeGroupId) -> GroupGrants {
        self.groups.get(id).copied().unwrap_or_default()
    }

    fn group_mut(&mut self, id: &NodeGroupId) -> &mut GroupGrants {
        self.groups.entry(id.clone()).or_default()
    }
}

/// Who may start with a template.
#[derive(Debug, PartialEq)]
enum Trial {
    /// Everybody: the template is proven, or needs no proof.
    Open,
    /// This slot first.
    Canary { index: u32, quarantined: bool },
    /// Nobody waits.
    Nobody,
}

impl Trial {
    /// Returns the canary, if it may start and waits in the line.
    fn canary_in(&self, line: &BTreeSet<u32>) -> Option<u32> {
        match *self {
            Self::Canary {
                index,
                quarantined: false,
            } => Some(index),
            Self::Canary {
                quarantined: true, ..
            }
            | Self::Open
            | Self::Nobody => None,
        }
        .filter(|index| line.contains(index))
    }

    /// Lists the slots of a line below `end` that may be taken, highest first.
    fn taken(&self, line: &BTreeSet<u32>, end: u32) -> impl Iterator<Item = u32> {
        let open = (*self == Self::Open).then(|| line.range(..end).rev().copied());
        open.into_iter().flatten().chain(self.canary_in(line))
    }
}

/// Everything a grant depends on, borrowed for one pass.
#[derive(Clone, Copy)]
pub(crate) struct Desk<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) index: &'a Index,
    pub(crate) state: &'a ClusterState,
    pub(crate) now: SystemTime,
}

/// A granted step: which slot, and which brakes were on.
pub(crate) type Grant = (LogicalNodeId, Brakes);

impl<'a> Desk<'a> {
    /// Grants from the lines of the groups that moved.
    pub(crate) fn grant(&self, granted: &mut Granted) -> Vec<Grant> {
        let mut grants = Vec::new();
        for id in &self.index.moved {
            if let Some((group, lines)) = self.group(id) {
                self.grant_keep(group, lines, &mut grants);
                self.grant_create(id, group, lines, granted, &mut grants);
                self.grant_replace(id, group, lines, granted, &mut grants);
            }
        }
        self.grant_repair(granted, &mut grants);
        grants
    }

    fn group(&self, id: &NodeGroupId) -> Option<(&'a GroupTopology, &'a GroupIndex)> {
        Some((self.topology.groups.get(id)?, self.index.groups.get(id)?))
    }

    fn record(&self, id: &NodeGroupId) -> Option<&'a GroupRecord> {
        self.state.groups.get(id)
    }

    /// Failed machines beyond the limit, and those kept long enough, are cleaned up.
    fn grant_keep(&self, group: &GroupTopology, lines: &GroupIndex, grants: &mut Vec<Grant>) {
        let mut kept = 0;
        for &(failed_at, index) in &lines.keep {
            let over = kept_until(failed_at, Some(group)).is_some_and(|time| time <= self.now);
            if over || kept >= group.policy.keep_limit {
                grants.push((slot(group, index), Brakes::default()));
            } else {
                kept += 1;
            }
        }
    }

    fn grant_create(
        &self,
        id: &NodeGroupId,
        group: &GroupTopology,
        lines: &GroupIndex,
        granted: &mut Granted,
        grants: &mut Vec<Grant>,
    ) {
        if lines.create.is_empty() || !lines.refused.is_empty() {
            return;
        }
        let room = group
            .policy
            .max_in_flight_creates
            .saturating_sub(lines.counts.creating);
        let trial = self.trial(id, group, lines);
        let open = (trial == Trial::Open).then(|| lines.create.iter().copied());
        let canary = trial.canary_in(&lines.create);
        for index in open.into_iter().flatten().chain(canary).take(room as usize) {
            granted.group_mut(id).creates += 1;
            grants.push((slot(group, index), Brakes::default()));
        }
    }

    /// Highest index first, and what is no longer desired before what is replaced. Silent nodes spend nothing.
    fn grant_replace(
        &self,
        id: &NodeGroupId,
        group: &GroupTopology,
        lines: &GroupIndex,
        granted: &mut Granted,
        grants: &mut Vec<Grant>,
    ) {
        if lines.replace.is_empty() && lines.replace_silent.is_empty() {
            return;
        }
        let trial = self.trial(id, group, lines);
        let silent = trial.taken(&lines.replace_silent, group.count);
        grants.extend(silent.map(|index| (slot(group, index), Brakes::default())));
        let room = budget(group).map(|limit| limit.saturating_sub(lines.counts.spends));
        let undesired = lines.replace.range(group.count..).rev().copied();
        let replaced = trial.taken(&lines.replace, group.count);
        for index in undesired
            .chain(replaced)
            .take(room.unwrap_or(u32::MAX) as usize)
        {
            granted.group_mut(id).taken += 1;
            grants.push((slot(group, index), Brakes::default()));
        }
    }

    /// Returns who may start with the group's template.
    ///
    /// The canary is the slot on record. Without one it is the lowest slot that waits for a machine; if none does, the
    /// highest one that is to be replaced, silent ones first.
    fn trial(&self, id: &NodeGroupId, group: &GroupTopology, lines: &GroupIndex) -> Trial {
        if !needs_trial(group, self.record(id)) {
            return Trial::Open;
        }
        if let Some(canary) = self.canary_on_record(id, group) {
            return canary;
        }
        let silent = || lines.replace_silent.last();
        let ready = || lines.replace.range(..group.count).next_back();
        match lines.create.first().or_else(silent).or_else(ready) {
            Some(&index) => Trial::Canary {
                index,
                quarantined: false,
            },
            None => Trial::Nobody,
        }
    }

    fn canary_on_record(&self, id: &NodeGroupId, group: &GroupTopology) -> Option<Trial> {
        let canary = self.record(id)?.canary.as_ref()?;
        let node = self.state.nodes.get(&canary.node)?;
        let index = node.record.desired.index;
        let valid = index < group.count && group.has_template(&canary.template);
        let quarantined = node.is_quarantined_for(&group.template);
        valid.then_some(Trial::Canary { index, quarantined })
    }

    /// Returns whether the step of this slot starts the trial of its group's template.
    pub(crate) fn starts_trial(&self, id: &NodeGroupId) -> bool {
        self.topology.groups.get(id).is_some_and(|group| {
            needs_trial(group, self.record(id)) && self.canary_on_record(id, group).is_none()
        })
    }

    pub(crate) fn group_brake(&self, id: &NodeGroupId, extra_repairs: u32) -> BrakeStatus {
        let Some(group) = self.topology.groups.get(id) else {
            return BrakeStatus::default();
        };
        let counts = self
            .index
            .groups
            .get(id)
            .map(|lines| lines.counts)
            .unwrap_or_default();
        let repairs = counts.repairing + extra_repairs;
        BrakeStatus::new(
            group.policy.max_unhealthy,
            group.count,
            counts.unhealthy,
            repairs,
        )
    }

    pub(crate) fn run_brake(&self, extra_repairs: u32) -> BrakeStatus {
        let total = u32::try_from(self.topology.total()).unwrap_or(u32::MAX);
        let counts = self.index.run;
        let repairs = counts.repairing + extra_repairs;
        BrakeStatus::new(
            self.topology.policy.max_unhealthy,
            total,
            counts.unhealthy,
            repairs,
        )
    }

    fn grant_repair(&self, granted: &mut Granted, grants: &mut Vec<Grant>) {
        if self.index.repairs.is_empty() {
            return;
        }
        let run = self.run_brake(0);
        if run.is_on() {
            self.grant_one_repair(run, granted, grants);
            return;
        }
        // The brake of the run may just have been released, which moves the lines of every group.
        let groups = if self.index.run_moved {
            &self.index.repairs
        } else {
            &self.index.moved
        };
        for id in groups {
            let brake = self.group_brake(id, 0);
            let most = if brake.is_on() {
                usize::from(brake.has_room())
            } else {
                usize::MAX
            };
            for key in self.repairs_of(id).take(most) {
                self.push_repair(
                    id,
                    key,
                    Brakes {
                        group: brake.is_on(),
                        run: false,
                    },
                    granted,
                    grants,
                );
            }
        }
    }

    /// While the run's brake is on there is one repair in all of it, and the longest waiting one is next.
    fn grant_one_repair(&self, run: BrakeStatus, granted: &mut Granted, grants: &mut Vec<Grant>) {
        if !run.has_room() {
            return;
        }
        let first = self.index.repairs.iter().filter_map(|id| {
            let brake = self.group_brake(id, 0);
            let key = self.repairs_of(id).next().filter(|_| brake.has_room())?;
            Some((key.silent, key.since, id, key, brake.is_on()))
        });
        if let Some((_, _, id, key, group)) = first.min() {
            self.push_repair(id, key, Brakes { group, run: true }, granted, grants);
        }
    }

    /// Lists the repairs of a group that no memory of a brake forbids, in order.
    fn repairs_of(&self, id: &NodeGroupId) -> impl Iterator<Item = RepairKey> + use<'a> {
        let lines = self.index.groups.get(id);
        let silent_allowed = self.silent_hold(id).is_none();
        let keys = lines
            .into_iter()
            .flat_map(|lines| lines.repair.iter().copied());
        keys.take_while(move |key| silent_allowed || !key.silent)
    }

    fn silent_hold(&self, id: &NodeGroupId) -> Option<BrakeScope> {
        let group = self
            .record(id)
            .is_some_and(|record| record.brake.silent_machine_ended);
        if group {
            return Some(BrakeScope::Group(id.clone()));
        }
        self.state
            .brake
            .silent_machine_ended
            .then_some(BrakeScope::Run)
    }

    fn push_repair(
        &self,
        id: &NodeGroupId,
        key: RepairKey,
        brakes: Brakes,
        granted: &mut Granted,
        grants: &mut Vec<Grant>,
    ) {
        let Some(group) = self.topology.groups.get(id) else {
            return;
        };
        granted.group_mut(id).repairs += 1;
        granted.run_repairs += 1;
        let brakes = if key.silent {
            brakes
        } else {
            Brakes::default()
        };
        grants.push((slot(group, key.index), brakes));
    }

    /// Says why a slot that waits in a line was granted nothing.
    pub(crate) fn held(&self, id: &NodeGroupId, line: Line, granted: &Granted) -> Option<Held> {
        let (group, lines) = self.group(id)?;
        Some(match line {
            Line::Keep(failed_at) => match kept_until(failed_at, Some(group)) {
                Some(time) => Held::at(HeldReason::Kept, time),
                None => Held::on(HeldReason::Kept, Trigger::Operator),
            },
            Line::Create => self.held_create(id, group, lines, granted),
            Line::Replace | Line::ReplaceSilent => self.held_replace(id, group, lines, granted),
            Line::Repair(key) => Held::on(self.held_repair(id, key, granted), Trigger::GroupCounts),
        })
    }

    fn held_create(
        &self,
        id: &NodeGroupId,
        group: &GroupTopology,
        lines: &GroupIndex,
        granted: &Granted,
    ) -> Held {
        if let Some(&index) = lines.refused.first() {
            let node = slot(group, index);
            let refusal = self
                .state
                .nodes
                .get(&node)
                .and_then(|node| node.refused.as_deref());
            let message = refusal
                .map(|refusal| refusal.message.clone())
                .unwrap_or_default();
            return Held::on(HeldReason::Refused { node, message }, Trigger::SpecChange);
        }
        if let Some(held) = self.held_by_trial(id, group, lines) {
            return held;
        }
        let in_flight = lines.counts.creating + granted.group(id).creates;
        let limit = group.policy.max_in_flight_creates;
        Held::on(
            HeldReason::CreateLimit { in_flight, limit },
            Trigger::GroupCounts,
        )
    }

    fn held_by_trial(
        &self,
        id: &NodeGroupId,
        group: &GroupTopology,
        lines: &GroupIndex,
    ) -> Option<Held> {
        match self.trial(id, group, lines) {
            Trial::Canary {
                index,
                quarantined: true,
            } => {
                let reason = HeldReason::CanaryFailed {
                    node: slot(group, index),
                };
                Some(Held::on(reason, Trigger::SpecChange))
            }
            Trial::Canary {
                index,
                quarantined: false,
            } => {
                let reason = HeldReason::Canary {
                    node: slot(group, index),
                };
                Some(Held::on(reason, Trigger::GroupCounts))
            }
            Trial::Open | Trial::Nobody => None,
        }
    }

    fn held_replace(
        &self,
        id: &NodeGroupId,
        group: &GroupTopology,
        lines: &GroupIndex,
        granted: &Granted,
    ) -> Held {
        let unavailable = lines.counts.spends + granted.group(id).taken;
        let limit = budget(group).unwrap_or(u32::MAX);
        let trial = if unavailable < limit {
            self.held_by_trial(id, group, lines)
        } else {
            None
        };
        trial.unwrap_or_else(|| {
            Held::on(
                HeldReason::Budget { unavailable, limit },
                Trigger::GroupCounts,
            )
        })
    }

    fn held_repair(&self, id: &NodeGroupId, key: RepairKey, granted: &Granted) -> HeldReason {
        let group = self.group_brake(id, granted.group(id).repairs);
        let run = self.run_brake(granted.run_repairs);
        match self.silent_hold(id).filter(|_| key.silent) {
            Some(scope) if !group.is_on() && !run.is_on() => HeldReason::AwaitingRepair { scope },
            _ if group.is_on() => group.held(BrakeScope::Group(id.clone())),
            _ => run.held(BrakeScope::Run),
        }
    }
}

fn slot(group: &GroupTopology, index: u32) -> LogicalNodeId {
    LogicalNodeId::slot(&group.template.group_id, index)
}

/// Returns how many ready nodes may be taken at once, if that is limited.
fn budget(group: &GroupTopology) -> Option<u32> {
    group
        .policy
        .max_unavailable
        .map(|limit| limit.of(group.count).max(1))
}

fn needs_trial(group: &GroupTopology, record: Option<&GroupRecord>) -> bool {
    let proven = record.and_then(|record| record.proven.as_ref());
    group.policy.first_node(group.count) == FirstNode::Canary
        && !proven.is_some_and(|template| group.has_template(template))
}
