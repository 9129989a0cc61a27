//! A scripted provider and bootstrap in memory, for tests of whatever sits above them.
//!
//! A [`FakeWorld`] obeys every rule of [`Provider`] and [`Bootstrap`], answers at once and follows the runtime's time,
//! also while that is paused. What it does otherwise is said beforehand: [`script`](FakeWorld::script) for the next call
//! of a kind, [`always`](FakeWorld::always) for all of them, [`plant`](FakeWorld::plant) for a broken rule. It draws
//! nothing at random.
//!
//! Reading order: [`FakeWorld`], [`Step`], [`Flaw`].

mod bootstrap;
mod harness;
mod provider;
mod script;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{sync::mpsc, time::Instant};

use myelin_shape::{
    AttemptKey, BootstrapSessionId, NodeTemplate, ProviderKind, ProviderLeaseId, SwactorId,
};
use myelin_state::{BootstrapStage, LeaseFacts, NodeEvent, NodeObservation};

use crate::{Bootstrap, Clock, FoundLease, Provider, ProviderSetup};

pub use self::script::{CallKind, CallRecord, Flaw, Step};

/// An image that every fake refuses for good.
pub const REFUSED_IMAGE: &str = "refused";

/// A provider's whole world: leases, sessions, and what will go wrong. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct FakeWorld(Arc<World>);

struct World {
    kind: ProviderKind,
    clock: Clock,
    inner: Mutex<Inner>,
}

type Refuse = Box<dyn Fn(&NodeTemplate) -> Option<String> + Send>;

#[derive(Default)]
struct Inner {
    leases: BTreeMap<u64, Lease>,
    sessions: BTreeMap<u64, Session>,
    leases_of: BTreeMap<AttemptKey, BTreeSet<u64>>,
    sessions_of: BTreeMap<AttemptKey, BTreeSet<u64>>,
    /// The number given last, to leases and sessions alike.
    last_number: u64,
    most_leases_of_a_slot: usize,
    scripts: BTreeMap<CallKind, VecDeque<Step>>,
    always: BTreeMap<CallKind, Step>,
    flaws: BTreeSet<Flaw>,
    calls: Vec<CallRecord>,
    settle_window: Duration,
    endpoint_after: u32,
    connects_at_once: bool,
    refuse: Option<Refuse>,
    auto_join: Option<(mpsc::UnboundedSender<NodeObservation>, Duration)>,
}

struct Lease {
    key: AttemptKey,
    /// Whether a repeated create knows of it. Only a broken world has leases it does not.
    recorded: bool,
    digest: String,
    generation: Option<u64>,
    created_at: SystemTime,
    visible_from: Instant,
    n_lookups: u32,
}

/// A bootstrap session of a fake world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeSession {
    /// Which.
    pub session: BootstrapSessionId,
    /// Whose.
    pub key: AttemptKey,
    /// On which lease.
    pub lease: ProviderLeaseId,
    /// Whether it was neither concluded nor cancelled.
    pub open: bool,
    /// Whether its agent runs.
    pub agent_runs: bool,
}

struct Session {
    seen: FakeSession,
    stage: BootstrapStage,
    last_sequence: u64,
}

impl Default for FakeWorld {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeWorld {
    /// Returns an empty world of kind `fake`, with no settle window and endpoints that are known at the first look-up.
    pub fn new() -> Self {
        Self::of_kind("fake")
    }

    /// Returns an empty world of another kind, for tests with several providers.
    pub fn of_kind(kind: &str) -> Self {
        Self(Arc::new(World {
            kind: kind.into(),
            clock: Clock::runtime(),
            inner: Mutex::default(),
        }))
    }

    /// Returns the provider.
    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.clone())
    }

    /// Returns the bootstrap.
    pub fn bootstrap(&self) -> Arc<dyn Bootstrap> {
        Arc::new(self.clone())
    }

    /// Returns both, with default limits.
    pub fn setup(&self) -> ProviderSetup {
        ProviderSetup::new(self.provider(), self.bootstrap())
    }

    /// Says what the next call of a kind does that nothing was said of yet.
    pub fn script(&self, call: CallKind, step: Step) -> &Self {
        self.inner().scripts.entry(call).or_default().push_back(step);
        self
    }

    /// Says what every call of a kind does from now on, once its script is used up.
    pub fn always(&self, call: CallKind, step: Step) -> &Self {
        self.inner().always.insert(call, step);
        self
    }

    /// Breaks a rule from now on.
    pub fn plant(&self, flaw: Flaw) -> &Self {
        self.inner().flaws.insert(flaw);
        self
    }

    /// Hides each new lease from `find` and `list` for so long.
    pub fn set_settle_window(&self, window: Duration) -> &Self {
        self.inner().settle_window = window;
        self
    }

    /// Lets so many look-ups of each lease find no endpoint.
    pub fn set_endpoint_after(&self, n_lookups: u32) -> &Self {
        self.inner().endpoint_after = n_lookups;
        self
    }

    /// Lets creates and listings say how the machine is reached.
    pub fn connect_at_once(&self) -> &Self {
        self.inner().connects_at_once = true;
        self
    }

    /// Refuses templates for good, with the words the function returns.
    pub fn refuse(
        &self,
        refuse: impl Fn(&NodeTemplate) -> Option<String> + Send + 'static,
    ) -> &Self {
        self.inner().refuse = Some(Box::new(refuse));
        self
    }

    /// Lets the agent of every session join so long after its start; without a delay, before the start is answered.
    pub fn auto_join(
        &self,
        results: mpsc::UnboundedSender<NodeObservation>,
        delay: Duration,
    ) -> &Self {
        self.inner().auto_join = Some((results, delay));
        self
    }

    /// Returns the observation that the agent of an attempt has joined.
    pub fn join_event(key: &AttemptKey) -> NodeObservation {
        let swactor = SwactorId::from(format!("{}.{}", key.node, key.attempt));
        observation(key, NodeEvent::Joined { swactor })
    }

    /// Moves an attempt's open session to a stage. Returns the observation of that, unless there is no such session.
    pub fn bootstrap_event(
        &self,
        key: &AttemptKey,
        stage: BootstrapStage,
        message: Option<&str>,
    ) -> Option<NodeObservation> {
        let mut inner = self.inner();
        let number = inner.open_session(key)?.seen.session.0;
        let session = inner.sessions.get_mut(&number)?;
        session.stage = stage;
        session.last_sequence += 1;
        let event = NodeEvent::Bootstrap {
            session: session.seen.session,
            sequence: session.last_sequence,
            stage,
            message: message.map(Into::into),
        };
        Some(observation(key, event))
    }

    /// Takes a lease away behind everybody's back, as a provider that reclaims a machine does.
    pub fn lose_lease(&self, lease: &ProviderLeaseId) {
        self.inner().remove_lease(lease, true);
    }

    /// Returns every lease, oldest first, also those that are hidden yet.
    pub fn leases(&self) -> Vec<FoundLease> {
        let inner = self.inner();
        let leases = inner.leases.iter();
        leases.map(|(&number, lease)| self.found(&inner, number, lease)).collect()
    }

    /// Returns every session ever started whose lease still exists, oldest first.
    pub fn sessions(&self) -> Vec<FakeSession> {
        self.inner().sessions.values().map(|it| it.seen.clone()).collect()
    }

    /// Returns every call made so far, in order.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.inner().calls.clone()
    }

    /// Returns how many calls of a kind were made so far.
    pub fn n_calls(&self, kind: CallKind) -> usize {
        self.inner().calls.iter().filter(|call| call.kind == kind).count()
    }

    /// Returns the greatest number of leases that any one slot ever had at once.
    pub fn most_leases_of_a_slot(&self) -> usize {
        self.inner().most_leases_of_a_slot
    }

    /// Returns whether anything runs on a lease.
    pub fn runs_anything_on(&self, lease: &LeaseFacts) -> bool {
        let inner = self.inner();
        let mut sessions = inner.sessions.values();
        sessions.any(|it| it.seen.agent_runs && it.seen.lease == lease.lease_id)
    }

    /// Returns the clock the world follows, to give to whatever shares its time.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Returns the world's time.
    pub fn now(&self) -> SystemTime {
        self.0.clock.now()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A scripted panic happens outside the lock, but a refusal function may panic inside.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Removes a lease, and what runs on it unless told otherwise. Returns whether it was there.
    fn remove_lease(&mut self, lease: &ProviderLeaseId, with_agents: bool) -> bool {
        let Some((number, gone)) =
            number_of(lease).and_then(|number| self.leases.remove_entry(&number))
        else {
            return false;
        };
        forget(&mut self.leases_of, &gone.key, number);
        let started = self.sessions_of.get(&gone.key).cloned().unwrap_or_default();
        for session in started.into_iter().filter(|_| with_agents) {
            self.sessions.remove(&session);
            forget(&mut self.sessions_of, &gone.key, session);
        }
        true
    }
}

fn forget(index: &mut BTreeMap<AttemptKey, BTreeSet<u64>>, key: &AttemptKey, number: u64) {
    if let Some(numbers) = index.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}

fn lease_id(number: u64) -> ProviderLeaseId {
    ProviderLeaseId::from(format!("lease-{number}"))
}

fn number_of(lease: &ProviderLeaseId) -> Option<u64> {
    lease.as_str().strip_prefix("lease-")?.parse().ok()
}

fn observation(key: &AttemptKey, event: NodeEvent) -> NodeObservation {
    NodeObservation { node: key.node.clone(), attempt: key.attempt, event }
}

impl fmt::Debug for FakeWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        f.debug_struct("FakeWorld")
            .field("kind", &self.0.kind)
            .field("n_leases", &inner.leases.len())
            .field("n_sessions", &inner.sessions.len())
            .finish_non_exhaustive()
    }
}
