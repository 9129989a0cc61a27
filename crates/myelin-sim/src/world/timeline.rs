//! What happens when, and what time the clock of the host shows.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::Notify;

use myelin_shape::AttemptKey;
use myelin_state::{BootstrapStage, NodeObservation};

use super::{
    World,
    calls::{Answering, Flight},
};
use crate::{Happening, Jump};

/// What the timeline holds.
#[derive(Debug)]
pub(crate) enum Due {
    /// A step of the scenario.
    Happens(Happening),
    /// A call takes effect.
    Effect(Box<Flight>),
    /// A call answers.
    Answer(Box<Answering>),
    /// A report reaches the control plane of this incarnation.
    Report(u64, NodeObservation),
    /// A session gets further, and reports that.
    Stage(u64, BootstrapStage, Box<NodeObservation>),
    /// A control plane is started.
    Start,
    /// Everything that is wrong ends.
    Calm,
    /// Agents speak.
    Speak,
    /// An agent ends.
    AgentEnds(AttemptKey),
    /// An operator looks after what waits for one.
    Care,
}

/// Where time begins: the first day of 2026.
const EPOCH: Duration = Duration::from_hours(490_896);

/// How often agents speak.
const SPEAK_EVERY: Duration = Duration::from_secs(1);

/// How often an operator looks after a cluster in which nothing is wrong any more.
const CARE_EVERY: Duration = Duration::from_mins(2);

impl World {
    /// Returns how long ago the start was.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn true_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + EPOCH + self.now()
    }

    /// Returns what a process that starts now takes for the time.
    pub(crate) fn wall(&self) -> SystemTime {
        let skew = Duration::from_millis(self.skew.unsigned_abs());
        if self.skew < 0 { self.true_time() - skew } else { self.true_time() + skew }
    }

    pub(crate) fn schedule(&mut self, at: Duration, due: Due) {
        self.n_scheduled += 1;
        self.timeline.insert((at.max(self.now()), self.n_scheduled), due);
        self.scheduled.notify_one();
    }

    pub(super) fn schedule_in(&mut self, delay: Duration, due: Due) {
        self.schedule(self.now() + delay, due);
    }

    /// Returns what is told when something is scheduled.
    pub(crate) fn scheduled(&self) -> Arc<Notify> {
        Arc::clone(&self.scheduled)
    }

    /// Returns when something happens next.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.timeline.keys().next().map(|&(at, _)| at)
    }

    /// Takes what is due now, if anything is.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
        let (at, _) = *self.timeline.keys().next()?;
        if at > self.now() {
            return None;
        }
        self.n_steps += 1;
        self.timeline.pop_first().map(|(_, due)| due)
    }

    pub(crate) fn set_clock(&mut self, jump: Jump) {
        let millis = |by: Duration| i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.skew = match jump {
            Jump::Ahead(by) => self.skew.saturating_add(millis(by)),
            Jump::Back(by) => self.skew.saturating_sub(millis(by)),
        };
    }

    pub(crate) fn care_again(&mut self) {
        self.schedule_in(CARE_EVERY, Due::Care);
    }

    pub(crate) fn speak_again(&mut self) {
        self.schedule_in(SPEAK_EVERY, Due::Speak);
    }
}
