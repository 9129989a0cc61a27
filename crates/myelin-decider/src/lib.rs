//! The pure decider: desired and observed state in, plan out.
//!
//! [`reconcile`] is deterministic: no clock, no I/O, and equal inputs give equal output. Why a node was *not* acted on
//! is part of the output, see [`ReconcilePlan::held`]. [`reconcile_node`] decides one node from its stored facts alone;
//! group policy (`spec 1.6`) then grants or holds what it decided. [`Planner`] is the incremental form of the same:
//! it keeps counts and waiting lines, looks at touched nodes only, and gives the same plan.
//!
//! Reading order: [`ReconcilePlan`], [`reconcile`], [`reconcile_node`], [`Held`], [`Planner`].
//!
//! ```
//! use std::time::SystemTime;
//! use myelin_decider::reconcile;
//! use myelin_shape::{ClusterShape, RunId, RunNodeGroupSpec};
//! use myelin_state::ClusterState;
//!
//! let shape = ClusterShape::new(RunId(1), 1, [RunNodeGroupSpec::new(RunId(1), "worker", 2, "process")]);
//! let plan = reconcile(&ClusterState::default(), &shape, SystemTime::UNIX_EPOCH)?;
//! assert_eq!(plan.to_string(), "\
//! generation 1
//! worker-0: insert attempt 0
//! worker-1: insert attempt 1
//! ");
//! # Ok::<(), myelin_shape::ShapeErrors>(())
//! ```

mod brake;
mod grant;
mod held;
mod hold;
mod index;
mod plan;
mod planner;
mod progression;
mod topology;
mod trial;

use std::time::SystemTime;

use myelin_shape::{ClusterShape, ShapeErrors};
use myelin_state::ClusterState;

pub use crate::brake::BrakeStatus;
pub use crate::held::{BrakeScope, Held, HeldReason, Trigger, Until};
pub use crate::plan::{Brakes, NodeAction, PlannedEffect, ReconcilePlan};
pub use crate::planner::{Explanation, Planner};
pub use crate::progression::{NodeDecision, Step, next_deadline, reconcile_node};
pub use crate::topology::{GroupTopology, Topology};

/// Decides the next step of every node.
///
/// Expands the shape and counts every group anew, so it costs time in proportion to the cluster; it is the oracle of
/// [`Planner`], which does not.
///
/// # Errors
///
/// Only an invalid shape is an error. Trouble with one node's data is a held reason of that node.
pub fn reconcile(
    observed: &ClusterState,
    desired: &ClusterShape,
    now: SystemTime,
) -> Result<ReconcilePlan, ShapeErrors> {
    let mut planner = Planner::new(Topology::new(desired)?);
    Ok(planner.plan(observed, observed.nodes.keys().cloned(), now))
}

#[cfg(test)]
mod tests;
