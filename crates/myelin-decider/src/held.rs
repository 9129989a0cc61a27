//! Why a node is not acted on, and until what.

use std::{fmt, time::SystemTime};

use serde::{Deserialize, Serialize};

use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::OperationKind;

use crate::plan::At;

/// What ends a hold that no time ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The group's spec changes, or an operator says `retry`.
    SpecChange,
    /// An operator says so.
    Operator,
    /// The group's or the run's counts move.
    GroupCounts,
}

/// When a held node is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// At this time.
    At(SystemTime),
    /// When this happens.
    On(Trigger),
}

/// Whose brake.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrakeScope {
    /// The group's.
    Group(NodeGroupId),
    /// The whole run's.
    Run,
}

/// Why a node is not acted on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldReason {
    /// An effect is under way.
    Pending {
        /// Which kind.
        kind: OperationKind,
        /// Whether its time-out has passed and the executor was asked to stop it.
        expired: bool,
    },
    /// The last effect failed, and the next one is delayed.
    Backoff {
        /// Failures in a row.
        failures: u32,
    },
    /// How to reach the machine is not known yet.
    AwaitingEndpoint,
    /// The bootstrap runs; the agent has not joined yet.
    AwaitingJoin,
    /// The agent is silent, not yet for too long.
    Silent {
        /// The last contact.
        since: SystemTime,
    },
    /// The failed attempt is cleaned up; the next one is delayed.
    RestartBackoff {
        /// Failures in a row.
        failures: u32,
    },
    /// Too many attempts in a row failed with this spec.
    Quarantined {
        /// How many.
        failures: u32,
    },
    /// The provider refuses this template for good.
    Refused {
        /// The node whose create was refused.
        node: LogicalNodeId,
        /// The provider's words.
        message: Box<str>,
    },
    /// The failed machine is kept for a person to look at.
    Kept,
    /// Taking the node now would exceed `max_unavailable`.
    Budget {
        /// Slots that are taken already.
        unavailable: u32,
        /// The limit.
        limit: u32,
    },
    /// Another node proves the new template first.
    Canary {
        /// That node.
        node: LogicalNodeId,
    },
    /// The node that was to prove the new template is quarantined.
    CanaryFailed {
        /// That node.
        node: LogicalNodeId,
    },
    /// As many creates of the group are under way as may be.
    CreateLimit {
        /// How many.
        in_flight: u32,
        /// The limit.
        limit: u32,
    },
    /// Too many nodes fail at once, so repair is a trickle.
    Brake {
        /// Whose brake.
        scope: BrakeScope,
        /// How many fail.
        unhealthy: u32,
        /// Above how many the brake is on.
        limit: u32,
        /// How many repairs are under way.
        repairs: u32,
    },
    /// A silent machine was ended while the brake was on, and no repair has become ready since; the fault may be ours.
    AwaitingRepair {
        /// Whose brake remembers.
        scope: BrakeScope,
        /// A failed slot that waits for a person, if all of them do.
        stuck: Option<LogicalNodeId>,
    },
    /// An operator stopped all effects.
    Paused,
    /// No attempt id is left.
    AllocatorExhausted,
}

/// Not done, and why, and until what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// Why.
    pub reason: HeldReason,
    /// Until what.
    pub until: Until,
}

impl Held {
    pub(crate) fn at(reason: HeldReason, time: SystemTime) -> Self {
        Self { reason, until: Until::At(time) }
    }

    pub(crate) fn on(reason: HeldReason, trigger: Trigger) -> Self {
        Self { reason, until: Until::On(trigger) }
    }
}

impl HeldReason {
    /// Returns a stable name of the reason, for metrics and JSON.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Backoff { .. } => "backoff",
            Self::AwaitingEndpoint => "awaiting_endpoint",
            Self::AwaitingJoin => "awaiting_join",
            Self::Silent { .. } => "silent",
            Self::RestartBackoff { .. } => "restart_backoff",
            Self::Quarantined { .. } => "quarantined",
            Self::Refused { .. } => "refused",
            Self::Kept => "kept",
            Self::Budget { .. } => "budget",
            Self::Canary { .. } => "canary",
            Self::CanaryFailed { .. } => "canary_failed",
            Self::CreateLimit { .. } => "create_limit",
            Self::Brake { .. } => "brake",
            Self::AwaitingRepair { .. } => "awaiting_repair",
            Self::Paused => "paused",
            Self::AllocatorExhausted => "allocator_exhausted",
        }
    }
}

impl fmt::Display for BrakeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {group}"),
            Self::Run => f.write_str("the run"),
        }
    }
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { kind, expired: false } => write!(f, "{kind} under way"),
            Self::Pending { kind, expired: true } => write!(f, "{kind} timed out, being stopped"),
            Self::Backoff { failures } => write!(f, "backing off after {failures} failures"),
            Self::AwaitingEndpoint => f.write_str("waiting for the machine's endpoint"),
            Self::AwaitingJoin => f.write_str("waiting for the agent to join"),
            Self::Silent { since } => write!(f, "agent silent since {}", At(*since)),
            Self::RestartBackoff { failures } => {
                write!(f, "next attempt delayed after {failures} failures")
            }
            Self::Quarantined { failures } => {
                write!(f, "quarantined after {failures} failed attempts")
            }
            Self::Refused { node, message } => {
                write!(f, "provider refused the template at {node}: {message}")
            }
            Self::Kept => f.write_str("failed machine kept for inspection"),
            Self::Budget { unavailable, limit } => {
                write!(f, "{unavailable} of at most {limit} nodes unavailable")
            }
            Self::Canary { node } => write!(f, "{node} proves the new template first"),
            Self::CanaryFailed { node } => {
                write!(f, "{node}, which was to prove the new template, is quarantined")
            }
            Self::CreateLimit { in_flight, limit } => {
                write!(f, "{in_flight} of at most {limit} creates under way")
            }
            Self::Brake { scope, unhealthy, limit, repairs } => {
                write!(f, "brake of {scope}: {unhealthy} nodes failing, limit {limit}, ")?;
                write!(f, "{repairs} under repair")
            }
            Self::AwaitingRepair { scope, stuck } => {
                write!(
                    f,
                    "brake of {scope}: a silent machine was ended and no repair is ready yet"
                )?;
                stuck.iter().try_for_each(|node| write!(f, "; {node} is not repaired by itself"))
            }
            Self::Paused => f.write_str("paused"),
            Self::AllocatorExhausted => f.write_str("no attempt id is left"),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => write!(f, "until {}", At(*time)),
            Self::On(Trigger::SpecChange) => f.write_str("until the spec changes or `retry`"),
            Self::On(Trigger::Operator) => f.write_str("until an operator says so"),
            Self::On(Trigger::GroupCounts) => f.write_str("until the counts move"),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.reason, self.until)
    }
}
