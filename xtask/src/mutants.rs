//! Mutation testing of the crates that decide, a source file at a time.
//!
//! What came of a file's mutants is written to `mutants/CRATE/FILE.txt`, together with a digest of that file. A file that is
//! recorded as it is now is not run again, so that a run can be ended anywhere, and a change costs the mutants of what it changed.
//! Tests are not digested: more of them only catch more (`--again`), and whoever deletes some removes the records.
//! A mutant that survives has to be explained in `mutants/survivors.md`, by a list item of its own that begins with its name.
//!
//! The mutants are put into a copy of the repository below `target/mutants`, which keeps what was built.
//!
//! Reading order: [`run`], [`Record`].

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;

use crate::{root, tidy};

/// What is mutated, and whose tests are to notice.
const CRATES: &[(&str, &[&str])] = &[
    ("myelin-workqueue", &["myelin-workqueue"]),
    ("myelin-reducer", &["myelin-reducer", "myelin-driver"]),
    ("myelin-decider", &["myelin-decider", "myelin-driver"]),
    ("myelin-driver", &["myelin-driver"]),
];

/// A mutant that makes the tests run for so many seconds is noticed by it; unmutated they take ten.
const TIMEOUT: &str = "240";

/// Of the mutants that were tried, fewer than so many percent may survive.
const MAY_SURVIVE: usize = 3;

/// What is to be run.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Only this crate
    #[arg(long, value_name = "CRATE")]
    package: Option<String>,
    /// At most so many files, then stop
    #[arg(long, value_name = "N")]
    files: Option<usize>,
    /// Run the recorded survivors too, for the tests may be better now
    #[arg(long)]
    again: bool,
    /// Run nothing: say what is recorded
    #[arg(long, conflicts_with = "again")]
    summary: bool,
}

/// A source file whose mutants are tried together.
struct Shard {
    package: &'static str,
    /// Whose tests run.
    tests: &'static [&'static str],
    /// From the root of the repository.
    path: PathBuf,
}

/// What became of the mutants of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    /// What the file was.
    digest: String,
    caught: Vec<String>,
    missed: Vec<String>,
    /// Those that ran for too long, which a test notices.
    timeout: Vec<String>,
    /// Those that do not build.
    unviable: Vec<String>,
}

/// Runs the files that are not recorded, and says how many mutants survive.
///
/// # Errors
///
/// `cargo mutants` cannot be run, too many mutants survive, or one that does is not explained.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shards = shards(args.package.as_deref())?;
    let mut left = if args.summary { 0 } else { args.files.unwrap_or(usize::MAX) };
    for shard in &shards {
        if left == 0 {
            break;
        }
        match Record::read(shard)? {
            None => run_whole(shard)?,
            Some(record) if args.again && !record.missed.is_empty() => run_missed(shard, record)?,
            Some(_) => continue,
        }
        left -= 1;
    }
    let verdict = summarize(&shards)?;
    // Who tries some files wants to know of those.
    if args.files.is_none() { verdict.check() } else { Ok(()) }
}

/// Lists the files that are mutated, of one crate or of all.
fn shards(only: Option<&str>) -> anyhow::Result<Vec<Shard>> {
    let root = root()?;
    let mut shards = Vec::new();
    let listed = tidy::list(&root)?;
    for (package, tests) in CRATES {
        let src = format!("crates/{package}/src/");
        let is_source = |path: &&String| path.starts_with(&src) && !is_test(path);
        let paths = listed.iter().filter(|_| only.is_none_or(|it| it == *package));
        let paths = paths.filter(is_source).map(PathBuf::from);
        shards.extend(paths.map(|path| Shard { package, tests, path }));
    }
    ensure!(!shards.is_empty(), "no such crate is mutated");
    Ok(shards)
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn run_whole(shard: &Shard) -> anyhow::Result<()> {
    let mut record = mutate(shard, &["--file", &shard.path.to_string_lossy()])?;
    record.digest = digest(&shard.path)?;
    record.write(shard)
}

/// Tries the survivors of a file again.
fn run_missed(shard: &Shard, mut record: Record) -> anyhow::Result<()> {
    let mut args = vec!["--file".to_owned(), shard.path.to_string_lossy().into_owned()];
    for mutant in &record.missed {
        args.extend(["--re".to_owned(), format!("^{}$", escape(mutant))]);
    }
    let found = mutate(shard, &args)?;
    let n_tried = found.caught.len() + found.missed.len() + found.timeout.len();
    ensure!(n_tried == record.missed.len(), "{n_tried} of {} mutants ran", record.missed.len());
    record.missed = found.missed;
    record.caught.extend(found.caught);
    record.timeout.extend(found.timeout);
    record.write(shard)
}

/// Returns a regular expression for a text as it is.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, it| {
        // Not every sign: an escaped `<` is the beginning of a word.
        if r"\.+*?()|[]{}^$#&-~".contains(it) {
            escaped.push('\\');
        }
        escaped.push(it);
        escaped
    })
}

/// Runs the mutants that the arguments select; the record is without its digest.
fn mutate(shard: &Shard, args: &[impl AsRef<std::ffi::OsStr>]) -> anyhow::Result<Record> {
    let tree = copy(shard.package)?;
    let output = tree.with_file_name("output");
    drop(fs::remove_dir_all(&output));
    fs::create_dir_all(&output)?;
    let mut command = Command::new("cargo");
    command.args(["mutants", "--package", shard.package, "--no-shuffle", "--colors", "never"]);
    command.args(["--in-place", "--timeout", TIMEOUT, "--output"]).arg(&output);
    command.args(["--test-package", &shard.tests.join(",")]).args(args);
    // A property that holds for 48 cases and not for a mutant's 49th is not what these tests rely on.
    command.env("PROPTEST_CASES", "48");
    let status = command.current_dir(&tree).status();
    let status = status.context("cannot start cargo; `cargo install cargo-mutants`")?;
    // 0: all caught, 2: some missed, 3: some took too long.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants ended with {status}");
    let found = output.join("mutants.out");
    let lines = |file: &str| -> anyhow::Result<Vec<String>> {
        let path = found.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    Ok(Record {
        digest: String::new(),
        caught: lines("caught.txt")?,
        missed: lines("missed.txt")?,
        timeout: lines("timeout.txt")?,
        unviable: lines("unviable.txt")?,
    })
}

/// Brings the copy up to date, and returns where it is. A file that is the same keeps its time, so that it is not built again.
/// Each crate has its own, so that two can be worked on at a time.
fn copy(package: &str) -> anyhow::Result<PathBuf> {
    let root = root()?;
    let tree = root.join("target/mutants").join(package).join("tree");
    let listed = tidy::list(&root)?;
    remove_unlisted(&tree, &tree.join("crates"), &listed)?;
    for path in listed {
        let (from, to) = (root.join(&path), tree.join(&path));
        // What is deleted and not committed yet is listed.
        let Ok(bytes) = fs::read(from) else { continue };
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("it is in a directory")?)?;
        fs::write(to, bytes)?;
    }
    Ok(tree)
}

/// Removes files of the copy that the repository has no more: cargo would find tests in them.
fn remove_unlisted(tree: &Path, dir: &Path, listed: &[String]) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_unlisted(tree, &path, listed)?;
        } else if !listed.iter().any(|it| Path::new(it) == path.strip_prefix(tree).unwrap_or(&path))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// What is recorded, altogether.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    n_files: usize,
    n_recorded: usize,
    n_tried: usize,
    n_missed: usize,
    unexplained: Vec<String>,
    /// Explanations of what does not survive.
    idle: Vec<String>,
}

fn summarize(shards: &[Shard]) -> anyhow::Result<Verdict> {
    let page = fs::read_to_string(root()?.join("mutants/survivors.md")).unwrap_or_default();
    let mut explained = explained(&page);
    let mut verdict = Verdict { n_files: shards.len(), ..Verdict::default() };
    for packaged in shards.chunk_by(|a, b| a.package == b.package) {
        let (mut all, mut n_recorded) = (Record::default(), 0);
        for shard in packaged {
            let Some(record) = Record::read(shard)? else { continue };
            n_recorded += 1;
            all.caught.extend(record.caught);
            all.missed.extend(record.missed);
            all.timeout.extend(record.timeout);
            all.unviable.extend(record.unviable);
        }
        let Record { caught, missed, timeout, unviable, .. } = &all;
        let (n_caught, n_missed, n_timeout) = (caught.len(), missed.len(), timeout.len());
        let n_tried = n_caught + n_missed + n_timeout;
        eprintln!(
            "{}: {n_recorded} of {} files, {n_tried} mutants, {n_caught} caught, {n_timeout} too slow, {n_missed} survived, {} do not build",
            packaged[0].package,
            packaged.len(),
            unviable.len()
        );
        verdict.n_recorded += n_recorded;
        verdict.n_tried += n_tried;
        verdict.n_missed += n_missed;
        verdict.unexplained.extend(all.missed.into_iter().filter(|it| !take(&mut explained, it)));
    }
    // Of a crate that was not asked for, nothing is known.
    let is_of = |name: &String, shard: &Shard| name.contains(&format!("/{}/", shard.package));
    explained.retain(|it| shards.iter().any(|shard| is_of(it, shard)));
    verdict.idle = explained;
    Ok(verdict)
}

/// Returns the mutants that a page explains.
fn explained(page: &str) -> Vec<String> {
    let items = page.lines().filter_map(|line| line.strip_prefix("- `")?.split_once('`'));
    items.map(|(name, _)| name.to_owned()).collect()
}

/// Takes the explanation of a mutant. Returns whether there was one.
fn take(explained: &mut Vec<String>, mutant: &str) -> bool {
    let name = without_place(mutant);
    let place = explained.iter().position(|it| *it == name);
    place.map(|place| explained.swap_remove(place)).is_some()
}

impl Verdict {
    fn check(&self) -> anyhow::Result<()> {
        for mutant in &self.unexplained {
            eprintln!("not explained: {mutant}");
        }
        for name in &self.idle {
            eprintln!("explained, and does not survive: {name}");
        }
        let Self { n_files, n_recorded, n_tried, n_missed, unexplained, idle } = self;
        ensure!(n_recorded == n_files, "{} files are to be tried", n_files - n_recorded);
        ensure!(unexplained.is_empty(), "{} survivors are not explained", unexplained.len());
        ensure!(idle.is_empty(), "{} explanations are out of date", idle.len());
        ensure!(
            n_missed * 100 < n_tried * MAY_SURVIVE,
            "{n_missed} of {n_tried} mutants survive, fewer than {MAY_SURVIVE} % may"
        );
        Ok(())
    }
}

/// Cuts `:line:column` out: lines move; what is done to which function of a file does not.
fn without_place(mutant: &str) -> String {
    let (place, what) = mutant.split_once(": ").unwrap_or((mutant, ""));
    let file = place.split(':').next().unwrap_or_default();
    format!("{file}: {what}")
}

/// Digests a file. Not for secrecy: FNV-1a, 64 bits.
fn digest(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(root()?.join(path))?;
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(format!("{hash:016x}"))
}

impl Record {
    fn path(shard: &Shard) -> anyhow::Result<PathBuf> {
        let src = Path::new("crates").join(shard.package).join("src");
        let name = shard.path.strip_prefix(src)?.with_extension("txt");
        Ok(root()?.join("mutants").join(shard.package).join(name))
    }

    /// Reads what is recorded of a file, unless it is about another state of it.
    fn read(shard: &Shard) -> anyhow::Result<Option<Self>> {
        let Ok(text) = fs::read_to_string(Self::path(shard)?) else { return Ok(None) };
        let record = Self::parse(&text)?;
        Ok((record.digest == digest(&shard.path)?).then_some(record))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut record = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').context("a line of a record has two parts")?;
            match word {
                "source" => rest.clone_into(&mut record.digest),
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
        let mut text = format!("source {}\n", self.digest);
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

    fn write(&self, shard: &Shard) -> anyhow::Result<()> {
        let path = Self::path(shard)?;
        fs::create_dir_all(path.parent().context("it is in a directory")?)?;
        fs::write(path, self.render())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
