//! A model checker over the real driver.
//!
//! [`explore`] takes a [`Scenario`] (one group of one or two slots, what is wanted of it one after the other, and a budget
//! of faults) and goes through every order in which everything can happen: results of effects, true, unknown, lost, late
//! and twice; agents that join, die, fall silent and return; machines that vanish; deadlines; operators; and control
//! planes that are killed and go on. The driver is the real one, with decider and reducer, in each state; only the world
//! around it is made up. The linter looks at each transition, and no machine may be forgotten, leased twice, or used by
//! another attempt. Afterwards a search back from all states in which the cluster is as wanted shows that each state
//! leads to such a one without another fault, and that without one it is not left again. As wanted is what the driver
//! takes for converged and what is true: the machines are there, and their agents are heard.
//!
//! Not explored are the executor and the store (their parts are taken by a world that is honest and by a state that is
//! never lost), `abandon`, and more than one group. The module doc of `face.rs` says which states count as the same, and
//! why nothing is hidden by that.
//!
//! Reading order: [`Scenario`], [`Action`], [`State`], [`explore`], [`explore_twins`].
//!
//! ```
//! use std::num::NonZeroUsize;
//! use myelin_model::{Limits, Scenario, explore};
//!
//! let limits = Limits { most_transitions: NonZeroUsize::MAX, threads: 1 };
//! let report = explore(&Scenario::one_slot(0), limits)?;
//! assert!(report.n_converged > 0);
//! assert!(report.inevitable);
//! # Ok::<(), myelin_model::Failure>(())
//! ```

mod action;
mod explore;
mod eye;
mod face;
mod graph;
mod model;
mod oracle;
mod possible;
mod scenario;
mod state;
mod step;
mod twins;
mod world;

pub use crate::action::Action;
pub use crate::explore::{Failure, Limits, Report, explore};
pub use crate::scenario::{Detail, Flaw, Scenario};
pub use crate::state::State;
pub use crate::twins::explore_twins;
pub use crate::world::Slot;

#[cfg(test)]
mod tests;
