//! Durable state of one run: a small trait, and SQLite behind it.
//!
//! A loop commits what changed before anything is submitted, and loads it when it starts again. [`SqliteStore`] keeps
//! it in `state.db`, which a person can read with the `sqlite3` shell. Beside it is `state.mark`, which says how far the
//! database was when a create or a destroy was about to follow: a log that was cut short, or an older backup that was
//! put back, is noticed by it. Every row has a checksum and the whole a digest, so that a load gives what was committed or an
//! error that names the file.
//!
//! Nothing is repaired on its own, and nothing that cannot be read is changed. No network call is made anywhere here.
//!
//! With the feature `raw`, its rows can be read and written without a database; it is off by default.
//!
//! Reading order: [`Store`], [`Batch`], [`Loaded`], [`SqliteStore`], [`StoreError`], [`MemoryStore`].
//!
//! ```
//! use std::time::SystemTime;
//!
//! use myelin_shape::{ClusterUid, RunId};
//! use myelin_state::ClusterState;
//! use myelin_store::{Batch, Identity, Options, Secret, SqliteStore, Store};
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let identity = Identity {
//!     cluster: ClusterUid([7; 16]),
//!     run: RunId(1),
//!     begun_at: SystemTime::UNIX_EPOCH,
//!     secret: Secret([9; 32]),
//! };
//! let store = SqliteStore::create(dir, &identity, Options::default()).await?;
//! let state = ClusterState { next_attempt_id: 5, ..ClusterState::default() };
//! store.commit(Batch { barrier: true, ..Batch::new(SystemTime::UNIX_EPOCH, &state) }).await?;
//! drop(store);
//!
//! let store = SqliteStore::open(dir, Options::default()).await?;
//! assert_eq!(store.load().await?.state.next_attempt_id, 5);
//! # Ok::<(), myelin_store::StoreError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checksum;
mod error;
mod history;
mod mark;
mod memory;
mod model;
mod port;
mod record;
mod sqlite;

pub use crate::error::{Behind, Cause, StoreError};
pub use crate::history::{EventQuery, OperationEnd, OperationQuery, StoredEvent, StoredOperation};
pub use crate::memory::{Fault, MemoryStore};
pub use crate::model::{
    Batch, Doubt, Identity, Loaded, Secret, Setting, Settings, Source, StoredDesired,
};
pub use crate::port::Store;
#[cfg(feature = "raw")]
pub use crate::sqlite::raw;
pub use crate::sqlite::{Accepted, Hook, Options, Restore, SqliteStore};
