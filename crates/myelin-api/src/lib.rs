//! Wire types of the agent protocol, join tokens, and the line codec that every socket of myelin speaks.
//!
//! An agent dials the control plane, sends [`AgentMessage::Join`], and heartbeats from then on. Every message is one JSON
//! object on one line. A line has a limit, and what is wrong with one is a [`LineError`]: nothing a peer sends costs
//! more memory than that limit.
//!
//! These are not the core's types: they are converted to and from them, so that either side can change without the
//! other. Nothing here touches a socket, a file, a clock or a random source. With the feature `io`, `LineReader` reads the
//! lines of anything asynchronous; it is off by default, and so is the runtime it needs.
//!
//! Reading order: [`AgentMessage`], [`ControllerMessage`], [`JoinSecret`], [`LineBuffer`], [`JoinFile`].
//!
//! ```
//! use myelin_api::{AgentMessage, LineBuffer, MAX_AGENT_LINE, decode, encode};
//!
//! let mut lines = LineBuffer::new(MAX_AGENT_LINE);
//! let bytes = encode(&AgentMessage::Heartbeat { sequence: 7 });
//! lines.push(&bytes[..10]);
//! assert!(lines.next_line()?.is_none(), "half a line is no message");
//! lines.push(&bytes[10..]);
//! let line = lines.next_line()?.expect("a whole line");
//! assert!(matches!(decode(&line)?, AgentMessage::Heartbeat { sequence: 7 }));
//! # Ok::<(), myelin_api::LineError>(())
//! ```

mod join;
mod line;
mod message;
#[cfg(feature = "io")]
mod reader;

pub use crate::join::{AgentKey, JoinFile, JoinSecret, JoinToken, ParseHexError};
pub use crate::line::{LineBuffer, LineError, MAX_AGENT_LINE, MAX_CONTROL_LINE, decode, encode};
pub use crate::message::{
    AgentMessage, ControllerMessage, KeyError, PROTOCOL_VERSION, RefusedReason, WireKey,
    hello_version,
};
#[cfg(feature = "io")]
pub use crate::reader::{Arrival, LineReader, ReadError};

#[cfg(test)]
mod tests;
