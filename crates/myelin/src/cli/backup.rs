//! `backup` and `restore`.

use std::path::{Path, PathBuf};

use crate::{
    host::{Idle, Opened, Shown, doubtful},
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
    if !state.is_begun() {
        return Err(never_begun(&state));
    }
    let path = absolute(&args.file)?;
    let opened = Opened::look(&state).await?;
    opened.backup(&path).await?;
    let shown = opened.show().await?;
    output::print(&format!(
        "saved {} to {}\nput it back with `myelin restore {}`\n",
        described(&shown),
        path.display(),
        connect::quoted(&path.to_string_lossy())
    ))?;
    if let Some(doubt) = &shown.doubt {
        note(format!("warning: {}; the copy is no newer", doubtful(doubt)));
    }
    Ok(0)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{} names no file: {error}", path.display())))
}

/// Says what a state holds, on a part of a line.
fn described(shown: &Shown) -> String {
    let nodes = match shown.n_nodes {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    };
    let as_of = time::as_of(view::stamp(shown.as_of));
    format!(
        "run {} with {nodes}, generation {}, as of {as_of}",
        shown.identity.run, shown.generation
    )
}

pub(super) async fn restore(globals: &Globals, args: RestoreArgs) -> Outcome {
    let mut state = connect::state(globals).await?;
    state.create()?;
    if let Some(file) = &args.file {
        put_back(&state, file, args.yes).await?;
    } else if !state.is_begun() {
        return Err(never_begun(&state));
    }
    if args.accept { accept(&state, args.yes).await } else { Ok(0) }
}

async fn put_back(state: &StateDir, file: &Path, yes: bool) -> Result<(), Failure> {
    let path = absolute(file)?;
    if !path.exists() {
        return Err(Failure::new(format!("there is no {}", path.display()))
            .hint("`myelin backup FILE` makes one"));
    }
    let lock = state.lock()?;
    if state.is_begun() {
        let there = match Opened::look(state).await {
            Ok(opened) => described(&opened.show().await?),
            Err(error) => format!("what cannot be read ({error})"),
        };
        let at = state.path().display();
        note(format!("{at} holds {there}"));
        if !yes {
            ask::confirm(&format!("Replace it by {}?", path.display()))?;
        }
    }
    Opened::restore(state, &path).await?;
    let shown = Opened::look(state).await?.show().await?;
    drop(lock);
    output::print(&format!("put back {}\n", described(&shown)))?;
    note(match &shown.doubt {
        Some(doubt) => format!("{}; nothing is acted on: {ACCEPT}", doubtful(doubt)),
        None => {
            "`myelin up FILE` checks it against the machines there are, and goes on from it; machines that are nobody's \
             are given back by `myelin census --collect --yes` only"
                .to_owned()
        }
    });
    Ok(())
}

async fn accept(state: &StateDir, yes: bool) -> Outcome {
    let idle = Idle::hold(state)?;
    let opened = Opened::look(state).await?;
    let census = idle.census().await?;
    let shown = opened.show().await?;
    // A label that was never given out shows the same as the mark.
    let doubt = shown.doubt.as_ref().map(doubtful).or_else(|| behind(&census));
    let Some(doubt) = doubt else {
        output::print(&format!(
            "nothing to accept: {} is the latest that was acted on\n",
            described(&shown)
        ))?;
        return Ok(0);
    };
    let style = Style::stderr();
    note(format!("{doubt}\n\ntaken as true is {}:\n", described(&shown)));
    note(table::nodes(&shown.handle.nodes().await?, style));
    note(format!(
        "and this is what there is:\n\n{}",
        census::census_text(&CensusView { doubt: None, ..census }, style)
    ));
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
