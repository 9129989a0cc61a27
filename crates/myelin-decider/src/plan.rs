//! The plan: what to do, what is held, and when to look again.

use std::{fmt, time::SystemTime};

use serde::{Deserialize, Serialize};

use myelin_shape::{LogicalNodeId, LogicalNodeSpec, NodeAttemptId, OperationId};
use myelin_state::{DeleteCause, LeaseMode, NodeManagerCommand};

use crate::Held;

/// The outcome of one pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReconcilePlan {
    /// At most one action per logical node, sorted by `LogicalNodeId`.
    pub actions: Vec<NodeAction>,
    /// The desired generation evaluated by this plan.
    pub observed_generation: u64,
    /// Earliest known deadline requiring another pass without an event; later than the pass's `now`.
    pub requeue_at: Option<SystemTime>,
    /// Every node looked at that is neither acted on nor as desired, sorted by `LogicalNodeId`.
    pub held: Vec<(LogicalNodeId, Held)>,
}

/// One step of one node. Carries what it presumes, so that a stale one is noticed and discarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are what their names say; see the variants")]
pub enum NodeAction {
    /// Start managing a slot with a fresh attempt.
    Insert { attempt: NodeAttemptId, desired: LogicalNodeSpec },
    /// Begin the cleanup of the current attempt.
    BeginDelete {
        node: LogicalNodeId,
        expected_attempt: NodeAttemptId,
        cause: DeleteCause,
        brakes: Brakes,
    },
    /// Record that nothing of the attempt is left.
    MarkDestroyed { node: LogicalNodeId, expected_attempt: NodeAttemptId },
    /// Start a fresh attempt of a destroyed slot.
    Restart {
        node: LogicalNodeId,
        expected_attempt: NodeAttemptId,
        new_attempt: NodeAttemptId,
        desired: LogicalNodeSpec,
    },
    /// Stop managing a destroyed slot.
    Reap { node: LogicalNodeId, expected_attempt: NodeAttemptId },
    /// Record an effect as pending, then submit it.
    Dispatch(PlannedEffect),
}

/// Which brakes were on when a silent machine was given up; see [`BrakeRecord`](myelin_state::BrakeRecord).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brakes {
    /// The group's.
    pub group: bool,
    /// The run's.
    pub run: bool,
}

/// An effect with its identity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedEffect {
    /// The slot.
    pub node: LogicalNodeId,
    /// Which effect; its attempt and sequence are preconditions.
    pub operation: OperationId,
    /// What to do.
    pub command: NodeManagerCommand,
}

impl NodeAction {
    /// Returns the slot the action is about.
    pub fn node(&self) -> &LogicalNodeId {
        match self {
            Self::Insert { desired, .. } => &desired.logical_node_id,
            Self::BeginDelete { node, .. }
            | Self::MarkDestroyed { node, .. }
            | Self::Restart { node, .. }
            | Self::Reap { node, .. }
            | Self::Dispatch(PlannedEffect { node, .. }) => node,
        }
    }
}

/// A time as seconds since the Unix epoch: exact, and free of any calendar.
pub(crate) struct At(pub(crate) SystemTime);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(since) = self.0.duration_since(SystemTime::UNIX_EPOCH) else {
            return f.write_str("@before-1970");
        };
        write!(f, "@{}", since.as_secs())?;
        match since.subsec_nanos() {
            0 => Ok(()),
            nanos => write!(f, ".{nanos:09}"),
        }
    }
}

impl fmt::Display for ReconcilePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.observed_generation)?;
        if let Some(time) = self.requeue_at {
            write!(f, ", again {}", At(time))?;
        }
        writeln!(f)?;
        for action in &self.actions {
            writeln!(f, "{action}")?;
        }
        self.held.iter().try_for_each(|(node, held)| writeln!(f, "{node}: held, {held}"))
    }
}

impl fmt::Display for NodeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node())?;
        match self {
            Self::Insert { attempt, .. } => write!(f, "insert attempt {attempt}"),
            Self::BeginDelete { expected_attempt, cause, brakes, .. } => {
                let brake = if brakes.group || brakes.run { ", under the brake" } else { "" };
                write!(f, "begin delete of attempt {expected_attempt} ({cause}{brake})")
            }
            Self::MarkDestroyed { expected_attempt, .. } => {
                write!(f, "mark attempt {expected_attempt} destroyed")
            }
            Self::Restart { expected_attempt, new_attempt, .. } => {
                write!(f, "restart attempt {expected_attempt} as {new_attempt}")
            }
            Self::Reap { expected_attempt, .. } => write!(f, "reap attempt {expected_attempt}"),
            Self::Dispatch(PlannedEffect { operation, command, .. }) => {
                write!(f, "dispatch {operation} {}", command.kind())?;
                match command {
                    NodeManagerCommand::CreateLease { mode, .. }
                    | NodeManagerCommand::StartBootstrap { mode, .. }
                        if *mode == LeaseMode::AdoptOnly =>
                    {
                        f.write_str(" (adopt only)")
                    }
                    NodeManagerCommand::CreateLease { unsettled_since: Some(since), .. }
                    | NodeManagerCommand::StartBootstrap { unsettled_since: Some(since), .. } => {
                        write!(f, " (unsettled since {})", At(*since))
                    }
                    NodeManagerCommand::CreateLease { .. }
                    | NodeManagerCommand::StartBootstrap { .. }
                    | NodeManagerCommand::LookupEndpoint { .. }
                    | NodeManagerCommand::BootstrapConvergenceObserved { .. }
                    | NodeManagerCommand::CancelBootstrap { .. }
                    | NodeManagerCommand::DestroyLease { .. } => Ok(()),
                }
            }
        }
    }
}
