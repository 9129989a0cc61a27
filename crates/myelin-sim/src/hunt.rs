//! Many seeds, on every core.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Breach, Outcome, Scenario, run};

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// How many runs there were.
    pub n_runs: u64,
    /// How many things happened in all of them.
    pub n_steps: u64,
    /// How many calls were made.
    pub n_calls: u64,
    /// How many commits were tried.
    pub n_commits: u64,
    /// How many control planes were started.
    pub n_starts: u64,
    /// How often each thing went wrong.
    pub played: BTreeMap<String, u64>,
    /// How long after everything worked each run was as desired, and with which seed. In the end they are in order.
    converged_after: Vec<(Duration, u64)>,
    /// The seeds whose run broke a rule, in their order.
    pub findings: Vec<(u64, Breach)>,
}

/// After so many findings a hunt ends: they are hardly all different.
const ENOUGH: usize = 20;

/// Plays what `history` makes of each seed. Tells `progress` of how many runs there were, now and then, until it answers that
/// it is enough.
pub fn hunt(
    seeds: Range<u64>,
    history: impl Fn(u64) -> Scenario + Sync,
    progress: impl Fn(u64) -> bool + Sync,
) -> Hunt {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let found = Mutex::new(Hunt::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = run(&history(seed));
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.add(seed, outcome);
            let enough = found.findings.len() >= ENOUGH;
            if enough || found.n_runs.is_multiple_of(TELL_EVERY) && !progress(found.n_runs) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.findings.sort_by_key(|(seed, _)| *seed);
    found.converged_after.sort_unstable();
    found
}

/// After how many runs it is told how far a hunt is.
const TELL_EVERY: u64 = 100;

impl Hunt {
    /// Returns within how long after everything worked so many percent of the runs were as desired.
    pub fn converged_within(&self, percent: usize) -> Option<Duration> {
        let last = self.converged_after.len().checked_sub(1)?;
        self.converged_after.get(last * percent.min(100) / 100).map(|(after, _)| *after)
    }

    /// Returns how long the slowest run took until it was as desired, and its seed.
    pub fn slowest(&self) -> Option<(Duration, u64)> {
        self.converged_after.last().copied()
    }

    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.n_runs += 1;
        self.n_steps += outcome.n_steps;
        self.n_calls += outcome.counts.calls.values().map(|&n| u64::from(n)).sum::<u64>();
        self.n_commits += u64::from(outcome.counts.commits);
        self.n_starts += outcome.counts.starts;
        for (name, n) in outcome.played {
            *self.played.entry(name).or_default() += n;
        }
        self.converged_after.extend(outcome.converged_after.map(|it| (it, seed)));
        self.findings.extend(outcome.breach.map(|breach| (seed, breach)));
    }
}
