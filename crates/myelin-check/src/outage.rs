//! Being cut off costs at most one healthy machine, however long it lasts (`spec 1.6`).
//!
//! An agent that is silent may be well, and only our own network gone. While so many fail that the brake is on, the end
//! of a silent machine that was in use must be answered by a repair that becomes ready before there is another one. The
//! state has a flag for that; here it follows from events alone.

use std::collections::BTreeMap;

use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::ClusterState;

use crate::{
    desired::Desired,
    policy::brake_limit,
    slot::Slot,
    violation::{Findings, Rule},
};

/// A group or the run.
#[derive(Clone, Copy, Debug, Default)]
struct Scope {
    /// How many slots have failed and were not ready since.
    recovering: u32,
    /// How many surely count as failing; never too many.
    failing: u32,
    /// Whether a silent machine was ended under the brake, and the repair that answers it is still to come.
    owed: bool,
}

impl Scope {
    /// Forgets what no repair can answer any more: nothing fails, or what was under repair is gone.
    fn settle(&mut self) {
        self.owed &= self.recovering > 0 && self.failing > 0;
    }

    fn leave(&mut self, slot: &Slot, desired: &Desired) {
        // The counts are of the same slots as before, unless a history contradicts itself.
        self.recovering = self.recovering.saturating_sub(u32::from(slot.flags.recovering));
        self.failing = self.failing.saturating_sub(u32::from(slot.is_failing(desired)));
    }

    fn enter(&mut self, slot: &Slot, desired: &Desired) {
        self.recovering += u32::from(slot.flags.recovering);
        self.failing += u32::from(slot.is_failing(desired));
    }
}

/// What the history says about outages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages {
    run: Scope,
    groups: BTreeMap<NodeGroupId, Scope>,
}

impl Outages {
    /// Returns what a state says about the history before it; counts follow with what is desired.
    pub(crate) fn of(state: &ClusterState) -> Self {
        let scope = |owed| Scope { owed, ..Scope::default() };
        let groups = state
            .groups
            .iter()
            .map(|(id, group)| (id.clone(), scope(group.brake.silent_machine_ended)));
        Self { run: scope(state.brake.silent_machine_ended), groups: groups.collect() }
    }

    /// Counts anew, because what is desired has changed.
    pub(crate) fn recount<'a>(&mut self, slots: impl Iterator<Item = &'a Slot>, desired: &Desired) {
        let scopes = [&mut self.run].into_iter().chain(self.groups.values_mut());
        for scope in scopes {
            (scope.recovering, scope.failing) = (0, 0);
        }
        for slot in slots {
            self.run.enter(slot, desired);
            self.groups.entry(slot.group.clone()).or_default().enter(slot, desired);
        }
        self.run.settle();
        self.groups.values_mut().for_each(Scope::settle);
    }

    /// Notes that a silent machine is ended.
    pub(crate) fn gave_up(
        &mut self,
        id: &LogicalNodeId,
        slot: &Slot,
        desired: &Desired,
        findings: &mut Findings,
    ) {
        if !slot.is_in_use() {
            return;
        }
        let run = brake_limit(desired.policy.max_unhealthy, desired.total());
        let group = desired.groups.get(&slot.group);
        let group =
            group.and_then(|group| brake_limit(group.policy.max_unhealthy, u64::from(group.count)));
        let of_group = self.groups.entry(slot.group.clone()).or_default();
        for (name, scope, limit) in
            [("the run", &mut self.run, run), ("its group", of_group, group)]
        {
            if limit.is_some_and(|limit| scope.failing > limit) {
                findings.require(!scope.owed, Rule::OneHealthyMachine, Some(id), || {
                    format!(
                        "is given up for silence with {} failing in {name}, and since the last one \
                         was, no repair has become ready",
                        scope.failing
                    )
                });
                scope.owed = true;
            }
        }
    }

    /// Notes what has become of a slot.
    pub(crate) fn moved(&mut self, before: Option<&Slot>, after: Option<&Slot>, desired: &Desired) {
        let Some(group) = before.or(after).map(|slot| slot.group.clone()) else {
            return;
        };
        let repaired = before.zip(after).is_some_and(|(before, after)| {
            before.flags.recovering && !before.flags.ready && after.flags.ready
        });
        for scope in [&mut self.run, self.groups.entry(group).or_default()] {
            if let Some(slot) = before {
                scope.leave(slot, desired);
            }
            if let Some(slot) = after {
                scope.enter(slot, desired);
            }
            scope.owed &= !repaired;
            scope.settle();
        }
    }

    /// Compares with what the state remembers. It may remember more, since not all that fails is counted here.
    pub(crate) fn compare(&self, state: &ClusterState, findings: &mut Findings) {
        let remembered =
            |id: &NodeGroupId| state.groups.get(id).is_some_and(|it| it.brake.silent_machine_ended);
        let forgotten = self.groups.iter().filter(|(id, scope)| scope.owed && !remembered(id));
        let run = self.run.owed && !state.brake.silent_machine_ended;
        for scope in
            run.then_some("the run").into_iter().chain(forgotten.map(|(id, _)| id.as_str()))
        {
            findings.require(false, Rule::OneHealthyMachine, None, || {
                format!("the brake of {scope} has forgotten a silent machine that was ended")
            });
        }
    }
}
