//! The `myelin` library as its users call it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod file;
