//! What a provider brings: narrow traits, one file of a few hundred lines.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;

use myelin_shape::{
    AttemptKey, BootstrapSessionId, ClusterUid, LogicalNodeSpec, OperationId, ProviderKind,
};
use myelin_state::{
    BootstrapStage, Connection, ErrorClass, LeaseFacts, OperationError, OperationOutcome,
};

/// A failed call of a provider, classified once, here (`spec 4.1`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct ProviderError {
    /// What kind of failure; all that callers branch on.
    pub class: ErrorClass,
    /// The provider's words, for people. Holds no secret.
    pub message: String,
}

impl ProviderError {
    /// Returns an error of the class with the provider's words.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

impl From<ProviderError> for OperationOutcome {
    fn from(error: ProviderError) -> Self {
        Self::Failed(OperationError { class: error.class, message: error.message.into() })
    }
}

/// Which account, daemon or host a provider talks to. A change of it means wrong credentials or a wrong socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderIdentity(pub String);

/// The label that says under which desired generation a lease was made.
pub const GENERATION_LABEL: &str = "myelin.generation";

/// A lease to make.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRequest {
    /// What the lease is named by; all names, labels and tokens derive from it.
    pub key: AttemptKey,
    /// Digest of the node's template, kept with the lease; only a lease that carries it is adopted.
    pub template_digest: Arc<str>,
    /// The desired generation that the create was decided under, kept with the lease as [`GENERATION_LABEL`]. It is
    /// evidence for people and for a store that is behind; what is adopted never depends on it.
    pub generation: u64,
    /// The machine wanted.
    pub spec: LogicalNodeSpec,
}

/// A lease just made or adopted.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLease {
    /// What to remember of it.
    pub lease: LeaseFacts,
    /// How it is reached, where that is known at once.
    pub connection: Option<Connection>,
}

/// A lease as a provider lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundLease {
    /// The attempt it was made for, read from its labels.
    pub key: AttemptKey,
    /// Digest of the template it was made from.
    pub template_digest: String,
    /// The desired generation it was made under; leases of earlier versions do not say.
    pub generation: Option<u64>,
    /// What to remember of it.
    pub lease: LeaseFacts,
    /// How it is reached, where the listing says.
    pub connection: Option<Connection>,
    /// When the provider made it.
    pub created_at: SystemTime,
}

/// Whether a lease exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does.
    Present,
    /// It does not, and that is certain.
    Absent,
}

/// Leases machines. Object-safe; one per kind.
///
/// Every call may be dropped at any await point without harm, and may be repeated. The conformance suite proves the
/// rules stated at each method.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// Returns the name groups refer to it by.
    fn kind(&self) -> ProviderKind;

    /// Returns how long after a create "not found" is no evidence of absence.
    fn settle_window(&self) -> Duration;

    /// Returns who answers: account, daemon or host.
    async fn identity(&self) -> Result<ProviderIdentity, ProviderError>;

    /// Makes a lease, or adopts the one that this attempt key already has.
    ///
    /// Idempotent per key. After success, [`find`](Self::find) with that key answers the lease.
    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError>;

    /// Returns *all* leases of an attempt key, oldest first.
    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError>;

    /// Returns how a lease is reached, or `None` while that is not known yet.
    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError>;

    /// Returns whether a lease exists, by its handle.
    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError>;

    /// Ends everything that runs on a lease and gives it back. Success means that its absence was observed; a lease
    /// that was absent before is success too.
    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError>;

    /// Returns every lease of a cluster, whatever its run, oldest first. Never a lease of another cluster.
    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError>;
}

/// A bootstrap to start.
#[derive(Clone, Debug, PartialEq)]
pub struct StartRequest {
    /// What the session is named by.
    pub key: AttemptKey,
    /// The operation that starts it, for correlation in traces.
    pub operation: OperationId,
    /// How the machine becomes a node.
    pub spec: LogicalNodeSpec,
    /// The machine.
    pub lease: LeaseFacts,
    /// How it is reached.
    pub connection: Connection,
}

/// A session that an attempt key already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// The session.
    pub session: BootstrapSessionId,
    /// How far it is.
    pub stage: BootstrapStage,
}

/// Which of a bootstrap's streams a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutputStream {
    /// Standard output, or a file followed as such.
    Stdout,
    /// Standard error, or a file followed as such.
    Stderr,
}

/// One line of a bootstrap's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputLine {
    /// Position in its stream, from 1; a gap means that lines were dropped.
    pub sequence: u64,
    /// Which stream.
    pub stream: OutputStream,
    /// The line without its end, lossily decoded, cut to 4 KiB.
    pub text: String,
}

/// What a bootstrap reports while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum BootstrapUpdate {
    /// It got further, or ended.
    Stage {
        /// Position in the session's stream of stages, from 1.
        sequence: u64,
        /// How far.
        stage: BootstrapStage,
        /// A line of explanation, for failures.
        message: Option<String>,
    },
    /// It printed a line.
    Output(OutputLine),
}

/// Where bootstraps report. Never blocks; output lines may be dropped when nobody keeps up, stages never.
pub trait BootstrapSink: fmt::Debug + Send + Sync {
    /// Takes one report of a session.
    fn report(&self, key: &AttemptKey, session: BootstrapSessionId, update: BootstrapUpdate);
}

/// Makes leased machines nodes. Its sink is given at construction.
#[async_trait]
pub trait Bootstrap: fmt::Debug + Send + Sync {
    /// Starts a session, or answers the one that this attempt key already has. Returns as soon as the session is
    /// recorded; progress goes to the sink.
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError>;

    /// Returns the live session of an attempt key.
    async fn find(
        &self,
        key: &AttemptKey,
        lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError>;

    /// Ends the session because the agent has joined: the agent goes on, our side closes. An unknown session is
    /// success.
    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError>;

    /// Ends the session and everything it started on the machine. An unknown session is success.
    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError>;
}
