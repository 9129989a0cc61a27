//! The simulator at length: many seeds, every planted defect, every perturbation. Its tests do a share of it.

use std::{fs, process::Command};

use anyhow::{Context as _, ensure};

use crate::root;

/// Plays many seeds.
///
/// # Errors
///
/// One of them broke a rule.
pub(crate) fn seeds(first: u64, n: u64) -> anyhow::Result<()> {
    example(&["hunt", "--", &first.to_string(), &n.to_string()])
}

/// Looks for every planted defect, with so many seeds at most.
///
/// # Errors
///
/// One of them was not found.
pub(crate) fn flaws(most: u64) -> anyhow::Result<()> {
    example(&["flaws", "--", &most.to_string()])
}

/// Explores every scenario of `crates/myelin-sim/explored`: with one thing wrong, everywhere, and, if asked for, with two
/// things wrong at every pair of every `pairs`th places.
///
/// # Errors
///
/// A disturbed run broke a rule, or ended unlike the undisturbed one.
pub(crate) fn explore(pairs: Option<usize>) -> anyhow::Result<()> {
    let scenarios = root()?.join("crates/myelin-sim/explored");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&scenarios).context("cannot list the scenarios")? {
        paths.push(entry?.path());
    }
    ensure!(!paths.is_empty(), "there is no scenario in {}", scenarios.display());
    paths.sort();
    for path in paths {
        let path = path.to_str().context("its name is not text")?;
        example(&["explore", "--", path, "single", "1"])?;
        if let Some(every) = pairs {
            example(&["explore", "--", path, "pairs", &every.to_string()])?;
        }
    }
    Ok(())
}

fn example(args: &[&str]) -> anyhow::Result<()> {
    let fixed = ["run", "--release", "--quiet", "--package", "myelin-sim", "--example"];
    let mut command = Command::new("cargo");
    command.args(fixed).args(args).current_dir(root()?);
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{args:?} ended with {status}");
    Ok(())
}
