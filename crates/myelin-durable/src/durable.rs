//! The loop around a driver and a store: fold, run, commit, and only then do.

use std::{mem, sync::Arc, time::SystemTime};

use myelin_driver::{ClusterDriver, DesiredError, DriverEvent, Effects, Event, Submission};
use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_store::{Source, Store};

use crate::{
    Trouble,
    held::Held,
    outbox::{Duties, Outbox},
};

/// Whom a [`DurableDriver`] gives duties to, and what time it is. Nothing here waits.
pub trait Shell {
    /// Returns the time as the driver counts it: it never goes backwards.
    fn now(&self) -> SystemTime;

    /// Looks at what a run of the driver came to, before anything of it is recorded.
    fn ran(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime);

    /// Takes what happened, in order. It is durable.
    fn tell(&mut self, event: DriverEvent);

    /// Takes an effect, which is recorded as pending.
    ///
    /// # Errors
    ///
    /// Why it is not taken, for people. It is folded as the effect's failure.
    fn submit(&mut self, submission: Submission) -> Result<(), Box<str>>;

    /// Stops an effect whose time is over.
    fn expire(&mut self, node: &LogicalNodeId, operation: OperationId);

    /// Forgets an attempt that is gone from its slot.
    fn forget(&mut self, driver: &ClusterDriver, node: LogicalNodeId, attempt: NodeAttemptId);
}

/// What has come of a [`DurableDriver::settle`].
#[derive(Debug, Default)]
pub struct Settled {
    /// The shapes that the driver refused.
    pub refused: Vec<DesiredError>,
    /// Whether what was folded right before is durable.
    pub is_recorded: bool,
}

/// A driver that is written down.
///
/// While the store takes nothing it stands still: what is learned waits in bounded memory, and nothing is done.
#[derive(Debug)]
pub struct DurableDriver {
    driver: ClusterDriver,
    store: Arc<dyn Store>,
    source: Source,
    /// What happened while the store took nothing. Folded later, so that what is stored is always a settled state.
    held: Held,
    outbox: Outbox,
    wake_at: Option<SystemTime>,
}

impl DurableDriver {
    /// Returns a driver that goes on from what the store holds. `source` is the file that what is desired was read from.
    pub fn new(driver: ClusterDriver, store: Arc<dyn Store>, source: Source) -> Self {
        let (held, outbox) = (Held::default(), Outbox::default());
        Self { driver, store, source, held, outbox, wake_at: None }
    }

    /// Returns the driver.
    pub fn driver(&self) -> &ClusterDriver {
        &self.driver
    }

    /// Returns why nothing is done, if the store takes nothing.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.outbox.trouble()
    }

    /// Returns the file that what is desired was read from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Says which file the next desired shape was read from. Returns the one before.
    pub fn set_source(&mut self, source: Source) -> Source {
        mem::replace(&mut self.source, source)
    }

    /// Returns when [`settle`](Self::settle) has something to do without an event.
    pub fn wake_at(&self) -> Option<SystemTime> {
        self.trouble().map_or(self.wake_at, |trouble| Some(trouble.retry_at))
    }

    /// Takes an event; what follows from it is done by [`settle`](Self::settle).
    pub fn fold(&mut self, now: SystemTime, event: Event) {
        if self.trouble().is_none() {
            self.driver.fold(now, event);
        } else {
            self.held.push(event, self.driver.state());
        }
    }

    /// Takes an event that is not the driver's and that somebody waits for: once it is recorded it outlives a loss of power.
    pub fn record(&mut self, event: DriverEvent) {
        self.outbox.record(event);
    }

    /// Takes an event that is not the driver's. While the store takes nothing, only the last of them are kept.
    pub fn note(&mut self, event: DriverEvent) {
        self.outbox.note(event);
    }

    /// Runs the driver, makes durable what it did, and does its duties, until there is none.
    pub async fn settle(&mut self, shell: &mut (impl Shell + Send)) -> Settled {
        let mut settled = Settled::default();
        loop {
            let now = shell.now();
            match self.trouble() {
                Some(trouble) if trouble.retry_at > now => return settled,
                Some(_) => {}
                None => settled.refused.extend(self.run(shell, now)),
            }
            let was_in_trouble = self.trouble().is_some();
            let commit = self.outbox.commit(&*self.store, &self.driver, now);
            let Some((events, mut duties)) = commit.await else {
                return settled;
            };
            settled.is_recorded |= !was_in_trouble;
            for event in events {
                shell.tell(event);
            }
            if was_in_trouble {
                self.catch_up(&mut duties, shell.now());
            }
            // A refused effect is folded as its failure, which delays the next one: this ends.
            if self.perform(duties, shell) && !was_in_trouble {
                return settled;
            }
        }
    }

    fn run(&mut self, shell: &mut impl Shell, now: SystemTime) -> Vec<DesiredError> {
        let run = self.driver.run_id().map(|run| run.0);
        let _span = tracing::debug_span!("pass", run).entered();
        let mut effects = self.driver.run(now);
        self.wake_at = effects.wake_at;
        shell.ran(&self.driver, &effects, now);
        let refused = mem::take(&mut effects.refused);
        self.outbox.absorb(effects, &self.driver, &self.source, now);
        refused
    }

    /// Folds what was held back, before anything is decided without it. Effects that waited longer than they were to take
    /// have their time again.
    fn catch_up(&mut self, duties: &mut Duties, now: SystemTime) {
        for event in self.held.take() {
            self.fold(now, event);
        }
        let unsent = duties.submit.iter().map(|it| (it.node.clone(), it.operation)).collect();
        self.fold(now, Event::StoodStill { unsent });
        self.fold(now, Event::Tick);
        for submission in &mut duties.submit {
            let node = self.driver.state().nodes.get(&submission.node);
            let pending = node.and_then(|node| node.pending.as_deref());
            if let Some(pending) = pending.filter(|pending| pending.id == submission.operation) {
                submission.deadline = pending.deadline;
            }
        }
    }

    /// Does the duties of a commit, in their order. Returns whether every effect was taken.
    fn perform(&mut self, duties: Duties, shell: &mut impl Shell) -> bool {
        let mut all_taken = true;
        for submission in duties.submit {
            let (node, operation) = (submission.node.clone(), submission.operation);
            if let Err(message) = shell.submit(submission) {
                all_taken = false;
                self.fold(shell.now(), Event::SubmitFailed { node, operation, message });
            }
        }
        for (node, operation) in duties.expire {
            shell.expire(&node, operation);
        }
        for (node, attempt) in duties.forget {
            shell.forget(&self.driver, node, attempt);
        }
        all_taken
    }
}
