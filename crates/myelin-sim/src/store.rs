//! The store of a simulated run: in memory, and with the disk's troubles.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;

use myelin_store::{
    Batch, EventQuery, Fault, Loaded, MemoryStore, OperationQuery, Setting, Store, StoreError,
    StoredEvent, StoredOperation,
};

use crate::{
    CommitFate, Flaw, flaw,
    shell::at_once,
    world::Shared,
};

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
        let all = at_once(self.memory.events(EventQuery { limit: u32::MAX, ..EventQuery::default() }));
        let all = all.expect("a store in memory can be read");
        let events = all.iter().map(|it| &it.event);
        self.world.lock().note_left(&self.memory.state(), events);
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

#[async_trait]
impl Store for SimStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        self.memory.load().await
    }

    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        let fate = {
            let mut world = self.world.lock();
            if !world.lives(self.incarnation) {
                return Err(StoreError::Full("killed".into()));
            }
            let fate = world.next_commit();
            if fate == Some(CommitFate::CrashBefore) {
                world.crash("before a commit", None, false);
                return Err(StoreError::Full("killed".into()));
            }
            fate
        };
        let fault = match fate {
            Some(CommitFate::Full) => Some(Fault::Full),
            Some(CommitFate::Locked) => Some(Fault::Locked),
            Some(CommitFate::AnswerLost) => Some(Fault::AnswerLost),
            Some(CommitFate::CrashBefore | CommitFate::CrashAfter) | None => None,
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
        if fate == Some(CommitFate::CrashAfter) {
            self.world.lock().crash("after a commit", None, false);
        }
        committed
    }

    async fn set(&self, setting: Setting) -> Result<(), StoreError> {
        self.memory.set(setting).await
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
