//! The desired shape of a whole run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    LogicalNodeId, LogicalNodeSpec, RunId, RunNodeGroupSpec, RunPolicy, ShapeErrors,
    expand_node_group, validate,
    validate::{DEFAULT_MAX_NODES, check_unique_slots},
};

/// The cluster somebody wants, in one revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterShape {
    /// The run. Fixed for the life of a driver.
    pub run_id: RunId,
    /// Strictly increases whenever the supplied desired shape changes.
    pub generation: u64,
    /// The groups, in the order they were declared.
    pub groups: Vec<RunNodeGroupSpec>,
    /// Policy over all groups.
    #[serde(default)]
    pub policy: RunPolicy,
}

impl ClusterShape {
    /// Returns a shape with the default run policy.
    pub fn new(
        run_id: RunId,
        generation: u64,
        groups: impl IntoIterator<Item = RunNodeGroupSpec>,
    ) -> Self {
        let groups = groups.into_iter().collect();
        Self { run_id, generation, groups, policy: RunPolicy::default() }
    }

    /// Returns the desired slots, at most [`DEFAULT_MAX_NODES`].
    ///
    /// # Errors
    ///
    /// Every rule the shape breaks, all at once (seed 1 §5.1, `spec 1.1`).
    pub fn expand(&self) -> Result<BTreeMap<LogicalNodeId, LogicalNodeSpec>, ShapeErrors> {
        self.expand_up_to(DEFAULT_MAX_NODES)
    }

    /// Returns the desired slots, at most `max_nodes`. Nothing is allocated for a shape above that.
    ///
    /// # Errors
    ///
    /// Every rule the shape breaks, all at once (seed 1 §5.1, `spec 1.1`).
    pub fn expand_up_to(
        &self,
        max_nodes: u64,
    ) -> Result<BTreeMap<LogicalNodeId, LogicalNodeSpec>, ShapeErrors> {
        validate(self, max_nodes)?;
        check_unique_slots(self.groups.iter().flat_map(expand_node_group))
    }
}
