//! A simulator: the production loop in virtual time, in a world where everything goes wrong from one seed.

mod config;
mod explore;
mod flaw;
mod generate;
mod hunt;
mod run;
pub mod script;
mod shell;
mod shrink;
mod step;
mod store;
mod world;

pub use crate::config::{Config, PATIENCE, Scenario, WATCH};
pub use crate::explore::{Depth, Exploration, Finding, explore};
pub use crate::flaw::Flaw;
pub use crate::generate::scenario;
pub use crate::hunt::{Hunt, hunt};
pub use crate::run::{Counts, Outcome, run};
pub use crate::shrink::shrink;
pub use crate::step::{BootFate, CallFate, CommitFate, Happening, Jump, ReportFate, Step};
pub use crate::world::Breach;
