//! The synchronous half of the loop: folding, duties, answers.

use std::{mem, slice, sync::Arc, time::SystemTime};

use myelin_decider::{Explanation, HeldReason, Trigger, Until};
use myelin_driver::{self as driver, ClusterDriver, DesiredError, DriverEvent, Event};
use myelin_executor::{EffectExecutor, Submission};
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId, NodeGroupId};
use myelin_state::{ManagedNode, NodeIntent, NodeStage, OperatorRequest};
use myelin_store::Store;

use crate::{
    printable::shortened,
    view::{self, EventView, ExplainView, GroupView, NodeView, StatusView, TroubleView, Unheard},
};

use super::{
    Before, Error, Options, Outputs, Pulse, Roster, Target, Witness,
    handle::{EventQuery, Request},
    held::Held,
    outbox::{Duties, Outbox},
    ring::EventRing,
    service::SnapshotSource,
};

/// How many lines and events an explanation shows.
const EXPLAINED: usize = 20;

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
    acted_generation: u64,
    /// What happened while the store took nothing. Folded later, so that what is stored is always a settled state.
    held: Held,
    pub(super) ports: Ports,
    pub(super) outbox: Outbox,
    ring: EventRing,
    since: SystemTime,
    wake_at: Option<SystemTime>,
}

impl Core {
    pub(super) fn new(options: Options, ports: Ports, before: Before) -> Self {
        let Before { driver, events, acted_generation } = before;
        Self {
            ring: EventRing::new(options.n_events, events),
            since: options.clock.now(),
            options,
            driver,
            leaving: false,
            as_of: None,
            ports,
            outbox: Outbox::default(),
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
        self.outbox.absorb(effects, &self.driver, now);
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

    fn key(&self, node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
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
            Request::Apply { file, if_generation, may_take_ready, reply } => {
                drop(reply.send(self.apply(*file, if_generation, may_take_ready).await));
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

    fn status(&self) -> StatusView {
        let of = view::Loop { run: self.options.run.0, leaving: self.leaving, since: self.since };
        let trouble = self.outbox.trouble();
        let view = StatusView {
            converged: self.is_converged(),
            groups: self.groups(),
            unheard: view::unheard_view(&self.unheard()),
            trouble: trouble.map(|trouble| TroubleView {
                error: trouble.error.to_string(),
                since: view::stamp(trouble.since),
            }),
            ..view::status(&self.driver, &self.ports.snapshot.get(), of)
        };
        match self.as_of.map(view::stamp) {
            None => view,
            as_of @ Some(since) => StatusView { as_of, since, pid: 0, ..view },
        }
    }

    fn nodes(&self) -> Vec<NodeView> {
        let mut nodes = view::nodes(&self.driver);
        view::correct_nodes(&mut nodes, &self.unheard());
        nodes
    }

    /// Returns the nodes that count as ready from before, and whose agents are awaited.
    fn unheard(&self) -> Unheard {
        let nodes = &self.driver.state().nodes;
        let mut awaited = self.ports.roster.awaited();
        awaited.retain(|id, _| nodes.get(id).is_some_and(ManagedNode::is_ready));
        awaited
    }

    fn groups(&self) -> Vec<GroupView> {
        let mut groups = view::groups(&self.driver);
        view::correct_groups(&mut groups, &self.unheard());
        groups
    }

    /// Returns whether everything is as desired, recorded as such, and seen since this loop began.
    fn is_converged(&self) -> bool {
        self.driver.convergence().converged
            && self.outbox.trouble().is_none()
            && self.ports.roster.n_unheard() == 0
    }

    fn explain(&self, id: &LogicalNodeId) -> Result<ExplainView, Error> {
        let node = self.driver.state().nodes.get(id);
        let key = node.map(|node| self.key(id.clone(), node.attempt));
        // What is known of an agent from before is when the loop began to wait for it.
        let key = key.filter(|_| !self.ports.roster.awaited().contains_key(id));
        let around = view::Around {
            last_contact: key.and_then(|key| self.ports.roster.last_contact(&key)),
            output: self.ports.outputs.after(id, 0, EXPLAINED),
            events: self.ring.latest(Some(id), EXPLAINED),
        };
        let view = view::explain(&self.driver, id, around);
        let mut view = view.ok_or_else(|| self.unknown(id.as_str()))?;
        view::correct_nodes(slice::from_mut(&mut view.node), &self.unheard());
        Ok(view)
    }

    fn events(&self, query: &EventQuery) -> Result<Vec<EventView>, Error> {
        let node = query.node.as_ref();
        let events = match query.after {
            Some(after) => self.ring.after(after, node, query.limit),
            None => self.ring.latest(node, query.limit),
        };
        // A slot that is gone still has a history.
        match node.filter(|_| events.is_empty()) {
            Some(node) if self.ring.latest(Some(node), 1).is_empty() => {
                self.knows(node).map(|()| events)
            }
            Some(_) | None => Ok(events),
        }
    }

    fn knows(&self, id: &LogicalNodeId) -> Result<(), Error> {
        match self.driver.explain(id) {
            Explanation::Unknown => Err(self.unknown(id.as_str())),
            Explanation::Steady
            | Explanation::Missing
            | Explanation::Next(_)
            | Explanation::Held(_) => Ok(()),
        }
    }

    /// Returns the error about a name, with the name that was probably meant.
    fn unknown(&self, name: &str) -> Error {
        let whole = name;
        let name = shortened(whole);
        if name != whole {
            // No name of ours is near, and to find that out would take long.
            return Error::Unknown { name, near: None };
        }
        let nodes = self.driver.state().nodes.keys().map(LogicalNodeId::as_str);
        let shape = self.driver.desired().into_iter();
        let groups = shape.flat_map(|shape| &shape.groups).map(|group| group.group_id.as_str());
        let distances =
            nodes.chain(groups).map(|known| (strsim::osa_distance(known, &name), known));
        // Nearer than a third of its letters, or it is another word.
        let near = distances.min().filter(|(distance, _)| distance * 3 <= name.len());
        let near = near.map(|(_, known)| known.to_owned());
        Error::Unknown { name, near }
    }

    async fn operator(
        &mut self,
        target: Target,
        request: OperatorRequest,
    ) -> Result<Vec<String>, Error> {
        if self.leaving && request != OperatorRequest::Abandon {
            return Err(Error::Leaving);
        }
        self.check_store()?;
        let (name, target) = self.target(target)?;
        let before = self.attempts_of(&target);
        let not_applicable =
            |what, why| Err(Error::NotApplicable { name: name.clone(), what, why });
        let concerned: Vec<_> =
            before.into_iter().filter(|id| applies(&self.driver, id, request)).collect();
        if concerned.is_empty() {
            let why = self.why_not(&target);
            return match request {
                OperatorRequest::Retry => not_applicable("retry", why),
                OperatorRequest::Replace => not_applicable("replace", why),
                OperatorRequest::Abandon => not_applicable("abandon", why),
            };
        }
        self.fold(Event::Operator { target, request });
        self.settle_durably().await?;
        Ok(concerned.iter().map(ToString::to_string).collect())
    }

    fn target(&self, target: Target) -> Result<(String, driver::Target), Error> {
        let nodes = &self.driver.state().nodes;
        match target {
            Target::Node(id) if nodes.contains_key(&id) => {
                Ok((id.to_string(), driver::Target::Node(id)))
            }
            Target::Node(id) => Err(self.unknown(id.as_str())),
            Target::Named(name) => {
                let id = LogicalNodeId::from(name.as_str());
                if nodes.contains_key(&id) {
                    return Ok((name, driver::Target::Node(id)));
                }
                let group = NodeGroupId::from(name.as_str());
                let planner = self.driver.planner();
                let desired = planner.is_some_and(|it| it.topology().groups.contains_key(&group));
                if !desired && !self.driver.state().groups.contains_key(&group) {
                    return Err(self.unknown(&name));
                }
                Ok((name, driver::Target::Group(group)))
            }
        }
    }

    fn attempts_of(&self, target: &driver::Target) -> Vec<LogicalNodeId> {
        let nodes = &self.driver.state().nodes;
        match target {
            driver::Target::Node(id) => vec![id.clone()],
            driver::Target::Group(group) => {
                let of_group = nodes.iter().filter(|(_, it)| it.record.desired.group_id() == group);
                of_group.map(|(id, _)| id.clone()).collect()
            }
        }
    }

    fn why_not(&self, target: &driver::Target) -> String {
        match target {
            driver::Target::Node(id) => {
                let why = view::nodes_why(&self.driver, id);
                format!("it is {}: {}", why.0, why.1)
            }
            driver::Target::Group(_) => "none of its nodes is held or delayed".to_owned(),
        }
    }

    async fn pause(&mut self, paused: bool) -> Result<bool, Error> {
        if self.leaving {
            return Err(Error::Leaving);
        }
        self.check_store()?;
        if self.driver.state().paused == paused {
            return Ok(false);
        }
        self.fold(if paused { Event::Pause } else { Event::Resume });
        self.settle_durably().await?;
        Ok(true)
    }

    /// Returns whether only a person can get any node further.
    fn is_stuck(&self) -> bool {
        let Some(planner) = self.driver.planner() else {
            return false;
        };
        if self.driver.state().paused || planner.has_work() {
            return false;
        }
        let mut unsettled = planner.unsettled().peekable();
        let mut needs_person = false;
        let all_held = unsettled.peek().is_some()
            && unsettled.all(|id| match self.driver.explain(&id) {
                Explanation::Held(held) => match held.until {
                    Until::On(Trigger::SpecChange | Trigger::Operator) => {
                        needs_person = true;
                        true
                    }
                    Until::On(Trigger::GroupCounts) => !matches!(
                        held.reason,
                        HeldReason::Brake { .. } | HeldReason::AwaitingRepair { .. }
                    ),
                    Until::At(_) => false,
                },
                Explanation::Next(_) | Explanation::Missing => false,
                Explanation::Unknown | Explanation::Steady => true,
            });
        all_held && needs_person
    }
}

/// Returns whether an operator's word means anything for a node; the reducer has the last say.
fn applies(driver: &ClusterDriver, id: &LogicalNodeId, request: OperatorRequest) -> bool {
    let Some(node) = driver.state().nodes.get(id) else {
        return false;
    };
    let active = node.intent == NodeIntent::Active;
    match request {
        OperatorRequest::Retry => {
            node.quarantine.is_some()
                || node.refused.is_some()
                || node.retry.next_effect_at.is_some()
                || node.retry.restart_at.is_some()
                || (active && node.record.stage == NodeStage::Failed)
        }
        OperatorRequest::Replace => active && node.record.stage < NodeStage::Failed,
        OperatorRequest::Abandon => !node.is_destroyed(),
    }
}
