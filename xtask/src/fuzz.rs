//! The fuzzers; the tests of `myelin-fuzz` try again what is kept in `fuzz/corpus`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::root;

/// What a fuzzer needs beyond what a change must pass with: a program and arguments that it answers, and how to get it.
const NEEDED: [(&str, &[&str], &str); 3] = [
    ("cargo", &["+nightly", "--version"], "rustup toolchain install nightly --profile minimal"),
    ("cargo", &["fuzz", "--version"], "cargo install cargo-fuzz --locked"),
    ("c++", &["--version"], "apt-get install g++"),
];

/// Limits of one input: far beyond what any should take, so that only a loop or a bomb meets them.
const LIMITS: [&str; 3] = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096"];

/// What is run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this target
    #[arg(long)]
    target: Option<String>,
    /// How many seconds each target is run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Runs the targets one after the other. What they find new is put into `target/fuzz-corpus`, and an input that fails
/// into `fuzz/artifacts`.
///
/// # Errors
///
/// Something is not installed, there is no such target, or an input fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let missing = missing();
    ensure!(missing.is_empty(), "something is not installed; get it with\n{}", missing.join("\n"));
    let root = root()?;
    let all = targets(&root)?;
    let chosen: Vec<_> =
        all.iter().filter(|name| args.target.iter().all(|it| it == *name)).collect();
    ensure!(!chosen.is_empty(), "there is no such target, but {}", all.join(", "));
    chosen.into_iter().try_for_each(|target| fuzz(&root, target, args.seconds))
}

/// Returns the commands that install what does not answer.
fn missing() -> Vec<&'static str> {
    let answers = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let missing = NEEDED.iter().filter(|(program, args, _)| !answers(program, args));
    missing.map(|(_, _, install)| *install).collect()
}

/// Returns the names of the targets.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let dir = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|name| name.to_str()).map(Into::into));
    }
    names.sort_unstable();
    Ok(names)
}

fn fuzz(root: &Path, target: &str, seconds: u32) -> anyhow::Result<()> {
    // The first directory takes what is new: what is kept for good is chosen by a person.
    let found = root.join("target/fuzz-corpus").join(target);
    let kept = root.join("fuzz/corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", target]).args([&found, &kept]).arg("--");
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1").args(LIMITS);
    let status = command.current_dir(root).status().context("cannot start cargo")?;
    ensure!(status.success(), "the fuzzer of {target} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests;
