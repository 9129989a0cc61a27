//! Agents in virtual time: one for every session the scripted provider runs, heard through the real membership.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use myelin::runtime::Roster;
use myelin_api::{AgentKey, JoinSecret};
use myelin_executor::fake::FakeWorld;
use myelin_membership::{Membership, Timing};
use myelin_shape::{AttemptKey, LogicalNodeId};
use myelin_state::NodeObservation;
use tokio::{sync::mpsc::UnboundedSender, time::sleep};

/// How often the agents act.
const STEP: Duration = Duration::from_millis(500);

/// How much later each next agent dials again after an outage.
const PAUSE: Duration = Duration::from_millis(500);

type NeverJoins = Box<dyn Fn(&AttemptKey) -> bool + Send>;

/// All agents of a world. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Agents(Arc<Mutex<Inner>>);

struct Inner {
    fake: FakeWorld,
    secret: JoinSecret,
    membership: Membership,
    observations: UnboundedSender<NodeObservation>,
    agents: BTreeMap<AttemptKey, Agent>,
    severed: bool,
    never_joins: NeverJoins,
    n_minted: u8,
}

struct Agent {
    key: AgentKey,
    connection: Option<u64>,
    mood: Mood,
    /// It lost its connection and waits until then before it dials again.
    dials_at: SystemTime,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Running,
    Stopped,
    Dead,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Agents")
    }
}

impl Agents {
    pub(super) fn new(fake: FakeWorld, observations: UnboundedSender<NodeObservation>) -> Self {
        let secret = JoinSecret::new([4; 32]);
        Self(Arc::new(Mutex::new(Inner {
            membership: Membership::new(secret.clone(), Timing::default()),
            fake,
            secret,
            observations,
            agents: BTreeMap::new(),
            severed: false,
            never_joins: Box::new(|_| false),
            n_minted: 0,
        })))
    }

    /// Lets the agents live.
    pub(super) async fn run(self) {
        loop {
            self.inner().step();
            sleep(STEP).await;
        }
    }

    /// Keeps agents from joining.
    pub(super) fn never_join(&self, never: impl Fn(&AttemptKey) -> bool + Send + 'static) {
        self.inner().never_joins = Box::new(never);
    }

    pub(super) fn kill_if_there(&self, node: &str) {
        self.inner().set_mood_if_there(node, Mood::Dead);
    }

    pub(super) fn stop_if_there(&self, node: &str) {
        self.inner().set_mood_if_there(node, Mood::Stopped);
    }

    pub(super) fn go_on_if_there(&self, node: &str) {
        self.inner().set_mood_if_there(node, Mood::Running);
    }

    /// As `kill -9`: the connection ends at once, and nothing comes any more.
    pub(super) fn kill(&self, node: &str) {
        self.inner().set_mood(node, Mood::Dead);
    }

    /// As SIGSTOP: the connection stays, and nothing comes until SIGCONT.
    pub(super) fn stop(&self, node: &str) {
        self.inner().set_mood(node, Mood::Stopped);
    }

    /// As SIGCONT.
    pub(super) fn go_on(&self, node: &str) {
        self.inner().set_mood(node, Mood::Running);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Inner {
    fn set_mood(&mut self, node: &str, mood: Mood) {
        assert!(self.set_mood_if_there(node, mood), "the node has an agent");
    }

    /// Changes the agent of a node's latest attempt. One that is dead stays so.
    fn set_mood_if_there(&mut self, node: &str, mood: Mood) -> bool {
        let node = LogicalNodeId::from(node);
        let current = self.agents.iter_mut().rev().find(|(key, _)| key.node == node);
        let Some((key, agent)) = current.filter(|(_, agent)| agent.mood != Mood::Dead) else {
            return false;
        };
        agent.mood = mood;
        if mood == Mood::Dead
            && let Some(connection) = agent.connection.take()
        {
            self.membership.disconnect(key, connection);
        }
        self.tell();
        true
    }

    fn step(&mut self) {
        let now = self.fake.now();
        let sessions = self.fake.sessions();
        let running: BTreeSet<_> =
            sessions.into_iter().filter(|it| it.agent_runs).map(|it| it.key).collect();
        self.bury(&running);
        for key in running {
            let n_minted = &mut self.n_minted;
            self.agents.entry(key).or_insert_with(|| {
                *n_minted = n_minted.wrapping_add(1);
                Agent {
                    key: AgentKey::new([*n_minted; 16]),
                    connection: None,
                    mood: Mood::Running,
                    dials_at: now,
                }
            });
        }
        if !self.severed {
            self.speak(now);
        }
        self.membership.tick(now);
        self.tell();
    }

    /// Ends the agents whose machine is gone.
    fn bury(&mut self, running: &BTreeSet<AttemptKey>) {
        let gone: Vec<_> =
            self.agents.keys().filter(|key| !running.contains(*key)).cloned().collect();
        for key in gone {
            if let Some(connection) = self.agents.remove(&key).and_then(|agent| agent.connection) {
                self.membership.disconnect(&key, connection);
            }
        }
    }

    fn speak(&mut self, now: SystemTime) {
        for (key, agent) in &mut self.agents {
            if agent.mood != Mood::Running || (self.never_joins)(key) {
                continue;
            }
            if let Some(connection) = agent.connection {
                self.membership.contact(key, connection, now);
                continue;
            }
            if agent.dials_at > now {
                continue;
            }
            let token = self.secret.token(key);
            let joined = self.membership.join(key, &token, &agent.key, now);
            agent.connection = joined.ok().map(|joined| joined.connection);
        }
    }

    fn tell(&mut self) {
        for observation in self.membership.take_observations() {
            self.observations.send(observation).ok();
        }
    }
}

impl Roster for Agents {
    fn retire(&self, key: &AttemptKey) {
        self.inner().membership.retire(key);
    }

    fn last_contact(&self, key: &AttemptKey) -> Option<SystemTime> {
        self.inner().membership.last_contact(key)
    }

    fn n_unheard(&self) -> usize {
        self.inner().membership.n_unheard()
    }

    fn awaited(&self) -> BTreeMap<LogicalNodeId, Option<SystemTime>> {
        let inner = self.inner();
        inner.membership.awaited().map(|(key, until)| (key.node.clone(), until)).collect()
    }

    fn suspend(&self, suspended: bool) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.severed = suspended;
        let now = inner.fake.now();
        for ((key, agent), pauses) in inner.agents.iter_mut().zip(1..) {
            // As real agents, they dial again one after the other: up to five seconds later.
            agent.dials_at = now + PAUSE * pauses;
            if let Some(connection) = agent.connection.take_if(|_| suspended) {
                inner.membership.disconnect(key, connection);
            }
        }
        inner.tell();
    }
}
