//! The process provider: directories and processes on this host as leases.
//!
//! A lease is a directory below [`Options::root`], named by its attempt key. It appears and disappears whole, by renames.
//! Everything that runs on it carries the key in its environment, so that a look at `/proc` finds all of it even when
//! the process that started it is dead; one that cleaned its environment is found by the log it prints to, or by its
//! parents. A process is never known by its number alone, but by boot, number and start time. All of it survives a
//! crash of ours: a new provider on the same root finds leases and sessions and goes on. Logs are bounded while a
//! provider follows them.
//!
//! What a template may ask for: an `image` that is empty or a plain name is only a label, an absolute path is a
//! directory that is copied to `rootfs`. A mount is a link in the lease, never read-only. Sizes are not enforced. Leases see
//! a clean environment: [`Options::inherited_env`], then the template's. Relative sources of output are taken from the lease.
//! The join token is in `join.json`, readable by its owner only; the start command finds it by `MYELIN_JOIN_FILE`.
//!
//! It isolates nothing: processes on leases run as the same user as we do. Processes of other users that a lease starts
//! through setuid programs cannot be seen or ended unless we are root.
//!
//! Reading order: [`ProcessProvider`], [`Options`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use myelin_api::JoinSecret;
//! use myelin_executor::{BootstrapSink, BootstrapUpdate, Provider};
//! use myelin_provider_process::{JoinSource, Options, ProcessProvider};
//! use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid};
//!
//! #[derive(Debug)]
//! struct Print;
//!
//! impl BootstrapSink for Print {
//!     fn report(&self, key: &AttemptKey, _: BootstrapSessionId, update: BootstrapUpdate) {
//!         println!("{key}: {update:?}");
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let join = JoinSource {
//!     address: "127.0.0.1:7946".into(),
//!     secret: JoinSecret::new([1; 32]),
//! };
//! let options = Options::new(directory.path().join("leases"), vec!["myelin-agent".into()], join);
//! let provider = ProcessProvider::new(options, Arc::new(Print))?;
//! assert!(provider.list(ClusterUid([2; 16])).await?.is_empty());
//! # Ok(())
//! # }
//! ```

mod blocking;
mod bootstrap;
mod command;
mod end;
mod image;
mod options;
mod proc;
mod provider;
mod scan;
mod session;
mod store;
mod supervise;
mod tail;

pub use crate::options::{Error, JoinSource, Options};
pub use crate::provider::{KIND, Log, ProcessProvider, read_log};

#[cfg(test)]
mod tests;
