use std::{collections::BTreeSet, fs, path::Path};

use super::{workspace::Dependency, *};

const SMALL: &[Row] = &[
    row(0, "shape", Kind::Pure(&["serde"])),
    row(2, "decider", Kind::Pure(&["serde"])),
    row(2, "reducer", Kind::Pure(&[])),
    row(3, "driver", Kind::Synchronous(&["tracing"])),
    row(4, "provider", Kind::Shell),
];

/// A workspace that breaks no rule, in a directory of its own.
struct World {
    dir: tempfile::TempDir,
    packages: Vec<Package>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let packages: Vec<_> = SMALL.iter().map(|row| package(dir.path(), row.name)).collect();
        let mut world = Self { dir, packages };
        world.depend("decider", "shape", DependencyKind::Normal);
        world.depend("driver", "decider", DependencyKind::Normal);
        world.depend("provider", "tokio", DependencyKind::Normal);
        world.depend("shape", "serde", DependencyKind::Normal);
        world.depend("shape", "proptest", DependencyKind::Dev);
        world
    }

    fn get(&mut self, name: &str) -> &mut Package {
        let found = self.packages.iter_mut().find(|package| package.name == name);
        found.unwrap()
    }

    fn depend(&mut self, from: &str, to: &str, kind: DependencyKind) {
        let name = to.to_owned();
        let package = self.get(from);
        package.dependencies.push(Dependency { name, kind });
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.dir.path().join(path), text).unwrap();
    }

    /// Returns the findings, with the world's own directory left out.
    fn findings(&self) -> String {
        let text = check(SMALL, &self.packages).join("\n");
        text.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn package(root: &Path, name: &str) -> Package {
    let dir = root.join(name);
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("src/lib.rs"), "//! Nothing yet.\n").unwrap();
    fs::write(dir.join("clippy.toml"), STRICT_CLIPPY).unwrap();
    Package { name: name.to_owned(), dir, dependencies: Vec::new(), closure: BTreeSet::new() }
}

#[test]
fn a_workspace_that_keeps_the_rule_has_no_findings() {
    assert_eq!(World::new().findings(), "");
}

#[test]
fn an_upward_dependency_is_found() {
    let mut world = World::new();
    world.depend("shape", "driver", DependencyKind::Normal);
    insta::assert_snapshot!(world.findings(), @"shape: layer 0 depends on driver of layer 3");
}

#[test]
fn a_dependency_within_a_layer_is_found() {
    let mut world = World::new();
    world.depend("decider", "reducer", DependencyKind::Normal);
    insta::assert_snapshot!(world.findings(), @"decider: layer 2 depends on reducer of layer 2");
}

#[test]
fn tests_may_depend_upwards() {
    let mut world = World::new();
    world.depend("decider", "reducer", DependencyKind::Dev);
    world.depend("decider", "driver", DependencyKind::Dev);
    assert_eq!(world.findings(), "");
}

#[test]
fn a_pure_crate_that_gains_tokio_is_found() {
    let mut world = World::new();
    world.depend("reducer", "tokio", DependencyKind::Normal);
    world.get("reducer").closure.insert("tokio".to_owned());
    insta::assert_snapshot!(world.findings(), @r"
    reducer: depends on tokio, which the table does not allow
    reducer: tokio is among its dependencies
    ");
}

#[test]
fn tokio_behind_another_crate_or_in_tests_is_found() {
    let mut world = World::new();
    world.get("shape").closure.insert("mio".to_owned());
    world.depend("decider", "tokio", DependencyKind::Dev);
    world.depend("driver", "tokio", DependencyKind::Normal);
    insta::assert_snapshot!(world.findings(), @r"
    shape: mio is among its dependencies
    decider: tests of a crate without runtime use tokio
    driver: depends on tokio, which the table does not allow
    ");
}

#[test]
fn an_external_crate_nobody_allowed_is_found() {
    let mut world = World::new();
    world.depend("decider", "chrono", DependencyKind::Normal);
    insta::assert_snapshot!(world.findings(), @"decider: depends on chrono, which the table does not allow");
}

#[test]
fn an_unlisted_crate_and_a_stale_row_are_found() {
    let mut world = World::new();
    world.get("reducer").name = "folder".to_owned();
    insta::assert_snapshot!(world.findings(), @r"
    folder: is in no layer of the table
    reducer: is in the table, but does not exist
    ");
}

#[test]
fn a_pure_crate_that_loses_its_strict_lints_is_found() {
    let world = World::new();
    fs::remove_file(world.dir.path().join("shape/clippy.toml")).unwrap();
    world.write("decider/clippy.toml", "allow-unwrap-in-tests = true\n");
    insta::assert_snapshot!(world.findings(), @r"
    shape: its strict clippy.toml is gone: No such file or directory (os error 2)
    decider: its clippy.toml is not xtask/src/layers/strict-clippy.toml
    ");
}

#[test]
fn a_source_that_names_a_clock_a_file_or_a_socket_is_found() {
    let world = World::new();
    world.write("shape/src/lib.rs", "fn now() { std::time::SystemTime::now(); }\n");
    world.write("decider/src/lib.rs", "use std::{fmt, fs};\n");
    world.write("reducer/src/lib.rs", "\nuse std::net::TcpStream;\n");
    world.write("driver/src/lib.rs", "use std::time::Instant;\n");
    world.write("provider/src/lib.rs", "use std::{fs, time::Instant};\n");
    insta::assert_snapshot!(world.findings(), @r"
    shape/src/lib.rs:1: names a clock: std::time::SystemTime::now
    decider/src/lib.rs:1: names a file: std::fs
    reducer/src/lib.rs:2: names a socket: std::net::TcpStream
    driver/src/lib.rs:1: names a clock: std::time::Instant
    ");
}

#[test]
fn tests_of_a_pure_crate_may_name_what_they_like() {
    let world = World::new();
    world.write("shape/src/tests.rs", "use std::fs;\n");
    assert_eq!(world.findings(), "");
}

#[test]
fn this_workspace_has_a_row_for_each_of_its_crates() {
    let packages = workspace::load(&root().unwrap()).unwrap();
    let mut names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut rows: Vec<_> = TABLE.iter().map(|row| row.name).collect();
    names.sort_unstable();
    rows.sort_unstable();
    assert_eq!(names, rows);
}
