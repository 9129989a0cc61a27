//! Identities and the desired vocabulary of a cluster.
//!
//! A [`ClusterShape`] says which groups of nodes a run wants. [`ClusterShape::expand`] turns it into the validated map of
//! logical nodes; all errors of a shape are reported together. Nodes of one group share one [`NodeTemplate`], so that
//! comparing a node's spec with the desired one is a pointer comparison first.
//!
//! Nothing here reads a clock, a file, a socket or the environment. A join token is always a reference
//! ([`SecretRef`]), never the secret.
//!
//! Reading order: [`RunNodeGroupSpec`], [`LogicalNodeSpec`], [`ClusterShape`], [`ShapeError`].
//!
//! ```
//! use myelin_shape::{ClusterShape, RunId, RunNodeGroupSpec};
//!
//! let shape = ClusterShape::new(RunId(1), 1, [RunNodeGroupSpec::new(RunId(1), "worker", 3, "process")]);
//! let desired = shape.expand()?;
//! assert_eq!(desired.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["worker-0", "worker-1", "worker-2"]);
//! # Ok::<(), myelin_shape::ShapeErrors>(())
//! ```

mod group;
mod id;
mod policy;
mod shape;
mod validate;

pub use crate::group::{
    BootSpec, DesiredNodeShape, LogicalNodeSpec, Mount, NodeTemplate, RunNodeGroupSpec, SecretRef,
    SwarmJoinSpec, SwarmJoinTemplate, expand_node_group,
};
pub use crate::id::{
    AttemptKey, BootstrapSessionId, ClusterUid, IdError, LogicalNodeId, NodeAttemptId, NodeGroupId,
    OperationId, ParseClusterUidError, ProviderKind, ProviderLeaseId, RoleId, RunId, SwactorId,
    check_id,
};
pub use crate::policy::{FirstNode, GroupPolicy, Limit, OnFailure, ParseLimitError, RunPolicy};
pub use crate::shape::ClusterShape;
pub use crate::validate::{
    DEFAULT_MAX_NODES, RESERVED_LABEL_PREFIX, ShapeError, ShapeErrors, validate,
};

#[cfg(test)]
mod tests;
