//! The shell: loopback TCP around [`Membership`].

use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc::UnboundedSender},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use myelin_api::JoinSecret;
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId, SwactorId};
use myelin_state::NodeObservation;

use crate::{
    Membership, Timing,
    connection::{self, Places},
};

/// Silence is looked for at least this often.
const LONGEST_NAP: Duration = Duration::from_hours(1);

/// Where the listener takes the time from. Never goes backwards.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Wraps a source of time. It should be the driver's, since the driver compares last contacts with its own time.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl Default for Clock {
    /// The wall clock at this call, then monotonic time (`spec 1.3`).
    fn default() -> Self {
        let (wall, start) = (SystemTime::now(), std::time::Instant::now());
        Self::new(move || wall + start.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock(..)")
    }
}

/// What a listener needs.
#[derive(Debug)]
pub struct Options {
    /// Where to listen: a loopback address. Port 0 takes any free one.
    pub address: SocketAddr,
    /// How long to try for an address that is in use: one that was ours before a restart may be held for a moment by a
    /// connection that the system gave the same port.
    pub bind_patience: Duration,
    /// What join tokens derive from.
    pub secret: JoinSecret,
    /// Heartbeats and silence.
    pub timing: Timing,
    /// How long a connection may take to join.
    pub join_deadline: Duration,
    /// How long a joined connection may say nothing, or not take our answer, before it is closed.
    pub read_deadline: Duration,
    /// How many connections may be open.
    pub max_connections: usize,
    /// How many of them may be without a join. Who comes then is sent away at once, so that a flood of strangers holds no
    /// more of our file descriptors than that.
    pub max_unjoined: usize,
    /// The time.
    pub clock: Clock,
}

impl Options {
    /// Returns options with defaults for the rest: five seconds to join, a minute of silence, 65 536 connections, of
    /// which 512 may be without a join.
    pub fn new(address: SocketAddr, secret: JoinSecret) -> Self {
        Self {
            address,
            bind_patience: Duration::from_secs(5),
            secret,
            timing: Timing::default(),
            join_deadline: Duration::from_secs(5),
            read_deadline: Duration::from_mins(1),
            max_connections: 65_536,
            max_unjoined: 512,
            clock: Clock::default(),
        }
    }
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The address can be reached from elsewhere.
    #[error("{0} is no loopback address")]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen for agents on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// What the listener has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections taken.
    pub accepted: u64,
    /// Joins accepted.
    pub joined: u64,
    /// Joins refused: token, agent, attempt, version.
    pub refused: u64,
    /// Connections closed because of what was sent.
    pub malformed: u64,
    /// Connections closed because nothing was sent in time.
    pub late: u64,
    /// Connections closed because there were too many.
    pub busy: u64,
}

#[derive(Debug, Default)]
pub(crate) struct AtomicCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) busy: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What the listener, its connections and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    state: Mutex<State>,
    observations: UnboundedSender<NodeObservation>,
    pub(crate) counters: AtomicCounters,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) unjoined: Arc<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) membership: Membership,
    /// What closes each joined connection.
    pub(crate) closers: BTreeMap<AttemptKey, (u64, CancellationToken)>,
    /// What closes every connection there is.
    everyone: CancellationToken,
    suspended: bool,
}

impl Shared {
    /// Changes the state and sends what was learned, in one step, so that observations leave in order.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State, SystemTime) -> T) -> T {
        let now = self.options.clock.now();
        let mut state = self.lock();
        let result = change(&mut state, now);
        for observation in state.membership.take_observations() {
            // Without a receiver nobody drives the nodes any more, and there is nobody to tell.
            let _ = self.observations.send(observation);
        }
        result
    }

    /// A panic elsewhere leaves the bookkeeping whole: every change of it is a series of map insertions.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sever(&self) {
        let mut state = self.lock();
        std::mem::take(&mut state.everyone).cancel();
    }
}

/// The listener, bound and not yet running.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// A cheap handle to a [`Listener`].
#[derive(Clone, Debug)]
pub struct Handle {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Listener {
    /// Takes the address. Observations go to `observations`.
    ///
    /// # Errors
    ///
    /// The address is no loopback address, or cannot be had.
    pub async fn bind(
        options: Options,
        observations: UnboundedSender<NodeObservation>,
    ) -> Result<(Self, Handle), ListenerError> {
        let address = options.address;
        if !address.ip().is_loopback() {
            return Err(ListenerError::NotLoopback(address));
        }
        let failed = |source| ListenerError::Bind { address, source };
        let socket = bind(address, options.bind_patience).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let state = State {
            membership: Membership::new(options.secret.clone(), options.timing),
            closers: BTreeMap::new(),
            everyone: CancellationToken::new(),
            suspended: false,
        };
        let shared = Arc::new(Shared {
            connections: Arc::new(Semaphore::new(options.max_connections)),
            unjoined: Arc::new(Semaphore::new(options.max_unjoined)),
            options,
            state: Mutex::new(state),
            observations,
            counters: AtomicCounters::default(),
        });
        let handle = Handle { address, shared: Arc::clone(&shared) };
        let listener = Self { socket, shared, tasks: TaskTracker::new() };
        Ok((listener, handle))
    }

    /// Serves until `shutdown`; every connection is closed when it returns.
    pub async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.accept() => {}
            () = self.watch() => {}
        }
        drop(self.socket);
        self.shared.sever();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn accept(&self) {
        let mut failing = false;
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    failing = false;
                    self.admit(stream);
                }
                Err(error) => {
                    // A flood that takes every file descriptor must not fill the log as well.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept an agent");
                    }
                    // Out of file descriptors, or a peer that was gone again: neither is cured by trying at once.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let closed = {
            let state = self.shared.lock();
            if state.suspended {
                return;
            }
            state.everyone.child_token()
        };
        count(&self.shared.counters.accepted);
        // Here and not in the task: many more could be accepted before that is run.
        match Places::take(&self.shared) {
            Some(places) => {
                let shared = Arc::clone(&self.shared);
                self.tasks.spawn(connection::serve(shared, stream, closed, places));
            }
            None => connection::hang_up(&self.shared, stream),
        }
    }

    /// Reports silence in time. A wake-up that comes late means that we were stopped ourselves: what agents sent
    /// meanwhile is read before anybody is called silent.
    async fn watch(&self) {
        let Timing { heartbeat_every, silent_after } = self.shared.options.timing;
        loop {
            let due = self.until_next_deadline().unwrap_or(silent_after);
            // Far instants cannot be represented, and an early look costs nothing.
            let due = due.min(silent_after).min(LONGEST_NAP);
            let wake_at = Instant::now() + due + Duration::from_millis(1);
            sleep_until(wake_at).await;
            if wake_at.elapsed() > heartbeat_every {
                tracing::warn!(late = ?wake_at.elapsed(), "was stopped; hearing agents first");
                tokio::time::sleep(heartbeat_every).await;
            }
            self.shared.update(|state, now| state.membership.tick(now));
        }
    }

    fn until_next_deadline(&self) -> Option<Duration> {
        let now = self.shared.options.clock.now();
        let deadline = self.shared.lock().membership.next_deadline()?;
        Some(deadline.duration_since(now).unwrap_or_default())
    }
}

async fn bind(address: SocketAddr, patience: Duration) -> io::Result<TcpListener> {
    let start = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < patience =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

impl Handle {
    /// Returns where agents dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes over from an earlier control plane which attempts there are; see [`Membership::restore`].
    pub fn restore(&self, next: NodeAttemptId, alive: impl IntoIterator<Item = AttemptKey>) {
        self.shared.update(|state, _| state.membership.restore(next, alive));
    }

    /// Records an agent known from before a restart as not yet heard; see [`Membership::expect`].
    pub fn expect(&self, key: &AttemptKey, swactor: &SwactorId) {
        self.shared.update(|state, now| state.membership.expect(key, swactor, now));
    }

    /// Forgets an attempt that is over; its agent is disconnected, and told that it is over when it dials again.
    pub fn retire(&self, key: &AttemptKey) {
        self.shared.update(|state, _| {
            for key in state.membership.retire(key) {
                if let Some((_, closer)) = state.closers.remove(&key) {
                    closer.cancel();
                }
            }
        });
    }

    /// Returns when the attempt's agent was last heard.
    pub fn last_contact(&self, key: &AttemptKey) -> Option<SystemTime> {
        self.shared.lock().membership.last_contact(key)
    }

    /// Returns how many agents of attempts that are not over have no connection; see [`Membership::n_unheard`].
    pub fn n_unheard(&self) -> usize {
        self.shared.lock().membership.n_unheard()
    }

    /// Returns the nodes whose agents are awaited; see [`Membership::awaited`].
    pub fn awaited(&self) -> BTreeMap<LogicalNodeId, Option<SystemTime>> {
        let state = self.shared.lock();
        state.membership.awaited().map(|(key, until)| (key.node.clone(), until)).collect()
    }

    /// Returns what the listener has seen.
    pub fn counters(&self) -> Counters {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            accepted: read(&counters.accepted),
            joined: read(&counters.joined),
            refused: read(&counters.refused),
            malformed: read(&counters.malformed),
            late: read(&counters.late),
            busy: read(&counters.busy),
        }
    }

    /// Closes every connection there is. Agents dial again.
    pub fn sever(&self) {
        self.shared.sever();
    }

    /// Cuts the listener off, or ends that: while suspended, every connection is closed and none is taken, as if our own
    /// network were gone.
    pub fn suspend(&self, suspended: bool) {
        let mut state = self.shared.lock();
        state.suspended = suspended;
        if suspended {
            std::mem::take(&mut state.everyone).cancel();
        }
    }
}
