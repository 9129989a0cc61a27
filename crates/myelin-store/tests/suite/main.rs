//! What a loop, a person and a crash may rely on.

mod crash;
mod damage;
mod fixture;
mod raw;
mod round_trip;
mod strategies;
mod tamper;
