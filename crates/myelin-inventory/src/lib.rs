//! The inventory sweep: what providers list against what is recorded.
//!
//! [`Sweeper`] is the bookkeeping: synchronous, told the time, events in and duties out. It says which leases are whose
//! ([`Census`]), which recorded lease is gone, and which lease that is nobody's may be taken. [`Inventory`] is the shell
//! around it: it lists, reads the records *after* that, and carries the duties out.
//!
//! It is built to do too little. A provider that lists far too little or is another one than before is held; records that may
//! have lost something take nothing; what is taken was nobody's in two listings in a row and is judged and looked up once
//! more right before; more than a tenth at once, or within a day, is a person's decision. It never creates anything, and it never ends an
//! attempt: that a lease is gone is an observation for the driver.
//!
//! Reading order: [`View`], [`Listing`], [`Class`], [`Census`], [`Event`], [`Duties`], [`Sweeper`],
//! [`Records`], [`Inventory`], [`Handle`].
//!
//! ```
//! use std::{collections::BTreeMap, time::{Duration, SystemTime}};
//!
//! use myelin_executor::ProviderIdentity;
//! use myelin_inventory::{Authority, Event, Listing, Rules, Sweep, Sweeper, View};
//! use myelin_shape::{ClusterUid, RunId};
//! use myelin_state::ClusterState;
//!
//! let now = SystemTime::UNIX_EPOCH;
//! let view = View::of(ClusterUid([7; 16]), RunId(1), &ClusterState::default(), 0);
//! let mut sweeper = Sweeper::new(Rules::default(), BTreeMap::new());
//! sweeper.handle(now, Event::Primed(view.clone()));
//! let listing = Listing {
//!     provider: "process".into(),
//!     identity: ProviderIdentity("this host".to_owned()),
//!     settle_window: Duration::ZERO,
//!     listed_at: now,
//!     leases: Vec::new(),
//! };
//! let sweep = Sweep { listings: vec![listing], failures: vec![], view, authority: Authority::Rules };
//! let duties = sweeper.handle(now, Event::Swept(sweep));
//! assert_eq!(duties.remember.len(), 1, "who answers is remembered, and compared from now on");
//! assert!(!sweeper.census().needs_attention());
//! ```

mod census;
mod event;
mod finding;
mod handle;
mod listing;
mod probe;
mod records;
mod service;
mod sweeper;
mod view;

pub use crate::census::{Account, Census, Class, Entry, Fate, Hold, HoldReason, Missing, Stop};
pub use crate::event::{
    Answer, Authority, Duties, Event, LookUp, Question, Rules, Sweep, Taking, Unasked,
};
pub use crate::finding::Finding;
pub use crate::handle::{Collected, Error, Handle, Snapshot};
pub use crate::listing::{Behind, Listing, ListingFailure, store_is_behind};
pub use crate::probe::{Limits, list_all};
pub use crate::records::Records;
pub use crate::service::{Inventory, Options};
pub use crate::sweeper::Sweeper;
pub use crate::view::{Life, Slot, StoreDoubt, View};

#[cfg(test)]
mod tests;
