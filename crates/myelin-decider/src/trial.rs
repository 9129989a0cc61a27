//! The trial of a template nobody has been ready with: one node of the group proves it first (`spec 1.6`).

use std::collections::BTreeSet;

use myelin_shape::{FirstNode, NodeGroupId};
use myelin_state::{GroupRecord, NodeIntent};

use crate::{
    grant::{GroupView, Policy},
    topology::GroupTopology,
};

/// Who may start with a template.
#[derive(Debug, PartialEq)]
pub(crate) enum Trial {
    /// Everybody: the template is proven, or needs no proof.
    Open,
    /// This slot first.
    Canary { index: u32, quarantined: bool },
    /// Nobody waits.
    Nobody,
}

impl Trial {
    /// Returns the canary, if it may start and waits in the line.
    pub(crate) fn canary_in(&self, line: &BTreeSet<u32>) -> Option<u32> {
        match *self {
            Self::Canary { index, quarantined: false } => Some(index),
            Self::Canary { quarantined: true, .. } | Self::Open | Self::Nobody => None,
        }
        .filter(|index| line.contains(index))
    }

    /// Lists the slots of a line below `end` that may be taken, highest first.
    pub(crate) fn taken(&self, line: &BTreeSet<u32>, end: u32) -> impl Iterator<Item = u32> {
        let open = (*self == Self::Open).then(|| line.range(..end).rev().copied());
        open.into_iter().flatten().chain(self.canary_in(line))
    }
}

impl Policy<'_> {
    /// Returns who may start with the group's template.
    ///
    /// The canary is the slot on record, while it has the template or is cleaned up for it. Without one it is the lowest slot that waits for a machine; if none does, the
    /// highest one that is to be replaced, silent ones first.
    pub(crate) fn trial(&self, view: &GroupView<'_>) -> Trial {
        let GroupView { group, lines, record, .. } = *view;
        if !needs_trial(group, record) {
            return Trial::Open;
        }
        if let Some(canary) = self.canary_on_record(group, record) {
            return canary;
        }
        let silent = || lines.replace_silent.last();
        let ready = || lines.replace.range(..group.count).next_back();
        let waiting = || lines.create.first().into_iter().chain(lines.retries.first()).min();
        match waiting().or_else(silent).or_else(ready) {
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
        let slot = &node.record.desired;
        let index = slot.index;
        // Where the template was wanted before and something else meanwhile, the slot may be back at its post with that: then
        // it is not on its way to the template, and would wait for a budget that others spend who wait for it.
        let on_its_way = node.intent == NodeIntent::Deleting || group.has_template(&slot.template);
        let valid = on_its_way && index < group.count && group.has_template(&canary.template);
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
}

fn needs_trial(group: &GroupTopology, record: Option<&GroupRecord>) -> bool {
    group.policy.first_node(group.count) == FirstNode::Canary
        && !record.is_some_and(|record| record.has_proven(&group.template))
}
