//! The crate as its users see it.

mod conformance;
mod executor;
mod limits;
mod support;
