//! Checks and long runs of this repository.
//!
//! `cargo xtask ci` is what a change must pass; the other commands are its parts, to be run alone while working.
//! Each is a module with one entry point; nothing here is part of the product.
//!
//! Reading order: [`ci`], [`layers`], [`tidy`], [`mod@bench`], [`crash`], [`damage`], [`sim`],
//! [`mod@model`], [`mutants`], [`fuzz`].

mod bench;
mod ci;
mod crash;
mod damage;
mod fuzz;
mod layers;
mod model;
mod mutants;
mod sim;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};

/// Checks and long runs of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything a change must pass, and stop at the first failure.
    Ci {
        /// Also check dependencies with cargo-deny, and do the long runs.
        #[arg(long)]
        full: bool,
    },
    /// Check that crates depend downwards only, and that pure crates are pure.
    Layers,
    /// Measure the node loop and check what may not grow: instructions and bytes.
    Bench {
        /// Write the table into `docs/benchmarks.md`.
        #[arg(long)]
        write: bool,
    },
    /// Kill `myelin up` at every moment, restart it, and check what is there.
    Crash(crash::Args),
    /// Damage the files of a killed store at every place, and check that a load never gives what was not committed.
    Damage {
        /// Only every this many bytes; 1 is every byte, and takes hours
        #[arg(long, default_value_t = 97, value_parser = clap::value_parser!(u64).range(1..))]
        step: u64,
    },
    /// Play many seeds in the simulator.
    Sim {
        /// How many
        #[arg(long, default_value_t = 100_000)]
        seeds: u64,
        /// The first
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// Look for every defect that can be planted into the simulator.
    Flaws {
        /// With so many seeds at most
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
    },
    /// Play the scenarios of the explorer with everything wrong that can be, one after the other.
    Explore {
        /// Also every pair of every this many places
        #[arg(long, value_name = "EVERY")]
        pairs: Option<usize>,
    },
    /// Change the crates that decide, one place at a time, and see whether their tests notice. Takes hours; can be resumed.
    Mutants(mutants::Args),
    /// Go through every order in which everything can happen to a small cluster, faults and all.
    Model(model::Args),
    /// Try made-up inputs on everything that reads bytes from outside. Needs a nightly toolchain and cargo-fuzz.
    Fuzz(fuzz::Args),
    /// Check the text of sources, manifests and pages.
    Tidy,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ci { full } => ci::run(full),
        Command::Bench { write } => bench::run(write),
        Command::Crash(args) => crash::run(args),
        Command::Damage { step } => damage::run(step),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Layers => layers::run(),
        Command::Sim { seeds, first } => sim::seeds(first, seeds),
        Command::Flaws { seeds } => sim::flaws(seeds),
        Command::Explore { pairs } => sim::explore(pairs),
        Command::Mutants(args) => mutants::run(&args),
        Command::Model(args) => model::run(args),
        Command::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the repository's root, wherever the command was started.
fn root() -> anyhow::Result<PathBuf> {
    let manifest_dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = manifest_dir.parent().context("xtask has no parent")?;
    Ok(root.to_owned())
}

/// Fails with all findings, one a line.
fn report(findings: &[String]) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    for finding in findings {
        eprintln!("  {finding}");
    }
    let n = findings.len();
    bail!("{n} finding{}", if n == 1 { "" } else { "s" });
}
