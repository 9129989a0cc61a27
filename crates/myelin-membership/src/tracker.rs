//! Who has joined, and when each was last heard. No clock, no socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use myelin_api::{AgentKey, JoinSecret, JoinToken, RefusedReason};
use myelin_shape::{AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId, RunId, SwactorId};
use myelin_state::{NodeEvent, NodeObservation, after};

/// How often agents heartbeat, and when one that does not is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What agents are told.
    pub heartbeat_every: Duration,
    /// An agent not heard for longer than this is silent.
    pub silent_after: Duration,
}

impl Timing {
    /// Returns the timing for a heartbeat interval: silent after three missed ones, so that two may be lost.
    pub fn heartbeat_every(heartbeat_every: Duration) -> Self {
        Self { heartbeat_every, silent_after: heartbeat_every.saturating_mul(3) }
    }
}

impl Default for Timing {
    /// Heartbeats every two seconds: a death is noticed long before `lost_after` (45 s), at half a packet a second.
    fn default() -> Self {
        Self::heartbeat_every(Duration::from_secs(2))
    }
}

/// Why a join is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token is not the attempt's.
    #[error("the token is not this attempt's")]
    BadToken,
    /// Another agent has joined as this attempt.
    #[error("another agent has joined as this attempt")]
    OtherAgent,
    /// The attempt is over.
    #[error("the attempt is over")]
    AttemptGone,
}

impl From<Refusal> for RefusedReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadToken => Self::BadToken {},
            Refusal::OtherAgent => Self::OtherAgent {},
            Refusal::AttemptGone => Self::AttemptGone {},
        }
    }
}

/// An accepted join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The agent's public name; the same for every join of that agent.
    pub swactor: SwactorId,
    /// Which of the agent's connections this is. A later join replaces it, and what it says then counts no more.
    pub connection: u64,
}

/// An agent that has joined, or is expected to join again.
#[derive(Debug)]
struct Agent {
    swactor: SwactorId,
    last_contact: SystemTime,
    silent: bool,
    /// The connection in use, none while there is none.
    connection: Option<u64>,
}

/// The slot an attempt is of.
type Slot = (ClusterUid, RunId, LogicalNodeId);

fn slot(key: &AttemptKey) -> Slot {
    (key.cluster, key.run, key.node.clone())
}

/// The agents of the attempts that are not over.
#[derive(Debug)]
pub struct Membership {
    secret: JoinSecret,
    timing: Timing,
    agents: BTreeMap<AttemptKey, Agent>,
    /// When each agent that is not silent becomes so. One entry each; none for a time that cannot be represented.
    deadlines: BTreeSet<(SystemTime, AttemptKey)>,
    /// The newest attempt of each slot that is over. Attempts of a slot follow each other, so the older ones are too.
    retired: BTreeMap<Slot, NodeAttemptId>,
    /// Attempts below this one began before we did, and are over unless they were kept.
    first_new: NodeAttemptId,
    kept: BTreeSet<AttemptKey>,
    n_connections: u64,
    observations: Vec<NodeObservation>,
}

impl Membership {
    /// Returns a membership without agents.
    pub fn new(secret: JoinSecret, timing: Timing) -> Self {
        Self {
            secret,
            timing,
            agents: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            retired: BTreeMap::new(),
            first_new: NodeAttemptId(0),
            kept: BTreeSet::new(),
            n_connections: 0,
            observations: Vec::new(),
        }
    }

    /// Returns the timing.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Judges a join. The first agent to present an attempt's token is the attempt's; a repeat by the same agent has the
    /// same answer, since the reply to the first may have been lost.
    ///
    /// # Errors
    ///
    /// Why it is refused; nothing changes then.
    pub fn join(
        &mut self,
        key: &AttemptKey,
        token: &JoinToken,
        agent_key: &AgentKey,
        now: SystemTime,
    ) -> Result<Joined, Refusal> {
        if !self.secret.verify(key, token) {
            return Err(Refusal::BadToken);
        }
        if self.is_retired(key) {
            return Err(Refusal::AttemptGone);
        }
        let swactor = agent_key.swactor();
        let known = self.agents.get(key);
        if known.is_some_and(|agent| agent.swactor != swactor) {
            return Err(Refusal::OtherAgent);
        }
        let was_silent = known.is_some_and(|agent| agent.silent);
        self.n_connections += 1;
        let connection = self.n_connections;
        self.record(key, &swactor, now, Some(connection));
        self.observe(key, NodeEvent::Joined { swactor: swactor.clone() });
        if was_silent {
            self.observe(key, NodeEvent::Contact { swactor: swactor.clone() });
        }
        Ok(Joined { swactor, connection })
    }

    /// Takes over from an earlier control plane: of the attempts below `next`, all are over but those listed.
    pub fn restore(&mut self, next: NodeAttemptId, alive: impl IntoIterator<Item = AttemptKey>) {
        self.first_new = next;
        self.kept.extend(alive);
    }

    /// Records an agent known from before a restart as not yet heard: its silence counts from `now`, our own start.
    ///
    /// Changes nothing where an agent is known already, or the attempt is over.
    pub fn expect(&mut self, key: &AttemptKey, swactor: &SwactorId, now: SystemTime) {
        if !self.agents.contains_key(key) && !self.is_retired(key) {
            self.record(key, swactor, now, None);
        }
    }

    /// Forgets an attempt that is over. Its agent, and those of the slot's earlier attempts, are refused from now on.
    /// Returns the attempts that had an agent.
    pub fn retire(&mut self, key: &AttemptKey) -> Vec<AttemptKey> {
        let newest = self.retired.entry(slot(key)).or_insert(key.attempt);
        *newest = key.attempt.max(*newest);
        self.kept.remove(key);
        let first = AttemptKey { attempt: NodeAttemptId(0), ..key.clone() };
        let over = self.agents.range(first..=key.clone());
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        for key in &over {
            self.clear_deadline(key);
            self.agents.remove(key);
        }
        over
    }

    /// Records that the agent was heard over a connection. Returns whether that connection is still the agent's.
    pub fn contact(&mut self, key: &AttemptKey, connection: u64, now: SystemTime) -> bool {
        let Some(agent) = self.current(key, connection) else {
            return false;
        };
        let (swactor, was_silent) = (agent.swactor.clone(), agent.silent);
        self.record(key, &swactor, now, Some(connection));
        if was_silent {
            self.observe(key, NodeEvent::Contact { swactor });
        }
        true
    }

    /// Records that a connection ended: its agent is silent at once, since its last contact.
    ///
    /// Changes nothing when the agent has another connection by now.
    pub fn disconnect(&mut self, key: &AttemptKey, connection: u64) {
        if self.current(key, connection).is_some() {
            self.silence(key);
        }
        if let Some(agent) = self.current(key, connection) {
            agent.connection = None;
        }
    }

    /// Reports the agents that were not heard for longer than `silent_after`.
    pub fn tick(&mut self, now: SystemTime) {
        while let Some((deadline, key)) = self.deadlines.first().cloned()
            && deadline < now
        {
            self.deadlines.pop_first();
            self.silence(&key);
        }
    }

    /// Returns the time after which [`tick`](Self::tick) has something to report.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Returns when the attempt's agent was last heard.
    pub fn last_contact(&self, key: &AttemptKey) -> Option<SystemTime> {
        self.agents.get(key).map(|agent| agent.last_contact)
    }

    /// Returns how many agents of attempts that are not over have no connection.
    pub fn n_unheard(&self) -> usize {
        self.agents.values().filter(|agent| agent.connection.is_none()).count()
    }

    /// Returns the agents that are expected and neither heard nor silent yet, each with the time after which it is silent.
    pub fn awaited(&self) -> impl Iterator<Item = (&AttemptKey, Option<SystemTime>)> {
        let awaited = self.agents.iter().filter(|(_, it)| it.connection.is_none() && !it.silent);
        awaited.map(|(key, agent)| (key, after(agent.last_contact, self.timing.silent_after)))
    }

    /// Takes what was learned since the last call, in order.
    pub fn take_observations(&mut self) -> impl Iterator<Item = NodeObservation> + use<> {
        std::mem::take(&mut self.observations).into_iter()
    }

    fn is_retired(&self, key: &AttemptKey) -> bool {
        let of_before = key.attempt < self.first_new && !self.kept.contains(key);
        of_before || self.retired.get(&slot(key)).is_some_and(|newest| key.attempt <= *newest)
    }

    fn current(&mut self, key: &AttemptKey, connection: u64) -> Option<&mut Agent> {
        self.agents.get_mut(key).filter(|agent| agent.connection == Some(connection))
    }

    /// Stores an agent heard at `now`. Time that goes backwards is taken for time that stood still.
    fn record(
        &mut self,
        key: &AttemptKey,
        swactor: &SwactorId,
        now: SystemTime,
        connection: Option<u64>,
    ) {
        self.clear_deadline(key);
        let before = self.last_contact(key);
        let agent = Agent {
            swactor: swactor.clone(),
            last_contact: before.map_or(now, |before| before.max(now)),
            silent: false,
            connection,
        };
        if let Some(deadline) = after(agent.last_contact, self.timing.silent_after) {
            self.deadlines.insert((deadline, key.clone()));
        }
        self.agents.insert(key.clone(), agent);
    }

    fn clear_deadline(&mut self, key: &AttemptKey) {
        let last_contact = self.last_contact(key);
        if let Some(deadline) = last_contact.and_then(|last| after(last, self.timing.silent_after))
        {
            self.deadlines.remove(&(deadline, key.clone()));
        }
    }

    fn silence(&mut self, key: &AttemptKey) {
        self.clear_deadline(key);
        let Some(agent) = self.agents.get_mut(key).filter(|agent| !agent.silent) else {
            return;
        };
        agent.silent = true;
        let event =
            NodeEvent::Silent { swactor: agent.swactor.clone(), last_contact: agent.last_contact };
        self.observe(key, event);
    }

    fn observe(&mut self, key: &AttemptKey, event: NodeEvent) {
        self.observations.push(NodeObservation {
            node: key.node.clone(),
            attempt: key.attempt,
            event,
        });
    }
}
