//! `backup` and `restore`.

use std::path::{Path, PathBuf};

use myelin_store::Loaded;

use crate::{
    host::{Idle, Opened, doubtful},
    state_dir::StateDir,
    view::{self, CensusView},
};

use super::{
    Outcome,
    args::{BackupArgs, Globals, RestoreArgs},
    ask, census,
    connect::{self, never_begun},
    failure::Failure,
    output::{self, Style, note},
    table, time,
};

/// What to do about a state that is not the latest.
const ACCEPT: &str = "put a newer one back, or go on from this one with `myelin restore --accept`, which shows first what it takes as true";

pub(super) async fn backup(globals: &Globals, args: BackupArgs) -> Outcome {
    let state = connect::state(globals).await?;
    if !state.is_begun()? {
        return Err(never_begun(&state));
    }
    let path = absolute(&args.file)?;
    let opened = Opened::look(&state).await?;
    opened.backup(&path).await?;
    output::print(&format!(
        "saved {} to {}\nput it back with `myelin restore {}`\n",
        described(opened.loaded()),
        path.display(),
        connect::quoted(&path.to_string_lossy())
    ))?;
    if let Some(doubt) = &opened.loaded().doubt {
        note(format!("warning: {}; the copy is no newer", doubtful(doubt)));
    }
    Ok(0)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{} names no file: {error}", path.display())))
}

/// Says what a state holds, on a part of a line.
fn described(loaded: &Loaded) -> String {
    let nodes = match loaded.state.nodes.len() {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    };
    let generation = loaded.desired.as_ref().map_or(0, |desired| desired.shape.generation);
    let as_of = time::as_of(view::stamp(loaded.now));
    format!("run {} with {nodes}, generation {generation}, as of {as_of}", loaded.identity.run)
}

pub(super) async fn restore(globals: &Globals, args: RestoreArgs) -> Outcome {
    let mut state = connect::state(globals).await?;
    state.create()?;
    if let Some(file) = &args.file {
        put_back(&state, globals.run, file, args.yes).await?;
    } else if !state.is_begun()? {
        return Err(never_begun(&state));
    }
    if args.accept { accept(&state, args.yes).await } else { Ok(0) }
}

async fn put_back(
    state: &StateDir,
    run: Option<u64>,
    file: &Path,
    yes: bool,
) -> Result<(), Failure> {
    let path = absolute(file)?;
    if !path.try_exists().unwrap_or(true) {
        return Err(Failure::new(format!("there is no {}", path.display()))
            .hint("`myelin backup FILE` makes one"));
    }
    let lock = state.lock()?;
    let backup = Opened::backup_for(state, &path).await?;
    let of_run = backup.loaded().identity.run;
    if let Some(run) = run.filter(|&run| run != of_run.0) {
        return Err(Failure::new(format!("{} is of run {of_run}, not {run}", path.display()))
            .hint(format!("`--run {of_run}` is where it belongs")));
    }
    if state.is_begun()? {
        let there = match Opened::look(state).await {
            Ok(opened) => described(opened.loaded()),
            Err(error) => format!("what cannot be read ({error})"),
        };
        let at = state.path().display();
        note(format!("{at} holds {there}"));
        if !yes {
            let by = described(backup.loaded());
            ask::confirm(&format!("Replace it by {}, which holds {by}?", path.display()))?;
        }
    }
    let kept = Opened::put_back(state, backup)?;
    let opened = Opened::look(state).await?;
    drop(lock);
    output::print(&format!("put back {}\n", described(opened.loaded())))?;
    if let Some(kept) = kept {
        output::print(&kept_in(&kept))?;
    }
    note(match &opened.loaded().doubt {
        Some(doubt) => format!("{}; nothing is acted on: {ACCEPT}", doubtful(doubt)),
        None => {
            "`myelin up FILE` checks it against the machines there are, and goes on from it; machines that are nobody's \
             are given back by `myelin census --collect --yes` only"
                .to_owned()
        }
    });
    Ok(())
}

/// Says where what was replaced is, and what to do with it.
fn kept_in(directory: &Path) -> String {
    let database = directory.join("state.db");
    format!(
        "what was there is kept in {}: `myelin restore {}` puts it back, and it may be removed\n",
        directory.display(),
        connect::quoted(&database.to_string_lossy())
    )
}

async fn accept(state: &StateDir, yes: bool) -> Outcome {
    let idle = Idle::hold(state)?;
    let opened = Opened::look(state).await?;
    let census = idle.census().await?;
    let what = described(opened.loaded());
    let shown = opened.show().await?;
    // A label that was never given out shows the same as the mark.
    let doubt = shown.doubt.as_ref().map(doubtful).or_else(|| behind(&census));
    let Some(doubt) = doubt else {
        output::print(&format!("nothing to accept: {what} is the latest that was acted on\n"))?;
        return Ok(0);
    };
    let (style, nodes) = (Style::stderr(), shown.handle.nodes().await?);
    note(format!("{doubt}\n\ntaken as true is {what}:\n"));
    note(table::nodes(&nodes, Some(view::stamp(shown.as_of)), style));
    note(format!("and this is what there is:\n\n{}", census::census_text(&census, style)));
    if !yes {
        ask::confirm("Go on from this state?")?;
    }
    let accepted = Opened::accept(state).await?;
    drop(idle);
    output::print(&format!(
        "accepted: attempts go on from {}, generations above {}\n`myelin up FILE` goes on from here; machines that are \
         nobody's by this state are given back by `myelin census --collect --yes` only\n",
        accepted.next_attempt_id, accepted.acted_generation
    ))?;
    Ok(0)
}

/// Returns why a census doubts a state that its mark does not doubt, unless that is only because it was restored.
fn behind(census: &CensusView) -> Option<String> {
    census.doubt.clone().filter(|_| census.doubt_code.as_deref() == Some("behind"))
}
