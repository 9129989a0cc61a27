//! The boundary of the loop: one closed enum in, one struct of duties out.

use std::{fmt, time::SystemTime};

use myelin_shape::{LogicalNodeId, NodeAttemptId, NodeGroupId, OperationId};
use myelin_state::{NodeManagerCommand, NodeObservation, OperatorRequest};

use crate::{Desired, DesiredError, DriverEvent};

/// Everything that can happen to a driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Somebody wants another cluster.
    Desired(Box<Desired>),
    /// Something was learned about a node.
    Observed(NodeObservation),
    /// An effect could not be handed to the executor; folded as its failure.
    SubmitFailed {
        /// The slot.
        node: LogicalNodeId,
        /// The effect.
        operation: OperationId,
        /// Why.
        message: Box<str>,
    },
    /// An operator's word about nodes.
    Operator {
        /// Which.
        target: Target,
        /// What is asked.
        request: OperatorRequest,
    },
    /// Stop all effects.
    Pause,
    /// Start effects again.
    Resume,
    /// The shell could not carry anything out for a while. Attempts whose times have passed have them again.
    StoodStill {
        /// The effects that it has not handed to the executor yet: their time begins now.
        unsent: Vec<(LogicalNodeId, OperationId)>,
    },
    /// The time asked for with [`Effects::wake_at`] has come.
    Wake,
    /// The periodic safety net: every node is looked at.
    Tick,
}

/// Which nodes an operator means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One node.
    Node(LogicalNodeId),
    /// All nodes of a group.
    Group(NodeGroupId),
}

/// An effect to hand to an executor. It is recorded as pending already.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The slot.
    pub node: LogicalNodeId,
    /// Which effect.
    pub operation: OperationId,
    /// What to do.
    pub command: NodeManagerCommand,
    /// The desired generation that it was decided under.
    pub generation: u64,
    /// When its time is over.
    pub deadline: SystemTime,
}

impl fmt::Display for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.node, self.operation, self.command.kind())
    }
}

/// What changed, for a store to commit before anything is submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Nodes whose records changed, appeared or went; sorted, each once.
    pub nodes: Vec<LogicalNodeId>,
    /// Whether anything of the state beside its nodes changed.
    pub cluster: bool,
    /// Whether the desired shape changed.
    pub desired: bool,
    /// What happened, in order.
    pub events: Vec<DriverEvent>,
}

/// The duties of a shell after a call, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Commit this first.
    pub changed: Changed,
    /// Then hand these to the executor.
    pub submit: Vec<Submission>,
    /// Ask the executor to stop these; their time is over.
    pub expire: Vec<(LogicalNodeId, OperationId)>,
    /// Tell the executor and the membership source that these attempts are over.
    pub forget: Vec<(LogicalNodeId, NodeAttemptId)>,
    /// Call again at this time, if nothing happens before.
    pub wake_at: Option<SystemTime>,
    /// Desired shapes that were not accepted; nothing of them took effect.
    pub refused: Vec<DesiredError>,
}
