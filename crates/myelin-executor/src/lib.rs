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
mod submission;

pub use crate::executor::{EffectExecutor, Executor};
pub use crate::ledger::{Admission, Ended, Expiry, Ledger};
pub use crate::limits::Limits;
pub use crate::port::{
    Bootstrap, BootstrapSink, BootstrapUpdate, CreateRequest, FoundLease, FoundSession, NewLease,
    OutputLine, OutputStream, Presence, Provider, ProviderError, ProviderIdentity, StartRequest,
};
pub use crate::setup::{NoCapacity, Options, ProviderSetup, ProviderSnapshot, Snapshot};
pub use crate::submission::{Clock, Submission, SubmitError};
