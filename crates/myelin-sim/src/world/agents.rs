//! Agents: they dial, join, say that they are there, and stop saying so.

use std::time::{Duration, SystemTime};

use myelin_api::{AgentKey, JoinSecret};
use myelin_membership::Membership;
use myelin_shape::{AttemptKey, LogicalNodeId};

use super::World;

/// What every join token derives from.
pub(crate) fn secret() -> JoinSecret {
    JoinSecret::new([7; 32])
}

/// A program that runs on a machine.
#[derive(Debug)]
pub(super) struct Agent {
    key: AgentKey,
    dials_at: Duration,
    stopped_until: Duration,
    speaks_at: Duration,
    connection: Option<(u64, u64)>,
    /// Whether it presents a token that was not given to it.
    is_twin: bool,
}

impl Agent {
    pub(super) fn is_genuine(&self) -> bool {
        !self.is_twin
    }
}

impl World {
    pub(super) fn add_agent(
        &mut self,
        key: &AttemptKey,
        session: u64,
        dials_in: Duration,
        is_twin: bool,
    ) {
        let number = self.next_number();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        let agent = Agent {
            key: AgentKey::new(bytes),
            dials_at: self.now() + dials_in,
            stopped_until: Duration::ZERO,
            speaks_at: Duration::ZERO,
            connection: None,
            is_twin,
        };
        // A twin has a place of its own beside the agent of its session.
        let place = if is_twin { number } else { session };
        self.agents.insert((key.clone(), place), agent);
    }

    /// Starts another program with the token of a slot's attempt.
    pub(crate) fn add_twin(&mut self, node: &LogicalNodeId) {
        let known = self.agents.keys().rev().find(|(key, _)| key.node == *node).cloned();
        if let Some((key, session)) = known {
            self.add_agent(&key, session, Duration::ZERO, true);
        }
    }

    /// Ends what a session has started.
    pub(super) fn end_agent(&mut self, key: &AttemptKey, session: u64) {
        self.agents.remove(&(key.clone(), session));
        let machine_is_there = self.machines().any(|(it, _)| it == key);
        if !machine_is_there {
            self.agents.retain(|(it, _), _| it != key);
        }
    }

    /// Ends the agents of an attempt; their connections end with them.
    pub(crate) fn end_agents_of(&mut self, attempt: &AttemptKey) {
        self.end_agents_if(|key| key == attempt);
    }

    /// Ends the agents of a slot; their connections end with them.
    pub(crate) fn end_agents(&mut self, node: &LogicalNodeId) {
        self.end_agents_if(|key| key.node == *node);
    }

    fn end_agents_if(&mut self, ends: impl Fn(&AttemptKey) -> bool) {
        let closed = &mut self.closed;
        self.agents.retain(|(key, _), agent| {
            let ends = ends(key);
            if ends && let Some((of, connection)) = agent.connection {
                closed.push((key.clone(), of, connection));
            }
            !ends
        });
    }

    pub(crate) fn stop_agents(&mut self, node: &LogicalNodeId, lasts: Duration) {
        let until = self.now() + lasts;
        for (_, agent) in self.agents.iter_mut().filter(|((key, _), _)| key.node == *node) {
            agent.stopped_until = until;
        }
    }

    pub(crate) fn sever(&mut self, lasts: Duration) {
        self.troubles.severed = Some(self.now() + lasts);
    }

    pub(super) fn wake_agents(&mut self) {
        for agent in self.agents.values_mut() {
            agent.stopped_until = Duration::ZERO;
        }
    }

    /// Lets every agent say what it has to say.
    pub(crate) fn speak(
        &mut self,
        membership: &mut Membership,
        incarnation: u64,
        secret: &JoinSecret,
        time: SystemTime,
    ) {
        let now = self.now();
        for (key, of, connection) in std::mem::take(&mut self.closed) {
            if of == incarnation {
                membership.disconnect(&key, connection);
            }
        }
        let severed = self.troubles.severed.is_some_and(|until| until > now);
        for ((key, _), agent) in &mut self.agents {
            // A connection to a control plane that is gone has ended.
            if agent.connection.is_some_and(|(of, _)| of != incarnation) {
                agent.connection = None;
                agent.dials_at = now + REDIAL;
            }
            if severed {
                if let Some((_, connection)) = agent.connection.take() {
                    membership.disconnect(key, connection);
                }
                agent.dials_at = now + REDIAL;
            }
            if severed || agent.stopped_until > now || agent.dials_at > now {
                continue;
            }
            if let Some((_, connection)) = agent.connection {
                if agent.speaks_at <= now {
                    agent.speaks_at = now + self.config.agent.heartbeat_every;
                    membership.contact(key, connection, time);
                }
            } else {
                let joined = membership.join(key, &secret.token(key), &agent.key, time);
                agent.dials_at = now + REDIAL;
                agent.connection = joined.ok().map(|joined| (incarnation, joined.connection));
            }
        }
    }
}

/// How long an agent waits until it dials again.
const REDIAL: Duration = Duration::from_secs(2);
