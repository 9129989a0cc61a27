//! What a loop, a person and a crash may rely on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod behind;
mod crash;
mod damage;
mod failures;
mod fixture;
mod history;
mod raw;
mod restore;
mod round_trip;
mod strategies;
mod tamper;
