//! The loop on a scripted provider in virtual time, with the linter as witness of every step.

mod agents;
mod durable;
mod failures;
mod operators;
mod outages;
mod properties;
mod records;
mod shapes;
pub(crate) mod world;
