//! Checks of text that no other tool makes.
//!
//! Reading order: [`check`], [`manifest`], [`links`], [`snippets`].

mod links;
mod manifest;
mod snippets;

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::{report, root};

/// Texts that may not land in a Rust source. Split, so that this file holds none of them.
const BANNED: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("todo", "!"),
    concat!("dbg", "!"),
    concat!("#[ign", "ore"),
    concat!("should_", "panic"),
];

/// Directories of one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Use", "rs/")];

/// Files whose text is checked for more than its end.
const SPACED: &[&str] = &["rs", "md", "toml"];

/// Files that are text.
const TEXT: &[&str] = &["json", "md", "rs", "sh", "snap", "toml", "txt", "yaml", "yml"];

/// The text files of the repository by path from its root, with `/` between the parts.
type Files = BTreeMap<String, String>;

/// Checks this repository.
///
/// # Errors
///
/// If there is a finding; all are printed.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = root()?;
    let paths = list(&root)?;
    report(&check(&read(&root, &paths)?, &|path| root.join(path).exists()))
}

/// Lists what git keeps or would keep.
pub(crate) fn list(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new("git");
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = command.args(args).current_dir(root).output().context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files ended with {}", output.status);
    let names = String::from_utf8(output.stdout).context("a file name is no UTF-8")?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(Into::into).collect())
}

fn read(root: &Path, paths: &[String]) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for path in paths {
        let full = root.join(path);
        // A file that is deleted but still in git's index is none of ours.
        if is_text(path) && full.is_file() {
            let text = fs::read_to_string(full).with_context(|| format!("cannot read {path}"))?;
            files.insert(path.clone(), text);
        }
    }
    Ok(files)
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn is_text(path: &str) -> bool {
    TEXT.contains(&extension(path)) || path.starts_with(".ci/")
}

/// Returns everything untidy. `exists` answers whether there is a file or directory at a path from the root.
fn check(files: &Files, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files {
        check_lines(path, text, &mut findings);
        if let Some(dir) = path.strip_suffix("/Cargo.toml") {
            manifest::check(path, text, &mut findings);
            check_crate_docs(dir, text, files, &mut findings);
        }
        if extension(path) == "md" {
            links::check(path, text, exists, &mut findings);
            snippets::check(path, text, files, &mut findings);
        }
    }
    findings
}

fn check_lines(path: &str, text: &str, findings: &mut Vec<String>) {
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(format!("{path}: does not end with a newline"));
    }
    // Not `lines`, which hides a carriage return.
    for (line, number) in text.split('\n').zip(1..) {
        let mut find = |what: &str| findings.push(format!("{path}:{number}: {what}"));
        if SPACED.contains(&extension(path)) {
            if line.ends_with([' ', '\t', '\r']) {
                find("ends with white space");
            }
            if line.contains('\t') {
                find("holds a tab");
            }
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
            find(&format!("names {path}, which is of one machine only"));
        }
        if extension(path) == "rs" {
            let banned = BANNED.iter().filter(|banned| line.contains(**banned));
            banned.for_each(|banned| find(&format!("holds `{banned}`")));
        }
    }
}

/// Returns whether a line holds an absolute path that begins so: not the middle of a longer one, nor part of a URL.
fn names_path(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "/._-~}>*".contains(c))
    })
}

fn check_crate_docs(dir: &str, manifest: &str, files: &Files, findings: &mut Vec<String>) {
    let roots = ["lib.rs", "main.rs"].map(|file| format!("{dir}/src/{file}"));
    let root = roots.into_iter().find(|path| files.contains_key(path));
    // A crate that is neither a library nor one program names its programs.
    let programs = || manifest::programs(manifest).map(|path| format!("{dir}/{path}")).collect();
    let roots: Vec<_> = root.map_or_else(programs, |root| vec![root]);
    if roots.is_empty() {
        findings.push(format!("{dir}: has neither src/lib.rs nor src/main.rs"));
    }
    for path in roots {
        if !files.get(&path).is_some_and(|text| text.starts_with("//! ")) {
            findings.push(format!("{path}:1: does not begin with a `//!` doc"));
        }
    }
}

#[cfg(test)]
mod tests;
