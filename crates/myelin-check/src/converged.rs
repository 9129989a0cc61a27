//! The definition of a converged cluster (seed 1 §9). Small, and trusted.

use std::fmt;

use myelin_shape::{ClusterShape, LogicalNodeId};
use myelin_state::{ClusterState, ManagedNode, NodeIntent, NodeStage, OperationKind};

/// One reason why a cluster is not converged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum NotConverged {
    /// The shape breaks rules of its own, so nothing can be as it wants.
    Invalid { errors: String },
    /// No pass has evaluated this generation.
    NotEvaluated { observed: u64, desired: u64 },
    /// A desired slot has no node.
    Missing { node: LogicalNodeId },
    /// A node's slot is not desired.
    Undesired { node: LogicalNodeId },
    /// A node implements another spec.
    OtherSpec { node: LogicalNodeId },
    /// A node is being cleaned up.
    Deleting { node: LogicalNodeId },
    /// A node is not handed off, or its agent is silent.
    NotReady { node: LogicalNodeId, stage: NodeStage },
    /// An effect of a node is under way.
    Pending { node: LogicalNodeId, kind: OperationKind },
}

impl fmt::Display for NotConverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { errors } => write!(f, "the shape is invalid: {errors}"),
            Self::NotEvaluated { observed, desired } => {
                write!(f, "generation {desired} is not evaluated, {observed} is")
            }
            Self::Missing { node } => write!(f, "{node} is missing"),
            Self::Undesired { node } => write!(f, "{node} is not desired"),
            Self::OtherSpec { node } => write!(f, "{node} implements another spec"),
            Self::Deleting { node } => write!(f, "{node} is being cleaned up"),
            Self::NotReady { node, stage } => write!(f, "{node} is not ready: {stage}"),
            Self::Pending { node, kind } => write!(f, "{node} waits for {kind}"),
        }
    }
}

/// Checks that every desired node has the desired spec, is to live, is ready and has nothing under way, that no other
/// node is left, and that the desired generation was evaluated.
///
/// # Errors
///
/// Every reason why not.
pub fn converged(state: &ClusterState, desired: &ClusterShape) -> Result<(), Vec<NotConverged>> {
    let slots = match desired.expand_up_to(u64::MAX) {
        Ok(slots) => slots,
        Err(errors) => {
            let errors = errors.to_string();
            return Err(vec![NotConverged::Invalid { errors }]);
        }
    };
    let mut reasons = Vec::new();
    if state.observed_generation != desired.generation {
        reasons.push(NotConverged::NotEvaluated {
            observed: state.observed_generation,
            desired: desired.generation,
        });
    }
    for (id, spec) in &slots {
        let node = id.clone();
        match state.nodes.get(id) {
            None => reasons.push(NotConverged::Missing { node }),
            Some(found) if found.record.desired != *spec => {
                reasons.push(NotConverged::OtherSpec { node });
            }
            Some(_) => {}
        }
    }
    for (id, node) in &state.nodes {
        if !slots.contains_key(id) {
            reasons.push(NotConverged::Undesired { node: id.clone() });
        }
        reasons.extend(unsettled(id, node));
    }
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

fn unsettled(id: &LogicalNodeId, node: &ManagedNode) -> Option<NotConverged> {
    let id = id.clone();
    let stage = node.record.stage;
    let handed_off = matches!(stage, NodeStage::HandedOff | NodeStage::Dormant);
    if node.intent == NodeIntent::Deleting {
        return Some(NotConverged::Deleting { node: id });
    }
    if !handed_off || node.record.silence.is_some() {
        return Some(NotConverged::NotReady { node: id, stage });
    }
    let kind = node.pending.as_ref()?.kind;
    Some(NotConverged::Pending { node: id, kind })
}
