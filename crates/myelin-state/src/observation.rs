//! What the driver learns, tagged with the attempt it is about.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use myelin_shape::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId, SwactorId};

use crate::{BootstrapStage, Connection, LeaseFacts};

/// Something learned about one attempt of one slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeObservation {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt. An observation of another attempt than the current one changes nothing.
    pub attempt: NodeAttemptId,
    /// What was learned.
    pub event: NodeEvent,
}

/// What can be learned about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeEvent {
    /// An effect is over. Ignored unless it is the pending one.
    OperationFinished {
        /// The effect.
        operation: OperationId,
        /// How it ended.
        outcome: OperationOutcome,
    },
    /// A bootstrap got further.
    Bootstrap {
        /// The session.
        session: BootstrapSessionId,
        /// Position in the session's stream, from 1.
        sequence: u64,
        /// How far it is.
        stage: BootstrapStage,
        /// A line of explanation, for failures.
        message: Option<Box<str>>,
    },
    /// The agent has joined with this attempt's token.
    Joined {
        /// Which agent.
        swactor: SwactorId,
    },
    /// The agent that had joined was heard again.
    Contact {
        /// Which agent.
        swactor: SwactorId,
    },
    /// The agent that had joined is silent.
    Silent {
        /// Which agent.
        swactor: SwactorId,
        /// When it was last heard.
        last_contact: SystemTime,
    },
    /// Inventory, a look-up by handle, and silence agree that the lease no longer exists (`spec 1.5`).
    LeaseGone,
    /// Time has passed: deadlines of the record that are due take effect.
    DeadlinePassed,
    /// An operator's word.
    Operator(OperatorRequest),
}

/// What an operator may ask about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRequest {
    /// Release quarantine, refusal, a kept machine, and any back-off.
    Retry,
    /// Replace the current attempt.
    Replace,
    /// The lease no longer exists; stop trying to clean it up.
    Abandon,
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationOutcome {
    /// `CreateLease` made or adopted a lease.
    LeaseCreated {
        /// The lease.
        lease: Box<LeaseFacts>,
        /// How it is reached, if that is known already.
        connection: Option<Connection>,
    },
    /// `CreateLease` with `AdoptOnly` proved that the attempt has no lease.
    LeaseAbsent,
    /// `LookupEndpoint` found how the machine is reached.
    EndpointFound(Connection),
    /// `LookupEndpoint` found that this is not known yet. No failure.
    EndpointNotReady,
    /// `StartBootstrap` made or adopted a session.
    BootstrapStarted {
        /// The session.
        session: BootstrapSessionId,
    },
    /// `StartBootstrap` with `AdoptOnly` proved that the attempt has no session.
    BootstrapAbsent,
    /// `BootstrapConvergenceObserved` ended the session.
    ConvergenceRecorded,
    /// `CancelBootstrap` ended the session, or there was none.
    BootstrapCancelled,
    /// `DestroyLease` observed the lease's absence.
    LeaseDestroyed,
    /// The effect failed.
    Failed(OperationError),
}

/// What kind of failure it is; decided once, at the provider's boundary (`spec 4.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// It may work next time.
    Transient,
    /// It may work after this long.
    RateLimited(Duration),
    /// Nothing that fits is to be had now.
    NoCapacity,
    /// It will never work as asked.
    Permanent,
    /// Whether it took effect is unknown.
    Ambiguous,
    /// What it was about does not exist.
    AlreadyAbsent,
}

impl OperationOutcome {
    /// Returns what kind of failure it is, if it is one.
    pub fn error_class(&self) -> Option<ErrorClass> {
        if let Self::Failed(error) = self { Some(error.class) } else { None }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::RateLimited(_) => "rate limited",
            Self::NoCapacity => "no capacity",
            Self::Permanent => "permanent",
            Self::Ambiguous => "ambiguous",
            Self::AlreadyAbsent => "already absent",
        })
    }
}

/// A failed effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationError {
    /// What kind of failure. The driver branches on this alone.
    pub class: ErrorClass,
    /// The provider's words, for people.
    pub message: Box<str>,
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}
