//! Which run is meant, and the way to its loop.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use myelin_shape::RunId;

use crate::{
    control::{self, Client, Reply, Request},
    file,
    host::{self, Opened, Shown, doubtful, lost},
    state_dir::{self, StateDir},
    view,
};

use super::{args::Globals, failure::Failure, output::note, time};

/// How long a loop may take to answer a question: far longer than any pass takes, and short enough to wait for.
const QUESTION_DEADLINE: Duration = Duration::from_secs(5);

/// The file that is meant when none is named.
const DEFAULT_FILE: &str = "myelin.yaml";

/// Returns the cluster file that is meant.
pub(super) fn file(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) => Ok(path),
        None if Path::new(DEFAULT_FILE).exists() => Ok(DEFAULT_FILE.into()),
        None => {
            Err(Failure::new(format!("no file was named, and there is no {DEFAULT_FILE} here"))
                .hint("name one, for example `myelin up examples/quickstart.yaml`"))
        }
    }
}

/// Returns the state directory of a file's run.
pub(super) fn state_of(globals: &Globals, run: RunId) -> Result<StateDir, Failure> {
    match (&globals.state_dir, globals.run) {
        (Some(path), _) => Ok(StateDir::at(path)),
        (None, Some(given)) if given != run.0 => {
            Err(Failure::new(format!("the file is of run {run}, not {given}"))
                .hint("leave --run away, or change `run:` in the file"))
        }
        (None, _) => Ok(StateDir::of_run(run)?),
    }
}

/// Returns the state directory that is meant where no file is named.
pub(super) async fn state(globals: &Globals) -> Result<StateDir, Failure> {
    if let Some(path) = &globals.state_dir {
        return Ok(StateDir::at(path));
    }
    if let Some(run) = globals.run {
        return Ok(StateDir::of_run(RunId(run))?);
    }
    if let Ok(file) = file::load(DEFAULT_FILE) {
        return Ok(StateDir::of_run(file.run)?);
    }
    only_one().await
}

/// Returns the only state directory with a loop, or else the only one of a run that is not taken down.
async fn only_one() -> Result<StateDir, Failure> {
    let home = state_dir::home()?;
    let entries = fs::read_dir(&home).into_iter().flatten().flatten();
    let all: Vec<_> = entries.map(|entry| StateDir::at(entry.path())).collect();
    let running = |it: &&StateDir| matches!(it.run_file(), Ok(Some(run)) if run.is_alive());
    let running: Vec<_> = all.iter().filter(running).collect();
    let mut begun = Vec::new();
    if running.is_empty() {
        // What cannot be read may hold machines.
        let is_there = |it: &&StateDir| it.is_begun().unwrap_or(true) || !lost(it).is_empty();
        for state in all.iter().filter(is_there) {
            if Opened::look(state).await.map_or(true, |opened| !opened.is_over()) {
                begun.push(state);
            }
        }
    }
    match (running.as_slice(), begun.as_slice()) {
        ([one], _) | ([], [one]) => Ok((*one).clone()),
        ([], []) => Err(Failure::new("there is no run yet")
            .hint("start one with `myelin up FILE`, or name its directory with --state-dir")),
        ([], several) | (several, _) => {
            let names = several.iter().filter_map(|it| it.path().file_name()?.to_str());
            let names: Vec<_> = names.collect();
            Err(Failure::new(format!("there are several runs: {}", names.join(", ")))
                .hint("say which with --run"))
        }
    }
}

/// Returns a word as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the failure of a command about a run that was never begun.
pub(super) fn never_begun(state: &StateDir) -> Failure {
    let n_machines = lost(state).values().sum();
    if n_machines > 0 {
        return host::Error::Lost { path: state.leases(), n_machines }.into();
    }
    Failure::new(format!("no run was begun in {}", state.path().display()))
        .hint("start one with `myelin up FILE`; --run or --state-dir choose another run")
}

/// Who answers: a running loop, or what was recorded last.
#[derive(Debug)]
pub(super) struct Loop {
    link: Link,
    state: StateDir,
    /// The process of the loop, if there is one.
    pid: Option<u32>,
    /// Whether what was recorded last is an answer, too, where the loop gives none.
    only_reads: bool,
}

#[derive(Debug)]
enum Link {
    Running(Client),
    Recorded(Box<Shown>),
}

impl Loop {
    /// Connects to the loop of a state directory; `None` when none runs there.
    pub(super) async fn find(state: &StateDir) -> Result<Option<Self>, Failure> {
        let Some(run) = state.run_file()? else {
            return Ok(None);
        };
        match Client::connect(&run.socket).await {
            Ok(client) => Ok(Some(Self {
                link: Link::Running(client),
                state: state.clone(),
                pid: Some(run.pid),
                only_reads: false,
            })),
            // It ended without removing its file, as after a SIGKILL.
            Err(control::Error::NotRunning(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects to the loop that is meant.
    pub(super) async fn connect(globals: &Globals) -> Result<Self, Failure> {
        let state = state(globals).await?;
        Self::find(&state).await?.ok_or_else(|| not_running(&state))
    }

    /// Returns who answers questions about the run that is meant. That it is no loop is said.
    pub(super) async fn read(globals: &Globals) -> Result<Self, Failure> {
        let state = state(globals).await?;
        Self::read_of(&state).await?.ok_or_else(|| not_running(&state))
    }

    /// Returns who answers questions about a run, if it was ever begun.
    pub(super) async fn read_of(state: &StateDir) -> Result<Option<Self>, Failure> {
        if let Some(looped) = Self::find(state).await? {
            return Ok(Some(Self { only_reads: true, ..looped }));
        }
        if !state.is_begun()? {
            return Ok(None);
        }
        let link = Link::Recorded(Box::new(recorded(state, None).await?));
        Ok(Some(Self { link, state: state.clone(), pid: None, only_reads: true }))
    }

    /// Returns when what answers was recorded, if it is no loop.
    pub(super) fn as_of(&self) -> Option<Timestamp> {
        match &self.link {
            Link::Running(_) => None,
            Link::Recorded(shown) => Some(view::stamp(shown.as_of)),
        }
    }

    /// Returns whether anything can happen meanwhile.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.link, Link::Running(_))
    }

    /// Asks one thing. A loop that does not answer a question in time is not waited for: what it recorded last is.
    pub(super) async fn ask(&mut self, request: Request) -> Result<Reply, control::Error> {
        let Link::Running(client) = &mut self.link else {
            return self.ask_recorded(request).await;
        };
        let Some(patience) = patience(&request).filter(|_| self.only_reads) else {
            return client.ask(request).await;
        };
        match client.ask_within(request.clone(), patience).await {
            Err(control::Error::Late) if self.state.is_begun().unwrap_or(true) => {
                match recorded(&self.state, self.pid).await {
                    Ok(shown) => self.link = Link::Recorded(Box::new(shown)),
                    Err(failure) => {
                        note(format!("what it recorded cannot be read either: {failure}"));
                        return Err(control::Error::Late);
                    }
                }
                self.ask_recorded(request).await
            }
            answer => answer,
        }
    }

    async fn ask_recorded(&self, request: Request) -> Result<Reply, control::Error> {
        let Link::Recorded(shown) = &self.link else {
            return Err(control::Error::Ended);
        };
        let answer = if let Request::Logs { node, .. } = request {
            shown.output(&self.state, &node).await.map(Reply::Logs)
        } else {
            control::answer(&shown.handle, None, request).await
        };
        let mut reply = answer.map_err(control::Error::Failure)?;
        if let Reply::Status(status) = &mut reply {
            status.pid = self.pid.unwrap_or(0);
        }
        Ok(reply)
    }
}

/// Returns how long a loop may take to answer a question; none for what would change something, or waits for news.
fn patience(request: &Request) -> Option<Duration> {
    match request {
        Request::Status {}
        | Request::Nodes {}
        | Request::Explain { .. }
        | Request::Plan { .. }
        | Request::Events { wait_ms: 0, .. }
        | Request::Logs { wait_ms: 0, .. } => Some(QUESTION_DEADLINE),
        Request::Events { .. }
        | Request::Logs { .. }
        | Request::Apply { .. }
        | Request::Operator { .. }
        | Request::Pause {}
        | Request::Resume {}
        | Request::Down {}
        | Request::Census { .. }
        | Request::Sever { .. } => None,
    }
}

/// Returns what was recorded last, and says why that is shown: the loop with this pid does not answer, or there is none.
async fn recorded(state: &StateDir, pid: Option<u32>) -> Result<Shown, Failure> {
    let shown = Opened::look(state).await?.show().await?;
    let as_of = time::as_of(view::stamp(shown.as_of));
    note(match pid {
        None => format!("not running: as of {as_of}"),
        Some(pid) => {
            format!(
                "`myelin up` (pid {pid}) is there and does not answer, is it stopped? As of {as_of}"
            )
        }
    });
    if let Some(doubt) = &shown.doubt {
        let next = "nothing is acted on until `myelin restore --accept`";
        note(format!("warning: {}; {next}", doubtful(doubt)));
    }
    Ok(shown)
}

fn not_running(state: &StateDir) -> Failure {
    let at = state.path().display();
    Failure::new(format!("no `myelin up` is running with the state in {at}"))
        .hint("start one with `myelin up FILE`; --run or --state-dir choose another run")
}

/// Returns the failure of an answer to something else than was asked.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    let kind = serde_json::to_value(reply).unwrap_or_default();
    let kind = kind.as_object().and_then(|it| it.keys().next().cloned());
    let kind = kind.unwrap_or_default();
    Failure::new(format!("the loop answered with {kind:?}, which was not asked for"))
        .hint("use the `myelin` that runs the loop")
}

/// Asks one thing and takes the one kind of reply that fits.
macro_rules! ask {
    ($looped:expr, $request:expr, $pattern:pat => $value:expr) => {
        match $looped.ask($request).await? {
            $pattern => $value,
            other => return Err($crate::cli::connect::unexpected(&other)),
        }
    };
}

pub(super) use ask;
