//! Manifests of crates: lints and versions come from the workspace.

use toml::{Table, Value};

/// The tables of dependencies, at the top and under each target.
const DEPENDENCIES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks a crate's manifest.
pub(super) fn check(path: &str, text: &str, findings: &mut Vec<String>) {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return findings.push(format!("{path}: is no TOML: {}", error.message())),
    };
    if !manifest.get("lints").is_some_and(is_inherited) {
        findings.push(format!("{path}: lacks `[lints] workspace = true`"));
    }
    check_dependencies(path, &manifest, findings);
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    for target in targets.filter_map(Value::as_table) {
        check_dependencies(path, target, findings);
    }
}

/// Returns the paths of the programs that a manifest names.
pub(super) fn programs(text: &str) -> impl Iterator<Item = String> {
    let manifest: Table = text.parse().unwrap_or_default();
    let programs = manifest.get("bin").and_then(Value::as_array).cloned().unwrap_or_default();
    programs.into_iter().filter_map(|program| Some(program.get("path")?.as_str()?.to_owned()))
}

fn check_dependencies(path: &str, parent: &Table, findings: &mut Vec<String>) {
    let tables = DEPENDENCIES.iter().filter_map(|name| parent.get(*name));
    for (name, dependency) in tables.filter_map(Value::as_table).flatten() {
        if !is_inherited(dependency) {
            findings.push(format!("{path}: {name} does not say `workspace = true`"));
        }
    }
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}
