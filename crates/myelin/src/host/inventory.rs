//! The inventory sweep of a loop: what it starts with, what it reads, and where it writes.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use myelin_executor::{Clock, Provider, ProviderIdentity};
use myelin_inventory::{
    Finding, Limits, Listing, Options, Records, Rules, StoreDoubt, Taking, Unasked, View, list_all,
    store_is_behind,
};
use myelin_shape::{ClusterUid, ProviderKind};
use myelin_state::RetryPolicy;
use myelin_store::{Setting, Settings, Store};

use crate::{
    file::AgentSettings,
    runtime::{Handle, Notice},
    state_dir::StateDir,
};

use super::Error;

/// Checks what the providers list against a state before anything of it is acted on.
///
/// # Errors
///
/// A provider does not list, or is another one than the machines were leased from, or what it lists shows that the state
/// is not the latest.
pub(super) async fn check(
    providers: &[Arc<dyn Provider>],
    clock: &Clock,
    view: &View,
    settings: &Settings,
) -> Result<(), Error> {
    let listed = list_all(providers, view.cluster, clock, Limits::default()).await;
    let (listings, failures) = listed;
    if let Some(failure) = failures.into_iter().next() {
        return Err(Error::Listing { provider: failure.provider, error: failure.error });
    }
    if !view.slots.is_empty() {
        listings.iter().try_for_each(|listing| check_identity(listing, settings))?;
    }
    store_is_behind(&listings, view).map_or(Ok(()), |behind| Err(Error::Behind(Box::new(behind))))
}

/// Refuses another account, daemon or host than the machines were leased from: there each of them would be absent, and a
/// machine that was to be destroyed would pass for destroyed.
fn check_identity(listing: &Listing, settings: &Settings) -> Result<(), Error> {
    let (provider, found) = (&listing.provider, &listing.identity.0);
    match settings.providers.get(provider).filter(|known| *known != found) {
        None => Ok(()),
        Some(known) => Err(Error::OtherIdentity {
            provider: provider.clone(),
            known: known.clone(),
            found: found.clone(),
        }),
    }
}

/// Returns the rules under any of these policies: a create may be under way as long as the most patient one allows.
pub(super) fn rules<'a>(
    policies: impl IntoIterator<Item = &'a RetryPolicy>,
    agent: &AgentSettings,
) -> Rules {
    let of_policies = policies.into_iter().map(Rules::of).max_by_key(|rules| rules.longest_create);
    of_policies.unwrap_or_default().hearing(agent.silent_after)
}

pub(super) fn options(
    cluster: ClusterUid,
    clock: Clock,
    rules: Rules,
    settings: &Settings,
) -> Options {
    let identities = settings.providers.iter();
    let identities = identities.map(|(kind, id)| (kind.clone(), ProviderIdentity(id.clone())));
    Options {
        rules,
        identities: identities.collect(),
        unasked: settings.unasked.clone(),
        ..Options::new(cluster, clock)
    }
}

/// Returns what the history says of a taking that is about to be done.
fn collecting(taking: &Taking) -> Notice {
    let (of, kind) = taking.announcement();
    Notice { of: Some(of), kind }
}

/// Where the history of a run is kept: by its loop, or, while it has none, by whoever holds it.
#[async_trait]
pub(super) trait Journal: fmt::Debug + Send + Sync {
    /// Returns what is recorded now.
    async fn view(&self) -> Result<View, String>;

    /// Writes what is about to happen, durably.
    async fn record(&self, notice: Notice) -> Result<(), String>;

    /// Notes what happened, for the next write.
    fn note(&self, notice: Notice);
}

#[async_trait]
impl Journal for Handle {
    async fn view(&self) -> Result<View, String> {
        self.records().await.map_err(|error| error.to_string())
    }

    async fn record(&self, notice: Notice) -> Result<(), String> {
        Self::record(self, notice).await.map_err(|error| error.to_string())
    }

    fn note(&self, notice: Notice) {
        Self::note(self, notice);
    }
}

/// The records of a run.
#[derive(Debug)]
pub(super) struct Books<J> {
    pub(super) journal: J,
    pub(super) store: Arc<dyn Store>,
    pub(super) state: StateDir,
}

impl<J> Books<J> {
    async fn set(&self, setting: Setting) -> Result<(), String> {
        self.store.set(setting).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl<J: Journal> Records for Books<J> {
    async fn view(&self) -> Result<View, String> {
        let view = self.journal.view().await?;
        Ok(doubted_if_restored(view, &self.state))
    }

    async fn record_taking(&self, taking: &Taking, unasked: &Unasked) -> Result<(), String> {
        // First, so that a crash in between counts it.
        self.set(Setting::Unasked(unasked.clone())).await?;
        self.journal.record(collecting(taking)).await
    }

    async fn record_identity(
        &self,
        provider: &ProviderKind,
        identity: &ProviderIdentity,
    ) -> Result<(), String> {
        self.set(Setting::Provider(provider.clone(), identity.0.clone())).await
    }

    fn note(&self, finding: &Finding) {
        if let Some((of, kind)) = finding.event() {
            self.journal.note(Notice { of, kind });
        }
    }
}

/// Doubts a state that came from a backup: what was made after it may be nobody's by it, and somebody's in truth.
pub(super) fn doubted_if_restored(view: View, state: &StateDir) -> View {
    let doubt = view.doubt.clone().or_else(|| state.is_restored().then_some(StoreDoubt::Restored));
    view.doubted(doubt)
}
