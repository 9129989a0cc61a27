//! The crash suite at length: `myelin up` on real processes, killed at every moment of some scenarios and at a thousand
//! random ones. The tests are those of `cargo test -p myelin --test it crash::`, which runs a share of it.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context as _, ensure};

use crate::root;

/// What is run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// At how many random moments it is killed, at least
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// The seed of the first random life; the next one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replay only the random life of this seed
    #[arg(long, conflicts_with_all = ["kills", "seed"])]
    life: Option<u64>,
    /// Replay only this moment of a scenario, as `replacement/write:7`
    #[arg(long, conflicts_with_all = ["kills", "seed", "life"])]
    point: Option<String>,
}

/// A call of the tests: their names, how many at once, and the environment they get.
type Run = (&'static str, &'static str, Vec<(&'static str, String)>);

/// Why a run may come to nothing.
const NO_MOMENT: &str = "a moment is SCENARIO/KIND:K, as `replacement/write:7` with one of scale-up, replacement, scale-down, \
                         taking-up and down, and one of write, call, call-before, unwritten and unanswered; it has to come";

/// Runs the suite and prints what it did.
///
/// # Errors
///
/// Something is not as it must be after a crash; how to see it again is printed.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let start = Instant::now();
    let summary = root()?.join("target/crash-summary.txt");
    drop(fs::remove_file(&summary));
    let (mut failed, mut idle) = (Vec::new(), Vec::new());
    for run in runs(args) {
        let n_before = n_kills(&summary);
        if test(&run, &summary).is_err() {
            failed.push(run);
        } else if n_kills(&summary) == n_before {
            idle.push(run.0);
        }
    }
    let text = fs::read_to_string(&summary).unwrap_or_default();
    eprintln!("\n{text}{}", total(&text, start.elapsed().as_secs_f64()));
    ensure!(
        failed.is_empty(),
        "the crash suite failed; the lines `replay:` above say how to see it"
    );
    ensure!(idle.is_empty(), "nothing was killed by {}: {NO_MOMENT}", idle.join(", "));
    Ok(())
}

fn runs(args: Args) -> Vec<Run> {
    let random = |kills: u64, seed: u64| {
        let env = vec![("CRASH_KILLS", kills.to_string()), ("CRASH_SEED", seed.to_string())];
        // It lives several lives at once by itself.
        ("command::crash::random", "1", env)
    };
    match args {
        Args { point: Some(point), .. } => {
            vec![("command::crash::points", "1", vec![("CRASH_POINT", point)])]
        }
        Args { life: Some(seed), .. } => vec![random(1, seed)],
        Args { kills, seed, .. } => vec![
            ("command::crash::points", "2", vec![("CRASH_EVERY", "1".to_owned())]),
            ("command::crash::tens", "1", Vec::new()),
            ("command::crash::beside", "1", Vec::new()),
            random(kills, seed),
        ],
    }
}

fn test((names, at_once, env): &Run, summary: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--package", "myelin", "--test", "it", "--", names, "--nocapture"]);
    command.args(["--test-threads", at_once]).current_dir(root()?);
    command.env("CRASH_SUMMARY", summary).envs(env.iter().map(|(name, value)| (name, value)));
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{names} ended with {status}");
    Ok(())
}

fn n_kills(summary: &Path) -> u64 {
    sum(&fs::read_to_string(summary).unwrap_or_default(), "kills=")
}

/// Adds a figure of all lines up.
fn sum(text: &str, name: &str) -> u64 {
    let words = text.split_ascii_whitespace();
    words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok()).sum()
}

fn total(text: &str, seconds: f64) -> String {
    let sum = |name| sum(text, name);
    let (kills, restarts, violations) = (sum("kills="), sum("restarts="), sum("violations="));
    format!("all: kills={kills} restarts={restarts} seconds={seconds:.1} violations={violations}")
}

#[cfg(test)]
mod tests;
