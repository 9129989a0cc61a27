//! What is durable of a run, open and read.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use myelin_driver::{ClusterDriver, Desired};
use myelin_executor::Clock;
use myelin_shape::{ClusterUid, RunId};
use myelin_store::{
    Accepted, EventQuery, Identity, Loaded, Options as StoreOptions, Restore, Secret, Source,
    SqliteStore, Store, StoreError, StoredDesired, StoredEvent,
};

#[cfg(debug_assertions)]
use crate::crash;
use crate::{
    runtime::{self, Before},
    state_dir::StateDir,
};

use super::{Error, N_EVENTS, lost, random};

/// The durable state of a run, open for writing and read.
#[derive(Debug)]
pub struct Opened {
    pub(super) store: Arc<SqliteStore>,
    pub(super) loaded: Loaded,
}

impl Opened {
    /// Opens the state of a run. The caller holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// There is none, or nothing may be acted on with what is there. Nothing was changed.
    pub async fn open(state: &StateDir) -> Result<Self, Error> {
        let store = SqliteStore::open(state.path(), store_options()).await?;
        let loaded = store.load().await?;
        Ok(Self { store: Arc::new(store), loaded })
    }

    /// Reads the state of a run, which another process may be writing.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub async fn look(state: &StateDir) -> Result<Self, Error> {
        let store = SqliteStore::open_read_only(state.path(), store_options()).await?;
        let loaded = store.load().await?;
        Ok(Self { store: Arc::new(store), loaded })
    }

    /// As [`open`](Self::open), for a run that may not have been begun: then its identity is made, and is durable before
    /// anything could carry it.
    ///
    /// # Errors
    ///
    /// As for `open`; or the directory is of another run.
    pub async fn open_or_begin(state: &StateDir, run: RunId) -> Result<Self, Error> {
        let opened = match Self::open(state).await {
            Err(Error::Store(StoreError::NotFound(_))) => {
                let n_machines = lost(state).values().sum();
                if n_machines > 0 {
                    return Err(Error::Lost { path: state.leases(), n_machines });
                }
                let identity = Identity {
                    cluster: ClusterUid(random()?),
                    run,
                    begun_at: Clock::runtime().now(),
                    secret: Secret(random()?),
                };
                let store = SqliteStore::create(state.path(), &identity, store_options()).await?;
                let loaded = store.load().await?;
                Self { store: Arc::new(store), loaded }
            }
            other => other?,
        };
        let found = opened.loaded.identity.run;
        if found == run { Ok(opened) } else { Err(Error::OtherRun { found, expected: run }) }
    }

    /// Returns whose state it is.
    pub fn identity(&self) -> &Identity {
        &self.loaded.identity
    }

    /// Returns what is durable.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Makes a copy of it, also while a loop writes it.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be written.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        Ok(self.store.backup(path).await?)
    }

    /// Checks a backup that is to take the place of the state of a run, or of none. The caller holds the lock of the
    /// directory. Changes nothing yet.
    ///
    /// # Errors
    ///
    /// The backup cannot be used, or is of another cluster.
    pub async fn backup_for(state: &StateDir, backup: &Path) -> Result<Restore, Error> {
        Ok(SqliteStore::restore(state.path(), backup, &store_options()).await?)
    }

    /// Puts a backup in place; returns where what was there is kept.
    ///
    /// # Errors
    ///
    /// A file cannot be written. What was there is in its place or kept.
    pub fn put_back(state: &StateDir, backup: Restore) -> Result<Option<PathBuf>, Error> {
        // Noted first: a state of which nobody knows that it was restored would be believed.
        backup.put_in_place(|| Ok(state.mark_restored()?))
    }

    /// Takes the state as it is although something that was acted on is missing. Only a person may say so. The caller
    /// holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// It is damaged or cannot be written. It is as before then.
    pub async fn accept(state: &StateDir) -> Result<Accepted, Error> {
        state.mark_restored()?;
        Ok(SqliteStore::accept_behind(state.path(), &store_options()).await?)
    }

    /// Returns whether nothing is there and nothing is wanted.
    pub fn is_over(&self) -> bool {
        let desired = self.loaded.desired.as_ref();
        self.n_nodes() == 0 && desired.is_none_or(|desired| desired.shape.groups.is_empty())
    }

    /// Returns how many leases are recorded.
    pub fn n_leases(&self) -> usize {
        self.loaded.state.nodes.values().filter(|node| node.record.lease.is_some()).count()
    }

    /// Returns how many slots are managed.
    pub fn n_nodes(&self) -> usize {
        self.loaded.state.nodes.len()
    }
}

fn store_options() -> StoreOptions {
    StoreOptions {
        #[cfg(debug_assertions)]
        after_commit: crash::after_write(),
        ..StoreOptions::default()
    }
}

/// Returns a store as the loop uses it.
pub(super) fn recorder(store: Arc<SqliteStore>) -> Arc<dyn Store> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Store>(store));
    #[cfg(not(debug_assertions))]
    return store;
}

/// Returns the driver that goes on from what was loaded, and the last events.
pub(super) async fn before(
    store: &dyn Store,
    loaded: Loaded,
    now: SystemTime,
) -> Result<Before, Error> {
    let Loaded { state, desired, acted_generation, .. } = loaded;
    let options = runtime::driver_options();
    let (driver, source) = match desired {
        Some(StoredDesired { shape, retry, source, .. }) => {
            (ClusterDriver::resume(options, state, Desired { shape, retry }, now)?, source)
        }
        None => (ClusterDriver::restore(options, state), Source::default()),
    };
    Ok(Before { driver, events: last_events(store).await?, acted_generation, source })
}

pub(super) async fn last_events(store: &dyn Store) -> Result<Vec<StoredEvent>, StoreError> {
    let limit = u32::try_from(N_EVENTS).unwrap_or(u32::MAX);
    store.events(EventQuery { limit, ..EventQuery::default() }).await
}
