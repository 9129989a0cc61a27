//! One slot with its current attempt.

use std::{fmt, sync::Arc, time::SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use myelin_shape::{BootstrapSessionId, LogicalNodeSpec, NodeAttemptId, NodeTemplate};

use crate::{NodeRecord, NodeStage, PendingOperation, RetryState};

/// Whether an attempt is to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeIntent {
    /// It is to become and stay ready.
    Active,
    /// It is being cleaned up. Irrevocable (seed 1 §8).
    Deleting,
}

/// Why an attempt is being cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeleteCause {
    /// The slot is no longer desired.
    Undesired,
    /// The slot's desired spec is another one.
    SpecChanged,
    /// An operator asked for a replacement.
    Requested,
    /// The attempt failed.
    Failed,
    /// The agent was silent for too long.
    Lost,
    /// An operator stated that the lease no longer exists.
    Abandoned,
}

impl DeleteCause {
    /// Returns whether somebody wanted this, rather than something having gone wrong.
    pub fn is_voluntary(self) -> bool {
        match self {
            Self::Undesired | Self::SpecChanged | Self::Requested => true,
            Self::Failed | Self::Lost | Self::Abandoned => false,
        }
    }
}

impl fmt::Display for DeleteCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undesired => "no longer desired",
            Self::SpecChanged => "spec changed",
            Self::Requested => "replacement requested",
            Self::Failed => "failed",
            Self::Lost => "agent lost",
            Self::Abandoned => "lease abandoned",
        })
    }
}

/// A slot for which nothing is leased any more until its spec changes or an operator says so (`spec 1.4`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quarantine {
    /// The template that failed so often. Quarantine holds for no other.
    pub template: Arc<NodeTemplate>,
    /// How many attempts in a row ended in failure.
    pub failures: u32,
    /// Since when.
    pub since: SystemTime,
}

/// A provider's permanent refusal to create a lease (`spec 1.4`).
///
/// It holds every not yet leased node of the group that has the same template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The provider's words.
    pub message: Box<str>,
    /// When it was folded.
    pub at: SystemTime,
}

/// A slot with its current attempt. Old attempts are not kept.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with a rule of its own")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ManagedNode {
    /// The current incarnation of the slot.
    pub attempt: NodeAttemptId,
    /// Whether it is to live.
    pub intent: NodeIntent,
    /// What is known of it.
    pub record: NodeRecord,
    /// Currently addressable bootstrap session; facts may outlive this handle.
    pub active_bootstrap: Option<BootstrapSessionId>,
    /// The effect under way. Boxed, since a node at rest has none.
    pub pending: Option<Box<PendingOperation>>,
    /// Sequence of the next effect of this attempt.
    pub next_operation_sequence: u64,
    /// When to try again.
    pub retry: RetryState,
    /// Why the attempt is being cleaned up, while it is.
    pub delete_cause: Option<DeleteCause>,
    /// Whether the slot's last attempt ended in failure and none has been ready since.
    pub recovering: bool,
    /// Whether this repair holds the brake's token: it began as a repair and is neither ready nor failed (`spec 1.6`).
    pub repairing: bool,
    /// Whether the slot was taken while ready and its successor is not ready yet (`max_unavailable`).
    pub spends_budget: bool,
    /// Whether an operator asked to replace the current attempt.
    pub replace_requested: bool,
    /// Whether an operator gave up a failed machine that was kept.
    pub keep_released: bool,
    /// Nothing is leased for the slot while this applies.
    pub quarantine: Option<Box<Quarantine>>,
    /// The provider will never lease this.
    pub refused: Option<Box<Refusal>>,
}

impl ManagedNode {
    /// Returns a slot with a fresh attempt for which nothing has been done.
    pub fn new(attempt: NodeAttemptId, desired: LogicalNodeSpec) -> Self {
        Self {
            attempt,
            intent: NodeIntent::Active,
            record: NodeRecord::new(desired),
            active_bootstrap: None,
            pending: None,
            next_operation_sequence: 0,
            retry: RetryState::default(),
            delete_cause: None,
            recovering: false,
            repairing: false,
            spends_budget: false,
            replace_requested: false,
            keep_released: false,
            quarantine: None,
            refused: None,
        }
    }

    /// Returns whether the node is to live, is handed off, and its agent is heard.
    pub fn is_ready(&self) -> bool {
        self.intent == NodeIntent::Active
            && self.record.stage.is_handed_off()
            && self.record.silence.is_none()
    }

    /// Returns whether the slot is quarantined for the template.
    pub fn is_quarantined_for(&self, template: &Arc<NodeTemplate>) -> bool {
        self.quarantine
            .as_deref()
            .is_some_and(|quarantine| NodeTemplate::same(&quarantine.template, template))
    }

    /// Returns whether the attempt's machine was of use once: ending it for silence may be a loss (`spec 1.6`).
    ///
    /// What failed before and has not been ready since has no machine to lose, however far it got.
    pub fn was_in_use(&self) -> bool {
        self.record.handed_off && !self.recovering
    }

    /// Returns whether nothing of the attempt is left.
    pub fn is_destroyed(&self) -> bool {
        self.record.stage == NodeStage::Destroyed
    }
}
