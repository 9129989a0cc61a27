//! What a loop, a person and a crash may rely on.

mod behind;
mod crash;
mod damage;
mod failures;
mod fixture;
mod history;
mod raw;
mod round_trip;
mod strategies;
mod tamper;
