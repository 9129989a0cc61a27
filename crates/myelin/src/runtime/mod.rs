//! The loop at work: one task owns the driver, performs its duties, and answers questions.
//!
//! A [`Service`] folds what the executor, the agents and the operators say, runs the driver, and carries out what it
//! returns in the order of [`Effects`](myelin_driver::Effects): record, submit, expire, forget. Everything that is ready
//! is folded before one pass is run. Nothing of it blocks: provider calls are tasks of the executor.
//!
//! It decides nothing about nodes. What it knows is in a [`Store`](myelin_store::Store) before anybody else hears of it: that
//! is the business of a [`DurableDriver`](myelin_durable::DurableDriver). Time comes from a
//! [`Clock`](myelin_executor::Clock): the wall clock at the start, then monotonic time, so that a test can pause it.
//!
//! Reading order: [`Options`], [`Service`], [`Handle`], [`Roster`], [`Outputs`], [`Witness`], [`Oracle`].

mod apply;
mod core;
mod error;
mod handle;
mod operate;
mod oracle;
mod output;
mod read;
mod records;
mod ring;
mod service;

pub(crate) use self::apply::check_providers;
pub use self::error::Error;
pub use self::handle::{Applied, Handle, Notice, Pulse, Target, Wanted};
pub use self::oracle::{BROKEN_RULE, BROKEN_RULE_STATUS, Oracle};
pub use self::output::Outputs;
pub(crate) use self::output::{LINES_PER_NODE, outputs_of};
pub use self::service::{
    Before, Options, Parts, Roster, Service, SnapshotSource, Witness, driver_options,
};
