//! What the provider needs.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use myelin_api::JoinSecret;

/// What agents are told so that they join.
#[derive(Clone, Debug)]
pub struct JoinSource {
    /// `host:port` of our listener, for templates that name no other.
    pub address: String,
    /// What join tokens derive from.
    pub secret: JoinSecret,
}

/// What the provider needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the leases. May be shared by several clusters.
    pub root: PathBuf,
    /// The agent that comes with myelin: program and arguments, to which `--join-file PATH` is appended.
    pub agent_command: Vec<OsString>,
    /// What agents are told.
    pub join: JoinSource,
    /// How long processes have to end after they were asked to.
    pub grace: Duration,
    /// How long each verify command may take.
    pub verify_deadline: Duration,
    /// How long a call may take; a create that copies an image, and a destroy, may take ten times as long.
    pub call_deadline: Duration,
    /// Variables of our own environment that leases see. Everything else stays here, since it may hold secrets.
    pub inherited_env: Vec<OsString>,
}

impl Options {
    /// Returns options with defaults for the rest: two seconds of grace, a minute for each verify command and for each
    /// call, and of our environment only what programs need to be found and to speak the user's language.
    pub fn new(root: impl Into<PathBuf>, agent_command: Vec<OsString>, join: JoinSource) -> Self {
        let inherited = [
            "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
            "TMPDIR",
        ];
        Self {
            root: root.into(),
            agent_command,
            join,
            grace: Duration::from_secs(2),
            verify_deadline: Duration::from_mins(1),
            call_deadline: Duration::from_mins(1),
            inherited_env: inherited.map(OsString::from).into(),
        }
    }
}

/// Why there is no provider.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory of the leases cannot be made or read.
    #[error("cannot keep leases in {}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The host does not say which one it is, or which boot this is.
    #[error("cannot read the ids of the host and its boot")]
    Host(#[source] io::Error),
    /// No agent was given.
    #[error("the agent command is empty")]
    NoAgent,
}
