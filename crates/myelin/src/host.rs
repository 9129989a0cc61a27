//! The loop on this machine: with real providers, the listener agents dial, the inventory sweep, and the control socket.
//!
//! Reading order: [`Opened`], [`Host`], `listening`, `providers`, `inventory`; and without a loop [`Shown`], [`Idle`].

mod census;
mod error;
mod inventory;
mod listening;
mod lost;
mod opened;
mod providers;
mod shown;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use myelin_api::JoinSecret;
use myelin_executor::{
    Clock, Executor, FoundLease, Options as ExecutorOptions, Provider, ProviderError, ProviderSetup,
};
use myelin_inventory::{Inventory, View};
use myelin_membership::{Handle as Membership, Listener};
use myelin_provider_process::{JoinSource, Options as ProcessOptions, ProcessProvider};
use myelin_shape::{AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId};
use myelin_state::{ClusterState, ManagedNode, NodeIntent, RetryPolicy};
use myelin_store::{Identity, Setting, Store};
use tokio::{sync::mpsc::unbounded_channel, task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    control,
    file::AgentSettings,
    runtime::{self, Handle, Oracle, Outputs, Parts, Service, SnapshotSource, Witness},
    state_dir::{self, RunFile, SocketPlace, StateDir},
};

use self::{
    error::with_source,
    listening::{dialled, listening},
    opened::{before, last_events, recorder},
    providers::{agent_command, bootstrap, provider},
};

pub use self::{
    census::Idle,
    error::Error,
    lost::lost,
    opened::Opened,
    providers::{kinds, list_leases, providers_for_cleanup},
    shown::{Shown, doubtful},
};

/// How long calls that are stopped may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How many of the last events are at hand.
const N_EVENTS: usize = 10_000;

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

/// A build for development does not go on once a rule of the loop is broken. Others do not spend the time.
fn witness(state: &ClusterState) -> Box<dyn Witness> {
    Box::new(Oracle::fatal().resumed(state))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes)
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
