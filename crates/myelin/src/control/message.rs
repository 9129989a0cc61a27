//! What is said over the control socket.

use std::path::Path;

use myelin_state::OperatorRequest;
use serde::{Deserialize, Serialize};

use crate::{
    file::{self, ClusterFile, FileErrors, Format},
    view::{CensusView, EventView, ExplainView, NodeView, OutputView, PlanView, StatusView},
};

/// The version of the protocol that these types are.
pub const CONTROL_VERSION: u32 = 1;

/// A line a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLine {
    /// [`CONTROL_VERSION`].
    pub version: u32,
    /// What is asked.
    pub request: Request,
}

/// A cluster file as it is written, so that it has one reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Names it in errors.
    pub origin: String,
    /// `yaml`, `json` or `toml`.
    pub format: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// Reads a file, and what it says.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the file.
    pub fn read(path: &Path) -> Result<(Self, ClusterFile), FileErrors> {
        let (bytes, format) = file::read_bounded(path)?;
        let origin = path.display().to_string();
        let file = file::parse(&bytes, format, &origin)?;
        let source = Self {
            origin,
            format: format_name(format).to_owned(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        };
        Ok((source, file))
    }

    /// Returns it with a name that means the same everywhere.
    #[must_use]
    pub fn absolute(self) -> Self {
        let absolute = std::path::absolute(&self.origin);
        let origin = absolute.map_or(self.origin, |path| path.display().to_string());
        Self { origin, ..self }
    }

    /// Returns the file as it is stored with what it says.
    pub fn stored(&self) -> myelin_store::Source {
        let Self { origin, format, text } = self.clone();
        myelin_store::Source { name: origin, format, text }
    }

    /// Returns what the text says.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it; none for a format that is not known.
    pub fn parse(&self) -> Result<ClusterFile, Option<FileErrors>> {
        let formats = [Format::Yaml, Format::Json, Format::Toml];
        let format = formats.into_iter().find(|it| format_name(*it) == self.format);
        let format = format.ok_or(None)?;
        file::parse(self.text.as_bytes(), format, &self.origin).map_err(Some)
    }
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Yaml => "yaml",
        Format::Json => "json",
        Format::Toml => "toml",
    }
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How is the run?
    Status {},
    /// Which nodes are there?
    Nodes {},
    /// Why is a node where it is?
    Explain {
        /// Which.
        node: String,
    },
    /// What happened?
    Events {
        /// To one node only.
        #[serde(default)]
        node: Option<String>,
        /// After this event, oldest first; none: the latest.
        #[serde(default)]
        after: Option<u64>,
        /// At most so many.
        limit: usize,
        /// With `after`: how long to wait for one to happen.
        #[serde(default)]
        wait_ms: u64,
    },
    /// What did a node's bootstraps print?
    Logs {
        /// Which.
        node: String,
        /// After this line.
        #[serde(default)]
        after: u64,
        /// How long to wait for one to come.
        #[serde(default)]
        wait_ms: u64,
    },
    /// What would a file do?
    Plan {
        /// The file.
        source: Source,
    },
    /// Make a file the desired state.
    Apply {
        /// The file.
        source: Source,
        /// Only if this revision is desired now.
        #[serde(default)]
        if_generation: Option<u64>,
        /// Whether ready nodes may be deleted or replaced.
        #[serde(default)]
        may_take_ready: bool,
    },
    /// Pass an operator's word on.
    Operator {
        /// A node, or for a retry also a group.
        target: String,
        /// The word.
        request: Operator,
    },
    /// Stop all effects.
    Pause {},
    /// Start effects again.
    Resume {},
    /// Take the cluster down.
    Down {},
    /// What exists?
    Census {
        /// Not as the last sweep found it, but by one now.
        #[serde(default)]
        fresh: bool,
        /// Whether to give back what is nobody's.
        #[serde(default)]
        collect: Option<Word>,
        /// A provider of which a person says that the right one answers.
        #[serde(default)]
        accept_identity: Option<String>,
    },
    /// Cut our listener off from the agents, or end that.
    Sever {
        /// Which.
        severed: bool,
    },
}

/// On whose word machines that are nobody's are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The rules': few at once, and none while anything is in doubt.
    Rules,
    /// A person's, who has seen them.
    Person,
}

/// An operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Release what holds it.
    Retry,
    /// Replace the current attempt.
    Replace,
    /// The machine no longer exists.
    Abandon,
}

impl From<Operator> for OperatorRequest {
    fn from(operator: Operator) -> Self {
        match operator {
            Operator::Retry => Self::Retry,
            Operator::Replace => Self::Replace,
            Operator::Abandon => Self::Abandon,
        }
    }
}

/// A line a server sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done.
    Ok(Reply),
    /// It was not.
    Error(Failure),
}

/// What is answered when it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<StatusView>),
    /// To [`Request::Nodes`].
    Nodes(Vec<NodeView>),
    /// To [`Request::Explain`].
    Explain(Box<ExplainView>),
    /// To [`Request::Events`].
    Events(Vec<EventView>),
    /// To [`Request::Logs`].
    Logs(Vec<OutputView>),
    /// To [`Request::Plan`].
    Plan(Box<PlanView>),
    /// To [`Request::Apply`].
    Applied {
        /// The revision that is desired now.
        generation: u64,
        /// What it does.
        plan: Box<PlanView>,
    },
    /// To [`Request::Census`].
    Census(Box<CensusView>),
    /// To [`Request::Operator`]: the nodes it applied to.
    Concerned(Vec<String>),
    /// To the rest: whether it changed anything.
    Done {
        /// Whether it did.
        changed: bool,
    },
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What programs branch on.
    pub kind: FailureKind,
    /// A sentence without its end.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What would have been done, where that is why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<PlanView>>,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// What was sent is no request.
    Malformed,
    /// Too many connections.
    Busy,
    /// No request came in time.
    Late,
    /// It does not fit the run as it is.
    Refused,
    /// It was taken, but is not durable yet, and without effect until it is.
    Unrecorded,
    /// Ready nodes would be taken, and nobody agreed to that.
    TakesReady,
    /// There is no such node or group.
    Unknown,
    /// The loop is ending.
    Ended,
}
