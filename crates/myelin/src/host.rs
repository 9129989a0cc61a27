//! The loop on this machine: with real providers, the listener agents dial, the inventory sweep, and the control socket.
//!
//! Reading order: [`Opened`], [`Host`], `inventory`; and without a loop [`Shown`], [`Idle`].

mod census;
mod inventory;
mod lost;
mod shown;

use std::{
    env, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_api::JoinSecret;
use myelin_driver::{ClusterDriver, Desired, DesiredError};
use myelin_executor::{
    Bootstrap, Clock, Executor, FoundLease, Options as ExecutorOptions, Provider, ProviderError,
    ProviderSetup,
};
use myelin_inventory::{Behind, Inventory, View};
use myelin_membership::{
    Handle as Membership, Listener, ListenerError, Options as ListenerOptions, Timing,
};
use myelin_provider_process::{JoinSource, Options as ProcessOptions, ProcessProvider};
use myelin_shape::{AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId, ProviderKind, RunId};
use myelin_state::{ClusterState, ManagedNode, NodeIntent, RetryPolicy};
use myelin_store::{
    Accepted, EventQuery, Identity, Loaded, Options as StoreOptions, Secret, Setting, SqliteStore,
    Store, StoreError, StoredDesired, StoredEvent,
};
use rustix::process::{Resource, getrlimit};
use tokio::{sync::mpsc::unbounded_channel, task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(debug_assertions)]
use crate::crash;
use crate::{
    control,
    file::AgentSettings,
    runtime::{self, Before, Handle, Oracle, Outputs, Parts, Service, SnapshotSource, Witness},
    state_dir::{self, RunFile, SocketPlace, StateDir},
};

pub use self::{
    census::Idle,
    lost::lost,
    shown::{Shown, doubtful},
};

/// How long calls that are stopped may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How many of the last events are at hand.
const N_EVENTS: usize = 10_000;

/// Why the loop cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] state_dir::Error),
    /// The listener cannot be had.
    #[error("{}", with_source(.0))]
    Listener(#[from] ListenerError),
    /// The process provider cannot be used.
    #[error("{}", with_source(.0))]
    Provider(#[from] myelin_provider_process::Error),
    /// The control socket cannot be had.
    #[error("cannot listen at {}: {source}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What is durable cannot be read or written, or must not be acted on.
    #[error("{}", with_source(.0))]
    Store(#[from] StoreError),
    /// The directory holds another run.
    #[error("the directory holds run {found}, not run {expected}")]
    OtherRun {
        /// Which.
        found: RunId,
        /// Which was meant.
        expected: RunId,
    },
    /// Machines are there, and no state.
    #[error("{} holds {n_machines} machines, but the state that knew of them is gone", path.display())]
    Lost {
        /// Where.
        path: PathBuf,
        /// How many.
        n_machines: usize,
    },
    /// A machine is there that the state knows nothing of.
    #[error("{0}")]
    Behind(Box<Behind>),
    /// Another account, daemon or host answers than the machines were leased from.
    #[error("{provider} is another one: it was {known:?}, and is {found:?}")]
    OtherIdentity {
        /// Which.
        provider: ProviderKind,
        /// Who answered before.
        known: String,
        /// Who answers now.
        found: String,
    },
    /// Agents dial somewhere else.
    #[error("agents of this run dial {stored}, which cannot become {asked} while there are nodes")]
    OtherAddress {
        /// Where it was asked to listen.
        asked: SocketAddr,
        /// Where agents dial.
        stored: SocketAddr,
    },
    /// A provider does not say what there is.
    #[error("{provider} cannot list its machines: {error}")]
    Listing {
        /// Which.
        provider: ProviderKind,
        /// Why not, in its words.
        error: String,
    },
    /// What is stored as desired is not valid.
    #[error("what was stored as desired is not valid: {}", with_source(.0))]
    Desired(#[from] DesiredError),
    /// Our own program cannot be found, which nodes need to run its agent.
    #[error("cannot find our own program: {0}")]
    Program(io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Settings of a host.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where agents dial: a loopback address; port 0 takes any free one. By default where they dialled before.
    pub listen: Option<SocketAddr>,
    /// How agents report.
    pub agent: AgentSettings,
    /// How failures are going to be retried.
    pub retry: RetryPolicy,
}

/// A loop that runs, with everything around it.
#[derive(Debug)]
pub struct Host {
    /// The way to ask it.
    pub handle: Handle,
    /// The way to ask what there is.
    pub inventory: myelin_inventory::Handle,
    /// The cluster's uid.
    pub cluster: ClusterUid,
    /// The last event of before it was taken up; 0 if there is none.
    pub last_event: u64,
    providers: Vec<Arc<dyn Provider>>,
    state: StateDir,
    executor: Executor,
    /// Ends the loop itself, which ends first.
    leave: CancellationToken,
    service: JoinHandle<()>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    _socket: SocketPlace,
}

/// Returns the kinds of provider that are built in.
pub fn kinds() -> Vec<ProviderKind> {
    vec![myelin_provider_process::KIND.into()]
}

/// Opens the providers of a state directory for looking and cleaning up only: nothing they would start could join.
///
/// # Errors
///
/// One of them cannot be used.
pub fn providers_for_cleanup(state: &StateDir) -> Result<Vec<Arc<dyn Provider>>, Error> {
    let (observations, _) = unbounded_channel();
    let outputs = Outputs::new(Clock::runtime(), observations);
    let join = JoinSource { address: "127.0.0.1:9".to_owned(), secret: JoinSecret::new(random()?) };
    let options = ProcessOptions::new(state.leases(), agent_command()?, join);
    Ok(vec![provider(Arc::new(ProcessProvider::new(options, Arc::new(outputs))?))])
}

/// Lists every lease of a cluster.
///
/// # Errors
///
/// A provider cannot list them; then it is not known what is left.
pub async fn list_leases(
    providers: &[Arc<dyn Provider>],
    cluster: ClusterUid,
) -> Result<Vec<FoundLease>, ProviderError> {
    let mut leases = Vec::new();
    for provider in providers {
        leases.extend(provider.list(cluster).await?);
    }
    Ok(leases)
}

/// The agent that nodes run is this very program.
fn agent_command() -> Result<Vec<std::ffi::OsString>, Error> {
    let program = env::current_exe().map_err(Error::Program)?;
    Ok(vec![program.into(), "agent".into()])
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

/// A build for development does not go on once a rule of the loop is broken. Others do not spend the time.
fn witness(state: &ClusterState) -> Box<dyn Witness> {
    Box::new(Oracle::fatal().resumed(state))
}

fn store_options() -> StoreOptions {
    StoreOptions {
        #[cfg(debug_assertions)]
        after_commit: crash::after_write(),
        ..StoreOptions::default()
    }
}

/// Returns a provider as the loop uses it.
fn provider(process: Arc<ProcessProvider>) -> Arc<dyn Provider> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Provider>(process));
    #[cfg(not(debug_assertions))]
    return process;
}

/// Returns a store as the loop uses it.
fn recorder(store: Arc<SqliteStore>) -> Arc<dyn Store> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Store>(store));
    #[cfg(not(debug_assertions))]
    return store;
}

/// Returns a bootstrap as the loop uses it.
fn bootstrap(process: Arc<ProcessProvider>) -> Arc<dyn Bootstrap> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Bootstrap>(process));
    #[cfg(not(debug_assertions))]
    return process;
}

/// Returns where to listen. Agents that run dial where they were told to, so that is where it stays while there are any.
fn dialled(asked: Option<SocketAddr>, loaded: &Loaded) -> Result<SocketAddr, Error> {
    match (asked, loaded.settings.address) {
        (Some(asked), Some(stored)) if asked != stored && !loaded.state.nodes.is_empty() => {
            Err(Error::OtherAddress { asked, stored })
        }
        (Some(address), _) | (None, Some(address)) => Ok(address),
        (None, None) => Ok(SocketAddr::from(([127, 0, 0, 1], 0))),
    }
}

/// Returns how agents are listened to.
fn listening(
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
    listen.clock = myelin_membership::Clock::new(move || clock.now());
    listen
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes)
}

/// The durable state of a run, open for writing and read.
#[derive(Debug)]
pub struct Opened {
    store: Arc<SqliteStore>,
    loaded: Loaded,
}

impl Opened {
    /// Opens the state of a run. The caller holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// There is none, or nothing may be acted on with what is there. Nothing was changed.
    pub async fn open(state: &StateDir) -> Result<Self, Error> {
        let store = SqliteStore::open(state.path(), store_options()).await?;
        let loaded = store.load().await?;
        Ok(Self { store: Arc::new(store), loaded })
    }

    /// Reads the state of a run, which another process may be writing.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub async fn look(state: &StateDir) -> Result<Self, Error> {
        let store = SqliteStore::open_read_only(state.path(), store_options()).await?;
        let loaded = store.load().await?;
        Ok(Self { store: Arc::new(store), loaded })
    }

    /// As [`open`](Self::open), for a run that may not have been begun: then its identity is made, and is durable before
    /// anything could carry it.
    ///
    /// # Errors
    ///
    /// As for `open`; or the directory is of another run.
    pub async fn open_or_begin(state: &StateDir, run: RunId) -> Result<Self, Error> {
        let opened = match Self::open(state).await {
            Err(Error::Store(StoreError::NotFound(_))) => {
                let n_machines = lost(state).values().sum();
                if n_machines > 0 {
                    return Err(Error::Lost { path: state.leases(), n_machines });
                }
                let identity = Identity {
                    cluster: ClusterUid(random()?),
                    run,
                    begun_at: Clock::runtime().now(),
                    secret: Secret(random()?),
                };
                let store = SqliteStore::create(state.path(), &identity, store_options()).await?;
                let loaded = store.load().await?;
                Self { store: Arc::new(store), loaded }
            }
            other => other?,
        };
        let found = opened.loaded.identity.run;
        if found == run { Ok(opened) } else { Err(Error::OtherRun { found, expected: run }) }
    }

    /// Returns whose state it is.
    pub fn identity(&self) -> &Identity {
        &self.loaded.identity
    }

    /// Makes a copy of it, also while a loop writes it.
    ///
    /// # Errors
    ///
    /// The file exists already, or cannot be written.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        Ok(self.store.backup(path).await?)
    }

    /// Puts a backup in the place of the state of a run, or where none is. The caller holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// The backup cannot be used, or is of another cluster. The state is as before then.
    pub async fn restore(state: &StateDir, backup: &Path) -> Result<(), Error> {
        let was_restored = state.is_restored();
        // Noted first: a state of which nobody knows that it was restored would be believed.
        state.mark_restored()?;
        let restored = SqliteStore::restore(state.path(), backup, &store_options()).await;
        if restored.is_err() && !was_restored {
            state.confirm_restored()?;
        }
        Ok(restored?)
    }

    /// Takes the state as it is although something that was acted on is missing. Only a person may say so. The caller
    /// holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// It is damaged or cannot be written. It is as before then.
    pub async fn accept(state: &StateDir) -> Result<Accepted, Error> {
        state.mark_restored()?;
        Ok(SqliteStore::accept_behind(state.path(), &store_options()).await?)
    }

    /// Returns whether nothing is there and nothing is wanted.
    pub fn is_over(&self) -> bool {
        let desired = self.loaded.desired.as_ref();
        self.n_nodes() == 0 && desired.is_none_or(|desired| desired.shape.groups.is_empty())
    }

    /// Returns how many leases are recorded.
    pub fn n_leases(&self) -> usize {
        self.loaded.state.nodes.values().filter(|node| node.record.lease.is_some()).count()
    }

    /// Returns how many slots are managed.
    pub fn n_nodes(&self) -> usize {
        self.loaded.state.nodes.len()
    }
}

/// Returns the driver that goes on from what was loaded, and the last events.
async fn before(store: &dyn Store, loaded: Loaded, now: SystemTime) -> Result<Before, Error> {
    let Loaded { state, desired, acted_generation, .. } = loaded;
    let options = runtime::driver_options();
    let driver = match desired {
        Some(StoredDesired { shape, retry, .. }) => {
            ClusterDriver::resume(options, state, Desired { shape, retry }, now)?
        }
        None => ClusterDriver::restore(options, state),
    };
    Ok(Before { driver, events: last_events(store).await?, acted_generation })
}

async fn last_events(store: &dyn Store) -> Result<Vec<StoredEvent>, StoreError> {
    let limit = u32::try_from(N_EVENTS).unwrap_or(u32::MAX);
    store.events(EventQuery { limit, ..EventQuery::default() }).await
}

/// Tells the membership which attempts there are, and whose agents are to be heard.
fn restore_agents(membership: &Membership, identity: &Identity, state: &ClusterState) {
    let key = |id: &LogicalNodeId, node: &ManagedNode| AttemptKey {
        cluster: identity.cluster,
        run: identity.run,
        node: id.clone(),
        attempt: node.attempt,
    };
    let alive = state.nodes.iter().filter(|(_, node)| !node.is_destroyed());
    membership.restore(NodeAttemptId(state.next_attempt_id), alive.map(|(id, node)| key(id, node)));
    for (id, node) in &state.nodes {
        let expected = node.record.swactor.as_deref().filter(|_| node.intent == NodeIntent::Active);
        if let Some(facts) = expected {
            membership.expect(&key(id, node), &facts.swactor_id);
        }
    }
}

impl Host {
    /// Starts the loop of a run: it goes on from what is durable of it. The caller holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// A part of it cannot be had, or what the providers list shows that the state is not the latest. Nothing was done
    /// to any machine then.
    pub async fn start(state: &StateDir, opened: Opened, options: Options) -> Result<Self, Error> {
        let Opened { store, loaded } = opened;
        let identity = loaded.identity.clone();
        let (cluster, run) = (identity.cluster, identity.run);
        let secret = JoinSecret::new(identity.secret.0);
        let clock = Clock::runtime().not_before(loaded.now);
        let (sender, observations) = unbounded_channel();
        let shutdown = CancellationToken::new();
        let tasks = TaskTracker::new();

        let address = dialled(options.listen, &loaded)?;
        let listen = listening(address, secret.clone(), &options.agent, &clock);
        let (listener, membership) = Listener::bind(listen, sender.clone()).await?;
        let listen = membership.address();
        if loaded.settings.address != Some(listen) {
            store.set(Setting::Address(listen)).await?;
        }
        restore_agents(&membership, &identity, &loaded.state);

        let outputs = Outputs::new(clock.clone(), sender.clone());
        let join = JoinSource { address: listen.to_string(), secret };
        let process = ProcessOptions::new(state.leases(), agent_command()?, join);
        let process = Arc::new(ProcessProvider::new(process, Arc::new(outputs.clone()))?);
        let (provider, bootstrap) = (provider(process.clone()), bootstrap(process.clone()));
        let providers = vec![Arc::clone(&provider)];
        let view = View::of(cluster, run, &loaded.state, loaded.acted_generation);
        inventory::check(&providers, &clock, &view, &loaded.settings).await?;
        let unheard = |error: ProviderError| Error::Listing {
            provider: provider.kind(),
            error: error.to_string(),
        };
        process.resume(cluster).await.map_err(unheard)?;

        let executor_options = ExecutorOptions { cluster, run, clock: clock.clone() };
        let setup = ProviderSetup::new(provider, bootstrap);
        let executor = Executor::new(executor_options, [setup], sender.clone());
        let snapshot = {
            let executor = executor.clone();
            SnapshotSource::new(move || executor.snapshot())
        };
        // What was under way is interrupted by the taking up, which the witness has to see.
        let witness = cfg!(debug_assertions).then(|| witness(&loaded.state));
        let policies = loaded.desired.iter().map(|desired| &desired.retry).chain([&options.retry]);
        let rules = inventory::rules(policies, &options.agent);
        let counting = inventory::options(cluster, clock.clone(), rules, &loaded.settings);
        let before = before(&*store, loaded, clock.now()).await?;
        let last_event = before.events.last().map_or(0, |event| event.seq);
        let parts = Parts {
            executor: Arc::new(executor.clone()),
            snapshot,
            roster: Arc::new(membership),
            outputs,
            observations,
            witness,
            store: recorder(store.clone()),
        };
        let runtime_options = runtime::Options {
            agent: options.agent,
            n_events: N_EVENTS,
            ..runtime::Options::new(cluster, run, clock, kinds())
        };
        let (service, handle) = Service::new(runtime_options, parts, before);
        let records = inventory::Books { journal: handle.clone(), store, state: state.clone() };
        let (sweeps, inventory) =
            Inventory::new(counting, executor.providers(), Arc::new(records), sender);

        let socket = SocketPlace::find(state)?;
        let server =
            control::Server::bind(socket.path(), handle.clone(), control::Options::default());
        let server =
            server.map_err(|source| Error::Socket { path: socket.path().to_path_buf(), source })?;
        let server = server.with_inventory(inventory.clone());
        state.write_run_file(&RunFile {
            run,
            cluster,
            pid: std::process::id(),
            start_time: state_dir::start_time(),
            socket: socket.path().to_path_buf(),
            listen,
        })?;
        tasks.spawn(listener.run(shutdown.clone()));
        let leave = CancellationToken::new();
        let service = tasks.spawn(service.run(leave.clone()));
        tasks.spawn(sweeps.run(shutdown.clone()));
        tasks.spawn(server.run(shutdown.clone()));
        tasks.close();
        Ok(Self {
            handle,
            inventory,
            cluster,
            last_event,
            providers,
            state: state.clone(),
            executor,
            leave,
            service,
            shutdown,
            tasks,
            _socket: socket,
        })
    }

    /// Lists every lease of this cluster, by the providers' own word.
    ///
    /// # Errors
    ///
    /// A provider cannot list them.
    pub async fn leases(&self) -> Result<Vec<FoundLease>, ProviderError> {
        list_leases(&self.providers, self.cluster).await
    }

    /// Stops the loop. What is leased stays so.
    pub async fn stop(self) {
        self.state.remove_run_file();
        // A loop that still listened would take the agents we hang up on for silent, and durably so.
        self.leave.cancel();
        let service = timeout(STOP_PATIENCE, self.service).await;
        self.shutdown.cancel();
        let ended = timeout(STOP_PATIENCE, self.tasks.wait()).await;
        if !self.executor.shutdown(STOP_PATIENCE).await || ended.is_err() || service.is_err() {
            tracing::warn!("something did not stop in time");
        }
    }
}
