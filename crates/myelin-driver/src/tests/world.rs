//! A cluster without a world: virtual time, a scripted provider, and agents that join, die and fall silent.
//!
//! Every pass is planned twice, incrementally and from scratch, and the plans must be equal. Every step is linted.
//! Never are there two live leases of one slot, and never is a node without a reason.

mod provider;
mod script;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use myelin_check::{Linter, Settled, Snapshot, converged};
use myelin_decider::{Explanation, reconcile};
use myelin_shape::{ClusterShape, LogicalNodeId, RunId, RunNodeGroupSpec};
use myelin_state::{ClusterState, NodeEvent, NodeObservation, OperatorRequest, RetryPolicy};

pub(crate) use self::provider::AgentKey;
use self::provider::Provider;
pub(crate) use self::script::{Boot, Reply, Rule};
use crate::{ClusterDriver, Desired, DriverEvent, Effects, Event, EventKind, Options, Target};

/// How long after its last contact an agent is reported silent.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// What is still to happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The driver learns this.
    Event(Event),
    /// An agent dials in, if the listener is open then.
    Dial(AgentKey),
}

/// The cluster and all around it.
pub(crate) struct World {
    pub(crate) driver: ClusterDriver,
    pub(crate) now: SystemTime,
    pub(crate) provider: Provider,
    pub(crate) history: Vec<DriverEvent>,
    pub(crate) retry: RetryPolicy,
    pub(crate) shape: ClusterShape,
    linter: Linter,
    timeline: BTreeMap<(SystemTime, u64), Happening>,
    n_scheduled: u64,
    pub(crate) wake_at: Option<SystemTime>,
    listener_open: bool,
}

/// A group named `worker`.
pub(crate) fn workers(count: u32) -> RunNodeGroupSpec {
    group("worker", count)
}

pub(crate) fn group(id: &str, count: u32) -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(1), id, count, "fake")
}

/// The same group made from another image.
pub(crate) fn image(mut group: RunNodeGroupSpec, image: &str) -> RunNodeGroupSpec {
    group.shape.image = image.into();
    group
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The default policy without jitter, so that times in snapshots are round.
pub(crate) fn calm() -> RetryPolicy {
    RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() }
}

impl World {
    pub(crate) fn new(groups: impl IntoIterator<Item = RunNodeGroupSpec>) -> Self {
        let mut world = Self::empty();
        world.apply(groups);
        world
    }

    /// Returns a world in which the groups are ready.
    pub(crate) fn ready(groups: impl IntoIterator<Item = RunNodeGroupSpec>) -> Self {
        let mut world = Self::new(groups);
        world.settle(seconds(600));
        world
    }

    pub(crate) fn empty() -> Self {
        Self::restored(ClusterState::default())
    }

    pub(crate) fn restored(state: ClusterState) -> Self {
        Self {
            linter: Linter::restore(&state),
            driver: ClusterDriver::restore(Options::default(), state),
            now: SystemTime::UNIX_EPOCH,
            provider: Provider::default(),
            history: Vec::new(),
            retry: calm(),
            shape: ClusterShape::new(RunId(1), 0, []),
            timeline: BTreeMap::new(),
            n_scheduled: 0,
            wake_at: None,
            listener_open: true,
        }
    }

    /// Wants these groups, and nothing else, from now on.
    pub(crate) fn apply(&mut self, groups: impl IntoIterator<Item = RunNodeGroupSpec>) {
        let policy = self.shape.policy.clone();
        self.shape = ClusterShape::new(RunId(1), self.shape.generation + 1, groups);
        self.shape.policy = policy;
        self.want(self.shape.clone());
    }

    fn want(&mut self, shape: ClusterShape) {
        let retry = self.retry.clone();
        self.handle(Event::Desired(Box::new(Desired { shape, retry })));
    }

    pub(crate) fn script(&mut self, rule: Rule) {
        self.provider.script.add(rule);
    }

    pub(crate) fn operator(&mut self, node: &str, request: OperatorRequest) {
        let target = Target::Node(node.into());
        self.handle(Event::Operator { target, request });
    }

    pub(crate) fn observe(&mut self, node: &str, attempt: u64, event: NodeEvent) -> Effects {
        let attempt = myelin_shape::NodeAttemptId(attempt);
        let node = node.into();
        self.handle(Event::Observed(NodeObservation { node, attempt, event }))
    }

    pub(crate) fn schedule(&mut self, at: SystemTime, happening: Happening) {
        self.n_scheduled += 1;
        self.timeline.insert((at, self.n_scheduled), happening);
    }

    /// Gives the driver one event, and everything around it what follows.
    pub(crate) fn handle(&mut self, event: Event) -> Effects {
        self.driver.fold(self.now, event);
        self.checked_passes();
        let effects = self.driver.run(self.now);
        self.wake_at = effects.wake_at;
        assert!(self.wake_at.is_none_or(|time| time > self.now), "no hot loop");
        self.lint(&effects);
        self.history.extend(effects.changed.events.iter().cloned());
        let mut later = Vec::new();
        for submission in &effects.submit {
            later.extend(self.provider.submit(self.now, submission));
        }
        for (node, operation) in &effects.expire {
            later.extend(self.provider.expire(self.now, node, *operation));
        }
        for (at, happening) in later {
            self.schedule(at, happening);
        }
        effects
    }

    /// Runs passes one by one, each compared with a pass over everything.
    fn checked_passes(&mut self) {
        for _ in 0..64 {
            self.driver.expire_due();
            let Some(mut planner) = self.driver.planner.clone() else {
                return;
            };
            let touched = self.driver.touched.clone();
            let state = &self.driver.state;
            let now = self.driver.now;
            let incremental = planner.plan(state, touched, now);
            let desired = self.driver.desired().expect("there is a planner");
            let full = reconcile(state, desired, now).expect("the shape was accepted");
            assert_eq!(incremental.actions, full.actions, "{full}");
            assert_eq!(incremental.requeue_at, full.requeue_at, "{full}");
            let snapshot =
                Snapshot { desired: Some(desired), plan: Some(&full), ..Snapshot::new(state, now) };
            myelin_check::check(&snapshot)
                .unwrap_or_else(|violations| panic!("{violations}\n{full}"));
            if !self.driver.pass() {
                return;
            }
        }
        panic!("a cluster settles within a handful of passes");
    }

    fn lint(&mut self, effects: &Effects) {
        let state = self.driver.state();
        let now = self.driver.now;
        let full = self.driver.desired().map(|desired| reconcile(state, desired, now));
        let full = full.transpose().expect("the shape was accepted");
        let snapshot = Snapshot {
            desired: self.driver.desired(),
            plan: full.as_ref(),
            history: Some(&effects.changed.events),
            settled: Some(Settled { wake_at: effects.wake_at }),
            ..Snapshot::new(state, now)
        };
        if let Err(violations) = self.linter.step(&snapshot) {
            panic!("{violations}\n{:#?}", effects.changed.events);
        }
        let Some((desired, full)) = self.driver.desired().zip(full) else {
            return;
        };
        let by_definition = converged(state, desired);
        // The definition knows no operators.
        let asked = state.nodes.values().any(|node| node.replace_requested);
        assert_eq!(
            self.driver.convergence().converged,
            by_definition.is_ok() && !asked,
            "{by_definition:?}"
        );
        let slots = desired.expand().expect("the shape was accepted");
        let held: BTreeMap<_, _> = full.held.into_iter().collect();
        for node in state.nodes.keys().chain(slots.keys()) {
            let expected = match held.get(node) {
                Some(held) => Explanation::Held(held.clone()),
                None => Explanation::Steady,
            };
            assert_eq!(self.driver.explain(node), expected, "{node}");
        }
    }

    /// Lets time pass, and everything happen that is due in it.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Lets the next thing happen, unless it is after `end`.
    pub(crate) fn step(&mut self, end: SystemTime) -> bool {
        let next = self.timeline.keys().next().map(|(time, _)| *time);
        let Some(time) = [next, self.wake_at].into_iter().flatten().min() else {
            return false;
        };
        if time > end {
            return false;
        }
        self.now = self.now.max(time);
        if next.is_some_and(|next| next <= time) {
            let (_, happening) = self.timeline.pop_first().expect("it is the next one");
            match happening {
                Happening::Event(event) => {
                    self.handle(event);
                }
                Happening::Dial(agent) => self.dial(agent),
            }
        } else {
            self.handle(Event::Wake);
        }
        true
    }

    pub(crate) fn is_converged(&self) -> bool {
        self.driver.convergence().converged
    }

    /// Lets time pass until the cluster is converged, and returns how long it took.
    pub(crate) fn settle(&mut self, at_most: Duration) -> Duration {
        let start = self.now;
        self.run_until(at_most, Self::is_converged);
        self.now.duration_since(start).expect("time goes on")
    }

    pub(crate) fn run_until(&mut self, at_most: Duration, holds: impl Fn(&Self) -> bool) {
        let end = self.now + at_most;
        while !holds(self) {
            assert!(self.step(end), "not within {at_most:?}:\n{}", self.cluster());
        }
    }

    fn dial(&mut self, agent: AgentKey) {
        if !self.listener_open {
            self.provider.waiting.push(agent);
            return;
        }
        if let Some(event) = self.provider.dial(&agent) {
            self.handle(Event::Observed(event));
        }
    }

    /// Puts a new driver in place of the current one. What the old one waited for may be lost with it.
    pub(crate) fn restart(&mut self, loses_replies: bool) {
        let state = self.driver.state().clone();
        self.linter = Linter::restore(&state);
        let desired = Desired { shape: self.shape.clone(), retry: self.retry.clone() };
        self.driver = ClusterDriver::resume(Options::default(), state, desired, self.now).unwrap();
        if loses_replies {
            self.timeline.retain(|_, happening| {
                let Happening::Event(Event::Observed(observation)) = happening else {
                    return true;
                };
                !matches!(observation.event, NodeEvent::OperationFinished { .. })
            });
        }
        self.want(self.shape.clone());
    }

    /// Ends agents without a word.
    pub(crate) fn kill<'a>(&mut self, nodes: impl IntoIterator<Item = &'a str>) {
        for node in nodes {
            let agent = self.provider.kill(&node.into());
            self.falls_silent(agent);
        }
    }

    /// Stops an agent, which may go on later.
    pub(crate) fn falls_silent(&mut self, agent: AgentKey) {
        let (node, attempt) = agent;
        let event = NodeEvent::Silent {
            swactor: provider::swactor(&node, attempt),
            last_contact: self.now,
        };
        let event = Event::Observed(NodeObservation { node, attempt, event });
        self.schedule(self.now + SILENT_AFTER, Happening::Event(event));
    }

    pub(crate) fn is_heard(&mut self, agent: AgentKey) {
        self.is_heard_in(Duration::ZERO, agent);
    }

    fn is_heard_in(&mut self, time: Duration, agent: AgentKey) {
        let (node, attempt) = agent;
        let swactor = provider::swactor(&node, attempt);
        let event = NodeEvent::Contact { swactor };
        let event = Event::Observed(NodeObservation { node, attempt, event });
        self.schedule(self.now + time, Happening::Event(event));
    }

    /// Cuts our own listener off: agents live on, and nothing arrives.
    pub(crate) fn close_listener(&mut self) {
        self.listener_open = false;
        for agent in self.provider.living() {
            self.falls_silent(agent);
        }
    }

    pub(crate) fn open_listener(&mut self) {
        self.open_listener_heard_in(Duration::ZERO);
    }

    /// As [`open_listener`](Self::open_listener), for agents that had joined and dial again so much later only.
    pub(crate) fn open_listener_heard_in(&mut self, time: Duration) {
        self.listener_open = true;
        for agent in self.provider.living() {
            self.is_heard_in(time, agent);
        }
        for agent in std::mem::take(&mut self.provider.waiting) {
            self.schedule(self.now + seconds(1), Happening::Dial(agent));
        }
    }

    pub(crate) fn n_ready(&self) -> usize {
        let nodes = self.driver.state().nodes.values();
        nodes.filter(|node| node.is_ready()).count()
    }

    pub(crate) fn attempt(&self, node: &str) -> u64 {
        self.driver.state().nodes[&LogicalNodeId::from(node)].attempt.0
    }

    pub(crate) fn explain(&self, node: &str) -> String {
        let explanation = self.driver.explain(&node.into());
        if let Explanation::Held(held) = explanation {
            return held.to_string();
        }
        format!("{explanation:?}")
    }

    /// Returns how often something happened.
    pub(crate) fn count(&self, happened: impl Fn(&EventKind) -> bool) -> usize {
        self.history.iter().filter(|event| happened(&event.kind)).count()
    }

    /// Renders every node with what it waits for.
    pub(crate) fn cluster(&self) -> String {
        let mut text = String::new();
        for (id, node) in &self.driver.state().nodes {
            let ready = if node.is_ready() { " ready" } else { "" };
            let why = match self.driver.explain(id) {
                Explanation::Held(held) => format!(": {held}"),
                Explanation::Unknown
                | Explanation::Steady
                | Explanation::Missing
                | Explanation::Next(_) => String::new(),
            };
            writeln!(text, "{id}#{} {}{ready}{why}", node.attempt, node.record.stage).unwrap();
        }
        text
    }

    /// Renders what happened, and forgets it.
    pub(crate) fn story(&mut self) -> String {
        let mut text = String::new();
        for event in self.history.drain(..) {
            let at = event.at.duration_since(SystemTime::UNIX_EPOCH).expect("after the start");
            write!(text, "{:>4}", at.as_secs()).unwrap();
            if let Some((node, attempt)) = event.node.zip(event.attempt) {
                write!(text, " {node}#{attempt}").unwrap();
            }
            writeln!(text, " {}", event.kind).unwrap();
        }
        text
    }
}
