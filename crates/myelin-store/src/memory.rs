//! A store in memory, for tests of a loop. It fails when it is told to.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::SystemTime,
};

use async_trait::async_trait;
use myelin_state::{ClusterState, DriverEvent, EventKind};

use crate::{
    Batch, EventQuery, Identity, Loaded, OperationEnd, OperationQuery, Setting, Settings, Store,
    StoreError, StoredDesired, StoredEvent, StoredOperation,
};

/// How a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full; nothing took effect.
    Full,
    /// Somebody holds the database; nothing took effect.
    Locked,
    /// It took effect, but the answer never came.
    AnswerLost,
    /// What is there cannot be read; nothing took effect, and trying again does not help.
    Damaged,
}

/// Like [`SqliteStore`](crate::SqliteStore) in what a loop can see of it, without a file.
///
/// Of the state it keeps exactly what batches name, so that a change that no batch names is missing when it is loaded.
#[derive(Debug)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    identity: Identity,
    settings: Settings,
    state: ClusterState,
    desired: Option<StoredDesired>,
    now: SystemTime,
    acted_generation: u64,
    sequence: u64,
    events: Vec<DriverEvent>,
    /// Events of the caller's next batch that are here already.
    n_landed: usize,
    faults: VecDeque<Option<Fault>>,
    n_barriers: u64,
    /// What a loss of power leaves, if that is to be known.
    on_disk: Option<Box<OnDisk>>,
}

/// What outlives a loss of power: everything up to the last barrier.
#[derive(Clone, Debug)]
struct OnDisk {
    state: ClusterState,
    desired: Option<StoredDesired>,
    now: SystemTime,
    acted_generation: u64,
    sequence: u64,
    n_events: usize,
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new(identity: Identity) -> Self {
        let inner = Inner {
            now: identity.begun_at,
            identity,
            settings: Settings::default(),
            state: ClusterState::default(),
            desired: None,
            acted_generation: 0,
            sequence: 1,
            events: Vec::new(),
            n_landed: 0,
            faults: VecDeque::new(),
            n_barriers: 0,
            on_disk: None,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Returns this store as one that can lose power. Each barrier copies the state then.
    #[must_use]
    pub fn losing_power(self) -> Self {
        let mut inner = self.lock();
        inner.on_disk = Some(Box::new(inner.on_disk()));
        drop(inner);
        self
    }

    /// Loses what was committed after the last barrier, as a host does whose power fails. Changes nothing in a store that
    /// was not made for it.
    pub fn lose_power(&self) {
        let mut inner = self.lock();
        let Some(on_disk) = inner.on_disk.clone() else { return };
        let OnDisk { state, desired, now, acted_generation, sequence, n_events } = *on_disk;
        (inner.state, inner.desired, inner.now) = (state, desired, now);
        (inner.acted_generation, inner.sequence) = (acted_generation, sequence);
        inner.events.truncate(n_events);
        inner.n_landed = 0;
    }

    /// Says how the next commits go, one after the other; `None` goes well, and so do all after the last.
    pub fn script(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().faults.extend(faults);
    }

    /// Returns the state as it is stored.
    pub fn state(&self) -> ClusterState {
        self.lock().state.clone()
    }

    /// Returns how many commits took effect.
    pub fn n_commits(&self) -> u64 {
        self.lock().sequence - 1
    }

    /// Returns how many of them were barriers.
    pub fn n_barriers(&self) -> u64 {
        self.lock().n_barriers
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it holds this")
    }
}

fn path() -> PathBuf {
    PathBuf::from("memory")
}

impl Inner {
    fn apply(&mut self, batch: &Batch<'_>) {
        let ClusterState { observed_generation, next_attempt_id, nodes, groups, brake, paused } =
            batch.state;
        self.state.observed_generation = *observed_generation;
        self.state.next_attempt_id = *next_attempt_id;
        self.state.brake = *brake;
        self.state.paused = *paused;
        for id in batch.nodes {
            match nodes.get(id) {
                Some(node) => drop(self.state.nodes.insert(id.clone(), node.clone())),
                None => drop(self.state.nodes.remove(id)),
            }
        }
        if batch.cluster {
            self.state.groups.clone_from(groups);
        }
        if let Some(desired) = batch.desired {
            self.desired = Some(desired.clone());
            self.acted_generation = self.acted_generation.max(desired.shape.generation);
        }
        self.acted_generation = self.acted_generation.max(*observed_generation);
        let n_landed = self.n_landed.min(batch.events.len());
        self.events.extend_from_slice(&batch.events[n_landed..]);
        self.now = batch.now;
        self.sequence += 1;
        self.n_barriers += u64::from(batch.barrier);
        if batch.barrier && self.on_disk.is_some() {
            self.on_disk = Some(Box::new(self.on_disk()));
        }
    }

    fn on_disk(&self) -> OnDisk {
        OnDisk {
            state: self.state.clone(),
            desired: self.desired.clone(),
            now: self.now,
            acted_generation: self.acted_generation,
            sequence: self.sequence,
            n_events: self.events.len(),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        let inner = self.lock();
        Ok(Loaded {
            identity: inner.identity.clone(),
            settings: inner.settings.clone(),
            state: inner.state.clone(),
            desired: inner.desired.clone(),
            now: inner.now,
            acted_generation: inner.acted_generation,
            sequence: inner.sequence,
            events_last: inner.events.len() as u64,
            doubt: None,
        })
    }

    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        let mut inner = self.lock();
        match inner.faults.pop_front().flatten() {
            None => {
                inner.apply(&batch);
                inner.n_landed = 0;
                Ok(())
            }
            Some(Fault::Full) => Err(StoreError::Full(path())),
            Some(Fault::Locked) => Err(StoreError::Locked(path())),
            Some(Fault::Damaged) => {
                Err(StoreError::Damaged { path: path(), what: "the script says so".to_owned() })
            }
            Some(Fault::AnswerLost) => {
                inner.apply(&batch);
                inner.n_landed = batch.events.len();
                Err(StoreError::TimedOut { path: path(), limit: std::time::Duration::ZERO })
            }
        }
    }

    async fn set(&self, setting: Setting) -> Result<(), StoreError> {
        self.lock().settings.set(setting);
        Ok(())
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let inner = self.lock();
        let numbered = (1_u64..).zip(&inner.events).skip_while(|(seq, _)| *seq <= query.after);
        let asked = numbered.filter(|(_, event)| query.node.is_none() || event.node == query.node);
        let events: Vec<_> =
            asked.map(|(seq, event)| StoredEvent { seq, event: event.clone() }).collect();
        Ok(latest(events, query.limit))
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<StoredOperation>, StoreError> {
        let operations = operations(&self.lock().events);
        let asked = operations.into_iter().filter(|operation| {
            query.node.as_ref().is_none_or(|node| *node == operation.node)
                && query.attempt.is_none_or(|attempt| attempt == operation.id.attempt)
        });
        Ok(latest(asked.collect(), query.limit))
    }

    async fn backup(&self, path: &Path) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly(path.to_owned()))
    }
}

fn latest<T>(mut items: Vec<T>, limit: u32) -> Vec<T> {
    let surplus = items.len().saturating_sub(limit as usize);
    items.drain(..surplus);
    items
}

/// Tells operations from their events.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other event is about an operation")]
fn operations(events: &[DriverEvent]) -> Vec<StoredOperation> {
    let mut operations: Vec<StoredOperation> = Vec::new();
    for event in events {
        let (id, end) = match &event.kind {
            EventKind::Dispatched { operation, effect } => {
                operations.extend(event.node.clone().map(|node| StoredOperation {
                    id: *operation,
                    node,
                    kind: *effect,
                    dispatched_at: event.at,
                    expired_at: None,
                    ended: None,
                }));
                continue;
            }
            EventKind::Expired { operation, .. } => (operation, None),
            EventKind::Succeeded { operation, .. } => (operation, Some(OperationEnd::Succeeded)),
            EventKind::EffectFailed { operation, error, .. } => {
                (operation, Some(OperationEnd::Failed(error.clone())))
            }
            _ => continue,
        };
        let Some(known) = operations.iter_mut().rfind(|known| known.id == *id) else {
            continue;
        };
        match end {
            None => known.expired_at = Some(event.at),
            Some(end) => known.ended = Some((event.at, end)),
        }
    }
    operations
}
