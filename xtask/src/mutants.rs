//! Mutation testing of the crates that decide, in shards that can be resumed.
//!
//! Each crate is cut into [`N_SHARDS`] shards, and what came of a shard is written to `mutants/CRATE/SHARD.txt`, together with a
//! digest of the sources it is about. A shard that is recorded for the sources as they are is not run again. A mutant that survives
//! has to be explained in `mutants/survivors.md`.
//!
//! Reading order: [`run`], [`Record`].

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;

use crate::root;

/// What is mutated, and whose tests are to notice.
const CRATES: &[(&str, &[&str])] = &[
    ("myelin-workqueue", &["myelin-workqueue"]),
    ("myelin-reducer", &["myelin-reducer", "myelin-driver"]),
    ("myelin-decider", &["myelin-decider", "myelin-driver"]),
    ("myelin-driver", &["myelin-driver"]),
];

/// Small enough that a shard takes some minutes.
const N_SHARDS: usize = 16;

/// Of the mutants that were tried, so many percent may survive.
const MAY_SURVIVE: usize = 3;

/// What is to be run.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Only this crate
    #[arg(long, value_name = "CRATE")]
    package: Option<String>,
    /// At most so many shards, then stop
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Run nothing: say what is recorded
    #[arg(long)]
    summary: bool,
}

/// What became of the mutants of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    /// What the sources were.
    digest: String,
    caught: Vec<String>,
    missed: Vec<String>,
    /// Those that ran for too long, which a test notices.
    timeout: Vec<String>,
    /// Those that do not build.
    unviable: Vec<String>,
}

/// Runs the shards that are not recorded, and says how many mutants survive.
///
/// # Errors
///
/// `cargo mutants` cannot be run, too many mutants survive, or one that does is not explained.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut left = args.shards.unwrap_or(usize::MAX);
    let wanted = |name: &str| args.package.as_deref().is_none_or(|only| only == name);
    let crates: Vec<_> = CRATES.iter().filter(|(name, _)| wanted(name)).collect();
    ensure!(!crates.is_empty(), "no such crate is mutated");
    for (name, tests) in &crates {
        for shard in 0..N_SHARDS {
            if args.summary || left == 0 || Record::read(name, shard)?.is_some() {
                continue;
            }
            left -= 1;
            run_shard(name, tests, shard)?;
        }
    }
    summarize(&crates.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

fn run_shard(name: &str, tests: &[&str], shard: usize) -> anyhow::Result<()> {
    let output = root()?.join(format!("target/mutants/{name}-{shard}"));
    fs::create_dir_all(&output)?;
    let mut command = Command::new("cargo");
    command.args(["mutants", "--package", name, "--no-shuffle", "--colors", "never"]);
    command.args(["--shard", &format!("{shard}/{N_SHARDS}"), "--timeout", "120"]);
    command.args(["--test-package", &tests.join(","), "--output"]).arg(&output);
    let status = command.current_dir(root()?).status();
    let status = status.context("cannot start cargo; `cargo install cargo-mutants`")?;
    // 0: all caught, 2: some missed, 3: some took too long.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants ended with {status}");
    let found = output.join("mutants.out");
    let lines = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(found.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let record = Record {
        digest: digest(name)?,
        caught: lines("caught.txt"),
        missed: lines("missed.txt"),
        timeout: lines("timeout.txt"),
        unviable: lines("unviable.txt"),
    };
    record.write(name, shard)
}

fn summarize(crates: &[&str]) -> anyhow::Result<()> {
    let explained = fs::read_to_string(root()?.join("mutants/survivors.md")).unwrap_or_default();
    let (mut n_tried, mut n_missed, mut unexplained) = (0, 0, Vec::new());
    for name in crates {
        let mut all = Record::default();
        let mut n_shards = 0;
        for shard in 0..N_SHARDS {
            let Some(record) = Record::read(name, shard)? else { continue };
            n_shards += 1;
            all.caught.extend(record.caught);
            all.missed.extend(record.missed);
            all.timeout.extend(record.timeout);
            all.unviable.extend(record.unviable);
        }
        let tried = all.caught.len() + all.missed.len() + all.timeout.len();
        eprintln!(
            "{name}: {n_shards} of {N_SHARDS} shards, {tried} mutants, {} caught, {} too slow, {} survived, {} do not build",
            all.caught.len(),
            all.timeout.len(),
            all.missed.len(),
            all.unviable.len()
        );
        n_tried += tried;
        n_missed += all.missed.len();
        // Lines move; what a mutant does to which function does not.
        let is_explained = |mutant: &String| explained.contains(without_place(mutant));
        unexplained.extend(all.missed.into_iter().filter(|it| !is_explained(it)));
    }
    for mutant in &unexplained {
        eprintln!("not explained: {mutant}");
    }
    ensure!(unexplained.is_empty(), "{} survivors are not explained", unexplained.len());
    ensure!(
        n_missed * 100 <= n_tried * MAY_SURVIVE,
        "{n_missed} of {n_tried} mutants survive, at most {MAY_SURVIVE} % may"
    );
    Ok(())
}

/// Cuts `file:line:column: ` off.
fn without_place(mutant: &str) -> &str {
    mutant.split_once(": ").map_or(mutant, |(_, what)| what)
}

/// Digests the sources of a crate.
fn digest(name: &str) -> anyhow::Result<String> {
    let mut files = Vec::new();
    list(&root()?.join("crates").join(name).join("src"), &mut files)?;
    files.sort();
    // Not for secrecy: FNV-1a, 64 bits.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        for byte in fs::read(&file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

fn list(dir: &Path, files: &mut Vec<std::path::PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

impl Record {
    fn path(name: &str, shard: usize) -> anyhow::Result<std::path::PathBuf> {
        Ok(root()?.join(format!("mutants/{name}/{shard:02}.txt")))
    }

    /// Reads what is recorded of a shard, unless it is about other sources.
    fn read(name: &str, shard: usize) -> anyhow::Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(Self::path(name, shard)?) else {
            return Ok(None);
        };
        let record = Self::parse(&text)?;
        Ok((record.digest == digest(name)?).then_some(record))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut record = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').context("a line of a record has two parts")?;
            match word {
                "sources" => rest.clone_into(&mut record.digest),
                "caught" => record.caught.push(rest.to_owned()),
                "missed" => record.missed.push(rest.to_owned()),
                "timeout" => record.timeout.push(rest.to_owned()),
                "unviable" => record.unviable.push(rest.to_owned()),
                other => bail!("a record has no {other:?}"),
            }
        }
        Ok(record)
    }

    fn render(&self) -> String {
        let mut text = format!("sources {}\n", self.digest);
        let Self { digest: _, caught, missed, timeout, unviable } = self;
        for (word, mutants) in
            [("caught", caught), ("missed", missed), ("timeout", timeout), ("unviable", unviable)]
        {
            for mutant in mutants {
                writeln!(text, "{word} {mutant}").expect("a string takes everything");
            }
        }
        text
    }

    fn write(&self, name: &str, shard: usize) -> anyhow::Result<()> {
        let path = Self::path(name, shard)?;
        fs::create_dir_all(path.parent().context("it is in a directory")?)?;
        fs::write(path, self.render())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
