//! Questions about the bounded history, and the answers.

use std::time::SystemTime;

use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_state::{DriverEvent, OperationKind};

/// Which events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventQuery {
    /// Only events with a greater number.
    pub after: u64,
    /// Only events of this slot.
    pub node: Option<LogicalNodeId>,
    /// At most so many, the latest ones.
    pub limit: u32,
}

impl Default for EventQuery {
    fn default() -> Self {
        Self { after: 0, node: None, limit: 1000 }
    }
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// What happened.
    pub event: DriverEvent,
}

/// Which operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationQuery {
    /// Only operations of this slot.
    pub node: Option<LogicalNodeId>,
    /// Only operations of this attempt.
    pub attempt: Option<NodeAttemptId>,
    /// At most so many, the latest ones.
    pub limit: u32,
}

impl Default for OperationQuery {
    fn default() -> Self {
        Self { node: None, attempt: None, limit: 1000 }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationEnd {
    /// Well.
    Succeeded,
    /// With an error.
    Failed(Box<str>),
}

/// An operation, as its events tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOperation {
    /// Which one.
    pub id: OperationId,
    /// Of which slot.
    pub node: LogicalNodeId,
    /// Its kind.
    pub kind: OperationKind,
    /// When it was recorded and handed out.
    pub dispatched_at: SystemTime,
    /// When its time was over, if it was.
    pub expired_at: Option<SystemTime>,
    /// When and how it ended, if it did.
    pub ended: Option<(SystemTime, OperationEnd)>,
}
