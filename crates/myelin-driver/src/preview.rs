//! What another desired shape would do to the cluster, touching nothing.

use myelin_decider::Topology;
use myelin_shape::{ClusterShape, LogicalNodeId, NodeAttemptId};

use crate::{ClusterDriver, DesiredError};

/// What would become of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// The slot has no node yet.
    Create,
    /// Its current attempt is replaced by one from another spec.
    Replace {
        /// The attempt that ends.
        attempt: NodeAttemptId,
        /// Whether it is ready now.
        ready: bool,
    },
    /// Its current attempt ends and the slot goes.
    Delete {
        /// The attempt that ends.
        attempt: NodeAttemptId,
        /// Whether it is ready now.
        ready: bool,
    },
}

/// What another desired shape would do, in the order of the nodes' ids. Nodes that stay as they are do not appear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// The nodes that change.
    pub changes: Vec<(LogicalNodeId, NodeChange)>,
    /// How many nodes stay as they are.
    pub unchanged: usize,
}

impl Preview {
    /// Returns how many ready nodes would be deleted or replaced.
    pub fn ready_taken(&self) -> usize {
        let taken = |change: &NodeChange| match change {
            NodeChange::Create => false,
            NodeChange::Replace { ready, .. } | NodeChange::Delete { ready, .. } => *ready,
        };
        self.changes.iter().filter(|(_, change)| taken(change)).count()
    }
}

impl ClusterDriver {
    /// Says what a shape would do, whatever its generation.
    ///
    /// # Errors
    ///
    /// A shape of another run, or an invalid one.
    pub fn preview(&self, shape: &ClusterShape) -> Result<Preview, DesiredError> {
        if let Some(expected) = self.run_id().filter(|&run| run != shape.run_id) {
            return Err(DesiredError::OtherRun { expected, found: shape.run_id });
        }
        let topology = Topology::with_max_nodes(shape, self.options.max_nodes)
            .map_err(DesiredError::Invalid)?;
        let mut preview = Preview::default();
        for (id, node) in &self.state.nodes {
            let slot = &node.record.desired;
            let (attempt, ready) = (node.attempt, node.is_ready());
            let change = match topology.wanting(slot) {
                None => NodeChange::Delete { attempt, ready },
                Some(group) if group.template != slot.template => {
                    NodeChange::Replace { attempt, ready }
                }
                Some(_) => {
                    preview.unchanged += 1;
                    continue;
                }
            };
            preview.changes.push((id.clone(), change));
        }
        for group in topology.groups.values() {
            for index in 0..group.count {
                let id = LogicalNodeId::slot(&group.template.group_id, index);
                if !self.state.nodes.contains_key(&id) {
                    preview.changes.push((id, NodeChange::Create));
                }
            }
        }
        preview.changes.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(preview)
    }
}
