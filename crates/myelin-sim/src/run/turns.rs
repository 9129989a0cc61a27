//! How many turns of the loop there may be, before something spins.

use std::{fmt, time::Duration};

use crate::{Happening, Step};

/// So many turns are nothing yet.
const SOME: u64 = 400_000;

/// Agents speak, sweeps run, and what fails is tried again.
const A_SECOND: u64 = 30;

/// To make a node, and to end it.
const A_NODE: u64 = 50;

/// The turns of a run.
#[derive(Debug)]
pub(super) struct Turns {
    n: u64,
    /// As many as it takes if each step has every node made anew.
    of_steps: u64,
}

impl Turns {
    pub(super) fn of(steps: &[Step]) -> Self {
        let n_steps = u64::try_from(steps.len()).unwrap_or(u64::MAX);
        let most = steps.iter().map(n_nodes).max().unwrap_or_default();
        Self { n: 0, of_steps: (most * A_NODE).saturating_mul(n_steps) }
    }

    /// Counts a turn. Returns whether there may be so many, `now` after the start.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        self.n += 1;
        self.n <= SOME + self.of_steps + A_SECOND * now.as_secs()
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} turns", self.n)
    }
}

fn n_nodes(step: &Step) -> u64 {
    match step {
        Step::At(_, Happening::Want(groups)) => groups.iter().map(|it| u64::from(it.count)).sum(),
        Step::At(..) | Step::Call(..) | Step::Boot(..) | Step::Commit(..) | Step::Report(..) => 0,
    }
}
