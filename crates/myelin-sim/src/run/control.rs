//! One control plane: from its start to its end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use myelin_check::Linter;
use myelin_decider::{Explanation, Trigger, Until};
use myelin_driver::{ClusterDriver, Desired, Event, Options as DriverOptions, Target};
use myelin_executor::{
    Clock, Executor, Options as ExecutorOptions, Provider, ProviderIdentity, ProviderSetup,
};
use myelin_inventory::{
    Fate, Finding, Handle, HoldReason, Inventory, Limits, Options as InventoryOptions, Records,
    Rules, Taking, Unasked, View, list_all, store_is_behind,
};
use myelin_membership::Membership;
use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind, RunNodeGroupSpec};
use myelin_state::{ManagedNode, NodeIntent, NodeObservation, OperatorRequest};
use myelin_store::{Identity, Loaded, MemoryStore, Secret, Setting, Store, StoredDesired};

use super::oracle;
use crate::{
    Config, Flaw, Scenario, flaw,
    shell::{Parts, Plane, SharedPlane, at_once, begun, key},
    store::SimStore,
    world::{CLUSTER, PROVIDER, RUN, Shared, SimProvider, secret},
};

pub(super) fn new_store(world: &Shared, flaw: Option<Flaw>) -> SimStore {
    let identity = Identity {
        cluster: CLUSTER,
        run: RUN,
        begun_at: world.lock().true_time(),
        secret: Secret(*secret().expose()),
    };
    let memory = Arc::new(MemoryStore::new(identity).losing_power());
    SimStore { memory, world: world.clone(), incarnation: 0, flaw }
}

/// A control plane that has checked what there is.
#[derive(Debug)]
pub(super) struct Started {
    plane: Plane,
    provider: SimProvider,
    sender: UnboundedSender<NodeObservation>,
    reports: UnboundedReceiver<NodeObservation>,
    identities: BTreeMap<ProviderKind, ProviderIdentity>,
    unasked: Unasked,
    sweep_interval: Duration,
}

/// Starts a control plane, as a person does or whatever looks after it. `None` comes if it refused to.
pub(super) fn start(
    scenario: &Scenario,
    world: &Shared,
    store: &SimStore,
) -> UnboundedReceiver<Option<Started>> {
    let (tell, told) = unbounded_channel();
    let (sender, reports) = unbounded_channel();
    let incarnation = world.lock().begin_incarnation(sender.clone());
    let provider = SimProvider { world: world.clone(), incarnation };
    let store = SimStore { incarnation, ..store.clone() };
    let (scenario, world) = (scenario.clone(), world.clone());
    tokio::spawn(async move {
        let started = begin(&scenario, world, store, provider, sender, reports).await;
        tell.send(started).ok();
    });
    told
}

async fn begin(
    scenario: &Scenario,
    world: Shared,
    store: SimStore,
    provider: SimProvider,
    sender: UnboundedSender<NodeObservation>,
    reports: UnboundedReceiver<NodeObservation>,
) -> Option<Started> {
    let mut loaded = store.load().await.expect("a store in memory can be read");
    flaw::load(scenario.flaw, &mut loaded.state);
    let (wall, start) = (world.lock().wall(), Instant::now());
    let clock = Clock::new(move || wall + start.elapsed()).not_before(loaded.now);
    if let Err(why) = check_listings(&world, &store, &provider, &loaded, &clock).await {
        world.lock().log(|| format!("it does not start: {why}"));
        return None;
    }
    let config = world.lock().config.clone();
    let mut setup = ProviderSetup::new(Arc::new(provider.clone()), Arc::new(provider.clone()));
    setup.limits = config.limits;
    let options = ExecutorOptions { cluster: CLUSTER, run: RUN, clock: clock.clone() };
    let executor = Executor::new(options, [setup], sender.clone());
    let mut membership = Membership::new(secret(), config.agent);
    if scenario.flaw != Some(Flaw::ForgetsAgents) {
        restore_agents(&mut membership, &loaded, &clock);
    }
    let identities = loaded.settings.providers.iter();
    let identities = identities.map(|(kind, id)| (kind.clone(), ProviderIdentity(id.clone())));
    let identities = identities.collect();
    let unasked = loaded.settings.unasked.clone();
    let acted_generation = loaded.acted_generation;
    let linter = Linter::restore(&loaded.state);
    let driver = driver_of(loaded, &clock);
    let flaw = scenario.flaw;
    let parts =
        Parts { driver, membership, clock, store, executor, world, acted_generation, flaw, linter };
    Some(Started {
        plane: Plane::new(parts),
        provider,
        sender,
        reports,
        identities,
        unasked,
        sweep_interval: config.sweep_interval,
    })
}

/// Checks what the provider lists before anything of the state is acted on, as `myelin up` does.
async fn check_listings(
    world: &Shared,
    store: &SimStore,
    provider: &SimProvider,
    loaded: &Loaded,
    clock: &Clock,
) -> Result<(), String> {
    let view = View::of(CLUSTER, RUN, &loaded.state, loaded.acted_generation);
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(provider.clone())];
    let (listings, failures) = list_all(&providers, CLUSTER, clock, Limits::default()).await;
    if let Some(failure) = failures.first() {
        return Err(failure.error.clone());
    }
    if let Some(behind) = store_is_behind(&listings, &view) {
        world.lock().break_rule("what is restarted is not behind", behind.to_string());
        return Err(behind.to_string());
    }
    let known = loaded.settings.providers.get(&ProviderKind::from(PROVIDER));
    let mut found = listings.iter().map(|it| &it.identity.0);
    let other = known.and_then(|known| found.find(|found| *found != known));
    let Some(other) = other.filter(|_| !loaded.state.nodes.is_empty()) else {
        return Ok(());
    };
    if world.lock().is_calm() {
        // A person looks, and says that this is the right one.
        let setting = Setting::Provider(PROVIDER.into(), other.clone());
        store.set(setting).await.map_err(|error| error.to_string())?;
    }
    Err(format!("{other} answers"))
}

fn driver_of(loaded: Loaded, clock: &Clock) -> ClusterDriver {
    // The ceiling is that of a cluster file, which is checked before.
    let options = DriverOptions { max_nodes: u64::MAX };
    match loaded.desired {
        Some(StoredDesired { shape, retry, .. }) => {
            let desired = Desired { shape, retry };
            ClusterDriver::resume(options, loaded.state, desired, clock.now())
                .expect("the shape was accepted before")
        }
        None => ClusterDriver::restore(options, loaded.state),
    }
}

/// Tells the membership which attempts there are, and whose agents are to be heard.
fn restore_agents(membership: &mut Membership, loaded: &Loaded, clock: &Clock) {
    let nodes = &loaded.state.nodes;
    let key = |id: &LogicalNodeId, node: &ManagedNode| key(id.clone(), node.attempt);
    let alive = nodes.iter().filter(|(_, node)| !node.is_destroyed());
    let next = NodeAttemptId(loaded.state.next_attempt_id);
    membership.restore(next, alive.map(|(id, node)| key(id, node)));
    for (id, node) in nodes {
        let expected = node.record.swactor.as_deref().filter(|_| node.intent == NodeIntent::Active);
        if let Some(facts) = expected {
            membership.expect(&key(id, node), &facts.swactor_id, clock.now());
        }
    }
}

/// A control plane that runs.
#[derive(Debug)]
pub(super) struct Control {
    incarnation: u64,
    world: Shared,
    plane: SharedPlane,
    reports: UnboundedReceiver<NodeObservation>,
    /// A report that was taken from the channel while waiting.
    early: Option<NodeObservation>,
    inventory: Handle,
    /// When every node is looked at next, whether or not anything happened.
    ticks_at: Option<Instant>,
    shutdown: CancellationToken,
    sweeping: AbortOnDropHandle<()>,
}

impl Control {
    pub(super) fn new(started: Started) -> Self {
        let Started { plane, provider, sender, reports, identities, unasked, sweep_interval } =
            started;
        let world = provider.world.clone();
        let incarnation = provider.incarnation;
        let Config { retry, agent, tick, .. } = world.lock().config.clone();
        let rules = Rules::of(&retry).hearing(agent.silent_after);
        let options = InventoryOptions {
            sweep_interval,
            rules,
            identities,
            unasked,
            ..InventoryOptions::new(CLUSTER, plane.shell.clock.clone())
        };
        let plane = SharedPlane::new(plane);
        let records = Arc::new(PlaneRecords { plane: plane.clone() });
        let providers = plane.lock().shell.executor.providers();
        let (inventory, handle) = Inventory::new(options, providers, records, sender);
        let shutdown = CancellationToken::new();
        let sweeping = AbortOnDropHandle::new(tokio::spawn(inventory.run(shutdown.clone())));
        world.lock().log(|| format!("control plane {incarnation} is up"));
        Self {
            incarnation,
            world,
            plane,
            reports,
            early: None,
            inventory: handle,
            ticks_at: next_tick(tick),
            shutdown,
            sweeping,
        }
    }

    pub(super) fn is(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
    }

    pub(super) fn fold(&mut self, event: Event) {
        self.plane.lock().fold(event);
    }

    pub(super) fn want(&mut self, groups: &[RunNodeGroupSpec]) -> bool {
        self.plane.lock().want(groups)
    }

    /// Takes a person's word. Returns whether that is durable.
    pub(super) fn hear(&mut self, word: &Event) -> bool {
        self.plane.lock().hear(word)
    }

    pub(super) fn listen(&mut self) {
        self.plane.lock().listen();
    }

    pub(super) fn next_report(&mut self) -> Option<NodeObservation> {
        self.early.take().or_else(|| self.reports.try_recv().ok())
    }

    pub(super) async fn wait_for_report(&mut self) {
        match self.reports.recv().await {
            Some(report) => self.early = Some(report),
            None => std::future::pending().await,
        }
    }

    /// Does what there is to do.
    pub(super) fn work(&mut self) {
        let mut plane = self.plane.lock();
        if self.ticks_at.is_some_and(|at| at <= Instant::now()) {
            self.ticks_at = next_tick(self.world.lock().config.tick);
            plane.fold(Event::Tick);
        }
        if plane.wake_at().is_some_and(|at| at <= plane.now()) {
            plane.fold(Event::Wake);
        }
        if plane.is_stirred() {
            plane.settle();
        }
    }

    pub(super) fn wakes_in(&self) -> Option<Duration> {
        let plane = self.plane.lock();
        let wake = plane.wake_at().map(|at| at.duration_since(plane.now()).unwrap_or_default());
        let tick = self.ticks_at.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = [wake, tick].into_iter().flatten().min()?;
        // The runtime's time has milliseconds.
        Some(wait.max(Duration::from_millis(1)))
    }

    pub(super) fn kill(self) {
        self.shutdown.cancel();
        // Its tasks end at the next chance they get; what they have asked for goes on.
        let executor = self.plane.lock().shell.executor.clone();
        let _ = begun(executor.shutdown(Duration::ZERO));
    }

    /// Does what waits for a person, and nothing else.
    pub(super) fn care(&mut self) {
        let (paused, waits) = {
            let plane = self.plane.lock();
            let driver = plane.driver();
            let waits = |id: &&LogicalNodeId| match driver.explain(id) {
                Explanation::Held(held) => {
                    matches!(held.until, Until::On(Trigger::Operator | Trigger::SpecChange))
                }
                Explanation::Unknown
                | Explanation::Steady
                | Explanation::Missing
                | Explanation::Next(_) => false,
            };
            let waits = driver.state().nodes.keys().filter(waits).cloned().collect::<Vec<_>>();
            (driver.state().paused, waits)
        };
        if paused {
            self.fold(Event::Resume);
        }
        for node in waits {
            self.fold(Event::Operator {
                target: Target::Node(node),
                request: OperatorRequest::Retry,
            });
        }
        self.care_for_inventory();
    }

    /// Believes the account that is there, and has strays taken that only a person may have taken.
    fn care_for_inventory(&self) {
        let census = self.inventory.census();
        let mut accounts = census.accounts.values().filter_map(|it| it.hold.as_ref());
        let accepts = accounts.any(|it| matches!(it.reason, HoldReason::OtherIdentity { .. }));
        let collects = census.entries.iter().any(|it| it.fate == Fate::Asks);
        let inventory = self.inventory.clone();
        tokio::spawn(async move {
            if accepts {
                inventory.accept_identity(PROVIDER.into()).await.ok();
            }
            if collects {
                inventory.collect(true).await.ok();
            }
        });
    }

    /// Returns in which way the world is not as it is wanted.
    pub(super) fn problem(&self, wanted: &[RunNodeGroupSpec]) -> Option<String> {
        if self.sweeping.is_finished() {
            return Some("nobody sweeps any more".to_owned());
        }
        oracle::problem(&self.plane.lock(), &self.world, wanted)
    }
}

fn next_tick(every: Duration) -> Option<Instant> {
    (every > Duration::ZERO).then(|| Instant::now() + every)
}

/// The records of a shell, for the inventory.
#[derive(Debug)]
struct PlaneRecords {
    plane: SharedPlane,
}

impl PlaneRecords {
    fn set(&self, setting: Setting) -> Result<(), String> {
        let store = self.plane.lock().shell.store.clone();
        at_once(store.set(setting)).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Records for PlaneRecords {
    async fn view(&self) -> Result<View, String> {
        Ok(self.plane.lock().view())
    }

    async fn record_taking(&self, taking: &Taking, unasked: &Unasked) -> Result<(), String> {
        self.set(Setting::Unasked(unasked.clone()))?;
        let (of, kind) = taking.announcement();
        let recorded = self.plane.lock().record(of, kind);
        if recorded { Ok(()) } else { Err("it is not durable".to_owned()) }
    }

    async fn record_identity(
        &self,
        provider: &ProviderKind,
        identity: &ProviderIdentity,
    ) -> Result<(), String> {
        self.set(Setting::Provider(provider.clone(), identity.0.clone()))
    }

    fn note(&self, finding: &Finding) {
        let mut plane = self.plane.lock();
        plane.shell.world.lock().log(|| format!("inventory: {finding}"));
        if let Some((of, kind)) = finding.event() {
            plane.note(of, kind);
        }
    }
}
