//! Checks and long runs of this repository.

fn main() {}
