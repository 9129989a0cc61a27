//! The model checker at length; its tests do a share of it.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::root;

/// What is explored.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the scenarios of this name
    scenario: Option<String>,
    /// Only in this detail: coarse, fine or finest
    #[arg(requires = "faults")]
    detail: Option<String>,
    /// Only with so many faults
    #[arg(requires = "detail")]
    faults: Option<u8>,
}

/// Goes through all that can happen in some scenarios, and prints how much that was.
///
/// # Errors
///
/// A rule is broken somewhere, something leads nowhere, or a search was cut off; the way there is printed.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { scenario, detail, faults } = args;
    let faults = faults.map(|faults| faults.to_string());
    let chosen = [scenario, detail, faults].into_iter().flatten();
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "-p", "myelin-model", "--example", "explore", "--"]);
    let status = command.args(chosen).current_dir(root()?).status();
    let status = status.context("cannot start cargo")?;
    ensure!(status.success(), "the model checker ended with {status}");
    Ok(())
}
