//! The model checker at length; its tests do a share of it.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::root;

/// What is explored.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the scenarios of this name; a wrong one shows which there are
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
    let chosen: Vec<_> = [scenario, detail, faults].into_iter().flatten().collect();
    example("explore", &chosen)?;
    // Whether states that look alike go on alike is asked of all scenarios together.
    if chosen.is_empty() { example("twins", &[]) } else { Ok(()) }
}

fn example(name: &str, args: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "-p", "myelin-model", "--example", name, "--"]);
    let status = command.args(args).current_dir(root()?).status();
    let status = status.context("cannot start cargo")?;
    ensure!(status.success(), "`{name}` of the model checker ended with {status}");
    Ok(())
}
