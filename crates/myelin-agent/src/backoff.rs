//! The pause between two tries: doubled up to a cap, and spread, so that agents do not return in step.

use std::time::Duration;

use crate::Pace;

#[derive(Debug)]
pub(crate) struct Backoff {
    pace: Pace,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, failures: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the next pause: between half of the step and all of it, by `random`.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        let step = self.pace.first_pause.saturating_mul(factor);
        let step = step.min(self.pace.longest_pause);
        let share = f64::from(random) / f64::from(u32::MAX);
        step.mul_f64(0.5 + share / 2.0)
    }
}
