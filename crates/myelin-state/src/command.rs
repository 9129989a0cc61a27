//! Effects: what is asked of an executor, and what is recorded before it is asked.

use std::{fmt, time::SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use myelin_shape::{BootstrapSessionId, LogicalNodeSpec, OperationId, ProviderKind};

use crate::{Connection, LeaseFacts};

/// The kinds of effect.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named as the commands of `NodeManagerCommand`")]
pub enum OperationKind {
    CreateLease,
    LookupEndpoint,
    StartBootstrap,
    BootstrapConvergenceObserved,
    CancelBootstrap,
    DestroyLease,
}

impl OperationKind {
    /// Every kind, in the order of a node's life.
    pub const ALL: [Self; 6] = [
        Self::CreateLease,
        Self::LookupEndpoint,
        Self::StartBootstrap,
        Self::BootstrapConvergenceObserved,
        Self::CancelBootstrap,
        Self::DestroyLease,
    ];

    /// Returns whether the effect makes something that must be found again when its outcome is unknown.
    pub fn creates(self) -> bool {
        matches!(self, Self::CreateLease | Self::StartBootstrap)
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Whether an effect may make something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseMode {
    /// What the attempt already has is adopted; only if there is nothing, something is made.
    CreateOrAdopt,
    /// What the attempt already has is found, or its absence proven. Nothing is ever made.
    AdoptOnly,
}

/// An effect, complete with all an executor needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeManagerCommand {
    /// Lease a machine for the attempt.
    CreateLease {
        /// What to lease.
        spec: LogicalNodeSpec,
        /// Whether one may be made.
        mode: LeaseMode,
        /// Since when the outcome of an earlier create is unknown. Look up before making one; inside the provider's
        /// settle window after this time, "not found" is no evidence.
        unsettled_since: Option<SystemTime>,
    },
    /// Find out how the machine is reached.
    LookupEndpoint {
        /// The machine.
        lease: LeaseFacts,
    },
    /// Make the machine a node.
    StartBootstrap {
        /// How.
        spec: LogicalNodeSpec,
        /// The machine.
        lease: LeaseFacts,
        /// How it is reached.
        connection: Connection,
        /// Whether a session may be made.
        mode: LeaseMode,
        /// Since when the outcome of an earlier start is unknown.
        unsettled_since: Option<SystemTime>,
    },
    /// End the bootstrap: the agent has joined and is in charge.
    BootstrapConvergenceObserved {
        /// Whose session it is.
        provider: ProviderKind,
        /// The session, unless it was lost in a restart.
        session: Option<BootstrapSessionId>,
    },
    /// End the bootstrap and everything it started.
    CancelBootstrap {
        /// Whose session it is.
        provider: ProviderKind,
        /// The session.
        session: BootstrapSessionId,
    },
    /// Give the machine back, and end whatever runs on it.
    DestroyLease {
        /// The machine.
        lease: LeaseFacts,
    },
}

impl NodeManagerCommand {
    /// Returns the provider the effect is asked of. Every command names it, so that an executor needs no memory of
    /// earlier ones.
    pub fn provider(&self) -> &ProviderKind {
        match self {
            Self::CreateLease { spec, .. } | Self::StartBootstrap { spec, .. } => spec.provider(),
            Self::LookupEndpoint { lease } | Self::DestroyLease { lease } => &lease.provider,
            Self::BootstrapConvergenceObserved { provider, .. }
            | Self::CancelBootstrap { provider, .. } => provider,
        }
    }

    /// Returns the kind of effect.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::CreateLease { .. } => OperationKind::CreateLease,
            Self::LookupEndpoint { .. } => OperationKind::LookupEndpoint,
            Self::StartBootstrap { .. } => OperationKind::StartBootstrap,
            Self::BootstrapConvergenceObserved { .. } => {
                OperationKind::BootstrapConvergenceObserved
            }
            Self::CancelBootstrap { .. } => OperationKind::CancelBootstrap,
            Self::DestroyLease { .. } => OperationKind::DestroyLease,
        }
    }
}

/// An effect under way. Recorded before it is submitted (seed 1 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingOperation {
    /// Which effect.
    pub id: OperationId,
    /// Its kind.
    pub kind: OperationKind,
    /// Executor timeout sampled and stored before dispatch; after it passed, the deadline for the executor's answer.
    pub deadline: SystemTime,
    /// Whether the timeout has passed and the executor was asked to stop the effect.
    pub expired: bool,
}
