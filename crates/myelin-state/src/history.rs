//! What happened, for people and for the linter.

use std::{fmt, time::SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId, ProviderKind, ProviderLeaseId};

use crate::{DeleteCause, ErrorClass, NodeStage, OperationKind, OperatorRequest};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverEvent {
    /// When.
    pub at: SystemTime,
    /// To which slot; absent for the cluster as a whole.
    pub node: Option<LogicalNodeId>,
    /// To which attempt of it.
    pub attempt: Option<NodeAttemptId>,
    /// What.
    pub kind: EventKind,
}

/// What happened. Codes are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum EventKind {
    /// Another desired shape was accepted.
    DesiredAccepted { generation: u64 },
    /// An operator stopped all effects.
    Paused,
    /// An operator started effects again.
    Resumed,
    /// An operator asked for something; [`Self::Ignored`] follows where it did not apply.
    OperatorAsked { request: OperatorRequest },
    /// A slot is managed.
    Inserted,
    /// Cleanup of the attempt began.
    DeleteBegan { cause: DeleteCause },
    /// Nothing of the attempt is left.
    Destroyed,
    /// A fresh attempt was started; the event's attempt is the new one.
    Restarted { previous: NodeAttemptId },
    /// The slot is no longer managed.
    Reaped,
    /// An effect was recorded and handed out.
    Dispatched { operation: OperationId, effect: OperationKind },
    /// An effect's time is over.
    Expired { operation: OperationId, effect: OperationKind },
    /// A pending effect ended well.
    Succeeded { operation: OperationId, effect: OperationKind },
    /// A pending effect failed.
    EffectFailed {
        operation: OperationId,
        effect: OperationKind,
        class: ErrorClass,
        error: Box<str>,
    },
    /// The attempt got further.
    Advanced { from: NodeStage, to: NodeStage },
    /// The node became ready.
    Ready,
    /// The agent is silent.
    Silent,
    /// The agent is heard again.
    Heard,
    /// The silent agent has as long again to be heard, since others are heard again.
    HeardOut,
    /// The attempt has its time again, since it passed while nothing could be done for it.
    TimeGiven,
    /// The control plane ended while the effect was under way: what has come of it is looked for.
    Interrupted { operation: OperationId, effect: OperationKind },
    /// The control plane was away; the times that ran meanwhile run anew.
    TakenUp,
    /// The attempt ended in failure.
    AttemptFailed { reason: Box<str> },
    /// Nothing is leased for the slot any more until its spec changes or an operator says so.
    Quarantined { failures: u32 },
    /// The provider refuses the template for good.
    Refused { message: Box<str> },
    /// An observation changed nothing.
    Ignored { reason: Box<str> },
    /// A planned action did not fit the state any more.
    Discarded { action: Box<str> },
    /// A lease that is nobody's is about to be given back; the event's attempt is the one it was made for.
    Collecting { provider: ProviderKind, lease: ProviderLeaseId },
    /// A lease that was nobody's is given back.
    Collected { provider: ProviderKind, lease: ProviderLeaseId },
    /// Leases that are nobody's are left alone.
    StraysLeft { reason: Box<str> },
    /// Nothing that a provider lists is acted on.
    ProviderHeld { provider: ProviderKind, reason: Box<str> },
    /// What a provider lists is acted on again.
    ProviderReleased { provider: ProviderKind },
}

impl EventKind {
    /// Returns whether it is about what providers list and not about an attempt of the loop.
    pub fn is_of_inventory(&self) -> bool {
        matches!(
            self,
            Self::Collecting { .. }
                | Self::Collected { .. }
                | Self::StraysLeft { .. }
                | Self::ProviderHeld { .. }
                | Self::ProviderReleased { .. }
        )
    }

    /// Returns the stable code of the event.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DesiredAccepted { .. } => "desired_accepted",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::OperatorAsked { .. } => "operator_asked",
            Self::Inserted => "inserted",
            Self::DeleteBegan { .. } => "delete_began",
            Self::Destroyed => "destroyed",
            Self::Restarted { .. } => "restarted",
            Self::Reaped => "reaped",
            Self::Dispatched { .. } => "dispatched",
            Self::Expired { .. } => "expired",
            Self::Succeeded { .. } => "succeeded",
            Self::EffectFailed { .. } => "effect_failed",
            Self::Advanced { .. } => "advanced",
            Self::Ready => "ready",
            Self::Silent => "silent",
            Self::Heard => "heard",
            Self::HeardOut => "heard_out",
            Self::TimeGiven => "time_given",
            Self::Interrupted { .. } => "interrupted",
            Self::TakenUp => "taken_up",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::Quarantined { .. } => "quarantined",
            Self::Refused { .. } => "refused",
            Self::Ignored { .. } => "ignored",
            Self::Discarded { .. } => "discarded",
            Self::Collecting { .. } => "collecting",
            Self::Collected { .. } => "collected",
            Self::StraysLeft { .. } => "strays_left",
            Self::ProviderHeld { .. } => "provider_held",
            Self::ProviderReleased { .. } => "provider_released",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DesiredAccepted { generation } => {
                write!(f, "desired generation {generation} accepted")
            }
            Self::Paused => f.write_str("effects paused"),
            Self::Resumed => f.write_str("effects resumed"),
            Self::OperatorAsked { request: OperatorRequest::Retry } => f.write_str("retry asked"),
            Self::OperatorAsked { request: OperatorRequest::Replace } => {
                f.write_str("replacement asked")
            }
            Self::OperatorAsked { request: OperatorRequest::Abandon } => {
                f.write_str("lease abandoned")
            }
            Self::Inserted => f.write_str("slot added"),
            Self::DeleteBegan { cause } => write!(f, "cleanup began: {cause}"),
            Self::Destroyed => f.write_str("cleaned up"),
            Self::Restarted { previous } => write!(f, "fresh attempt after {previous}"),
            Self::Reaped => f.write_str("slot removed"),
            Self::Dispatched { operation, effect } => write!(f, "{effect} {operation} submitted"),
            Self::Expired { operation, effect } => write!(f, "{effect} {operation} timed out"),
            Self::Succeeded { operation, effect } => write!(f, "{effect} {operation} done"),
            Self::EffectFailed { operation, effect, error, .. } => {
                write!(f, "{effect} {operation} failed: {error}")
            }
            Self::Advanced { from, to } => write!(f, "{from} → {to}"),
            Self::Ready => f.write_str("ready"),
            Self::Silent => f.write_str("agent silent"),
            Self::Heard => f.write_str("agent heard again"),
            Self::HeardOut => f.write_str("agent has as long again to be heard"),
            Self::TimeGiven => {
                f.write_str("attempt has its time again: nothing could be done for it meanwhile")
            }
            Self::Interrupted { operation, effect } => {
                write!(f, "{effect} {operation} was under way when the control plane ended")
            }
            Self::TakenUp => f.write_str("taken up again: its times run anew"),
            Self::AttemptFailed { reason } => write!(f, "attempt failed: {reason}"),
            Self::Quarantined { failures } => write!(f, "quarantined after {failures} attempts"),
            Self::Refused { message } => write!(f, "provider refused the template: {message}"),
            Self::Ignored { reason } => write!(f, "observation ignored: {reason}"),
            Self::Discarded { action } => write!(f, "stale action discarded: {action}"),
            Self::Collecting { provider, lease } => {
                write!(f, "giving back {lease} of {provider}, which is nobody's")
            }
            Self::Collected { provider, lease } => write!(f, "{lease} of {provider} given back"),
            Self::StraysLeft { reason } => {
                write!(f, "machines that are nobody's are left alone: {reason}")
            }
            Self::ProviderHeld { provider, reason } => {
                write!(f, "{provider} {reason}; nothing it lists is acted on")
            }
            Self::ProviderReleased { provider } => write!(f, "{provider} is believed again"),
        }
    }
}
