//! The layer rule: crates depend downwards only, and the lower layers are pure.
//!
//! [`TABLE`] says which crate is on which layer and what it may use. [`check`] compares it with what cargo says about the
//! workspace, and with the sources; it never asks the network.
//!
//! Reading order: [`TABLE`], [`check`], [`purity`].

mod purity;
mod workspace;

use std::{collections::BTreeMap, fs};

use crate::{
    layers::{
        purity::{Strictness, check_sources},
        workspace::{DependencyKind, Package},
    },
    report, root,
};

/// The `clippy.toml` of every pure crate, byte for byte. It replaces the one at the root, so it repeats that.
const STRICT_CLIPPY: &str = include_str!("layers/strict-clippy.toml");

/// What a crate may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No clock, file, socket, environment, thread, random source or hash map; only these crates from outside.
    Pure(&'static [&'static str]),
    /// No runtime and no clock, but a driver of the pure crates; only these crates from outside.
    Synchronous(&'static [&'static str]),
    /// Touches the world.
    Shell,
}

/// A row of [`TABLE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    layer: u8,
    name: &'static str,
    kind: Kind,
}

const fn row(layer: u8, name: &'static str, kind: Kind) -> Row {
    Row { layer, name, kind }
}

/// Every crate of the workspace. A crate depends on strictly lower layers only.
pub(crate) const TABLE: &[Row] = &[
    row(
        0,
        "myelin-shape",
        Kind::Pure(&[
            "blake3",
            "humantime-serde",
            "schemars",
            "serde",
            "serde_json",
            "smol_str",
            "thiserror",
        ]),
    ),
    row(1, "myelin-state", Kind::Pure(&["humantime-serde", "schemars", "serde", "smol_str"])),
    row(2, "myelin-decider", Kind::Pure(&["serde", "thiserror"])),
    row(2, "myelin-reducer", Kind::Pure(&["blake3"])),
    row(2, "myelin-workqueue", Kind::Pure(&[])),
    row(3, "myelin-api", Kind::Shell),
    row(3, "myelin-check", Kind::Synchronous(&["thiserror"])),
    row(3, "myelin-driver", Kind::Synchronous(&["serde", "thiserror", "tracing"])),
    row(3, "myelin-executor", Kind::Shell),
    row(3, "myelin-store", Kind::Shell),
    row(4, "myelin-durable", Kind::Shell),
    row(4, "myelin-inventory", Kind::Shell),
    row(4, "myelin-model", Kind::Shell),
    row(4, "myelin-provider-process", Kind::Shell),
    row(5, "myelin-agent", Kind::Shell),
    row(5, "myelin-membership", Kind::Shell),
    row(6, "myelin-sim", Kind::Shell),
    row(7, "myelin", Kind::Shell),
    row(8, "myelin-fuzz", Kind::Shell),
    row(8, "xtask", Kind::Shell),
];

/// What no crate below the shell may have anywhere among its dependencies: runtimes, and what reaches the world.
const RUNTIMES: &[&str] = &[
    "async-executor",
    "async-io",
    "async-std",
    "glommio",
    "hyper",
    "mio",
    "nix",
    "polling",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tokio",
    "tokio-util",
    "ureq",
];

/// Returns the names of the pure crates.
pub(crate) fn pure_crates() -> impl Iterator<Item = &'static str> {
    let pure = |row: &&Row| matches!(row.kind, Kind::Pure(_));
    TABLE.iter().filter(pure).map(|row| row.name)
}

/// Checks this workspace.
///
/// # Errors
///
/// If there is a finding; all are printed.
pub(crate) fn run() -> anyhow::Result<()> {
    let packages = workspace::load(&root()?)?;
    report(&check(TABLE, &packages))
}

/// Returns everything that breaks the layer rule.
fn check(table: &[Row], packages: &[Package]) -> Vec<String> {
    let rows: BTreeMap<_, _> = table.iter().map(|row| (row.name, *row)).collect();
    let mut findings = Vec::new();
    for package in packages {
        match rows.get(package.name.as_str()) {
            Some(row) => check_package(*row, &rows, package, &mut findings),
            None => findings.push(format!("{}: is in no layer of the table", package.name)),
        }
    }
    for row in table {
        if !packages.iter().any(|package| package.name == row.name) {
            findings.push(format!("{}: is in the table, but does not exist", row.name));
        }
    }
    findings
}

fn check_package(
    row: Row,
    rows: &BTreeMap<&str, Row>,
    package: &Package,
    findings: &mut Vec<String>,
) {
    check_direction(row, rows, package, findings);
    match row.kind {
        Kind::Pure(external) => {
            check_external(rows, external, package, findings);
            check_clippy(package, findings);
            check_sources(&package.dir, Strictness::Pure, findings);
        }
        Kind::Synchronous(external) => {
            check_external(rows, external, package, findings);
            check_sources(&package.dir, Strictness::Synchronous, findings);
        }
        Kind::Shell => {}
    }
}

fn check_direction(
    row: Row,
    rows: &BTreeMap<&str, Row>,
    package: &Package,
    findings: &mut Vec<String>,
) {
    for dependency in &package.dependencies {
        let Some(other) = rows.get(dependency.name.as_str()) else {
            continue;
        };
        if dependency.kind == DependencyKind::Normal && other.layer >= row.layer {
            let (name, layer, other_layer) = (row.name, row.layer, other.layer);
            findings.push(format!(
                "{name}: layer {layer} depends on {} of layer {other_layer}",
                other.name,
            ));
        }
    }
}

/// Checks the crates from outside: the direct ones against what the table allows, all of them against runtimes.
fn check_external(
    rows: &BTreeMap<&str, Row>,
    allowed: &[&str],
    package: &Package,
    findings: &mut Vec<String>,
) {
    let name = &package.name;
    for dependency in &package.dependencies {
        let other = dependency.name.as_str();
        let ours = rows.contains_key(other);
        match dependency.kind {
            DependencyKind::Normal if !ours && !allowed.contains(&other) => {
                findings
                    .push(format!("{name}: depends on {other}, which the table does not allow"));
            }
            DependencyKind::Dev if RUNTIMES.contains(&other) => {
                findings.push(format!("{name}: tests of a crate without runtime use {other}"));
            }
            DependencyKind::Normal | DependencyKind::Dev => {}
        }
    }
    for runtime in RUNTIMES {
        if package.closure.contains(*runtime) {
            findings.push(format!("{name}: {runtime} is among its dependencies"));
        }
    }
}

fn check_clippy(package: &Package, findings: &mut Vec<String>) {
    let name = &package.name;
    match fs::read_to_string(package.dir.join("clippy.toml")) {
        Ok(text) if text == STRICT_CLIPPY => {}
        Ok(_) => findings
            .push(format!("{name}: its clippy.toml is not xtask/src/layers/strict-clippy.toml")),
        Err(error) => findings.push(format!("{name}: its strict clippy.toml is gone: {error}")),
    }
}

#[cfg(test)]
mod tests;
