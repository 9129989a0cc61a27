//! Which run is meant, and the way to its loop.

use std::{
    fs,
    path::{Path, PathBuf},
};

use myelin_shape::RunId;

use crate::{
    control::{self, Client, Reply, Request},
    file,
    host::Opened,
    state_dir::{self, StateDir},
};

use super::{args::Globals, failure::Failure};

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
        for state in all.iter().filter(|it| it.is_begun()) {
            // What cannot be read may hold machines.
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

/// A running loop.
#[derive(Debug)]
pub(super) struct Loop {
    client: Client,
}

impl Loop {
    /// Connects to the loop of a state directory; `None` when none runs there.
    pub(super) async fn find(state: &StateDir) -> Result<Option<Self>, Failure> {
        let Some(run) = state.run_file()? else {
            return Ok(None);
        };
        match Client::connect(&run.socket).await {
            Ok(client) => Ok(Some(Self { client })),
            // It ended without removing its file, as after a SIGKILL.
            Err(control::Error::NotRunning(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects to the loop that is meant.
    pub(super) async fn connect(globals: &Globals) -> Result<Self, Failure> {
        let state = state(globals).await?;
        let not_running = || {
            let at = state.path().display();
            Failure::new(format!("no `myelin up` is running with the state in {at}"))
                .hint("start one with `myelin up FILE`; --run or --state-dir choose another run")
        };
        Self::find(&state).await?.ok_or_else(not_running)
    }

    /// Asks one thing.
    pub(super) async fn ask(&mut self, request: Request) -> Result<Reply, control::Error> {
        self.client.ask(request).await
    }
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
