//! The part that touches the world, behind ports: effects in, tagged outcomes out.
//!
//! An [`Executor`] takes [`Submission`]s and reports one outcome for each as a
//! [`NodeObservation`](myelin_state::NodeObservation). Between it and the [`Provider`]s sits the [`Ledger`], which makes
//! a repeated submission harmless and keeps one call an attempt; [`Limits`] keep a provider from being overrun and one
//! group from starving another. What a provider must obey is written at [`Provider`] and proven by
//! [`conformance::run`]; [`fake`] is a scripted provider in memory that obeys it, or breaks it on request.
//!
//! Nothing here decides what should exist, retries, or remembers anything the driver could not lose: after a restart,
//! providers are asked again.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! use myelin_executor::{EffectExecutor, Executor, Options, Submission, fake::FakeWorld};
//! use myelin_shape::{ClusterUid, NodeAttemptId, OperationId, RunId, RunNodeGroupSpec, expand_node_group};
//! use myelin_state::{LeaseMode, NodeEvent, NodeManagerCommand, OperationOutcome};
//!
//! let world = FakeWorld::new();
//! let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
//! let options = Options::new(ClusterUid([7; 16]), RunId(1));
//! let executor = Executor::new(options.clone(), [world.setup()], sender);
//!
//! let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
//! let spec = expand_node_group(&group).next().expect("one node");
//! executor.submit(Submission {
//!     node: spec.logical_node_id.clone(),
//!     operation: OperationId { attempt: NodeAttemptId(1), sequence: 0 },
//!     command: NodeManagerCommand::CreateLease {
//!         spec,
//!         mode: LeaseMode::CreateOrAdopt,
//!         unsettled_since: None,
//!     },
//!     generation: 1,
//!     deadline: options.clock.now() + std::time::Duration::from_secs(60),
//! })?;
//!
//! let observation = results.recv().await.expect("every operation has an outcome");
//! let NodeEvent::OperationFinished { outcome, .. } = observation.event else { unreachable!() };
//! assert!(matches!(outcome, OperationOutcome::LeaseCreated { .. }));
//! assert_eq!(world.leases().len(), 1);
//! # Ok::<(), myelin_executor::SubmitError>(())
//! # }).expect("the submission is in order");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Reading order: [`Provider`], [`Bootstrap`], [`Submission`], [`EffectExecutor`], [`Ledger`], [`Executor`],
//! [`Limits`], [`fake`], [`conformance`].

mod backend;
pub mod conformance;
mod digest;
mod executor;
pub mod fake;
mod gate;
mod ledger;
mod limits;
mod outcome;
mod port;
mod setup;
mod spared;
mod submission;

pub use crate::executor::{EffectExecutor, Executor};
pub use crate::ledger::{Admission, Ended, Expiry, Ledger};
pub use crate::limits::Limits;
pub use crate::port::{
    Bootstrap, BootstrapSink, BootstrapUpdate, CreateRequest, FoundLease, FoundSession,
    GENERATION_LABEL, NewLease, OutputLine, OutputStream, Presence, Provider, ProviderError,
    ProviderIdentity, StartRequest,
};
pub use crate::setup::{NoCapacity, Options, ProviderSetup, ProviderSnapshot, Snapshot};
pub use crate::submission::{Clock, Submission, SubmitError};
