//! Provider-neutral lifecycle facts of one node attempt.

use std::{collections::BTreeMap, fmt, time::SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use myelin_shape::{
    BootstrapSessionId, LogicalNodeSpec, ProviderKind, ProviderLeaseId, SecretRef, SwactorId,
};

/// Where an attempt is in its life. Stages of one attempt never regress.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NodeStage {
    /// Nothing was asked for yet.
    New,
    /// A lease was asked for; the answer is not known.
    LeaseRequested,
    /// A machine is leased; how to reach it is not known.
    LeaseCreated,
    /// How to reach the machine is known.
    EndpointKnown,
    /// The machine is being made a node.
    BootstrapRunning,
    /// The agent has joined.
    SwactorJoined,
    /// The bootstrap is over and the agent is in charge. Ready.
    HandedOff,
    /// As [`Self::HandedOff`], with nothing left to do. Ready.
    Dormant,
    /// The attempt is over and its resources wait for cleanup.
    Failed,
    /// Nothing of the attempt is left.
    Destroyed,
}

impl NodeStage {
    /// Every stage, in order.
    pub const ALL: [Self; 10] = [
        Self::New,
        Self::LeaseRequested,
        Self::LeaseCreated,
        Self::EndpointKnown,
        Self::BootstrapRunning,
        Self::SwactorJoined,
        Self::HandedOff,
        Self::Dormant,
        Self::Failed,
        Self::Destroyed,
    ];

    /// Returns whether the agent has joined and the attempt is not over.
    pub fn has_joined(self) -> bool {
        matches!(self, Self::SwactorJoined | Self::HandedOff | Self::Dormant)
    }

    /// Returns whether the bootstrap is handed off and the attempt is not over.
    pub fn is_handed_off(self) -> bool {
        matches!(self, Self::HandedOff | Self::Dormant)
    }
}

impl fmt::Display for NodeStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How far a bootstrap is. `Ssh` reads "the connection" for providers without SSH.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum BootstrapStage {
    Created,
    SshConnecting,
    SshReady,
    StdoutStreaming,
    BootChecking,
    SwactorStarting,
    WaitingForSwactorJoin,
    Converged,
    Closed,
    SshConnectFailed,
    BootCheckFailed,
    StartFailed,
    SwactorJoinFailed,
    StreamError,
    Cancelled,
}

impl BootstrapStage {
    /// Every stage, in order.
    pub const ALL: [Self; 15] = [
        Self::Created,
        Self::SshConnecting,
        Self::SshReady,
        Self::StdoutStreaming,
        Self::BootChecking,
        Self::SwactorStarting,
        Self::WaitingForSwactorJoin,
        Self::Converged,
        Self::Closed,
        Self::SshConnectFailed,
        Self::BootCheckFailed,
        Self::StartFailed,
        Self::SwactorJoinFailed,
        Self::StreamError,
        Self::Cancelled,
    ];

    /// Returns whether the bootstrap ended without a node.
    pub fn is_failure(self) -> bool {
        self >= Self::SshConnectFailed
    }

    /// Returns whether the bootstrap is over.
    pub fn is_terminal(self) -> bool {
        self >= Self::Converged
    }
}

/// What a lease costs while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Millionths of a US dollar per hour.
    pub micro_usd_per_hour: u64,
}

/// The machine a provider holds for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseFacts {
    /// Who leases it.
    pub provider: ProviderKind,
    /// The provider's name for it.
    pub lease_id: ProviderLeaseId,
    /// The provider's name for the contract the lease is under.
    #[schemars(with = "String")]
    pub provider_contract_id: SmolStr,
    /// The offer it was made from, for providers that have a market.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_id: Option<SmolStr>,
    /// What destroys it.
    #[schemars(with = "String")]
    pub destroy_handle: SmolStr,
    /// What else the provider said. Boxed, since most say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_metadata: Option<Box<BTreeMap<String, String>>>,
    /// What it costs, where the provider says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// How a machine is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// Over SSH.
    Ssh(Box<SshEndpoint>),
    /// Through the provider: a local process, a container or a pod.
    Exec(ExecEndpoint),
}

/// An SSH server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SshEndpoint {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
    /// Where the key is.
    pub auth_ref: SecretRef,
    /// The pinned host key, in `known_hosts` form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
}

/// Something the provider itself runs commands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecEndpoint {
    /// The provider's handle: a directory, a container id, a pod name.
    #[schemars(with = "String")]
    pub target: SmolStr,
}

/// What is known of an attempt's bootstrap; outlives the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapFacts {
    /// The session these facts are of.
    pub session: BootstrapSessionId,
    /// How far it got.
    pub stage: BootstrapStage,
    /// Sequence number of the last observation folded; earlier ones change nothing.
    pub last_sequence: u64,
    /// When the session was first known.
    pub started_at: SystemTime,
}

/// The agent that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwactorFacts {
    /// Which agent. A join by another one is not this node (`spec 1.5`).
    pub swactor_id: SwactorId,
    /// When its join was folded.
    pub joined_at: SystemTime,
}

/// Silence of an agent that had joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Silence {
    /// The last contact.
    pub lost_at: SystemTime,
    /// When the silence ends the attempt; sampled when the silence was folded.
    pub deadline: SystemTime,
}

/// The lifecycle facts of one attempt. Replaced only when a new attempt starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRecord {
    /// The spec this attempt implements. Immutable.
    pub desired: LogicalNodeSpec,
    /// Where the attempt is in its life.
    pub stage: NodeStage,
    /// The machine, while one is leased.
    pub lease: Option<Box<LeaseFacts>>,
    /// How the machine is reached.
    pub connection: Option<Connection>,
    /// The bootstrap.
    pub bootstrap: Option<Box<BootstrapFacts>>,
    /// The agent, from its join on.
    pub swactor: Option<Box<SwactorFacts>>,
    /// Whether the bootstrap was handed off in this attempt: whether it was ever ready.
    pub handed_off: bool,
    /// Since when the attempt is ready without a break.
    pub ready_since: Option<SystemTime>,
    /// Silence of the agent; a silent node is not ready.
    pub silence: Option<Box<Silence>>,
    /// When a leased but not yet ready attempt fails (`spec 1.4`).
    pub ready_by: Option<SystemTime>,
    /// When a bootstrap without a join fails the attempt; sampled at the attempt's first `StartBootstrap`.
    pub bootstrap_by: Option<SystemTime>,
    /// Why the attempt failed.
    pub failed_reason: Option<Box<str>>,
    /// When it failed.
    pub failed_at: Option<SystemTime>,
    /// When its cleanup was complete.
    pub destroyed_at: Option<SystemTime>,
}

impl NodeRecord {
    /// Returns a record of an attempt for which nothing has been done.
    pub fn new(desired: LogicalNodeSpec) -> Self {
        Self {
            desired,
            stage: NodeStage::New,
            lease: None,
            connection: None,
            bootstrap: None,
            swactor: None,
            handed_off: false,
            ready_since: None,
            silence: None,
            ready_by: None,
            bootstrap_by: None,
            failed_reason: None,
            failed_at: None,
            destroyed_at: None,
        }
    }

    /// Returns the last contact of a silent agent.
    pub fn lost_at(&self) -> Option<SystemTime> {
        self.silence.as_deref().map(|silence| silence.lost_at)
    }
}
