//! What is desired, looked up by slot.

use std::{collections::BTreeMap, sync::Arc};

use myelin_shape::{
    ClusterShape, GroupPolicy, LogicalNodeSpec, NodeGroupId, NodeTemplate, RunPolicy,
};

/// One desired group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) template: Arc<NodeTemplate>,
    pub(crate) count: u32,
    pub(crate) policy: GroupPolicy,
}

/// A shape by group.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) generation: u64,
    pub(crate) groups: BTreeMap<NodeGroupId, Group>,
    pub(crate) policy: RunPolicy,
}

impl Desired {
    pub(crate) fn new(shape: &ClusterShape) -> Self {
        let group = |group: &myelin_shape::RunNodeGroupSpec| {
            let desired = Group {
                template: Arc::new(group.template()),
                count: group.count,
                policy: group.policy.clone(),
            };
            (group.group_id.clone(), desired)
        };
        Self {
            generation: shape.generation,
            groups: shape.groups.iter().map(group).collect(),
            policy: shape.policy.clone(),
        }
    }

    /// Returns the group that wants the slot.
    pub(crate) fn wanting(&self, slot: &LogicalNodeSpec) -> Option<&Group> {
        self.groups.get(&slot.template.group_id).filter(|group| slot.index < group.count)
    }

    /// Returns whether the slot is wanted exactly as it is.
    pub(crate) fn wants(&self, slot: &LogicalNodeSpec) -> bool {
        self.wanting(slot).is_some_and(|group| *group.template == *slot.template)
    }

    pub(crate) fn total(&self) -> u64 {
        self.groups.values().map(|group| u64::from(group.count)).sum()
    }
}
