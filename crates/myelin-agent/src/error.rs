//! Why an agent cannot start.

use std::{io, path::PathBuf};

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The join file cannot be read.
    #[error("cannot read join file {}", path.display())]
    ReadJoinFile {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The join file holds something else.
    #[error("join file {} is not one", path.display())]
    ParseJoinFile {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Others than its owner can read the join file.
    #[error("join file {} is readable by others (mode {mode:o}), it must be 0600", path.display())]
    OpenJoinFile {
        /// Where it is.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The join file names a slot that is no id.
    #[error("join file names no slot")]
    Key(#[from] myelin_api::KeyError),
    /// The agent's key cannot be read or stored.
    #[error("cannot keep the agent key in {}", path.display())]
    AgentKey {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The agent's key was changed by something else.
    #[error("agent key in {} is damaged", path.display())]
    ParseAgentKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        source: myelin_api::ParseHexError,
    },
    /// The system gives no random bytes.
    #[error("no random bytes for an agent key")]
    Random(#[source] getrandom::Error),
    /// Signals cannot be listened for.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}
