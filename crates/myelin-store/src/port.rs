//! The port between the loop and whatever keeps its state.

use std::{fmt, path::Path};

use async_trait::async_trait;

use crate::{
    Batch, EventQuery, Loaded, OperationQuery, Setting, StoreError, StoredEvent, StoredOperation,
};

/// Durable state of one run. One process writes it.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Returns everything but the history, checked.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged, or is behind what was acted on. Nothing was changed.
    async fn load(&self) -> Result<Loaded, StoreError>;

    /// Makes a batch durable, in one transaction.
    ///
    /// # Errors
    ///
    /// Nothing may be submitted. The caller keeps the batch: its next one names the same nodes and begins with the same
    /// events, and may name more. Whether the failed commit took effect after all is found out then, and no event
    /// appears twice.
    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError>;

    /// Sets one of the settings, durably.
    ///
    /// # Errors
    ///
    /// It is not set; the caller tries again.
    async fn set(&self, setting: Setting) -> Result<(), StoreError>;

    /// Returns the latest events that are asked for, oldest first.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError>;

    /// Returns the latest operations that are asked for, in the order of their dispatch.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    async fn operations(&self, query: OperationQuery) -> Result<Vec<StoredOperation>, StoreError>;

    /// Makes a consistent copy of everything while the store is in use.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be written. Nothing is left there then.
    async fn backup(&self, path: &Path) -> Result<(), StoreError>;
}
