//! Where and how agents are listened to.

use std::net::SocketAddr;

use myelin_api::JoinSecret;
use myelin_executor::Clock;
use myelin_membership::{Clock as MembershipClock, Options as ListenerOptions, Timing};
use myelin_store::Loaded;
use rustix::process::{Resource, getrlimit};

use crate::file::AgentSettings;

use super::Error;

/// Returns where to listen. Agents that run dial where they were told to, so that is where it stays while there are any.
pub(super) fn dialled(asked: Option<SocketAddr>, loaded: &Loaded) -> Result<SocketAddr, Error> {
    match (asked, loaded.settings.address) {
        (Some(asked), Some(stored)) if asked != stored && !loaded.state.nodes.is_empty() => {
            Err(Error::OtherAddress { asked, stored })
        }
        (Some(address), _) | (None, Some(address)) => Ok(address),
        (None, None) => Ok(SocketAddr::from(([127, 0, 0, 1], 0))),
    }
}

/// Returns how agents are listened to.
pub(super) fn listening(
    address: SocketAddr,
    secret: JoinSecret,
    agent: &AgentSettings,
    clock: &Clock,
) -> ListenerOptions {
    let mut listen = ListenerOptions::new(address, secret);
    listen.timing = Timing { heartbeat_every: agent.heartbeat, silent_after: agent.silent_after };
    // A connection that says nothing for longer than silence is of no use.
    let longest = agent.silent_after.saturating_mul(2);
    listen.read_deadline = listen.read_deadline.max(longest);
    let (max_connections, max_unjoined) = places(open_files());
    listen.max_connections = listen.max_connections.min(max_connections);
    listen.max_unjoined = listen.max_unjoined.min(max_unjoined);
    let clock = clock.clone();
    listen.clock = MembershipClock::new(move || clock.now());
    listen
}

/// Returns how many files this process may have open.
fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Returns how many agents may be connected, and how many of them without a join. The rest is for starting machines
/// and for answering people, whatever dials our port.
fn places(open_files: usize) -> (usize, usize) {
    (open_files - open_files / 4, open_files / 4)
}
