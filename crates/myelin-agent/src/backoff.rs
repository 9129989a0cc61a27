//! The pause between two tries: doubled up to a cap, and spread, so that agents do not return in step.

use std::time::Duration;

use crate::Pace;

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { first: pace.first_pause, longest: pace.longest_pause, failures: 0 }
    }

    /// Takes note of how often the control plane wants to hear us: after an outage it counts our silence by that, so no
    /// pause is longer. One dial in that time is no more of a load than the heartbeat it stands for.
    pub(crate) fn heartbeat_every(&mut self, heartbeat_every: Duration) {
        self.longest = self.longest.min(heartbeat_every).max(self.first);
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the next pause: between half of the step and all of it, by `random`.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        let step = self.first.saturating_mul(factor);
        let step = step.min(self.longest);
        let share = f64::from(random) / f64::from(u32::MAX);
        step.mul_f64(0.5 + share / 2.0)
    }
}
