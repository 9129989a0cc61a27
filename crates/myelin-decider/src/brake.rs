//! The brake: while too many nodes fail at once, repair is a trickle (`spec 1.6`).

use std::collections::BTreeMap;

use myelin_shape::{Limit, NodeGroupId};

use crate::{
    BrakeScope, Brakes, Held, HeldReason, Trigger,
    grant::{Grant, Granted, GroupView, Policy, count},
    index::{RepairKey, SlotKey},
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

/// How the brakes stand after what one pass has granted, found out at most once a pass.
#[derive(Debug, Default)]
pub(crate) struct Brakings {
    groups: BTreeMap<u32, BrakeStatus>,
    run: Option<BrakeStatus>,
}

impl<'a> Policy<'a> {
    pub(crate) fn grant_repair(&self, granted: &mut Granted, grants: &mut Vec<Grant>) {
        if self.index.repairs.is_empty() || granted.uncovers_failure {
            return;
        }
        let run = self.run_brake(0);
        if run.is_on() {
            self.grant_one_repair(run, granted, grants);
            return;
        }
        // The brake of the run may just have been released, which moves the lines of every group.
        let groups = if self.index.run_moved { &self.index.repairs } else { &self.index.moved };
        for view in groups.iter().filter_map(|&number| self.view(number)) {
            let brake = self.brake_of(&view, 0);
            let most = if brake.is_on() { usize::from(brake.has_room()) } else { usize::MAX };
            let brakes = Brakes { group: brake.is_on(), run: false };
            let keys: Vec<_> = self.repairs_of(&view, granted).take(most).collect();
            for key in keys {
                push_repair(&view, key, brakes, granted, grants);
            }
        }
    }

    /// While the run's brake is on there is one repair in all of it, and the longest waiting one is next.
    fn grant_one_repair(&self, run: BrakeStatus, granted: &mut Granted, grants: &mut Vec<Grant>) {
        if !run.has_room() {
            return;
        }
        let views = self.index.repairs.iter().filter_map(|&number| self.view(number));
        let waiting = views.filter_map(|view| {
            let brake = self.brake_of(&view, 0);
            let key = self.repairs_of(&view, granted).next().filter(|_| brake.has_room())?;
            Some((view, key, Brakes { group: brake.is_on(), run: true }))
        });
        // Numbers of groups depend on history, so ties go by name.
        let first = waiting.min_by(|(left, l, _), (right, r, _)| {
            let order = (l.silent, l.since).cmp(&(r.silent, r.since));
            order.then_with(|| left.lines.id.cmp(&right.lines.id))
        });
        if let Some((view, key, brakes)) = first {
            push_repair(&view, key, brakes, granted, grants);
        }
    }

    /// Lists the repairs of a group that neither the memory of a brake, nor the group's template, nor the limit of its
    /// creates forbids, in order.
    fn repairs_of(
        &self,
        view: &GroupView<'a>,
        granted: &Granted,
    ) -> impl Iterator<Item = RepairKey> + use<'a> {
        let silent_allowed = self.silent_hold(view).is_none();
        let mut room = view.create_room(granted);
        let mut has_room = move || {
            let has_room = room > 0;
            room = room.saturating_sub(1);
            has_room
        };
        let (view, trial) = (*view, self.trial(view));
        let keys = view.lines.repair.iter().copied();
        keys.take_while(move |key| silent_allowed || !key.silent)
            .filter(move |key| view.may_start(&trial, key.index))
            .filter(move |key| !key.creates || has_room())
    }

    /// Returns the brake of a group, if there is such a group.
    pub(crate) fn group_brake(&self, id: &NodeGroupId) -> Option<BrakeStatus> {
        let group = self.topology.groups.get(id)?;
        let view = self.index.find_group(id).and_then(|number| self.view(number));
        let none = || BrakeStatus::new(group.policy.max_unhealthy, group.count, 0, 0);
        Some(view.map_or_else(none, |view| self.brake_of(&view, 0)))
    }

    fn brake_of(&self, view: &GroupView<'_>, extra_repairs: u32) -> BrakeStatus {
        let GroupView { group, lines, .. } = *view;
        let repairs = lines.counts.repairing - self.n_held_repairs(view) + extra_repairs;
        let unhealthy = lines.counts.unhealthy;
        BrakeStatus::new(group.policy.max_unhealthy, group.count, unhealthy, repairs)
    }

    /// Returns the brake of the run.
    pub(crate) fn run_brake(&self, extra_repairs: u32) -> BrakeStatus {
        let total = u32::try_from(self.topology.total()).unwrap_or(u32::MAX);
        let waiting = self.index.waiting_repairs.iter();
        let views = waiting.filter_map(|&number| self.view(number));
        let held: u32 = views.map(|view| self.n_held_repairs(&view)).sum();
        let repairs = self.index.run.repairing - held + extra_repairs;
        let unhealthy = self.index.run.unhealthy;
        BrakeStatus::new(self.topology.policy.max_unhealthy, total, unhealthy, repairs)
    }

    /// Returns how many repairs are held for their template's sake: they give the brake's token to others.
    fn n_held_repairs(&self, view: &GroupView<'_>) -> u32 {
        let waiting = &view.lines.waiting_repairs;
        if waiting.is_empty() {
            return 0;
        }
        let trial = self.trial(view);
        let held = waiting.iter().filter(|&&index| !view.may_start(&trial, index));
        count(held.count())
    }

    fn silent_hold(&self, view: &GroupView<'_>) -> Option<BrakeScope> {
        if view.record.is_some_and(|record| record.brake.silent_machine_ended) {
            return Some(BrakeScope::Group(view.lines.id.clone()));
        }
        self.state.brake.silent_machine_ended.then_some(BrakeScope::Run)
    }

    pub(crate) fn held_repair(
        &self,
        view: &GroupView<'_>,
        key: RepairKey,
        granted: &Granted,
        memo: &mut Brakings,
    ) -> Held {
        let counts = |reason| Held::on(reason, Trigger::GroupCounts);
        let group = *memo
            .groups
            .entry(view.number)
            .or_insert_with(|| self.brake_of(view, granted.group(view.number).repairs));
        let run = *memo.run.get_or_insert_with(|| self.run_brake(granted.run_repairs));
        // What stands in the way is named: first a repair that is under way, then the one that is waited for.
        if !group.has_room() {
            return counts(group.held(BrakeScope::Group(view.lines.id.clone())));
        }
        if !run.has_room() {
            return counts(run.held(BrakeScope::Run));
        }
        if key.creates && view.create_room(granted) == 0 {
            return Self::held_create(view, granted);
        }
        match self.silent_hold(view).filter(|_| key.silent) {
            Some(scope) => self.awaiting_repair(view, scope),
            None if group.is_on() => counts(group.held(BrakeScope::Group(view.lines.id.clone()))),
            None => counts(run.held(BrakeScope::Run)),
        }
    }

    /// What is waited for is a repair; if a person must say something first, it says so.
    fn awaiting_repair(&self, view: &GroupView<'_>, scope: BrakeScope) -> Held {
        let (counts, stuck) = match scope {
            BrakeScope::Group(_) => (view.lines.counts, view.first_stuck()),
            BrakeScope::Run => {
                let views = self.index.stuck.iter().filter_map(|&number| self.view(number));
                (self.index.run, views.filter_map(|view| view.first_stuck()).min())
            }
        };
        let stuck = stuck.filter(|_| counts.stuck == counts.recovering);
        let trigger = if stuck.is_some() { Trigger::SpecChange } else { Trigger::GroupCounts };
        Held::on(HeldReason::AwaitingRepair { scope, stuck }, trigger)
    }
}

fn push_repair(
    view: &GroupView<'_>,
    key: RepairKey,
    brakes: Brakes,
    granted: &mut Granted,
    grants: &mut Vec<Grant>,
) {
    let of_group = granted.group_mut(view.number);
    of_group.repairs += 1;
    of_group.creates += u32::from(key.creates);
    granted.run_repairs += 1;
    let brakes = if key.silent { brakes } else { Brakes::default() };
    grants.push((SlotKey { group: view.number, index: key.index }, brakes));
}
