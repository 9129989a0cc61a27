//! What agents and the control plane say to each other.

use std::fmt;

use serde::{Deserialize, Serialize};

use myelin_shape::{
    AttemptKey, ClusterUid, IdError, LogicalNodeId, NodeAttemptId, RunId, SwactorId, check_id,
};

use crate::{AgentKey, JoinToken};

/// The version of the protocol that these types are.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest slot id: `{group}-{index}` with the longest group and the longest index.
const MAX_NODE_BYTES: usize = 63 + 1 + 10;

/// An attempt key on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireKey {
    /// 32 hexadecimal digits.
    pub cluster: ClusterUid,
    /// The run's number.
    pub run: u64,
    /// The slot's id.
    pub node: String,
    /// The attempt's number.
    pub attempt: u64,
}

/// The slot of a key on the wire is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {0}")]
pub struct KeyError(#[from] pub IdError);

impl From<&AttemptKey> for WireKey {
    fn from(key: &AttemptKey) -> Self {
        Self {
            cluster: key.cluster,
            run: key.run.0,
            node: key.node.to_string(),
            attempt: key.attempt.0,
        }
    }
}

impl TryFrom<WireKey> for AttemptKey {
    type Error = KeyError;

    fn try_from(wire: WireKey) -> Result<Self, KeyError> {
        match check_id(&wire.node) {
            Err(IdError::TooLong(bytes)) if bytes <= MAX_NODE_BYTES => {}
            other => other?,
        }
        Ok(Self {
            cluster: wire.cluster,
            run: RunId(wire.run),
            node: LogicalNodeId::from(wire.node),
            attempt: NodeAttemptId(wire.attempt),
        })
    }
}

/// What an agent sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentMessage {
    /// The first line of every connection.
    Join {
        /// The protocol's version; see [`hello_version`].
        version: u32,
        /// The attempt the agent joins as.
        key: WireKey,
        /// The attempt's token.
        token: JoinToken,
        /// The agent's own key.
        agent_key: AgentKey,
        /// The agent's process, for people.
        pid: u32,
    },
    /// The agent is there.
    Heartbeat {
        /// Position in this connection, from 1.
        sequence: u64,
    },
}

/// What the control plane answers, one message for each of the agent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ControllerMessage {
    /// The join is recorded.
    Welcome {
        /// The agent's public name.
        swactor: SwactorId,
        /// How often the agent is to heartbeat, in milliseconds.
        heartbeat_every_ms: u64,
    },
    /// The connection is over.
    Refused {
        /// Why.
        reason: RefusedReason,
    },
    /// The heartbeat is recorded.
    Ack {},
}

/// Why the control plane ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RefusedReason {
    /// The token is not the attempt's.
    BadToken {},
    /// Another agent has joined as this attempt.
    OtherAgent {},
    /// The attempt is over.
    AttemptGone {},
    /// The agent speaks another version.
    Version {
        /// The version spoken here.
        supported: u32,
    },
    /// Too many connections; worth another try.
    Busy {},
    /// No join came in time, or no heartbeat.
    Late {},
    /// What came is no message.
    Malformed {
        /// What is wrong with it.
        message: String,
    },
}

impl RefusedReason {
    /// Returns whether another try can only end the same way.
    pub fn is_final(&self) -> bool {
        match self {
            Self::BadToken {}
            | Self::OtherAgent {}
            | Self::AttemptGone {}
            | Self::Version { .. } => true,
            Self::Busy {} | Self::Late {} | Self::Malformed { .. } => false,
        }
    }
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadToken {} => f.write_str("the token is not this attempt's"),
            Self::OtherAgent {} => f.write_str("another agent has joined as this attempt"),
            Self::AttemptGone {} => f.write_str("the attempt is over"),
            Self::Version { supported } => {
                write!(f, "only version {supported} of the protocol is spoken here")
            }
            Self::Busy {} => f.write_str("too many connections"),
            Self::Late {} => f.write_str("nothing came in time"),
            Self::Malformed { message } => f.write_str(message),
        }
    }
}

/// Returns the version that a join of *any* version of the protocol states.
///
/// A join of another version need not decode as [`AgentMessage`]; this tells it from nonsense.
pub fn hello_version(line: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Hello {
        join: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let hello: Hello = serde_json::from_slice(line).ok()?;
    Some(hello.join.version)
}
