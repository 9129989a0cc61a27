//! Group policy: which of the decided steps may be taken now (`spec 1.6`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use myelin_shape::{FirstNode, Limit, LogicalNodeId, NodeGroupId};
use myelin_state::{ClusterState, GroupRecord};

use crate::{
    BrakeScope, Held, HeldReason, Topology, Trigger,
    index::{GroupIndex, Index, Line, RepairKey, SlotKey, kept_until},
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
        Self { unhealthy, limit, repairs }
    }

    /// Returns whether repair is a trickle.
    pub fn is_on(&self) -> bool {
        self.limit.is_some_and(|limit| self.unhealthy > limit)
    }

    fn has_room(&self) -> bool {
        !self.is_on() || self.repairs == 0
    }

    fn held(&self, scope: BrakeScope) -> HeldReason {
        let Self { unhealthy, limit, repairs } = *self;
        HeldReason::Brake { scope, unhealthy, limit: limit.unwrap_or(u32::MAX), repairs }
    }
}

/// What one pass has granted so far, per group.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    groups: BTreeMap<u32, GroupGrants>,
    run_repairs: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupGrants {
    creates: u32,
    taken: u32,
    repairs: u32,
}

impl Granted {
    fn group(&self, number: u32) -> GroupGrants {
        self.groups.get(&number).copied().unwrap_or_default()
    }

    fn group_mut(&mut self, number: u32) -> &mut GroupGrants {
        self.groups.entry(number).or_default()
    }
}

/// How the brakes stand after what one pass has granted, found out at most once a pass.
#[derive(Debug, Default)]
pub(crate) struct Brakings {
    groups: BTreeMap<u32, BrakeStatus>,
    run: Option<BrakeStatus>,
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
            Self::Canary { index, quarantined: false } => Some(index),
            Self::Canary { quarantined: true, .. } | Self::Open | Self::Nobody => None,
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

/// A desired group with its lines and its record.
#[derive(Clone, Copy)]
struct Office<'a> {
    number: u32,
    group: &'a GroupTopology,
    lines: &'a GroupIndex,
    record: Option<&'a GroupRecord>,
}

impl Office<'_> {
    fn slot(&self, index: u32) -> LogicalNodeId {
        self.group.slot(index)
    }

    /// Returns whether nothing about the template keeps the slot from a machine.
    fn may_start(&self, trial: &Trial, index: u32) -> bool {
        let may = match *trial {
            Trial::Open | Trial::Nobody => true,
            Trial::Canary { index: canary, quarantined } => canary == index && !quarantined,
        };
        may && self.lines.refused.is_empty()
    }
}

/// A granted step: which slot, and which brakes were on.
pub(crate) type Grant = (SlotKey, Brakes);

impl<'a> Desk<'a> {
    /// Grants from the lines of the groups that moved.
    pub(crate) fn grant(&self, granted: &mut Granted) -> Vec<Grant> {
        let mut grants = Vec::new();
        for &number in &self.index.moved {
            if let Some(office) = self.office(number) {
                self.grant_keep(&office, &mut grants);
                self.grant_create(&office, granted, &mut grants);
                self.grant_replace(&office, granted, &mut grants);
            }
        }
        self.grant_repair(granted, &mut grants);
        grants
    }

    fn office(&self, number: u32) -> Option<Office<'a>> {
        let lines = self.index.groups.get(number as usize)?;
        let group = lines.desired.as_ref()?;
        let record = self.state.groups.get(&lines.id);
        Some(Office { number, group, lines, record })
    }

    /// Failed machines beyond the limit, and those kept long enough, are cleaned up.
    fn grant_keep(&self, office: &Office<'_>, grants: &mut Vec<Grant>) {
        let mut kept = 0;
        for &(failed_at, index) in &office.lines.keep {
            let until = kept_until(failed_at, Some(office.group));
            let over = until.is_some_and(|time| time <= self.now);
            if over || kept >= office.group.policy.keep_limit {
                grants.push((SlotKey { group: office.number, index }, Brakes::default()));
            } else {
                kept += 1;
            }
        }
    }

    fn grant_create(&self, office: &Office<'_>, granted: &mut Granted, grants: &mut Vec<Grant>) {
        let Office { number, group, lines, .. } = *office;
        if lines.create.is_empty() || !lines.refused.is_empty() {
            return;
        }
        let room = group.policy.max_in_flight_creates.saturating_sub(lines.counts.creating);
        let trial = self.trial(office);
        let open = (trial == Trial::Open).then(|| lines.create.iter().copied());
        let canary = trial.canary_in(&lines.create);
        let before = grants.len();
        for index in open.into_iter().flatten().chain(canary).take(room as usize) {
            grants.push((SlotKey { group: number, index }, Brakes::default()));
        }
        granted.group_mut(number).creates += count(grants.len() - before);
    }

    /// What is no longer desired goes first, then silent nodes, then ready ones, each with the highest index first.
    fn grant_replace(&self, office: &Office<'_>, granted: &mut Granted, grants: &mut Vec<Grant>) {
        let Office { number, group, lines, .. } = *office;
        if lines.replace.is_empty() && lines.replace_silent.is_empty() {
            return;
        }
        let grant = |index| (SlotKey { group: number, index }, Brakes::default());
        let trial = self.trial(office);
        let room = budget(group).map(|limit| limit.saturating_sub(lines.counts.spends));
        let undesired = lines.replace.range(group.count..).rev().copied();
        let replaced = trial.taken(&lines.replace, group.count);
        let before = grants.len();
        let silent = trial.taken(&lines.replace_silent, group.count);
        let taken = undesired.chain(silent).chain(replaced).take(room.unwrap_or(u32::MAX) as usize);
        grants.extend(taken.map(grant));
        granted.group_mut(number).taken += count(grants.len() - before);
    }

    /// Returns who may start with the group's template.
    ///
    /// The canary is the slot on record. Without one it is the lowest slot that waits for a machine; if none does, the
    /// highest one that is to be replaced, silent ones first.
    fn trial(&self, office: &Office<'_>) -> Trial {
        let Office { group, lines, record, .. } = *office;
        if !needs_trial(group, record) {
            return Trial::Open;
        }
        if let Some(canary) = self.canary_on_record(group, record) {
            return canary;
        }
        let silent = || lines.replace_silent.last();
        let ready = || lines.replace.range(..group.count).next_back();
        match lines.create.first().or_else(silent).or_else(ready) {
            Some(&index) => Trial::Canary { index, quarantined: false },
            None => Trial::Nobody,
        }
    }

    fn canary_on_record(
        &self,
        group: &GroupTopology,
        record: Option<&GroupRecord>,
    ) -> Option<Trial> {
        let canary = record?.canary.as_ref()?;
        let node = self.state.nodes.get(&canary.node)?;
        let index = node.record.desired.index;
        let valid = index < group.count && group.has_template(&canary.template);
        let quarantined = node.is_quarantined_for(&group.template);
        valid.then_some(Trial::Canary { index, quarantined })
    }

    /// Returns whether a step of the group's nodes would start the trial of its template.
    pub(crate) fn starts_trial(&self, id: &NodeGroupId) -> bool {
        let record = self.state.groups.get(id);
        self.topology.groups.get(id).is_some_and(|group| {
            needs_trial(group, record) && self.canary_on_record(group, record).is_none()
        })
    }

    /// Returns the brake of a group, if there is such a group.
    pub(crate) fn group_brake(&self, id: &NodeGroupId) -> Option<BrakeStatus> {
        let group = self.topology.groups.get(id)?;
        let office = self.index.find_group(id).and_then(|number| self.office(number));
        let none = || BrakeStatus::new(group.policy.max_unhealthy, group.count, 0, 0);
        Some(office.map_or_else(none, |office| self.brake_of(&office, 0)))
    }

    fn brake_of(&self, office: &Office<'_>, extra_repairs: u32) -> BrakeStatus {
        let Office { group, lines, .. } = *office;
        let repairs = lines.counts.repairing - self.n_held_repairs(office) + extra_repairs;
        let unhealthy = lines.counts.unhealthy;
        BrakeStatus::new(group.policy.max_unhealthy, group.count, unhealthy, repairs)
    }

    /// Returns the brake of the run.
    pub(crate) fn run_brake(&self, extra_repairs: u32) -> BrakeStatus {
        let total = u32::try_from(self.topology.total()).unwrap_or(u32::MAX);
        let waiting = self.index.waiting_repairs.iter();
        let offices = waiting.filter_map(|&number| self.office(number));
        let held: u32 = offices.map(|office| self.n_held_repairs(&office)).sum();
        let repairs = self.index.run.repairing - held + extra_repairs;
        let unhealthy = self.index.run.unhealthy;
        BrakeStatus::new(self.topology.policy.max_unhealthy, total, unhealthy, repairs)
    }

    /// Returns how many repairs are held for their template's sake: they give the brake's token to others.
    fn n_held_repairs(&self, office: &Office<'_>) -> u32 {
        let waiting = &office.lines.waiting_repairs;
        if waiting.is_empty() {
            return 0;
        }
        let trial = self.trial(office);
        let held = waiting.iter().filter(|&&index| !office.may_start(&trial, index));
        count(held.count())
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
        let groups = if self.index.run_moved { &self.index.repairs } else { &self.index.moved };
        for office in groups.iter().filter_map(|&number| self.office(number)) {
            let brake = self.brake_of(&office, 0);
            let most = if brake.is_on() { usize::from(brake.has_room()) } else { usize::MAX };
            let brakes = Brakes { group: brake.is_on(), run: false };
            for key in self.repairs_of(&office).take(most) {
                push_repair(&office, key, brakes, granted, grants);
            }
        }
    }

    /// While the run's brake is on there is one repair in all of it, and the longest waiting one is next.
    fn grant_one_repair(&self, run: BrakeStatus, granted: &mut Granted, grants: &mut Vec<Grant>) {
        if !run.has_room() {
            return;
        }
        let offices = self.index.repairs.iter().filter_map(|&number| self.office(number));
        let waiting = offices.filter_map(|office| {
            let brake = self.brake_of(&office, 0);
            let key = self.repairs_of(&office).next().filter(|_| brake.has_room())?;
            Some((office, key, Brakes { group: brake.is_on(), run: true }))
        });
        // Numbers of groups depend on history, so ties go by name.
        let first = waiting.min_by(|(left, l, _), (right, r, _)| {
            let order = (l.silent, l.since).cmp(&(r.silent, r.since));
            order.then_with(|| left.lines.id.cmp(&right.lines.id))
        });
        if let Some((office, key, brakes)) = first {
            push_repair(&office, key, brakes, granted, grants);
        }
    }

    /// Lists the repairs of a group that neither the memory of a brake nor the group's template forbids, in order.
    fn repairs_of(&self, office: &Office<'a>) -> impl Iterator<Item = RepairKey> + use<'a> {
        let silent_allowed = self.silent_hold(office).is_none();
        let (office, trial) = (*office, self.trial(office));
        let keys = office.lines.repair.iter().copied();
        keys.take_while(move |key| silent_allowed || !key.silent)
            .filter(move |key| office.may_start(&trial, key.index))
    }

    fn silent_hold(&self, office: &Office<'_>) -> Option<BrakeScope> {
        if office.record.is_some_and(|record| record.brake.silent_machine_ended) {
            return Some(BrakeScope::Group(office.lines.id.clone()));
        }
        self.state.brake.silent_machine_ended.then_some(BrakeScope::Run)
    }

    /// Says why a slot that waits in a line was granted nothing.
    pub(crate) fn held(
        &self,
        key: SlotKey,
        line: Line,
        granted: &Granted,
        memo: &mut Brakings,
    ) -> Option<Held> {
        let office = self.office(key.group)?;
        Some(match line {
            Line::Keep(failed_at) => match kept_until(failed_at, Some(office.group)) {
                Some(time) => Held::at(HeldReason::Kept, time),
                None => Held::on(HeldReason::Kept, Trigger::Operator),
            },
            Line::Create => self
                .held_by_template(&office, key.index)
                .unwrap_or_else(|| Self::held_create(&office, granted)),
            Line::Replace | Line::ReplaceSilent => self.held_replace(&office, granted),
            Line::Repair(repair) => {
                self.held_by_template(&office, key.index).unwrap_or_else(|| {
                    let reason = self.held_repair(&office, repair, granted, memo);
                    Held::on(reason, Trigger::GroupCounts)
                })
            }
        })
    }

    /// Says why no machine may be made from the template for this slot, if so.
    fn held_by_template(&self, office: &Office<'_>, index: u32) -> Option<Held> {
        if let Some(&index) = office.lines.refused.first() {
            let node = office.slot(index);
            let refused = self.state.nodes.get(&node);
            let refusal = refused.and_then(|node| node.refused.as_deref());
            let message = refusal.map(|refusal| refusal.message.clone());
            let message = message.unwrap_or_default();
            return Some(Held::on(HeldReason::Refused { node, message }, Trigger::SpecChange));
        }
        let starts = office.may_start(&self.trial(office), index);
        self.held_by_trial(office).filter(|_| !starts)
    }

    fn held_create(office: &Office<'_>, granted: &Granted) -> Held {
        let in_flight = office.lines.counts.creating + granted.group(office.number).creates;
        let limit = office.group.policy.max_in_flight_creates;
        let reason = HeldReason::CreateLimit { in_flight, limit };
        Held::on(reason, Trigger::GroupCounts)
    }

    fn held_by_trial(&self, office: &Office<'_>) -> Option<Held> {
        match self.trial(office) {
            Trial::Canary { index, quarantined: true } => {
                let reason = HeldReason::CanaryFailed { node: office.slot(index) };
                Some(Held::on(reason, Trigger::SpecChange))
            }
            Trial::Canary { index, quarantined: false } => {
                let reason = HeldReason::Canary { node: office.slot(index) };
                let kept = office.lines.keep.iter().find(|(_, kept)| *kept == index);
                let until = kept.and_then(|&(at, _)| kept_until(at, Some(office.group)));
                let until = until.filter(|&time| time > self.now);
                Some(match until {
                    Some(time) => Held::at(reason, time),
                    None => Held::on(reason, Trigger::GroupCounts),
                })
            }
            Trial::Open | Trial::Nobody => None,
        }
    }

    fn held_replace(&self, office: &Office<'_>, granted: &Granted) -> Held {
        let unavailable = office.lines.counts.spends + granted.group(office.number).taken;
        let limit = budget(office.group).unwrap_or(u32::MAX);
        let trial = if unavailable < limit { self.held_by_trial(office) } else { None };
        trial.unwrap_or_else(|| {
            Held::on(HeldReason::Budget { unavailable, limit }, Trigger::GroupCounts)
        })
    }

    fn held_repair(
        &self,
        office: &Office<'_>,
        key: RepairKey,
        granted: &Granted,
        memo: &mut Brakings,
    ) -> HeldReason {
        let group = *memo
            .groups
            .entry(office.number)
            .or_insert_with(|| self.brake_of(office, granted.group(office.number).repairs));
        let run = *memo.run.get_or_insert_with(|| self.run_brake(granted.run_repairs));
        // What stands in the way is named: first a repair that is under way, then the one that is waited for.
        if !group.has_room() {
            return group.held(BrakeScope::Group(office.lines.id.clone()));
        }
        if !run.has_room() {
            return run.held(BrakeScope::Run);
        }
        match self.silent_hold(office).filter(|_| key.silent) {
            Some(scope) => HeldReason::AwaitingRepair { scope },
            None if group.is_on() => group.held(BrakeScope::Group(office.lines.id.clone())),
            None => run.held(BrakeScope::Run),
        }
    }
}

fn push_repair(
    office: &Office<'_>,
    key: RepairKey,
    brakes: Brakes,
    granted: &mut Granted,
    grants: &mut Vec<Grant>,
) {
    granted.group_mut(office.number).repairs += 1;
    granted.run_repairs += 1;
    let brakes = if key.silent { brakes } else { Brakes::default() };
    grants.push((SlotKey { group: office.number, index: key.index }, brakes));
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns how many ready nodes may be taken at once, if that is limited.
fn budget(group: &GroupTopology) -> Option<u32> {
    group.policy.max_unavailable.map(|limit| limit.of(group.count).max(1))
}

fn needs_trial(group: &GroupTopology, record: Option<&GroupRecord>) -> bool {
    group.policy.first_node(group.count) == FirstNode::Canary
        && !record.is_some_and(|record| record.has_proven(&group.template))
}
