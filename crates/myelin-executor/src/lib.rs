//! The part that touches the world, behind ports: effects in, tagged outcomes out.
//!
//! Reading order: [`Provider`], [`Bootstrap`], [`ProviderError`].

mod port;

pub use crate::port::{
    Bootstrap, BootstrapSink, BootstrapUpdate, CreateRequest, FoundLease, FoundSession, NewLease,
    OutputLine, OutputStream, Presence, Provider, ProviderError, ProviderIdentity, StartRequest,
};
