//! The loop on this machine: with real providers, the listener agents dial, and the control socket.

use std::{env, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use myelin_api::JoinSecret;
use myelin_executor::{
    Bootstrap, Clock, Executor, FoundLease, Options as ExecutorOptions, Provider, ProviderError,
    ProviderSetup,
};
use myelin_membership::{Listener, ListenerError, Options as ListenerOptions, Timing};
use myelin_provider_process::{JoinSource, Options as ProcessOptions, ProcessProvider};
use myelin_shape::{ClusterUid, ProviderKind};
use rustix::process::{Resource, getrlimit};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    control,
    file::AgentSettings,
    runtime::{self, Handle, Oracle, Outputs, Parts, Service, SnapshotSource, Witness},
    state_dir::{self, ClusterRecord, RunFile, SocketPlace, StateDir},
};

/// How long calls that are stopped may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

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
    /// Where agents dial: a loopback address. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// How agents report.
    pub agent: AgentSettings,
}

/// A loop that runs, with everything around it.
#[derive(Debug)]
pub struct Host {
    /// The way to ask it.
    pub handle: Handle,
    /// The cluster's uid, minted for this loop.
    pub cluster: ClusterUid,
    providers: Vec<Arc<dyn Provider>>,
    state: StateDir,
    executor: Executor,
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
    Ok(vec![Arc::new(ProcessProvider::new(options, Arc::new(outputs))?)])
}

/// Lists every lease of the clusters.
///
/// # Errors
///
/// A provider cannot list them; then it is not known what is left.
pub async fn list_leases(
    providers: &[Arc<dyn Provider>],
    clusters: &[ClusterUid],
) -> Result<Vec<FoundLease>, ProviderError> {
    let mut leases = Vec::new();
    for provider in providers {
        for &cluster in clusters {
            leases.extend(provider.list(cluster).await?);
        }
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
fn witness() -> Box<dyn Witness> {
    Box::new(Oracle::fatal())
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes)
}

impl Host {
    /// Starts a loop of a run that desires nothing yet. The caller holds the lock of the state directory.
    ///
    /// The cluster's uid is recorded before anything could be leased for it.
    ///
    /// # Errors
    ///
    /// A part of it cannot be had. Nothing was leased then.
    pub async fn start(
        state: &StateDir,
        run: myelin_shape::RunId,
        options: Options,
    ) -> Result<Self, Error> {
        let (cluster, secret) = (ClusterUid(random()?), JoinSecret::new(random()?));
        let clock = Clock::runtime();
        let (sender, observations) = unbounded_channel();
        let shutdown = CancellationToken::new();
        let tasks = TaskTracker::new();

        let mut listen = ListenerOptions::new(options.listen, secret.clone());
        listen.timing = Timing {
            heartbeat_every: options.agent.heartbeat,
            silent_after: options.agent.silent_after,
        };
        // A connection that says nothing for longer than silence is of no use.
        let longest = options.agent.silent_after.saturating_mul(2);
        listen.read_deadline = listen.read_deadline.max(longest);
        let (max_connections, max_unjoined) = places(open_files());
        listen.max_connections = listen.max_connections.min(max_connections);
        listen.max_unjoined = listen.max_unjoined.min(max_unjoined);
        let membership_clock = clock.clone();
        listen.clock = myelin_membership::Clock::new(move || membership_clock.now());
        let (listener, membership) = Listener::bind(listen, sender.clone()).await?;

        let listen = membership.address();
        let outputs = Outputs::new(clock.clone(), sender.clone());
        let join = JoinSource { address: listen.to_string(), secret };
        let process = ProcessOptions::new(state.leases(), agent_command()?, join);
        let process = Arc::new(ProcessProvider::new(process, Arc::new(outputs.clone()))?);
        let bootstrap: Arc<dyn Bootstrap> = process.clone();
        let provider: Arc<dyn Provider> = process;
        let setup = ProviderSetup::new(Arc::clone(&provider), bootstrap);

        let executor_options = ExecutorOptions { cluster, run, clock: clock.clone() };
        let executor = Executor::new(executor_options, [setup], sender);
        let snapshot = {
            let executor = executor.clone();
            SnapshotSource::new(move || executor.snapshot())
        };
        let parts = Parts {
            executor: Arc::new(executor.clone()),
            snapshot,
            roster: Arc::new(membership),
            outputs,
            observations,
            witness: cfg!(debug_assertions).then(witness),
        };
        let runtime_options = runtime::Options {
            agent: options.agent,
            ..runtime::Options::new(cluster, run, clock, kinds())
        };
        let (service, handle) = Service::new(runtime_options, parts);

        let socket = SocketPlace::find(state)?;
        let server =
            control::Server::bind(socket.path(), handle.clone(), control::Options::default());
        let server =
            server.map_err(|source| Error::Socket { path: socket.path().to_path_buf(), source })?;
        state.record_cluster(&ClusterRecord { cluster, run, begun_at: Timestamp::now() })?;
        state.write_run_file(&RunFile {
            run,
            cluster,
            pid: std::process::id(),
            start_time: state_dir::start_time(),
            socket: socket.path().to_path_buf(),
            listen,
        })?;
        tasks.spawn(listener.run(shutdown.clone()));
        tasks.spawn(service.run(shutdown.clone()));
        tasks.spawn(server.run(shutdown.clone()));
        tasks.close();
        Ok(Self {
            handle,
            cluster,
            providers: vec![provider],
            state: state.clone(),
            executor,
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
        list_leases(&self.providers, &[self.cluster]).await
    }

    /// Stops the loop. What is leased stays so.
    pub async fn stop(self) {
        self.state.remove_run_file();
        self.shutdown.cancel();
        let ended = tokio::time::timeout(STOP_PATIENCE, self.tasks.wait()).await;
        if !self.executor.shutdown(STOP_PATIENCE).await || ended.is_err() {
            tracing::warn!("something did not stop in time");
        }
    }
}
