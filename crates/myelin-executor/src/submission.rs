//! What is handed to an executor, and why it may be refused.

use std::{fmt, sync::Arc, time::SystemTime};

use tokio::time::Instant;

use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_state::{LeaseMode, NodeManagerCommand, OperationKind};

/// One effect to execute, recorded by the driver before it is submitted (seed 1 §6).
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The slot.
    pub node: LogicalNodeId,
    /// The effect's identity; submitting it twice executes it once.
    pub operation: OperationId,
    /// What to do.
    pub command: NodeManagerCommand,
    /// The desired generation that it was decided under.
    pub generation: u64,
    /// Until when; then it is stopped, whether or not [`EffectExecutor::expire`](crate::EffectExecutor::expire) came.
    pub deadline: SystemTime,
}

impl Submission {
    /// Returns the kind of effect.
    pub fn kind(&self) -> OperationKind {
        self.command.kind()
    }

    /// Returns whether the outcome of an earlier create or start of the attempt is still unknown.
    pub(crate) fn is_unsettled(&self) -> bool {
        match &self.command {
            NodeManagerCommand::CreateLease { mode, unsettled_since, .. }
            | NodeManagerCommand::StartBootstrap { mode, unsettled_since, .. } => {
                *mode == LeaseMode::AdoptOnly || unsettled_since.is_some()
            }
            NodeManagerCommand::LookupEndpoint { .. }
            | NodeManagerCommand::BootstrapConvergenceObserved { .. }
            | NodeManagerCommand::CancelBootstrap { .. }
            | NodeManagerCommand::DestroyLease { .. } => false,
        }
    }
}

/// Why a submission was not taken. Nothing was executed, and what runs goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The identity is taken by a submission with another command.
    #[error("operation {operation} of {node} was submitted before with another command")]
    OtherInput {
        /// The slot.
        node: LogicalNodeId,
        /// The effect.
        operation: OperationId,
    },
    /// The attempt is past this effect.
    #[error("operation {operation} of {node} is past: sequence {newest} was submitted already")]
    Stale {
        /// The slot.
        node: LogicalNodeId,
        /// The effect.
        operation: OperationId,
        /// The newest sequence of the attempt.
        newest: u64,
    },
    /// The attempt is one of another slot.
    #[error("attempt {attempt} belongs to {owner}, not to {node}")]
    ForeignAttempt {
        /// The slot that was named.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// The slot that has the attempt.
        owner: LogicalNodeId,
    },
    /// The executor was shut down.
    #[error("the executor is shut down")]
    Closed,
}

/// What time it is, as the driver counts it (`spec 1.3`).
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Wraps a source of time that never goes backwards.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns a clock that starts now and follows the runtime's time, also while that is paused.
    pub fn runtime() -> Self {
        let (wall, start) = (SystemTime::now(), Instant::now());
        Self::new(move || wall + start.elapsed())
    }

    /// Returns this clock as one that begins no earlier than `start`: what was recorded up to then stays in the past,
    /// whatever became of the system's clock since (`spec 1.3`).
    #[must_use]
    pub fn not_before(self, start: SystemTime) -> Self {
        let ahead = start.duration_since(self.now()).unwrap_or_default();
        Self::new(move || self.now() + ahead)
    }

    /// Returns the time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
