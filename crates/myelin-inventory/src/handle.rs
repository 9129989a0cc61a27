//! The way to ask a running inventory.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use tokio::sync::{mpsc, oneshot, watch};

use myelin_shape::ProviderKind;

use crate::{Census, Class, Hold, Stop, StoreDoubt, Taking};

/// Why an inventory does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It was shut down.
    #[error("the inventory is shut down")]
    Closed,
}

/// How the last sweep went, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was folded; `None` before the first.
    pub at: Option<SystemTime>,
    /// How many leases there are of each class that has any.
    pub counts: BTreeMap<Class, usize>,
    /// How many recorded leases are not listed.
    pub n_missing: usize,
    /// The providers that are held.
    pub held: BTreeMap<ProviderKind, Hold>,
    /// Why strays are not taken.
    pub stop: Option<Stop>,
    /// Why the records are doubted.
    pub doubt: Option<StoreDoubt>,
}

impl From<&Census> for Snapshot {
    fn from(census: &Census) -> Self {
        let mut counts = BTreeMap::new();
        for entry in &census.entries {
            *counts.entry(entry.class).or_default() += 1;
        }
        let accounts = census.accounts.iter();
        let held = accounts.filter_map(|(kind, it)| Some((kind.clone(), it.hold.clone()?)));
        Self {
            at: census.at,
            counts,
            n_missing: census.missing.len(),
            held: held.collect(),
            stop: census.stop.clone(),
            doubt: census.doubt.clone(),
        }
    }
}

/// What a collection did.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// What there is now, and what became of each.
    pub census: Arc<Census>,
    /// What was destroyed.
    pub taken: Vec<Taking>,
    /// What could not be destroyed, and why.
    pub failed: Vec<(Taking, String)>,
}

/// What is asked of the loop.
#[derive(Debug)]
pub(crate) enum Request {
    Sweep(oneshot::Sender<Arc<Census>>),
    Collect { yes: bool, reply: oneshot::Sender<Collected> },
    AcceptIdentity { provider: ProviderKind, reply: oneshot::Sender<bool> },
}

/// A cheap way to ask an inventory. Answers come after at most two sweeps; every call of a sweep has its deadline.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) latest: watch::Receiver<Arc<Census>>,
}

impl Handle {
    /// Returns what the last sweep found.
    pub fn census(&self) -> Arc<Census> {
        Arc::clone(&self.latest.borrow())
    }

    /// Returns the same in short.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::from(&**self.latest.borrow())
    }

    /// Sweeps now, by the rules, and returns what was found.
    ///
    /// # Errors
    ///
    /// The inventory was shut down.
    pub async fn sweep_now(&self) -> Result<Arc<Census>, Error> {
        self.ask(Request::Sweep).await
    }

    /// Sweeps until every stray was seen twice. With a person's `yes`, takes them, however many there are; without, only
    /// what the rules allow.
    ///
    /// # Errors
    ///
    /// The inventory was shut down.
    pub async fn collect(&self, yes: bool) -> Result<Collected, Error> {
        self.ask(|reply| Request::Collect { yes, reply }).await
    }

    /// Says that who answers for a provider now is the right one. Returns whether that was in question. The next sweep
    /// believes it.
    ///
    /// # Errors
    ///
    /// The inventory was shut down.
    pub async fn accept_identity(&self, provider: ProviderKind) -> Result<bool, Error> {
        self.ask(|reply| Request::AcceptIdentity { provider, reply }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)
    }
}
