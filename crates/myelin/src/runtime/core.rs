//! The synchronous half of the loop: folding, duties, answers.

use std::{mem, sync::Arc, time::SystemTime};

use myelin_driver::{self as driver, ClusterDriver, DesiredError, DriverEvent, Event};
use myelin_executor::{EffectExecutor, Submission};
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId};
use myelin_store::{Source, Store};

use crate::view;

use super::{
    Before, Error, Options, Outputs, Pulse, Roster, Witness,
    handle::Request,
    held::Held,
    outbox::{Duties, Outbox},
    ring::EventRing,
    service::SnapshotSource,
};

/// Whom the loop gives duties to.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) executor: Arc<dyn EffectExecutor>,
    pub(super) snapshot: SnapshotSource,
    pub(super) roster: Arc<dyn Roster>,
    pub(super) outputs: Outputs,
    pub(super) store: Arc<dyn Store>,
    pub(super) witness: Option<Box<dyn Witness>>,
}

/// What has come of a [`Core::settle`].
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The shapes that the driver refused.
    pub(super) refused: Vec<DesiredError>,
    /// Whether what was folded right before is durable.
    pub(super) is_recorded: bool,
}

/// The driver with its surroundings.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) options: Options,
    pub(super) driver: ClusterDriver,
    pub(super) leaving: bool,
    /// When what is shown was recorded, where the driver is not run.
    pub(super) as_of: Option<SystemTime>,
    /// The file that what is desired was read from.
    pub(super) source: Source,
    acted_generation: u64,
    /// What happened while the store took nothing. Folded later, so that what is stored is always a settled state.
    held: Held,
    pub(super) ports: Ports,
    pub(super) outbox: Outbox,
    pub(super) ring: EventRing,
    pub(super) since: SystemTime,
    wake_at: Option<SystemTime>,
}

impl Core {
    pub(super) fn new(options: Options, ports: Ports, before: Before) -> Self {
        let Before { driver, events, acted_generation, source } = before;
        Self {
            ring: EventRing::new(options.n_events, events),
            since: options.clock.now(),
            options,
            driver,
            leaving: false,
            as_of: None,
            ports,
            outbox: Outbox::default(),
            source,
            acted_generation,
            held: Held::default(),
            wake_at: None,
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.options.clock.now()
    }

    /// Returns when [`settle`](Self::settle) has something to do without an event.
    pub(super) fn wake_at(&self) -> Option<SystemTime> {
        let trouble = self.outbox.trouble();
        trouble.map_or(self.wake_at, |trouble| Some(trouble.retry_at))
    }

    /// Returns the number of the next revision.
    pub(super) fn next_generation(&self) -> u64 {
        self.last_generation().saturating_add(1)
    }

    /// Returns the number of the last revision that was ever acted on.
    pub(super) fn last_generation(&self) -> u64 {
        self.driver.generation().max(self.acted_generation)
    }

    /// What changes something is refused while it could not be made durable.
    pub(super) fn check_store(&self) -> Result<(), Error> {
        match self.outbox.trouble() {
            Some(trouble) => Err(Error::Store { error: Arc::clone(&trouble.error) }),
            None => Ok(()),
        }
    }

    /// Does all that follows from what was just folded, and says so when it is not durable.
    pub(super) async fn settle_durably(&mut self) -> Result<(), Error> {
        let settled = self.settle().await;
        self.check_recorded(&settled)
    }

    /// What could not be recorded may be in the store all the same, so it is not taken back: it is in the next commit.
    pub(super) fn check_recorded(&self, settled: &Settled) -> Result<(), Error> {
        match self.outbox.trouble() {
            Some(trouble) if !settled.is_recorded => {
                Err(Error::Unrecorded { error: Arc::clone(&trouble.error) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes an event; what follows from it is done by [`settle`](Self::settle).
    pub(super) fn fold(&mut self, event: Event) {
        if self.outbox.trouble().is_none() {
            self.driver.fold(self.now(), event);
        } else {
            self.held.push(event, self.driver.state());
        }
    }

    /// Folds what was held back, before anything is decided without it. Effects that waited longer than they were to take
    /// have their time again.
    fn catch_up(&mut self, duties: &mut Duties) {
        for event in self.held.take() {
            self.fold(event);
        }
        let unsent = duties.submit.iter().map(|it| (it.node.clone(), it.operation)).collect();
        self.fold(Event::StoodStill { unsent });
        self.fold(Event::Tick);
        for submission in &mut duties.submit {
            let node = self.driver.state().nodes.get(&submission.node);
            let pending = node.and_then(|node| node.pending.as_deref());
            if let Some(pending) = pending.filter(|pending| pending.id == submission.operation) {
                submission.deadline = pending.deadline;
            }
        }
    }

    /// Runs the driver, makes durable what it did, and does its duties.
    ///
    /// While the store takes nothing the driver stands still: what is learned waits, and nothing is done.
    pub(super) async fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        loop {
            let now = self.now();
            match self.outbox.trouble() {
                Some(trouble) if trouble.retry_at > now => return settled,
                Some(_) => {}
                None => settled.refused.extend(self.run(now)),
            }
            let was_in_trouble = self.outbox.trouble().is_some();
            let commit = self.outbox.commit(&*self.ports.store, &self.driver, now);
            let Some((events, mut duties)) = commit.await else {
                return settled;
            };
            settled.is_recorded |= !was_in_trouble;
            for event in events {
                self.tell(event);
            }
            if was_in_trouble {
                self.catch_up(&mut duties);
            }
            // A refused effect is folded as its failure, which delays the next one: this ends.
            if self.perform(duties) && !was_in_trouble {
                return settled;
            }
        }
    }

    fn run(&mut self, now: SystemTime) -> Vec<DesiredError> {
        let _span = tracing::debug_span!("pass", run = self.options.run.0).entered();
        let mut effects = self.driver.run(now);
        self.wake_at = effects.wake_at;
        if let Some(witness) = &mut self.ports.witness {
            witness.settled(&self.driver, &effects, now);
        }
        let refused = mem::take(&mut effects.refused);
        self.outbox.absorb(effects, &self.driver, &self.source, now);
        refused
    }

    fn tell(&mut self, event: DriverEvent) {
        tracing::debug!(
            code = event.kind.code(),
            node = event.node.as_ref().map(LogicalNodeId::as_str),
            attempt = event.attempt.map(|attempt| attempt.0),
            "{}",
            event.kind
        );
        self.ring.push(event);
    }

    /// Does the duties of a commit, in their order. Returns whether every effect was taken.
    fn perform(&mut self, duties: Duties) -> bool {
        let mut all_taken = true;
        for submission in duties.submit {
            all_taken &= self.submit(submission);
        }
        for (node, operation) in duties.expire {
            self.ports.executor.expire(&node, operation);
        }
        for (node, attempt) in duties.forget {
            self.forget(node, attempt);
        }
        all_taken
    }

    fn submit(&mut self, submission: driver::Submission) -> bool {
        let driver::Submission { node, operation, command, generation, deadline } = submission;
        let submission =
            Submission { node: node.clone(), operation, command, generation, deadline };
        let Err(error) = self.ports.executor.submit(submission) else {
            return true;
        };
        self.fold(Event::SubmitFailed { node, operation, message: error.to_string().into() });
        false
    }

    fn forget(&mut self, node: LogicalNodeId, attempt: NodeAttemptId) {
        self.ports.executor.forget(&node, attempt);
        if !self.driver.state().nodes.contains_key(&node) {
            self.ports.outputs.forget(&node);
        }
        self.ports.roster.retire(&self.key(node, attempt));
    }

    pub(super) fn key(&self, node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
        AttemptKey { cluster: self.options.cluster, run: self.options.run, node, attempt }
    }

    pub(super) fn pulse(&self) -> Pulse {
        let convergence = self.driver.convergence();
        Pulse {
            converged: self.is_converged(),
            generation: convergence.generation,
            n_nodes: self.driver.state().nodes.len(),
            n_unsettled: convergence.unsettled,
            n_events: self.ring.last(),
            leaving: self.leaving,
        }
    }

    /// Answers a request. That nobody waits for the answer any more is the asker's affair.
    pub(super) async fn answer(&mut self, request: Request) {
        match request {
            Request::Status(reply) => drop(reply.send(self.status())),
            Request::Nodes(reply) => drop(reply.send(self.nodes())),
            Request::Progress { n_moving, reply } => {
                let (nodes, n_unsettled) = view::moving(&self.driver, n_moving);
                drop(reply.send((self.groups(), nodes, n_unsettled)));
            }
            Request::Explain { node, reply } => drop(reply.send(self.explain(&node))),
            Request::Events { query, reply } => drop(reply.send(self.events(&query))),
            Request::KnowsNode { node, reply } => drop(reply.send(self.knows(&node))),
            Request::Plan { file, reply } => drop(reply.send(self.plan(&file))),
            Request::Apply { wanted, if_generation, may_take_ready, reply } => {
                drop(reply.send(self.apply(*wanted, if_generation, may_take_ready).await));
            }
            Request::Operator { target, request, reply } => {
                drop(reply.send(self.operator(target, request).await));
            }
            Request::Pause { paused, reply } => drop(reply.send(self.pause(paused).await)),
            Request::Down(reply) => drop(reply.send(self.down().await)),
            Request::Sever { severed, reply } => {
                self.ports.roster.suspend(severed);
                let _ = reply.send(());
            }
            Request::Stuck(reply) => drop(reply.send(self.is_stuck())),
            Request::Records(reply) => drop(reply.send(self.records())),
            Request::Record { notice, reply: None } => self.note(notice),
            Request::Record { notice, reply: Some(reply) } => {
                drop(reply.send(self.record(notice).await));
            }
        }
    }

    /// Answers what asks for nothing but an answer. Who would change something hears nothing.
    pub(super) async fn show(&mut self, request: Request) {
        match request {
            Request::Status(_)
            | Request::Nodes(_)
            | Request::Progress { .. }
            | Request::Explain { .. }
            | Request::Events { .. }
            | Request::KnowsNode { .. }
            | Request::Plan { .. }
            | Request::Stuck(_)
            | Request::Records(_) => self.answer(request).await,
            Request::Apply { .. }
            | Request::Operator { .. }
            | Request::Pause { .. }
            | Request::Down(_)
            | Request::Sever { .. }
            | Request::Record { .. } => drop(request),
        }
    }
}
