//! The `myelin` library as its users call it, and the command as people type it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;
mod control;
mod docs;
mod file;
mod runtime;
