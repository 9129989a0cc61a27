//! The agent's life: join, heartbeat, dial again.

use std::{
    fmt,
    io::{self, Write as _},
    path::Path,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use myelin_api::{AgentKey, RefusedReason};

use crate::{
    Error, Options,
    backoff::Backoff,
    connection::{Connection, Lost},
    options::agent_key,
};

/// How an agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was told to stop.
    Stopped,
    /// The control plane will never take it.
    Refused(RefusedReason),
    /// Its lease directory is gone.
    LeaseGone,
}

impl Exit {
    /// Returns the exit status of the process: 0 stopped, 10 refused for good, 11 lease gone. 1 is left to [`Error`].
    pub fn code(&self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Refused(_) => 10,
            Self::LeaseGone => 11,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Refused(reason) => write!(f, "refused for good: {reason}"),
            Self::LeaseGone => f.write_str("the lease is gone"),
        }
    }
}

/// An agent with its key, ready to dial.
#[derive(Debug)]
pub struct Agent {
    options: Options,
    key: AgentKey,
}

impl Agent {
    /// Reads the agent's key, or mints and stores one.
    ///
    /// # Errors
    ///
    /// The key can be neither read nor stored.
    pub fn new(options: Options) -> Result<Self, Error> {
        let key = agent_key(&options.state_dir)?;
        Ok(Self { options, key })
    }

    /// Runs until there is no point in going on.
    pub async fn run(self, shutdown: CancellationToken) -> Exit {
        let exit = tokio::select! {
            () = shutdown.cancelled() => Exit::Stopped,
            () = self.lease_gone() => Exit::LeaseGone,
            reason = self.refused_for_good() => Exit::Refused(reason),
        };
        say(format_args!("{exit}"));
        exit
    }

    async fn lease_gone(&self) {
        let mut looks = interval(self.options.pace.look_every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Err(error) = std::fs::metadata(&self.options.lease_dir)
                && error.kind() == io::ErrorKind::NotFound
            {
                return;
            }
        }
    }

    async fn refused_for_good(&self) -> RefusedReason {
        let mut backoff = Backoff::new(self.options.pace);
        let mut told = Told::default();
        say(format_args!("dialling {}", self.options.address));
        loop {
            let lost = match self.connect().await {
                Ok(connection) => {
                    backoff.heartbeat_every(connection.heartbeat_every);
                    stay(connection, &mut backoff).await
                }
                Err(lost) => lost,
            };
            if let Lost::Refused(reason) = &lost
                && reason.is_final()
            {
                return reason.clone();
            }
            let pause = backoff.next(random());
            let why = lost.to_string();
            if told.is_news(&why) {
                say(format_args!("{why}; dialling again in {pause:.1?}"));
            }
            sleep(pause).await;
        }
    }

    async fn connect(&self) -> Result<Connection, Lost> {
        let connection = Connection::join(&self.options, &self.key).await?;
        let (key, swactor) = (&self.options.key, &connection.swactor);
        say(format_args!("joined as {} ({swactor})", key.node));
        Ok(connection)
    }
}

/// What was said of lost connections. A control plane that is gone for good must not fill the disk of the node.
#[derive(Debug, Default)]
struct Told {
    why: String,
    n_times: u32,
}

impl Told {
    /// Returns whether to say it: the first, second, fourth, eighth … time in a row.
    fn is_news(&mut self, why: &str) -> bool {
        if self.why != why {
            *self = Self { why: why.to_owned(), n_times: 0 };
        }
        self.n_times = self.n_times.saturating_add(1);
        self.n_times.is_power_of_two()
    }
}

/// Heartbeats until the connection is lost. A connection is a success once it outlived its first heartbeat: two agents
/// with one key would take it from each other in a hot loop otherwise.
async fn stay(mut connection: Connection, backoff: &mut Backoff) -> Lost {
    let mut heartbeats = interval(connection.heartbeat_every);
    heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeats.reset();
    loop {
        tokio::select! {
            lost = connection.lost() => return lost,
            _ = heartbeats.tick() => {}
        }
        if let Err(lost) = connection.heartbeat().await {
            return lost;
        }
        backoff.reset();
    }
}

/// Returns a random number, or the same one each time where there is none: it only spreads pauses.
fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

/// Prints one line. That nobody reads it is no reason to end.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout().lock(), "agent: {line}");
}

/// Runs an agent as a whole process does: until SIGTERM or SIGINT, or until there is no point in going on.
///
/// # Errors
///
/// It cannot start.
pub async fn run_from_join_file(path: &Path) -> Result<Exit, Error> {
    let agent = Agent::new(Options::from_join_file(path)?)?;
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let running = agent.run(shutdown.clone());
    tokio::pin!(running);
    tokio::select! {
        exit = &mut running => return Ok(exit),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    shutdown.cancel();
    Ok(running.await)
}
