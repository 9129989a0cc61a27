//! What an executor is made of, and how it says it is doing.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_shape::{AttemptKey, ClusterUid, ProviderKind, RunId};

use crate::{Bootstrap, Clock, Limits, Provider};

/// What the attempt keys of one executor have in common, and whose time it follows.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster all leases are labelled with.
    pub cluster: ClusterUid,
    /// The run.
    pub run: RunId,
    /// The driver's clock.
    pub clock: Clock,
}

impl Options {
    /// Returns options with the runtime's clock.
    pub fn new(cluster: ClusterUid, run: RunId) -> Self {
        let clock = Clock::runtime();
        Self { cluster, run, clock }
    }
}

/// A provider with the bootstrap that makes its machines nodes, and what both are spared.
#[derive(Clone, Debug)]
pub struct ProviderSetup {
    /// Leases the machines. Its kind is the name groups refer to.
    pub provider: Arc<dyn Provider>,
    /// Makes them nodes.
    pub bootstrap: Arc<dyn Bootstrap>,
    /// How it is called.
    pub limits: Limits,
}

impl ProviderSetup {
    /// Returns a setup with default limits.
    pub fn new(provider: Arc<dyn Provider>, bootstrap: Arc<dyn Bootstrap>) -> Self {
        Self { provider, bootstrap, limits: Limits::default() }
    }
}

/// An offer that had no capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCapacity {
    /// Digest of the template that asked for it.
    pub template_digest: Arc<str>,
    /// The provider's words.
    pub message: Box<str>,
    /// When it is asked for again.
    pub until: SystemTime,
}

/// How one provider is doing, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSnapshot {
    /// Which.
    pub kind: ProviderKind,
    /// How many operations are with it.
    pub n_running: u32,
    /// How many wait for their turn.
    pub n_waiting: usize,
    /// How long it asked to be left alone from now.
    pub paused_for: Option<Duration>,
    /// How many leases and sessions were found rather than made, ever.
    pub n_adopted: u64,
    /// Leases beyond the adopted one, by attempt. They are left to the orphan rules.
    pub surplus: BTreeMap<AttemptKey, u32>,
    /// Offers that are not asked for again yet.
    pub no_capacity: Vec<NoCapacity>,
}

/// How an executor is doing, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// How many attempts the ledger remembers.
    pub n_attempts: usize,
    /// Every provider, by kind.
    pub providers: Vec<ProviderSnapshot>,
}
