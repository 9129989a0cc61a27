//! What is said aloud.

use std::fmt;

use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind, ProviderLeaseId};
use myelin_state::EventKind;

use crate::{HoldReason, Stop, StoreDoubt, Taking};

/// Something people should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing a provider says is acted on from now on.
    Held {
        /// Which.
        provider: ProviderKind,
        /// Why.
        reason: HoldReason,
    },
    /// A provider is believed again.
    Released {
        /// Which.
        provider: ProviderKind,
    },
    /// The records are doubted.
    Doubted(StoreDoubt),
    /// There are strays, and they are not taken.
    Stopped(Stop),
    /// A recorded lease no longer exists.
    Gone {
        /// Who had it.
        provider: ProviderKind,
        /// Whose it was.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// The lease.
        lease: ProviderLeaseId,
    },
    /// Listings miss a lease that exists.
    StillThere {
        /// Who has it.
        provider: ProviderKind,
        /// Whose it is.
        node: LogicalNodeId,
        /// The lease.
        lease: ProviderLeaseId,
    },
    /// A lease could not be looked up; the next sweep tries again.
    LookUpFailed {
        /// Who was asked.
        provider: ProviderKind,
        /// The lease.
        lease: ProviderLeaseId,
        /// Why, in the provider's words.
        error: String,
    },
    /// A stray was destroyed.
    Taken(Taking),
    /// A stray could not be destroyed; the next sweep tries again.
    NotTaken {
        /// Which.
        taking: Taking,
        /// Why.
        error: String,
    },
}

impl Finding {
    /// Returns a stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Held { .. } => "inventory.held",
            Self::Released { .. } => "inventory.released",
            Self::Doubted(_) => "inventory.doubted",
            Self::Stopped(_) => "inventory.stopped",
            Self::Gone { .. } => "inventory.lease_gone",
            Self::StillThere { .. } => "inventory.still_there",
            Self::LookUpFailed { .. } => "inventory.look_up_failed",
            Self::Taken(_) => "inventory.taken",
            Self::NotTaken { .. } => "inventory.not_taken",
        }
    }
}

impl Finding {
    /// Returns what the history says of it, and of which attempt. What ends an attempt is told by the driver, what is tried
    /// again by the log.
    pub fn event(&self) -> Option<(Option<(LogicalNodeId, NodeAttemptId)>, EventKind)> {
        match self {
            Self::Held { provider, reason } => {
                let reason = reason.to_string().into();
                Some((None, EventKind::ProviderHeld { provider: provider.clone(), reason }))
            }
            Self::Released { provider } => {
                Some((None, EventKind::ProviderReleased { provider: provider.clone() }))
            }
            Self::Doubted(doubt) => Some((None, left(doubt))),
            Self::Stopped(stop) => Some((None, left(stop))),
            Self::Taken(taking) => {
                let (provider, lease) = taking.lease();
                Some((Some(taking.attempt()), EventKind::Collected { provider, lease }))
            }
            Self::Gone { .. }
            | Self::StillThere { .. }
            | Self::LookUpFailed { .. }
            | Self::NotTaken { .. } => None,
        }
    }
}

fn left(reason: &impl fmt::Display) -> EventKind {
    EventKind::StraysLeft { reason: reason.to_string().into() }
}

impl Taking {
    /// Returns what the history says before it is done.
    pub fn announcement(&self) -> ((LogicalNodeId, NodeAttemptId), EventKind) {
        let (provider, lease) = self.lease();
        (self.attempt(), EventKind::Collecting { provider, lease })
    }

    fn lease(&self) -> (ProviderKind, ProviderLeaseId) {
        (self.provider.clone(), self.found.lease.lease_id.clone())
    }

    fn attempt(&self) -> (LogicalNodeId, NodeAttemptId) {
        (self.found.key.node.clone(), self.found.key.attempt)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { provider, reason } => {
                write!(f, "{provider} {reason}; nothing it says is acted on")
            }
            Self::Released { provider } => write!(f, "{provider} is believed again"),
            Self::Doubted(doubt) => doubt.fmt(f),
            Self::Stopped(stop) => write!(f, "leases that are nobody's are left alone: {stop}"),
            Self::Gone { provider, node, attempt, lease } => {
                write!(
                    f,
                    "{lease} of {provider} no longer exists; it was {node}'s, attempt {attempt}"
                )
            }
            Self::StillThere { provider, node, lease } => {
                write!(f, "{provider} does not list {lease} of {node}, but it exists")
            }
            Self::LookUpFailed { provider, lease, error } => {
                write!(f, "cannot look up {lease} of {provider}: {error}")
            }
            Self::Taken(taking) => write!(f, "destroyed {taking}"),
            Self::NotTaken { taking, error } => write!(f, "cannot destroy {taking}: {error}"),
        }
    }
}

impl fmt::Display for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, found, class, .. } = self;
        let key = &found.key;
        write!(f, "{class} {} of {provider}, made for ", found.lease.lease_id)?;
        write!(f, "{} attempt {}", key.node, key.attempt)
    }
}
