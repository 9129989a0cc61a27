//! A cluster driver whose every step is recorded before anything of it is done (`spec 5`).
//!
//! A [`DurableDriver`] is a [`ClusterDriver`](myelin_driver::ClusterDriver) with a [`Store`](myelin_store::Store) behind it
//! and a [`Shell`] in front. It folds what happens, lets the driver decide, commits what changed, and hands the duties out
//! only then. A commit that fails loses nothing and lets nothing through: it is tried again as a whole, and until it works the
//! driver stands still.
//!
//! Reading order: [`DurableDriver`], [`Shell`], [`Trouble`].
//!
//! ```
//! use std::{sync::Arc, time::SystemTime};
//!
//! use myelin_driver::{ClusterDriver, Desired, DriverEvent, Effects, Event, Options, Submission};
//! use myelin_durable::{DurableDriver, Shell};
//! use myelin_shape::{
//!     ClusterShape, ClusterUid, LogicalNodeId, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec,
//! };
//! use myelin_store::{Identity, MemoryStore, Secret, Source};
//!
//! /// Writes down what it is given to do.
//! #[derive(Default)]
//! struct Paper(Vec<String>);
//!
//! impl Shell for Paper {
//!     fn now(&self) -> SystemTime {
//!         SystemTime::UNIX_EPOCH
//!     }
//!     fn ran(&mut self, _: &ClusterDriver, _: &Effects, _: SystemTime) {}
//!     fn tell(&mut self, event: DriverEvent) {
//!         self.0.push(event.kind.code().to_owned());
//!     }
//!     fn submit(&mut self, submission: Submission) -> Result<(), Box<str>> {
//!         self.0.push(submission.to_string());
//!         Ok(())
//!     }
//!     fn expire(&mut self, _: &LogicalNodeId, _: OperationId) {}
//!     fn forget(&mut self, _: &ClusterDriver, _: LogicalNodeId, _: NodeAttemptId) {}
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let (cluster, begun_at) = (ClusterUid([7; 16]), SystemTime::UNIX_EPOCH);
//! let identity = Identity { cluster, run: RunId(1), begun_at, secret: Secret([9; 32]) };
//! let store = Arc::new(MemoryStore::new(identity));
//! let driver = ClusterDriver::new(Options::default());
//! let mut durable = DurableDriver::new(driver, store.clone(), Source::default());
//!
//! let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
//! let desired = Desired::new(ClusterShape::new(RunId(1), 1, [group]));
//! durable.fold(begun_at, Event::Desired(Box::new(desired)));
//! let mut paper = Paper::default();
//! assert!(durable.settle(&mut paper).await.is_recorded);
//! assert_eq!(paper.0, ["desired_accepted", "inserted", "dispatched", "worker-0 0.0 CreateLease"]);
//! assert_eq!(store.n_commits(), 1);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod durable;
mod held;
mod outbox;

pub use crate::durable::{DurableDriver, Settled, Shell};
pub use crate::outbox::Trouble;
