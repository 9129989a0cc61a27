//! The synchronous half of the loop: folding, duties, answers.

use std::{sync::Arc, time::SystemTime};

use myelin_driver::{self as driver, ClusterDriver, DriverEvent, Effects, Event};
use myelin_durable::{DurableDriver, Settled, Shell};
use myelin_executor::{EffectExecutor, Submission};
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId, OperationId};
use myelin_store::Store;

use crate::view;

use super::{
    Before, Error, Options, Outputs, Pulse, Roster, Witness, handle::Request, ring::EventRing,
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

/// The driver with its surroundings.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) durable: DurableDriver,
    pub(super) shell: LoopShell,
    pub(super) leaving: bool,
    /// When what is shown was recorded, where the driver is not run.
    pub(super) as_of: Option<SystemTime>,
    acted_generation: u64,
    pub(super) since: SystemTime,
}

/// The surroundings.
#[derive(Debug)]
pub(super) struct LoopShell {
    pub(super) options: Options,
    pub(super) ports: Ports,
    pub(super) ring: EventRing,
}

impl LoopShell {
    pub(super) fn key(&self, node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
        AttemptKey { cluster: self.options.cluster, run: self.options.run, node, attempt }
    }
}

impl Shell for LoopShell {
    fn now(&self) -> SystemTime {
        self.options.clock.now()
    }

    fn ran(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime) {
        if let Some(witness) = &mut self.ports.witness {
            witness.settled(driver, effects, now);
        }
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

    fn submit(&mut self, submission: driver::Submission) -> Result<(), Box<str>> {
        let driver::Submission { node, operation, command, generation, deadline } = submission;
        let submission = Submission { node, operation, command, generation, deadline };
        self.ports.executor.submit(submission).map_err(|error| error.to_string().into())
    }

    fn expire(&mut self, node: &LogicalNodeId, operation: OperationId) {
        self.ports.executor.expire(node, operation);
    }

    fn forget(&mut self, driver: &ClusterDriver, node: LogicalNodeId, attempt: NodeAttemptId) {
        self.ports.executor.forget(&node, attempt);
        if !driver.state().nodes.contains_key(&node) {
            self.ports.outputs.forget(&node);
        }
        self.ports.roster.retire(&self.key(node, attempt));
    }
}

impl Core {
    pub(super) fn new(options: Options, ports: Ports, before: Before) -> Self {
        let Before { driver, events, acted_generation, source } = before;
        Self {
            since: options.clock.now(),
            durable: DurableDriver::new(driver, Arc::clone(&ports.store), source),
            shell: LoopShell { ring: EventRing::new(options.n_events, events), options, ports },
            leaving: false,
            as_of: None,
            acted_generation,
        }
    }

    pub(super) fn driver(&self) -> &ClusterDriver {
        self.durable.driver()
    }

    pub(super) fn now(&self) -> SystemTime {
        self.shell.now()
    }

    /// Returns when [`settle`](Self::settle) has something to do without an event.
    pub(super) fn wake_at(&self) -> Option<SystemTime> {
        self.durable.wake_at()
    }

    /// Returns the number of the next revision.
    pub(super) fn next_generation(&self) -> u64 {
        self.last_generation().saturating_add(1)
    }

    /// Returns the number of the last revision that was ever acted on.
    pub(super) fn last_generation(&self) -> u64 {
        self.driver().generation().max(self.acted_generation)
    }

    /// What changes something is refused while it could not be made durable.
    pub(super) fn check_store(&self) -> Result<(), Error> {
        match self.durable.trouble() {
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
        match self.durable.trouble() {
            Some(trouble) if !settled.is_recorded => {
                Err(Error::Unrecorded { error: Arc::clone(&trouble.error) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes an event; what follows from it is done by [`settle`](Self::settle).
    pub(super) fn fold(&mut self, event: Event) {
        let now = self.now();
        self.durable.fold(now, event);
    }

    /// Does all that there is to do, as far as the store lets it.
    pub(super) async fn settle(&mut self) -> Settled {
        self.durable.settle(&mut self.shell).await
    }

    pub(super) fn key(&self, node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
        self.shell.key(node, attempt)
    }

    pub(super) fn pulse(&self) -> Pulse {
        let convergence = self.driver().convergence();
        Pulse {
            converged: self.is_converged(),
            generation: convergence.generation,
            n_nodes: self.driver().state().nodes.len(),
            n_unsettled: convergence.unsettled,
            n_events: self.shell.ring.last(),
            leaving: self.leaving,
        }
    }

    /// Answers a request. That nobody waits for the answer any more is the asker's affair.
    pub(super) async fn answer(&mut self, request: Request) {
        match request {
            Request::Status(reply) => drop(reply.send(self.status())),
            Request::Nodes(reply) => drop(reply.send(self.nodes())),
            Request::Progress { n_moving, reply } => {
                let (nodes, n_unsettled) = view::moving(self.driver(), n_moving);
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
                self.shell.ports.roster.suspend(severed);
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
