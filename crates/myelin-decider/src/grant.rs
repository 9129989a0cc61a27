//! Group policy: which of the decided steps may be taken now (`spec 1.6`).

use std::{collections::BTreeMap, time::SystemTime};

use myelin_shape::LogicalNodeId;
use myelin_state::{ClusterState, GroupRecord};

use crate::{
    Topology,
    index::{GroupIndex, Index, SlotKey, kept_until},
    plan::Brakes,
    topology::GroupTopology,
    trial::Trial,
};

/// What one pass has granted so far, per group.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    groups: BTreeMap<u32, GroupGrants>,
    pub(crate) run_repairs: u32,
    /// Whether a machine that was kept goes. It counts as failing from then on, so the brakes are looked at again before
    /// anything is repaired.
    pub(crate) uncovers_failure: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupGrants {
    pub(crate) creates: u32,
    pub(crate) taken: u32,
    pub(crate) repairs: u32,
}

impl Granted {
    pub(crate) fn group(&self, number: u32) -> GroupGrants {
        self.groups.get(&number).copied().unwrap_or_default()
    }

    pub(crate) fn group_mut(&mut self, number: u32) -> &mut GroupGrants {
        self.groups.entry(number).or_default()
    }
}

/// Group policy over one state: everything a grant depends on, borrowed for one pass.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) index: &'a Index,
    pub(crate) state: &'a ClusterState,
    pub(crate) now: SystemTime,
}

/// A desired group with its lines and its record.
#[derive(Clone, Copy)]
pub(crate) struct GroupView<'a> {
    pub(crate) number: u32,
    pub(crate) group: &'a GroupTopology,
    pub(crate) lines: &'a GroupIndex,
    pub(crate) record: Option<&'a GroupRecord>,
}

impl GroupView<'_> {
    pub(crate) fn slot(&self, index: u32) -> LogicalNodeId {
        self.group.slot(index)
    }

    pub(crate) fn first_stuck(&self) -> Option<LogicalNodeId> {
        self.lines.stuck.first().map(|&index| self.slot(index))
    }

    /// Returns how many more creates of the group may be under way.
    pub(crate) fn create_room(&self, granted: &Granted) -> u32 {
        let creating = self.lines.counts.creating + granted.group(self.number).creates;
        self.group.policy.max_in_flight_creates.saturating_sub(creating)
    }

    /// Returns whether nothing about the template keeps the slot from a machine.
    pub(crate) fn may_start(&self, trial: &Trial, index: u32) -> bool {
        let may = match *trial {
            Trial::Open | Trial::Nobody => true,
            Trial::Canary { index: canary, quarantined } => canary == index && !quarantined,
        };
        may && self.lines.refused.is_empty()
    }
}

/// A granted step: which slot, and which brakes were on.
pub(crate) type Grant = (SlotKey, Brakes);

impl<'a> Policy<'a> {
    /// Grants from the lines of the groups that moved.
    pub(crate) fn grant(&self, granted: &mut Granted) -> Vec<Grant> {
        let mut grants = Vec::new();
        for &number in &self.index.moved {
            if let Some(view) = self.view(number) {
                granted.uncovers_failure |= self.grant_keep(&view, &mut grants);
                self.grant_create(&view, granted, &mut grants);
                self.grant_replace(&view, granted, &mut grants);
            }
        }
        self.grant_repair(granted, &mut grants);
        grants
    }

    pub(crate) fn view(&self, number: u32) -> Option<GroupView<'a>> {
        let lines = self.index.groups.get(number as usize)?;
        let group = lines.desired.as_ref()?;
        let record = self.state.groups.get(&lines.id);
        Some(GroupView { number, group, lines, record })
    }

    /// Failed machines beyond the limit, and those kept long enough, are cleaned up. Returns whether there are any.
    fn grant_keep(&self, view: &GroupView<'_>, grants: &mut Vec<Grant>) -> bool {
        let before = grants.len();
        let mut kept = 0;
        for &(failed_at, index) in &view.lines.keep {
            let until = kept_until(failed_at, Some(view.group));
            let over = until.is_some_and(|time| time <= self.now);
            if over || kept >= view.group.policy.keep_limit {
                grants.push((SlotKey { group: view.number, index }, Brakes::default()));
            } else {
                kept += 1;
            }
        }
        grants.len() > before
    }

    fn grant_create(&self, view: &GroupView<'_>, granted: &mut Granted, grants: &mut Vec<Grant>) {
        let GroupView { number, lines, .. } = *view;
        if lines.create.is_empty() || !lines.refused.is_empty() {
            return;
        }
        let room = view.create_room(granted);
        let trial = self.trial(view);
        let open = (trial == Trial::Open).then(|| lines.create.iter().copied());
        let canary = trial.canary_in(&lines.create);
        let before = grants.len();
        for index in open.into_iter().flatten().chain(canary).take(room as usize) {
            grants.push((SlotKey { group: number, index }, Brakes::default()));
        }
        granted.group_mut(number).creates += count(grants.len() - before);
    }

    /// What is no longer desired goes first, then silent nodes, then ready ones, each with the highest index first.
    fn grant_replace(&self, view: &GroupView<'_>, granted: &mut Granted, grants: &mut Vec<Grant>) {
        let GroupView { number, group, lines, .. } = *view;
        if lines.replace.is_empty() && lines.replace_silent.is_empty() {
            return;
        }
        let grant = |index| (SlotKey { group: number, index }, Brakes::default());
        let trial = self.trial(view);
        let room = budget(group).map(|limit| limit.saturating_sub(lines.counts.spends));
        let undesired = lines.replace.range(group.count..).rev().copied();
        let replaced = trial.taken(&lines.replace, group.count);
        let before = grants.len();
        let silent = trial.taken(&lines.replace_silent, group.count);
        let taken = undesired.chain(silent).chain(replaced).take(room.unwrap_or(u32::MAX) as usize);
        grants.extend(taken.map(grant));
        granted.group_mut(number).taken += count(grants.len() - before);
    }
}

pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns how many ready nodes may be taken at once, if that is limited.
pub(crate) fn budget(group: &GroupTopology) -> Option<u32> {
    group.policy.max_unavailable.map(|limit| limit.of(group.count).max(1))
}
