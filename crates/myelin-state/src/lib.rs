//! The observed vocabulary: what is known of each node, what is under way, and when to look again.
//!
//! [`ClusterState`] is the one authoritative observed state (seed 1 §3); only the driver changes it. Everything here is
//! plain, ordered data. Deadlines are sampled once, stored, and compared later; nothing here reads a clock.
//!
//! Reading order: [`ClusterState`], [`ManagedNode`], [`NodeRecord`], [`NodeObservation`], [`NodeManagerCommand`],
//! [`RetryPolicy`], [`DriverEvent`].
//!
//! ```
//! use myelin_shape::{NodeAttemptId, RunId, RunNodeGroupSpec, expand_node_group};
//! use myelin_state::{ManagedNode, NodeStage};
//!
//! let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
//! let spec = expand_node_group(&group).next().expect("one node");
//! let node = ManagedNode::new(NodeAttemptId(7), spec);
//! assert_eq!(node.record.stage, NodeStage::New);
//! assert!(!node.is_ready());
//! ```

mod cluster;
mod command;
mod facts;
mod history;
mod node;
mod observation;
mod retry;

pub use crate::cluster::{BrakeRecord, Canary, ClusterState, GroupRecord};
pub use crate::command::{LeaseMode, NodeManagerCommand, OperationKind, PendingOperation};
pub use crate::facts::{
    BootstrapFacts, BootstrapStage, Connection, ExecEndpoint, LeaseFacts, NodeRecord, NodeStage,
    Price, Silence, SshEndpoint, SwactorFacts,
};
pub use crate::history::{DriverEvent, EventKind};
pub use crate::node::{DeleteCause, ManagedNode, NodeIntent, Quarantine, Refusal};
pub use crate::observation::{
    ErrorClass, NodeEvent, NodeObservation, OperationError, OperationOutcome, OperatorRequest,
};
pub use crate::retry::{RetryPolicy, RetryState, after, deadline, never};

#[cfg(test)]
mod tests;
