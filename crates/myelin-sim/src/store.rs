//! The store of a simulated run: in memory, and with the disk's troubles.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;

use myelin_store::{
    Batch, EventQuery, Fault, Loaded, MemoryStore, OperationQuery, Setting, Store, StoreError,
    StoredEvent, StoredOperation,
};

use crate::{CommitFate, Flaw, flaw, shell::at_once, world::Shared};

/// A store as one control plane writes it.
#[derive(Clone, Debug)]
pub(crate) struct SimStore {
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) world: Shared,
    pub(crate) incarnation: u64,
    pub(crate) flaw: Option<Flaw>,
}

impl SimStore {
    /// Loses what was committed after the last barrier.
    pub(crate) fn lose_power(&self) {
        self.memory.lose_power();
        let all =
            at_once(self.memory.events(EventQuery { limit: u32::MAX, ..EventQuery::default() }));
        let all = all.expect("a store in memory can be read");
        let events = all.iter().map(|it| &it.event);
        self.world.lock().note_left(&self.memory.state(), events);
    }

    /// Returns how the next write goes. `None`: it is not made, since who would make it is dead.
    fn next_fate(&self) -> Option<Fated> {
        let mut world = self.world.lock();
        if !world.lives(self.incarnation) {
            return None;
        }
        Some(match world.next_commit() {
            None => Fated::Well,
            Some(CommitFate::Full) => Fated::Faulty(Fault::Full),
            Some(CommitFate::Locked) => Fated::Faulty(Fault::Locked),
            Some(CommitFate::AnswerLost) => Fated::Faulty(Fault::AnswerLost),
            Some(CommitFate::CrashAfter) => Fated::Last { loses_power: false },
            Some(CommitFate::PowerLoss) => Fated::Last { loses_power: true },
            Some(CommitFate::CrashBefore) => {
                world.crash("before a commit", None, false);
                return None;
            }
        })
    }

    /// Tells the world what is on disk now, so that it can say whether what is done was recorded.
    fn publish(&self, batch: &Batch<'_>) {
        let mut world = self.world.lock();
        for id in batch.nodes {
            world.note_recorded(id, batch.state.nodes.get(id));
        }
        for event in batch.events {
            world.note_event(event);
        }
    }
}

/// How a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fated {
    Well,
    Faulty(Fault),
    /// The control plane is killed after it.
    Last {
        /// With the machine it runs on.
        loses_power: bool,
    },
}

fn killed() -> StoreError {
    StoreError::Full("killed".into())
}

#[async_trait]
impl Store for SimStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        self.memory.load().await
    }

    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        let Some(fate) = self.next_fate() else { return Err(killed()) };
        let fault = match fate {
            Fated::Faulty(fault) => Some(fault),
            Fated::Well | Fated::Last { .. } => None,
        };
        if fault.is_some() && self.flaw == Some(Flaw::ForgetsFailedCommits) {
            return Ok(());
        }
        let batch = flaw::commit(self.flaw, batch);
        self.memory.script([fault]);
        let committed = self.memory.commit(batch).await;
        if committed.is_ok() || fault == Some(Fault::AnswerLost) {
            self.publish(&batch);
        }
        if let Fated::Last { loses_power } = fate {
            self.world.lock().crash("after a commit", None, loses_power);
        }
        committed
    }

    /// A setting is written as a commit is, and reaches the disk.
    async fn set(&self, setting: Setting) -> Result<(), StoreError> {
        let Some(fate) = self.next_fate() else { return Err(killed()) };
        if matches!(fate, Fated::Faulty(Fault::Full | Fault::Locked | Fault::Damaged)) {
            return Err(StoreError::Full("the script says so".into()));
        }
        self.memory.set(setting).await?;
        match fate {
            Fated::Well => Ok(()),
            Fated::Faulty(_) => Err(StoreError::Locked("the answer is lost".into())),
            Fated::Last { loses_power } => {
                self.world.lock().crash("after a setting", None, loses_power);
                Ok(())
            }
        }
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.memory.events(query).await
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<StoredOperation>, StoreError> {
        self.memory.operations(query).await
    }

    async fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.memory.backup(path).await
    }
}
