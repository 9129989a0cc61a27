//! What cargo says about the workspace, cut down to what the layer rule needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use cargo_metadata::{Metadata, MetadataCommand, Node, PackageId};

/// When a dependency is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DependencyKind {
    /// By the crate, or by its build script.
    Normal,
    /// By its tests, examples and benches only.
    Dev,
}

/// A direct dependency.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) kind: DependencyKind,
}

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) dependencies: Vec<Dependency>,
    /// Names of everything it is built from, directly or not.
    pub(super) closure: BTreeSet<String>,
}

/// Asks cargo for the crates of the workspace at `root`.
pub(super) fn load(root: &Path) -> anyhow::Result<Vec<Package>> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    let metadata = command.exec().context("cargo metadata")?;
    let resolve = metadata.resolve.as_ref().context("nothing is resolved")?;
    let nodes = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let package = |package: &cargo_metadata::Package| Package {
        name: package.name.to_string(),
        dir: package.manifest_path.with_file_name("").into(),
        dependencies: package.dependencies.iter().map(dependency).collect(),
        closure: closure(&metadata, &nodes, &package.id),
    };
    Ok(metadata.workspace_packages().into_iter().map(package).collect())
}

fn dependency(dependency: &cargo_metadata::Dependency) -> Dependency {
    let is_dev = dependency.kind == cargo_metadata::DependencyKind::Development;
    Dependency {
        name: dependency.name.clone(),
        kind: if is_dev { DependencyKind::Dev } else { DependencyKind::Normal },
    }
}

fn closure(
    metadata: &Metadata,
    nodes: &BTreeMap<&PackageId, &Node>,
    start: &PackageId,
) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for dependency in nodes.get(id).into_iter().flat_map(|node| &node.deps) {
            let normal = dependency
                .dep_kinds
                .iter()
                .any(|info| info.kind == cargo_metadata::DependencyKind::Normal);
            if normal && seen.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }
    let name = |id| metadata[id].name.to_string();
    seen.into_iter().map(name).collect()
}
