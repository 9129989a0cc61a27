//! A simulator: the production loop in virtual time, in a world where everything goes wrong from one seed.
//!
//! What runs is what runs in production: decider, reducer, driver, durable loop, executor, membership and inventory. Only
//! the edges are made up: a provider whose calls are late, lost, wrong or refused, a disk that fills up, agents that fall
//! silent, operators who change their mind, and a clock that is set. A [`Scenario`] says what happens; [`run`] plays it
//! and looks at every rule after every step. Once everything works again, the cluster must become as desired within
//! [`PATIENCE`] and stay so for [`WATCH`].
//!
//! Equal scenarios give equal outcomes. No clock is read, nothing is drawn while a scenario is played, and no thread is
//! started; only [`scenario`] draws, from its seed.
//!
//! ```
//! use myelin_sim::{run, scenario, script};
//!
//! // What a seed draws.
//! assert_eq!(run(&scenario(1)).breach, None);
//!
//! // What a person writes: the answer to the only create is lost, and yet there is one machine.
//! let history = script::parse("at 0s want a:1\ncall create 1 loses-reply\ncalm 1m")?;
//! let outcome = run(&history);
//! assert_eq!(outcome.breach, None);
//! assert_eq!(outcome.end.len(), 1);
//! # Ok::<(), script::ScriptError>(())
//! ```
//!
//! Reading order: [`Step`], [`Scenario`], [`run`] (the `world` first, then the `shell` of the control plane), [`scenario`],
//! [`script`], [`shrink`], [`explore`], [`Flaw`].

mod config;
mod explore;
mod flaw;
mod generate;
mod hunt;
mod panics;
mod run;
pub mod script;
mod shell;
mod shrink;
mod step;
mod store;
mod story;
mod world;

pub use crate::config::{Config, PATIENCE, PROMPT, Scenario, WATCH};
pub use crate::explore::{Depth, Exploration, Finding, explore};
pub use crate::flaw::Flaw;
pub use crate::generate::scenario;
pub use crate::hunt::{Hunt, hunt};
pub use crate::run::{Counts, Outcome, run};
pub use crate::shrink::shrink;
pub use crate::step::{BootFate, CallFate, CommitFate, Happening, Jump, Place, ReportFate, Step};
pub use crate::world::Breach;
