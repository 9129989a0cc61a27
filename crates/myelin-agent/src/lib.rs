//! The program on a node: joins with a one-time token and heartbeats.
//!
//! An [`Agent`] is told everything by one join file: whom to dial, as which attempt, with which token, and where to
//! keep its own key. It dials, joins, heartbeats as often as it is told, and dials again with a growing, jittered pause
//! whenever the connection is lost, about as often as it would heartbeat, always as the same agent. It ends when it is stopped, when it is refused for good,
//! or when its lease directory is gone. Each change is one line on standard output, which is the output of the bootstrap.
//!
//! Nothing waits without a deadline. The agent listens on nothing, and starts nothing yet.
//!
//! Reading order: [`Options`], [`Agent`], [`Exit`], [`run_from_join_file`].
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), myelin_agent::Error> {
//! use myelin_agent::{Agent, Options};
//! use tokio_util::sync::CancellationToken;
//!
//! let options = Options::from_join_file("/var/lib/node/join.json".as_ref())?;
//! let exit = Agent::new(options)?.run(CancellationToken::new()).await;
//! println!("{exit}");
//! # Ok(())
//! # }
//! ```

mod agent;
mod backoff;
mod connection;
mod error;
mod options;

pub use crate::agent::{Agent, Exit, run_from_join_file};
pub use crate::error::Error;
pub use crate::options::{Options, Pace};

#[cfg(test)]
mod tests;
