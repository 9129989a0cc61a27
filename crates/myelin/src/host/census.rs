//! What exists, where no loop runs to say it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use myelin_driver::DriverEvent;
use myelin_executor::{Clock, Provider, ProviderIdentity};
use myelin_inventory::{
    Authority, Event, Inventory, Limits, Listing, Options, StoreDoubt, Sweep, Sweeper, View,
    list_all,
};
use myelin_shape::ClusterUid;
use myelin_store::{Batch, Loaded, Setting, SqliteStore, Store, StoreError};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    file::AgentSettings,
    runtime::Notice,
    state_dir::{Lock, StateDir},
    view::CensusView,
};

use super::{
    Error, Opened, doubtful,
    inventory::{Books, Journal, doubted_if_restored, options, rules},
    providers_for_cleanup,
};

/// A run without a loop, held so that none starts while it is counted.
#[derive(Debug)]
pub struct Idle {
    state: StateDir,
    providers: Vec<Arc<dyn Provider>>,
    _lock: Lock,
}

impl Idle {
    /// Holds a run.
    ///
    /// # Errors
    ///
    /// A loop runs, or the directory or a provider cannot be used.
    pub fn hold(state: &StateDir) -> Result<Self, Error> {
        let lock = state.lock()?;
        let providers = providers_for_cleanup(state)?;
        Ok(Self { state: state.clone(), providers, _lock: lock })
    }

    /// Lists what exists. A state that cannot be read is no failure as long as it is known whose machines to list:
    /// then they are listed, and the census says so. Changes nothing.
    ///
    /// # Errors
    ///
    /// It is not known whose machines to list.
    pub async fn census(&self) -> Result<CensusView, Error> {
        match Opened::look(&self.state).await {
            Ok(opened) => Ok(self.count(&opened.loaded).await),
            Err(Error::Store(error)) => self.unread(error).await,
            Err(error) => Err(error),
        }
    }

    async fn count(&self, loaded: &Loaded) -> CensusView {
        let clock = Clock::runtime().not_before(loaded.now);
        let view = self.view(loaded);
        let Options { rules, identities, unasked, .. } = settings(loaded, clock.clone());
        let mut sweeper = Sweeper::new(rules, identities).remembering(unasked);
        sweeper.handle(clock.now(), Event::Primed(view.clone()));
        let (listings, failures) =
            list_all(&self.providers, view.cluster, &clock, Limits::default()).await;
        let cluster = view.cluster;
        let sweep = Sweep { listings, failures, view, authority: Authority::Rules };
        // What would be done about it is left to a loop, or to a person's word.
        drop(sweeper.handle(clock.now(), Event::Swept(sweep)));
        CensusView::of(cluster, sweeper.census())
    }

    fn view(&self, loaded: &Loaded) -> View {
        let doubt = loaded.doubt.as_ref().map(|doubt| StoreDoubt::Incomplete(doubtful(doubt)));
        let identity = &loaded.identity;
        let view = View::of(identity.cluster, identity.run, &loaded.state, loaded.acted_generation)
            .doubted(doubt);
        doubted_if_restored(view, &self.state)
    }

    async fn unread(&self, error: StoreError) -> Result<CensusView, Error> {
        let Some(cluster) = SqliteStore::marked_cluster(self.state.path())? else {
            return Err(Error::Store(error));
        };
        let clock = Clock::runtime();
        let listings = self.listings(cluster, &clock).await?;
        let leases = listings.into_iter().flat_map(|listing| {
            let provider = listing.provider;
            listing.leases.into_iter().map(move |found| (provider.clone(), found))
        });
        let leases: Vec<_> = leases.collect();
        let doubt = format!("the state cannot be read: {}", super::with_source(&error));
        Ok(CensusView::unread(cluster, clock.now(), &leases, doubt))
    }

    async fn listings(&self, cluster: ClusterUid, clock: &Clock) -> Result<Vec<Listing>, Error> {
        let (listings, failures) =
            list_all(&self.providers, cluster, clock, Limits::default()).await;
        match failures.into_iter().next() {
            None => Ok(listings),
            Some(failure) => {
                Err(Error::Listing { provider: failure.provider, error: failure.error })
            }
        }
    }

    /// Gives back what is nobody's, as a loop would: by the rules, or on a person's word. Of a state that must not be
    /// acted on only the census is returned.
    ///
    /// # Errors
    ///
    /// As for [`census`](Self::census).
    pub async fn collect(&self, person: bool) -> Result<CensusView, Error> {
        let opened = match Opened::open(&self.state).await {
            Ok(opened) => opened,
            Err(Error::Store(_)) => return self.census().await,
            Err(error) => return Err(error),
        };
        let Opened { store, loaded } = opened;
        let clock = Clock::runtime().not_before(loaded.now);
        let view = self.view(&loaded);
        let (cluster, options) = (view.cluster, settings(&loaded, clock.clone()));
        let journal =
            IdleJournal { store: store.clone(), loaded, view, clock, unwritten: Mutex::default() };
        let records = Arc::new(Books { journal, store, state: self.state.clone() });
        // What is found out about attempts is for a loop.
        let (observations, _unheard) = unbounded_channel();
        let providers = self.providers.iter().cloned();
        let (inventory, handle) = Inventory::new(options, providers, records.clone(), observations);
        let shutdown = CancellationToken::new();
        let task = AbortOnDropHandle::new(tokio::spawn(inventory.run(shutdown)));
        let collected = handle.collect(person).await;
        drop(task);
        records.journal.write().await?;
        match collected {
            Ok(collected) => Ok(CensusView::after(cluster, &collected)),
            // It ended by itself, which only a defect can do. What there is now is said all the same.
            Err(myelin_inventory::Error::Closed) => self.census().await,
        }
    }

    /// Takes who answers for a provider now as the right one. Returns whether it was another one before.
    ///
    /// # Errors
    ///
    /// The state must not be acted on, or the provider does not answer.
    pub async fn accept_identity(&self, provider: &str) -> Result<bool, Error> {
        let Opened { store, loaded } = Opened::open(&self.state).await?;
        let clock = Clock::runtime();
        let listings = self.listings(loaded.identity.cluster, &clock).await?;
        let Some(listing) = listings.into_iter().find(|it| it.provider.as_str() == provider) else {
            return Ok(false);
        };
        let ProviderIdentity(found) = listing.identity;
        let known = loaded.settings.providers.get(&listing.provider);
        if known.is_none_or(|known| *known == found) {
            return Ok(false);
        }
        store.set(Setting::Provider(listing.provider, found)).await?;
        Ok(true)
    }
}

fn settings(loaded: &Loaded, clock: Clock) -> Options {
    let stored = loaded.desired.iter().map(|desired| &desired.retry);
    let rules = rules(stored, &AgentSettings::default());
    options(loaded.identity.cluster, clock, rules, &loaded.settings)
}

/// The journal of a run that nobody else changes.
#[derive(Debug)]
struct IdleJournal {
    store: Arc<SqliteStore>,
    loaded: Loaded,
    view: View,
    clock: Clock,
    unwritten: Mutex<Vec<DriverEvent>>,
}

impl IdleJournal {
    fn unwritten(&self) -> MutexGuard<'_, Vec<DriverEvent>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was noted. After a failure the next write begins with the same.
    async fn write(&self) -> Result<(), StoreError> {
        let events = self.unwritten().clone();
        if events.is_empty() {
            return Ok(());
        }
        let new = Batch::new(self.clock.now(), &self.loaded.state);
        self.store.commit(Batch { events: &events, barrier: true, ..new }).await?;
        self.unwritten().drain(..events.len());
        Ok(())
    }
}

#[async_trait]
impl Journal for IdleJournal {
    async fn view(&self) -> Result<View, String> {
        Ok(self.view.clone())
    }

    async fn record(&self, notice: Notice) -> Result<(), String> {
        self.note(notice);
        self.write().await.map_err(|error| error.to_string())
    }

    fn note(&self, notice: Notice) {
        let (node, attempt) = notice.of.unzip();
        let event = DriverEvent { at: self.clock.now(), node, attempt, kind: notice.kind };
        self.unwritten().push(event);
    }
}
