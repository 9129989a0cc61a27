//! Which nodes must be looked at after the desired set changed, or to be sure that none was missed.

use std::{mem, ops::Range, sync::Arc, time::SystemTime};

use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::ClusterState;

use super::{Pass, Planner, UNALLOCATED};
use crate::{
    Held, HeldReason, NodeAction, NodeDecision, Topology, Trigger, index::Index,
    progression::decide, topology::GroupTopology,
};

impl Planner {
    /// Replaces the desired set, and lists the nodes whose decision may have changed: they must be looked at next.
    pub fn set_topology(&mut self, mut next: Topology, state: &ClusterState) -> Vec<LogicalNodeId> {
        next.share_templates(&self.topology);
        let previous = mem::replace(&mut self.topology, next);
        self.index.retarget(&self.topology);
        if previous.policy != self.topology.policy {
            self.index.run_moved = true;
        }
        let ids: Vec<_> =
            previous.groups.keys().chain(self.topology.groups.keys()).cloned().collect();
        let mut touched = Vec::new();
        for id in ids {
            let (old, new) = (previous.groups.get(&id), self.topology.groups.get(&id));
            if old == new {
                continue;
            }
            let (before, count) = (old.map_or(0, |g| g.count), new.map_or(0, |g| g.count));
            // With the same template and policy, only the slots between the two counts are concerned.
            let same = old
                .zip(new)
                .is_some_and(|(old, new)| old.template == new.template && old.policy == new.policy);
            let slots = if same { before.min(count)..before.max(count) } else { 0..u32::MAX };
            Self::touch_slots(&id, slots, state, &mut touched);
            if before < count {
                self.uncheck(&id, before..count);
            }
            self.touch_group(&id);
            self.index.run_moved = true;
        }
        if self.index.is_mostly_stale(self.topology.groups.len()) {
            touched.extend(self.unsettled());
            self.index = Index::default();
            self.last = None;
            // Looks name groups by the numbers of the index; whoever was looked at and is unsettled is looked at again.
            self.looks.clear();
            self.index.run_moved = true;
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    fn touch_slots(
        group: &NodeGroupId,
        slots: Range<u32>,
        state: &ClusterState,
        touched: &mut Vec<LogicalNodeId>,
    ) {
        let nodes = state.nodes.range(group.slots());
        touched.extend(
            nodes
                .filter(|(_, node)| {
                    let slot = &node.record.desired;
                    slot.group_id() == group && slots.contains(&slot.index)
                })
                .map(|(id, _)| id.clone()),
        );
    }

    fn uncheck(&mut self, group: &NodeGroupId, slots: Range<u32>) {
        let range = self.unchecked.entry(group.clone()).or_insert(slots.clone());
        *range = range.start.min(slots.start)..range.end.max(slots.end);
    }

    /// Looks for the group's missing nodes again, because an insert was discarded.
    pub fn recheck_group(&mut self, group: &NodeGroupId) {
        if let Some(count) = self.topology.groups.get(group).map(|group| group.count) {
            self.uncheck(group, 0..count);
        }
    }

    /// Lists every node that is not as desired or was not when last looked at, and looks for missing ones again.
    ///
    /// This is the safety net under the incremental form: it reads the hot fields of every node once.
    pub fn sweep(&mut self, state: &ClusterState, now: SystemTime) -> Vec<LogicalNodeId> {
        let mut touched = Vec::new();
        let mut group: Option<&GroupTopology> = None;
        for (id, node) in &state.nodes {
            let slot = &node.record.desired;
            // Nodes of a group stand together, so the look-up of the previous one nearly always serves.
            if !group.is_some_and(|group| Arc::ptr_eq(&group.template, &slot.template)) {
                group = self.topology.groups.get(slot.group_id());
            }
            let wanting = group.filter(|group| slot.index < group.count);
            let desired = wanting.map(|group| &group.template);
            if !matches!(decide(node, desired, now), NodeDecision::Steady) {
                touched.push(id.clone());
            }
        }
        if !self.index.entries.is_empty() {
            touched.extend(self.unsettled());
            touched.sort_unstable();
            touched.dedup();
        }
        for number in 0..self.index.groups.len() {
            self.index.moved.extend(u32::try_from(number));
        }
        self.index.run_moved = true;
        if !touched.is_empty() || state.nodes.len() as u64 != self.topology.total() {
            let slots = self.topology.groups.iter().map(|(id, group)| (id.clone(), 0..group.count));
            self.unchecked = slots.collect();
        }
        touched
    }

    fn missing(&self, state: &ClusterState) -> Vec<(LogicalNodeId, NodeGroupId, u32)> {
        let mut missing = Vec::new();
        for (id, slots) in &self.unchecked {
            let Some(group) = self.topology.groups.get(id) else {
                continue;
            };
            for index in in_text_order(group.count).filter(|index| slots.contains(index)) {
                let node = LogicalNodeId::slot(id, index);
                if !state.nodes.contains_key(&node) {
                    missing.push((node, id.clone(), index));
                }
            }
        }
        missing
    }

    pub(super) fn insert_missing(&mut self, state: &ClusterState, pass: &mut Pass) {
        for (_, group, index) in self.missing(state) {
            let desired = self.topology.groups[&group].spec(index);
            pass.actions.push(NodeAction::Insert { attempt: UNALLOCATED, desired });
        }
        self.unchecked.clear();
    }

    pub(super) fn hold_missing(&mut self, state: &ClusterState, pass: &mut Pass) {
        let held = Held::on(HeldReason::Paused, Trigger::Operator);
        let missing = self.missing(state);
        if missing.is_empty() {
            self.unchecked.clear();
        }
        let nodes = missing.into_iter().map(|(node, ..)| node);
        pass.held.extend(nodes.map(|node| (node, held.clone())));
    }

    pub(super) fn is_missing(&self, id: &LogicalNodeId) -> bool {
        let Some((group, index)) = id.as_str().rsplit_once('-') else {
            return false;
        };
        let group = self.topology.groups.get(group);
        let index = index.parse::<u32>().ok().filter(|parsed| parsed.to_string() == index);
        group.zip(index).is_some_and(|(group, index)| index < group.count)
    }
}

/// Lists `0..count` in the order of their decimal text: 0, 1, 10, 11, 2, …, so that ids come out sorted.
fn in_text_order(count: u32) -> impl Iterator<Item = u32> {
    let following = move |&index: &u32| {
        let deeper = index.checked_mul(10).filter(|&deeper| index != 0 && deeper < count);
        if deeper.is_some() {
            return deeper;
        }
        let mut next = index;
        while next % 10 == 9 || next + 1 >= count {
            next /= 10;
            if next == 0 {
                return None;
            }
        }
        Some(next + 1)
    };
    std::iter::successors((count > 0).then_some(0), following)
}
