//! The crate as its users see it: an inventory over a fake world, in virtual time.

mod service;
mod support;
