//! The task that owns the driver.

use std::{
    collections::BTreeMap,
    fmt, future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_driver::{ClusterDriver, Effects, Event};
use myelin_executor::{Clock, EffectExecutor, Snapshot};
use myelin_shape::{AttemptKey, ClusterUid, LogicalNodeId, ProviderKind, RunId};
use myelin_state::NodeObservation;
use myelin_store::{Source, Store, StoredEvent};
use tokio::{
    sync::{
        mpsc::{self, UnboundedReceiver},
        watch,
    },
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::file::AgentSettings;

use super::{
    Handle, Outputs, Pulse,
    core::{self, Core},
    handle::Request,
};

/// How many observations are folded before a pass is run: enough to coalesce a burst, too few to starve requests.
const MAX_FOLDED: usize = 4096;

/// How many requests may wait.
const MAX_REQUESTS: usize = 64;

/// Settings of a loop.
#[derive(Clone, Debug)]
pub struct Options {
    /// What leases and tokens are labelled with.
    pub cluster: ClusterUid,
    /// The run.
    pub run: RunId,
    /// The time.
    pub clock: Clock,
    /// How often every node is looked at, whether or not anything happened.
    pub tick_every: Duration,
    /// How many events are kept.
    pub n_events: usize,
    /// The providers groups may name.
    pub providers: Vec<ProviderKind>,
    /// How agents report, which was settled when the loop began.
    pub agent: AgentSettings,
}

impl Options {
    /// Returns options with a look at every node each 30 seconds, 10 000 events kept, and agents as they report by default.
    pub fn new(
        cluster: ClusterUid,
        run: RunId,
        clock: Clock,
        providers: Vec<ProviderKind>,
    ) -> Self {
        Self {
            cluster,
            run,
            clock,
            tick_every: Duration::from_secs(30),
            n_events: 10_000,
            providers,
            agent: AgentSettings::default(),
        }
    }
}

/// What knows the agents.
pub trait Roster: fmt::Debug + Send + Sync {
    /// Forgets an attempt that is over.
    fn retire(&self, key: &AttemptKey);

    /// Returns when an attempt's agent was last heard.
    fn last_contact(&self, key: &AttemptKey) -> Option<SystemTime>;

    /// Returns how many agents of attempts that are not over have no connection.
    fn n_unheard(&self) -> usize;

    /// Returns the nodes whose agents are known from before and neither heard nor silent yet, each with the time after
    /// which its agent is silent.
    fn awaited(&self) -> BTreeMap<LogicalNodeId, Option<SystemTime>>;

    /// Cuts all agents off, or ends that.
    fn suspend(&self, suspended: bool);
}

impl Roster for myelin_membership::Handle {
    fn retire(&self, key: &AttemptKey) {
        Self::retire(self, key);
    }

    fn last_contact(&self, key: &AttemptKey) -> Option<SystemTime> {
        Self::last_contact(self, key)
    }

    fn n_unheard(&self) -> usize {
        Self::n_unheard(self)
    }

    fn awaited(&self) -> BTreeMap<LogicalNodeId, Option<SystemTime>> {
        Self::awaited(self)
    }

    fn suspend(&self, suspended: bool) {
        Self::suspend(self, suspended);
    }
}

/// Sees every settled state of the driver: what a linter or a meter is told.
pub trait Witness: fmt::Debug + Send {
    /// Takes a look; `effects` is what has come of all that happened since the last one, and `now` the driver's time.
    fn settled(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime);
}

/// The parts a loop is put together from.
#[derive(Debug)]
pub struct Parts {
    /// What carries effects out.
    pub executor: Arc<dyn EffectExecutor>,
    /// How the executor is doing, for display.
    pub snapshot: SnapshotSource,
    /// Who knows the agents.
    pub roster: Arc<dyn Roster>,
    /// What bootstraps print.
    pub outputs: Outputs,
    /// What executor, agents and bootstraps learn.
    pub observations: UnboundedReceiver<NodeObservation>,
    /// What outlives this process.
    pub store: Arc<dyn Store>,
    /// Who looks on.
    pub witness: Option<Box<dyn Witness>>,
}

/// What was before this loop.
#[derive(Debug)]
pub struct Before {
    /// The driver that goes on from it.
    pub driver: ClusterDriver,
    /// The last events, oldest first.
    pub events: Vec<StoredEvent>,
    /// The highest revision that was ever acted on. New ones are above it.
    pub acted_generation: u64,
    /// The file that what is desired was read from.
    pub source: Source,
}

impl Default for Before {
    /// Nothing: a cluster that does not exist yet.
    fn default() -> Self {
        let driver = ClusterDriver::new(driver_options());
        Self { driver, events: Vec::new(), acted_generation: 0, source: Source::default() }
    }
}

/// Returns the settings of a driver: the ceiling is the file's, which is checked before a shape comes to it.
pub fn driver_options() -> myelin_driver::Options {
    myelin_driver::Options { max_nodes: u64::MAX }
}

/// Where the state of an executor is read for display.
#[derive(Clone)]
pub struct SnapshotSource(Arc<dyn Fn() -> Snapshot + Send + Sync>);

impl SnapshotSource {
    /// Wraps a function.
    pub fn new(snapshot: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        Self(Arc::new(snapshot))
    }

    pub(super) fn get(&self) -> Snapshot {
        (self.0)()
    }
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotSource")
    }
}

/// The loop, not yet running.
#[derive(Debug)]
pub struct Service {
    core: Core,
    clock: Clock,
    tick_every: Duration,
    observations: UnboundedReceiver<NodeObservation>,
    requests: mpsc::Receiver<Request>,
    pulse: watch::Sender<Pulse>,
}

impl Service {
    /// Puts a loop together.
    pub fn new(options: Options, parts: Parts, before: Before) -> (Self, Handle) {
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        let (pulse, pulses) = watch::channel(Pulse::default());
        let handle = Handle { requests: sender, pulse: pulses, outputs: parts.outputs.clone() };
        let service = Self {
            clock: options.clock.clone(),
            tick_every: options.tick_every,
            observations: parts.observations,
            core: Core::new(
                options,
                core::Ports {
                    executor: parts.executor,
                    snapshot: parts.snapshot,
                    roster: parts.roster,
                    outputs: parts.outputs,
                    store: parts.store,
                    witness: parts.witness,
                },
                before,
            ),
            requests,
            pulse,
        };
        (service, handle)
    }

    /// Runs until `shutdown`. What exists then stays as it is.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut tick = interval_at(Instant::now() + self.tick_every, self.tick_every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.core.settle().await;
            self.publish();
            let wake = self.wake();
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(observation) = self.observations.recv() => self.fold(observation),
                Some(request) = self.requests.recv() => self.answer(request).await,
                () = wake => self.core.fold(Event::Wake),
                _ = tick.tick() => self.core.fold(Event::Tick),
            }
        }
    }

    /// Answers questions about what was recorded last, as long as there is a handle. Nothing is run and nothing changes;
    /// what would change something is not answered.
    pub async fn show(mut self, as_of: SystemTime) {
        self.core.as_of = Some(as_of);
        while let Some(request) = self.requests.recv().await {
            self.core.show(request).await;
        }
    }

    /// Sleeps until the driver wants to be woken.
    fn wake(&self) -> impl Future<Output = ()> + use<> {
        let wake_at = self.core.wake_at().map(|time| {
            let left = time.duration_since(self.clock.now()).unwrap_or_default();
            // The periodic look comes before anything later, and far instants cannot be represented.
            Instant::now() + left.min(self.tick_every)
        });
        async move {
            match wake_at {
                Some(instant) => sleep_until(instant).await,
                None => future::pending().await,
            }
        }
    }

    /// Folds an observation and all that are ready beside it.
    fn fold(&mut self, observation: NodeObservation) {
        self.core.fold(Event::Observed(observation));
        for _ in 1..MAX_FOLDED {
            match self.observations.try_recv() {
                Ok(observation) => self.core.fold(Event::Observed(observation)),
                Err(_) => break,
            }
        }
    }

    /// Answers a request from settled state, and all that wait behind it.
    async fn answer(&mut self, request: Request) {
        self.core.answer(request).await;
        for _ in 1..MAX_REQUESTS {
            match self.requests.try_recv() {
                Ok(request) => self.core.answer(request).await,
                Err(_) => break,
            }
        }
    }

    fn publish(&self) {
        let pulse = self.core.pulse();
        self.pulse.send_if_modified(|before| {
            let changed = *before != pulse;
            *before = pulse;
            changed
        });
    }
}
