//! What a loop, a person and a crash may rely on.

mod fixture;
mod raw;
mod round_trip;
mod strategies;
