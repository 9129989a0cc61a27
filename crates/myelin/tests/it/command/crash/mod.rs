//! The built command is killed anywhere, started again, and what is there in the end is counted from outside.
//!
//! A share runs with all other tests; `cargo xtask crash` runs everything, and sets these variables:
//!
//! | variable | meaning |
//! |---|---|
//! | `CRASH_KILLS` | how many random kills there are, at least |
//! | `CRASH_SEED` | the seed of the first random life; the next one has the next |
//! | `CRASH_EVERY` | every how many moments of a scenario is tried |
//! | `CRASH_POINT` | the one moment of a scenario to try, as `replacement/write:7` |
//! | `CRASH_SUMMARY` | a file to which a line of figures is added |
//!
//! Reading order: [`life`] (a cluster that is killed and goes on), [`truth`] (what is there), [`points`] (every moment),
//! [`random`] (any moment), [`tens`] (many creates at once), [`beside`] (two commands at once).

mod beside;
mod life;
mod points;
mod random;
mod tens;
mod truth;

use std::{
    env,
    fs::OpenOptions,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// What a run of the suite did.
#[derive(Debug, Default)]
struct Tally {
    kills: AtomicU64,
    restarts: AtomicU64,
    violations: AtomicU64,
}

impl Tally {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Does something that panics where it finds a violation. Then it says how that is seen again, and goes on.
    fn attempt<T>(&self, replay: &str, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work)).ok();
        if done.is_none() {
            Self::add(&self.violations);
            eprintln!("replay: cargo xtask crash {replay}");
        }
        done
    }

    /// Prints a line of figures, and keeps it for whoever asked for it.
    ///
    /// Fails if there was a violation.
    fn tell(&self, what: &str, more: &str, took: Duration) {
        let Self { kills, restarts, violations } = self;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (kills, restarts, violations) = (get(kills), get(restarts), get(violations));
        let seconds = took.as_secs_f64();
        let line = format!(
            "{what}: kills={kills} restarts={restarts} seconds={seconds:.1} violations={violations}{more}\n"
        );
        eprint!("{line}");
        if let Some(path) = env::var_os("CRASH_SUMMARY") {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(violations, 0, "the lines above say what, and how to see it again");
    }
}

/// Reads a setting of the suite.
fn setting<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Ok(text) => text.parse().ok().unwrap_or_else(|| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}
