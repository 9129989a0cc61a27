//! The observed state of a whole run.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use myelin_shape::{LogicalNodeId, NodeGroupId, NodeTemplate};

use crate::ManagedNode;

/// What the brake remembers of a scope: a group or the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrakeRecord {
    /// Whether a silent machine was ended while the brake was on and no repair has become ready since. While it is set,
    /// no silent machine is ended: if our own network is what is gone, one healthy machine is all it costs (`spec 1.6`).
    pub silent_machine_ended: bool,
}

/// The node that proves a template for its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Canary {
    /// The slot.
    pub node: LogicalNodeId,
    /// The template on trial.
    pub template: Arc<NodeTemplate>,
}

/// What is known of a group beyond its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRecord {
    /// The templates nodes of the group were last ready with, latest last; at most [`Self::MOST_PROVEN`].
    pub proven: Vec<Arc<NodeTemplate>>,
    /// The trial of the current template, until it is proven.
    pub canary: Option<Canary>,
    /// What the group's brake remembers.
    pub brake: BrakeRecord,
}

impl GroupRecord {
    /// How many proven templates are remembered: enough to go back some steps without a trial.
    pub const MOST_PROVEN: usize = 4;

    /// Returns whether a node of the group was ready with the template, as far as is remembered.
    pub fn has_proven(&self, template: &Arc<NodeTemplate>) -> bool {
        self.proven.iter().any(|known| NodeTemplate::same(known, template))
    }
}

/// The one authoritative observed state of a run (seed 1 §5.2). Only the driver changes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterState {
    /// Latest desired generation evaluated by a completed pass.
    pub observed_generation: u64,
    /// Cluster-wide monotonic allocator; attempt IDs are never reused.
    pub next_attempt_id: u64,
    /// The slots.
    pub nodes: BTreeMap<LogicalNodeId, ManagedNode>,
    /// The groups that have or had nodes.
    pub groups: BTreeMap<NodeGroupId, GroupRecord>,
    /// What the run's brake remembers.
    pub brake: BrakeRecord,
    /// Whether an operator stopped all effects.
    pub paused: bool,
}
