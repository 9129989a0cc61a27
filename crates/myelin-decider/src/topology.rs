//! The desired set, expanded once per generation without an entry per node.

use std::{collections::BTreeMap, sync::Arc};

use myelin_shape::{
    ClusterShape, DEFAULT_MAX_NODES, GroupPolicy, LogicalNodeId, LogicalNodeSpec, NodeGroupId,
    NodeTemplate, RunId, RunPolicy, ShapeErrors, validate,
};
use myelin_state::ClusterState;

/// One group of the desired set.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupTopology {
    /// What the group's nodes share.
    pub template: Arc<NodeTemplate>,
    /// How many nodes; slots are `0..count`.
    pub count: u32,
    /// How the group is changed and repaired.
    pub policy: GroupPolicy,
}

impl GroupTopology {
    /// Returns the id of one slot.
    pub fn slot(&self, index: u32) -> LogicalNodeId {
        LogicalNodeId::slot(&self.template.group_id, index)
    }

    /// Returns the spec of one slot.
    pub fn spec(&self, index: u32) -> LogicalNodeSpec {
        let template = Arc::clone(&self.template);
        LogicalNodeSpec { logical_node_id: self.slot(index), index, template }
    }

    pub(crate) fn wants(&self, slot: &LogicalNodeSpec) -> bool {
        slot.index < self.count
    }

    pub(crate) fn has_template(&self, template: &Arc<NodeTemplate>) -> bool {
        NodeTemplate::same(&self.template, template)
    }
}

/// A validated shape in the form decisions are made from.
///
/// Since slots of a group are `0..count`, asking what is desired of a node is a look-up of its group and a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The run.
    pub run_id: RunId,
    /// The desired revision.
    pub generation: u64,
    /// The groups.
    pub groups: BTreeMap<NodeGroupId, GroupTopology>,
    /// Policy over all groups.
    pub policy: RunPolicy,
}

impl Topology {
    /// Validates a shape of at most [`DEFAULT_MAX_NODES`] nodes.
    ///
    /// # Errors
    ///
    /// Every rule the shape breaks.
    pub fn new(shape: &ClusterShape) -> Result<Self, ShapeErrors> {
        Self::with_max_nodes(shape, DEFAULT_MAX_NODES)
    }

    /// Validates a shape of at most `max_nodes` nodes.
    ///
    /// # Errors
    ///
    /// Every rule the shape breaks.
    pub fn with_max_nodes(shape: &ClusterShape, max_nodes: u64) -> Result<Self, ShapeErrors> {
        validate(shape, max_nodes)?;
        let groups = shape.groups.iter().map(|group| {
            let template = Arc::new(group.template());
            let topology =
                GroupTopology { template, count: group.count, policy: group.policy.clone() };
            (group.group_id.clone(), topology)
        });
        Ok(Self {
            run_id: shape.run_id,
            generation: shape.generation,
            groups: groups.collect(),
            policy: shape.policy.clone(),
        })
    }

    /// Takes over the templates of an earlier revision where they are equal, so that comparing specs stays a pointer
    /// comparison.
    pub fn share_templates(&mut self, earlier: &Self) {
        for (id, group) in &mut self.groups {
            if let Some(known) = earlier.groups.get(id)
                && known.template == group.template
            {
                group.template = Arc::clone(&known.template);
            }
        }
    }

    /// As [`share_templates`](Self::share_templates), with the nodes of a state that was loaded: equal templates are one
    /// there already.
    pub fn share_templates_of(&mut self, state: &ClusterState) {
        for (id, group) in &mut self.groups {
            let mut nodes = state.nodes.range(id.slots()).map(|(_, node)| &node.record.desired);
            if let Some(slot) = nodes.find(|slot| slot.template == group.template) {
                group.template = Arc::clone(&slot.template);
            }
        }
    }

    /// Returns how many nodes are desired.
    pub fn total(&self) -> u64 {
        self.groups.values().map(|group| u64::from(group.count)).sum()
    }

    /// Returns the group that wants the slot an attempt was made for.
    pub fn wanting(&self, slot: &LogicalNodeSpec) -> Option<&GroupTopology> {
        self.groups.get(slot.group_id()).filter(|group| group.wants(slot))
    }
}
