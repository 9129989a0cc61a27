//! What is stored: the run's identity, its settings, what is wanted, and what is known.

use std::{collections::BTreeMap, fmt, net::SocketAddr, time::SystemTime};

use myelin_shape::{ClusterShape, ClusterUid, LogicalNodeId, ProviderKind, ProviderLeaseId, RunId};
use myelin_state::{ClusterState, DriverEvent, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::Behind;

/// The bytes that every join token of a cluster derives from. Its `Debug` form does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Whose state it is. The first durable thing; it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The run.
    pub run: RunId,
    /// When it was begun.
    pub begun_at: SystemTime,
    /// What its join tokens derive from.
    pub secret: Secret,
}

/// What a later process must find as it was. Each is absent until it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The address agents dial.
    pub address: Option<SocketAddr>,
    /// For each provider what names the place it leases from: a directory, a daemon, an account.
    pub providers: BTreeMap<ProviderKind, String>,
    /// The leases that were nobody's and were taken without a person's word lately, each with when.
    pub unasked: BTreeMap<(ProviderKind, ProviderLeaseId), SystemTime>,
}

/// One of [`Settings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The address agents dial.
    Address(SocketAddr),
    /// What names the place a provider leases from.
    Provider(ProviderKind, String),
    /// All leases that were taken without a person's word lately.
    Unasked(BTreeMap<(ProviderKind, ProviderLeaseId), SystemTime>),
}

impl Settings {
    /// Sets one.
    pub fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Address(address) => self.address = Some(address),
            Setting::Provider(kind, identity) => {
                self.providers.insert(kind, identity);
            }
            Setting::Unasked(unasked) => self.unasked = unasked,
        }
    }
}

/// The file a desired shape was read from; all empty where no file says so, as after `down`. Opaque here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Where it was.
    pub name: String,
    /// Its format.
    pub format: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// Returns the BLAKE3 digest of the text, in hexadecimal; none where there is no file.
    pub fn digest(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| blake3::hash(self.text.as_bytes()).to_hex().to_string())
    }
}

/// What somebody wants, with where it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredDesired {
    /// The cluster wanted.
    pub shape: ClusterShape,
    /// How failures are retried.
    pub retry: RetryPolicy,
    /// The file.
    pub source: Source,
    /// When it was accepted.
    pub accepted_at: SystemTime,
}

/// Why nothing may be acted on although the state can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Commits that were acted on are missing.
    Behind(Behind),
    /// Whether commits are missing cannot be told.
    MarkLost,
}

/// Everything a store holds beside its history.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Whose state it is.
    pub identity: Identity,
    /// What was set.
    pub settings: Settings,
    /// What is known. Equal templates are one, shared by every node and group.
    pub state: ClusterState,
    /// What is wanted, if anything was ever.
    pub desired: Option<StoredDesired>,
    /// The time of the last commit; the driver's time never goes back behind it.
    pub now: SystemTime,
    /// The highest desired generation that was ever committed here or acted on. A new one must be above it.
    pub acted_generation: u64,
    /// How many commits were made.
    pub sequence: u64,
    /// The number of the last event; 0 if there is none.
    pub events_last: u64,
    /// Set only by a store that is open for reading: why nothing may be acted on.
    pub doubt: Option<Doubt>,
}

/// What changed since the last commit that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The driver's time.
    pub now: SystemTime,
    /// The current state.
    pub state: &'a ClusterState,
    /// Every node whose record changed, appeared or went. What the state does not hold is deleted.
    pub nodes: &'a [LogicalNodeId],
    /// Whether groups changed.
    pub cluster: bool,
    /// The desired shape, if it changed.
    pub desired: Option<&'a StoredDesired>,
    /// What happened, in order. A batch after a failed one begins with the events of that.
    pub events: &'a [DriverEvent],
    /// Whether a create or destroy follows: the commit must survive the loss of power.
    pub barrier: bool,
}

impl<'a> Batch<'a> {
    /// Returns a batch in which nothing changed but the time.
    pub fn new(now: SystemTime, state: &'a ClusterState) -> Self {
        Self { now, state, nodes: &[], cluster: false, desired: None, events: &[], barrier: false }
    }
}
