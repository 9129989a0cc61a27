//! Scripts at the edges of what may be written: whatever is accepted ends well.

use std::fmt::Write as _;

use myelin_sim::{run, scenario, script};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// The least and the most of each setting, and something between.
const SETTINGS: [(&str, &[&str]); 22] = [
    ("settle-window", &["0s", "5m"]),
    ("endpoint-after", &["0", "3", "10"]),
    ("latency", &["0s", "1s", "10s"]),
    ("boot-time", &["0s", "1m"]),
    ("sweep", &["1s", "10m"]),
    ("down-for", &["0s", "1h"]),
    ("retry", &["initial-delay=10ms", "initial-delay=1m"]),
    ("retry", &["operation-timeout=1s", "operation-timeout=20s", "operation-timeout=30m"]),
    ("retry", &["answer-timeout=1s", "answer-timeout=30m"]),
    ("retry", &["ready-timeout=10ms", "ready-timeout=1m", "ready-timeout=30m"]),
    ("retry", &["bootstrap-timeout=10ms", "bootstrap-timeout=1m", "bootstrap-timeout=30m"]),
    ("retry", &["stable-after=10ms", "stable-after=30m"]),
    ("retry", &["lost-after=6s", "lost-after=30m"]),
    ("retry", &["max-failures=0", "max-failures=1", "max-failures=4000000000"]),
    ("retry", &["jitter-percent=0", "jitter-percent=100"]),
    ("limits", &["concurrency=1", "concurrency=4000000000"]),
    ("limits", &["calls-per-second=1", "calls-per-second=4000000000"]),
    ("at 0s want", &["a:12", "a:30", "a:100", "a:50 b:50"]),
    ("at 20s want", &["", "a:100,image=refused", "a:99,first=all,in-flight=1"]),
    ("at 30s want", &["a:7,max-unavailable=1%", "a:100,max-unhealthy=0", "b:20,on-failure=keep"]),
    (
        "at 40s",
        &["replace-group a", "abandon a-0", "clock-ahead 30days", "crash 1h", "outage 1h absent"],
    ),
    ("at 50s", &["want a:60,first=canary,max-unavailable=1", "pause", "clock-back 30days"]),
];

/// Writes a script: settings at their edges, with what a seed draws beside them.
fn write(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::new();
    for (word, values) in SETTINGS {
        if rng.random_ratio(1, 4) {
            let value = values.choose(&mut rng).expect("there are some");
            writeln!(text, "{word} {value}").expect("a string takes everything");
        }
    }
    let drawn = script::render(&scenario(seed));
    let words = ["at ", "call ", "boot ", "commit ", "report ", "calm "];
    let steps = drawn.lines().filter(|line| words.iter().any(|word| line.starts_with(word)));
    text + &steps.collect::<Vec<_>>().join("\n")
}

#[test]
fn whatever_may_be_written_ends_well() {
    let bound =
        |name, default| std::env::var(name).map_or(default, |it| it.parse().expect("a number"));
    let (first, n) = (bound("CORNERS_FIRST", 0), bound("CORNERS", 40));
    let mut n_played = 0;
    let mut broken = Vec::new();
    for seed in first..first + n {
        let text = write(seed);
        let Ok(history) = script::parse(&text) else { continue };
        n_played += 1;
        if let Some(breach) = run(&history).breach {
            broken.push(format!("seed {seed}: {breach}\n{text}"));
        }
    }
    assert!(broken.is_empty(), "{} of {n_played}\n{}", broken.len(), broken.join("\n\n"));
    assert!(n_played * 4 > n, "only {n_played} of {n} can be played");
}
