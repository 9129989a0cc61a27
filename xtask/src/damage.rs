//! The damage sweep of the store at length; its tests do a share of it.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::root;

/// Cuts and flips the files at every `step`th byte.
///
/// # Errors
///
/// A load gave something that was never committed, or panicked.
pub(crate) fn run(step: u64) -> anyhow::Result<()> {
    let args = format!("run --release --package myelin-store --example sweep -- {step}");
    let status = Command::new("cargo").args(args.split(' ')).current_dir(root()?).status();
    let status = status.context("cannot start cargo")?;
    ensure!(status.success(), "`cargo {args}` ended with {status}");
    Ok(())
}
