//! The inventory sweep of a loop: what it starts with, what it reads, and where it writes.

use std::sync::Arc;

use async_trait::async_trait;
use myelin_executor::{Clock, Provider, ProviderIdentity};
use myelin_inventory::{
    Finding, Limits, Options, Records, Rules, StoreDoubt, Taking, View, list_all, store_is_behind,
};
use myelin_shape::{ClusterUid, ProviderKind};
use myelin_state::{EventKind, RetryPolicy};
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
/// A provider does not list, or what it lists shows that the state is not the latest.
pub(super) async fn check(
    providers: &[Arc<dyn Provider>],
    clock: &Clock,
    view: &View,
) -> Result<(), Error> {
    let listed = list_all(providers, view.cluster, clock, Limits::default()).await;
    let (listings, failures) = listed;
    if let Some(failure) = failures.into_iter().next() {
        return Err(Error::Listing { provider: failure.provider, error: failure.error });
    }
    store_is_behind(&listings, view).map_or(Ok(()), |behind| Err(Error::Behind(Box::new(behind))))
}

/// Returns the rules under any of these policies: a create may be under way as long as the most patient one allows.
pub(super) fn rules<'a>(
    policies: impl IntoIterator<Item = &'a RetryPolicy>,
    agent: &AgentSettings,
) -> Rules {
    let of_policies = policies.into_iter().map(Rules::of).max_by_key(|rules| rules.longest_create);
    let rules = of_policies.unwrap_or_default();
    Rules { quiet_for: rules.quiet_for.max(agent.silent_after.saturating_mul(2)), ..rules }
}

pub(super) fn options(
    cluster: ClusterUid,
    clock: Clock,
    rules: Rules,
    settings: &Settings,
) -> Options {
    let identities = settings.providers.iter();
    let identities = identities.map(|(kind, id)| (kind.clone(), ProviderIdentity(id.clone())));
    Options { rules, identities: identities.collect(), ..Options::new(cluster, clock) }
}

/// Returns the notice of a lease that is taken.
pub(super) fn notice(taking: &Taking, kind: EventKind) -> Notice {
    let key = &taking.found.key;
    Notice { of: Some((key.node.clone(), key.attempt)), kind }
}

/// Returns what the history says of a taking that is about to be done.
pub(super) fn collecting(taking: &Taking) -> Notice {
    let (provider, lease) = (taking.provider.clone(), taking.found.lease.lease_id.clone());
    notice(taking, EventKind::Collecting { provider, lease })
}

/// Returns what the history says of a finding. What ends an attempt is told by the driver, what is tried again by the log.
pub(super) fn noted(finding: &Finding) -> Option<Notice> {
    let of_all = |kind| Some(Notice { of: None, kind });
    match finding {
        Finding::Held { provider, reason } => {
            let reason = reason.to_string().into();
            of_all(EventKind::ProviderHeld { provider: provider.clone(), reason })
        }
        Finding::Released { provider } => {
            of_all(EventKind::ProviderReleased { provider: provider.clone() })
        }
        Finding::Doubted(doubt) => {
            of_all(EventKind::StraysLeft { reason: doubt.to_string().into() })
        }
        Finding::Stopped(stop) => of_all(EventKind::StraysLeft { reason: stop.to_string().into() }),
        Finding::Taken(taking) => {
            let (provider, lease) = (taking.provider.clone(), taking.found.lease.lease_id.clone());
            Some(notice(taking, EventKind::Collected { provider, lease }))
        }
        Finding::Gone { .. }
        | Finding::StillThere { .. }
        | Finding::LookUpFailed { .. }
        | Finding::NotTaken { .. } => None,
    }
}

/// The records of a running loop.
#[derive(Debug)]
pub(super) struct LoopRecords {
    pub(super) handle: Handle,
    pub(super) store: Arc<dyn Store>,
    pub(super) state: StateDir,
}

#[async_trait]
impl Records for LoopRecords {
    async fn view(&self) -> Result<View, String> {
        let view = self.handle.records().await.map_err(|error| error.to_string())?;
        Ok(doubted_if_restored(view, &self.state))
    }

    async fn record_taking(&self, taking: &Taking) -> Result<(), String> {
        self.handle.record(collecting(taking)).await.map_err(|error| error.to_string())
    }

    async fn record_identity(
        &self,
        provider: &ProviderKind,
        identity: &ProviderIdentity,
    ) -> Result<(), String> {
        let setting = Setting::Provider(provider.clone(), identity.0.clone());
        self.store.set(setting).await.map_err(|error| error.to_string())
    }

    fn note(&self, finding: &Finding) {
        if let Some(notice) = noted(finding) {
            self.handle.note(notice);
        }
    }
}

/// Doubts a state that came from a backup: what was made after it may be nobody's by it, and somebody's in truth.
pub(super) fn doubted_if_restored(view: View, state: &StateDir) -> View {
    let doubt = view.doubt.clone().or_else(|| state.is_restored().then_some(StoreDoubt::Restored));
    view.doubted(doubt)
}
