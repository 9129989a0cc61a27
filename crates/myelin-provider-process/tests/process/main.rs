//! The process provider with real directories, real processes and the real listener.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bootstrap;
mod conformance;
mod crash;
mod lease;
mod world;
