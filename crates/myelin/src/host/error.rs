//! Why a loop cannot start.

use std::{io, net::SocketAddr, path::PathBuf};

use myelin_driver::DesiredError;
use myelin_inventory::Behind;
use myelin_membership::ListenerError;
use myelin_shape::{ProviderKind, RunId};
use myelin_store::StoreError;

use crate::state_dir;

/// Why the loop cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] state_dir::Error),
    /// The listener cannot be had.
    #[error("{}", with_source(.0))]
    Listener(#[from] ListenerError),
    /// The process provider cannot be used.
    #[error("{}", with_source(.0))]
    Provider(#[from] myelin_provider_process::Error),
    /// The control socket cannot be had.
    #[error("cannot listen at {}: {source}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What is durable cannot be read or written, or must not be acted on.
    #[error("{}", with_source(.0))]
    Store(#[from] StoreError),
    /// The directory holds another run.
    #[error("the directory holds run {found}, not run {expected}")]
    OtherRun {
        /// Which.
        found: RunId,
        /// Which was meant.
        expected: RunId,
    },
    /// Machines are there, and no state.
    #[error("{} holds {n_machines} machines, but the state that knew of them is gone", path.display())]
    Lost {
        /// Where.
        path: PathBuf,
        /// How many.
        n_machines: usize,
    },
    /// A machine is there that the state knows nothing of.
    #[error("{0}")]
    Behind(Box<Behind>),
    /// Another account, daemon or host answers than the machines were leased from.
    #[error("{provider} is another one: it was {known:?}, and is {found:?}")]
    OtherIdentity {
        /// Which.
        provider: ProviderKind,
        /// Who answered before.
        known: String,
        /// Who answers now.
        found: String,
    },
    /// Agents dial somewhere else.
    #[error("agents of this run dial {stored}, which cannot become {asked} while there are nodes")]
    OtherAddress {
        /// Where it was asked to listen.
        asked: SocketAddr,
        /// Where agents dial.
        stored: SocketAddr,
    },
    /// A provider does not say what there is.
    #[error("{provider} cannot list its machines: {error}")]
    Listing {
        /// Which.
        provider: ProviderKind,
        /// Why not, in its words.
        error: String,
    },
    /// What is stored as desired is not valid.
    #[error("what was stored as desired is not valid: {}", with_source(.0))]
    Desired(#[from] DesiredError),
    /// Our own program cannot be found, which nodes need to run its agent.
    #[error("cannot find our own program: {0}")]
    Program(io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

pub(super) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
