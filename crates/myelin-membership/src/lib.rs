//! The listener agents dial: who has joined, and when each was last heard.
//!
//! [`Membership`] is the bookkeeping: synchronous, told the time, and the only place where a join is judged. The
//! [`Listener`] is the shell around it: loopback TCP with a limit and a deadline on everything a peer can do. What it
//! learns leaves as [`NodeObservation`](myelin_state::NodeObservation)s over a channel.
//!
//! It destroys nothing and decides nothing about nodes: that silence ends an attempt is the driver's business. It keeps
//! nothing on disk: after a restart, [`Handle::expect`] tells it whom to wait for.
//!
//! Reading order: [`Membership`], [`Listener`], [`Handle`], [`Options`].
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use myelin_api::{AgentKey, JoinSecret};
//! use myelin_membership::{Membership, Timing};
//! use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};
//!
//! let secret = JoinSecret::new([1; 32]);
//! let key = AttemptKey {
//!     cluster: ClusterUid([2; 16]),
//!     run: RunId(1),
//!     node: "worker-0".into(),
//!     attempt: NodeAttemptId(1),
//! };
//! let mut membership = Membership::new(secret.clone(), Timing::default());
//! let now = SystemTime::UNIX_EPOCH;
//! let agent = AgentKey::new([3; 16]);
//! membership.join(&key, &secret.token(&key), &agent, now)?;
//! membership.tick(now + Duration::from_secs(60));
//! let told: Vec<_> = membership.take_observations().collect();
//! assert_eq!(told.len(), 2, "it joined, and is silent since");
//! # Ok::<(), myelin_membership::Refusal>(())
//! ```

mod connection;
mod listener;
mod tracker;

pub use crate::listener::{Clock, Counters, Handle, Listener, ListenerError, Options};
pub use crate::tracker::{Joined, Membership, Refusal, Timing};

#[cfg(test)]
mod tests;
