//! The loop: fold, expire, plan, apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::SystemTime,
};

use myelin_decider::{Explanation, Planner};
use myelin_reducer::Ignored;
use myelin_shape::{
    ClusterShape, DEFAULT_MAX_NODES, LogicalNodeId, NodeAttemptId, NodeGroupId, RunId,
};
use myelin_state::{ClusterState, RetryPolicy};
use myelin_workqueue::WorkQueue;

use crate::{DriverEvent, Effects, Event, EventKind};

/// A cluster settles within a handful of passes; a loop that needs more than this is a defect, and is cut so that it
/// cannot spin: the rest is done at the next call.
const MAX_PASSES: u32 = 64;

/// Settings of a driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most nodes a shape may want.
    pub max_nodes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_nodes: DEFAULT_MAX_NODES }
    }
}

/// What a driver has counted since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passes run.
    pub passes: u64,
    /// Nodes looked at in passes.
    pub looked_at: u64,
    /// Actions applied.
    pub applied: u64,
    /// Actions discarded because they did not fit the state any more.
    pub discarded: u64,
    /// Observations that changed nothing, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
}

/// How far the cluster is from what is desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Convergence {
    /// Whether everything is as desired (seed 1 §9).
    pub converged: bool,
    /// The desired generation.
    pub generation: u64,
    /// The generation evaluated by the last completed pass.
    pub observed_generation: u64,
    /// How many nodes are not as desired.
    pub unsettled: usize,
}

/// The only writer of a run's observed state.
///
/// Cloned by explorations, which follow one cluster into several futures; a process has one that counts.
#[derive(Clone, Debug)]
pub struct ClusterDriver {
    pub(crate) options: Options,
    pub(crate) state: ClusterState,
    pub(crate) desired: Option<ClusterShape>,
    pub(crate) retry: Arc<RetryPolicy>,
    /// Present from the first accepted shape on: without one nothing is desired, and nothing undesired.
    pub(crate) planner: Option<Planner>,
    /// Nodes to look at in the next pass, beyond those the planner has looked at; may hold a node more than once.
    pub(crate) touched: Vec<LogicalNodeId>,
    pub(crate) effects: Effects,
    pub(crate) counters: Counters,
    pub(crate) now: SystemTime,
    /// The groups whose brake has ended a silent machine.
    pub(crate) braked: BTreeSet<NodeGroupId>,
    queue: WorkQueue<RunKey>,
}

/// The one key of a cluster's loop (seed 1 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunKey;

impl ClusterDriver {
    /// Returns a driver of a cluster that does not exist yet.
    pub fn new(options: Options) -> Self {
        Self::restore(options, ClusterState::default())
    }

    /// Returns a driver that goes on from an earlier state. It acts once a shape is accepted.
    pub fn restore(options: Options, state: ClusterState) -> Self {
        let braked = state
            .groups
            .iter()
            .filter(|(_, group)| group.brake.silent_machine_ended)
            .map(|(id, _)| id.clone())
            .collect();
        Self {
            braked,
            options,
            state,
            desired: None,
            retry: Arc::default(),
            planner: None,
            touched: Vec::new(),
            effects: Effects::default(),
            counters: Counters::default(),
            now: SystemTime::UNIX_EPOCH,
            queue: WorkQueue::new(),
        }
    }

    /// Takes one event and does all that follows from it.
    pub fn handle(&mut self, now: SystemTime, event: Event) -> Effects {
        self.fold(now, event);
        self.run(now)
    }

    /// Takes one event without planning, so that several coalesce into one pass.
    pub fn fold(&mut self, now: SystemTime, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Desired(desired) => {
                if let Err(error) = self.accept(*desired) {
                    self.effects.refused.push(error);
                }
            }
            Event::Observed(observation) => self.observe(observation),
            Event::SubmitFailed { node, operation, message } => {
                self.submit_failed(node, operation, message);
            }
            Event::Operator { target, request } => self.operator(&target, request),
            Event::Pause => self.set_paused(true),
            Event::Resume => self.set_paused(false),
            Event::StoodStill { unsent } => self.stood_still(&unsent),
            Event::Wake => {}
            Event::Tick => {
                if let Some(planner) = &mut self.planner {
                    self.touched.extend(planner.sweep(&self.state, self.now));
                }
            }
        }
        self.queue.add(RunKey);
    }

    /// Makes sure that a pass is run, whatever has happened.
    pub(crate) fn wake(&mut self) {
        self.queue.add(RunKey);
    }

    /// Runs passes until nothing is left to do without an event, and returns the duties since the last call.
    pub fn run(&mut self, now: SystemTime) -> Effects {
        self.now = self.now.max(now);
        self.queue.advance(self.now);
        for _ in 0..MAX_PASSES {
            let Some(key) = self.queue.take() else { break };
            if self.pass() {
                self.queue.add(key);
            }
            self.queue.done(&key);
        }
        self.effects.wake_at =
            if self.queue.is_idle() { self.queue.next_deadline() } else { Some(self.now) };
        sort_once(&mut self.effects.changed.nodes);
        mem::take(&mut self.effects)
    }

    /// Runs one pass; returns whether another one must follow.
    pub(crate) fn pass(&mut self) -> bool {
        self.expire_due();
        let Some(mut planner) = self.planner.take() else {
            return false;
        };
        let touched = mem::take(&mut self.touched);
        self.counters.passes += 1;
        self.counters.looked_at += (planner.n_looks() + touched.len()) as u64;
        let mut plan = planner.plan(&self.state, touched, self.now);
        self.planner = Some(planner);
        tracing::trace!(
            generation = plan.observed_generation,
            actions = plan.actions.len(),
            held = plan.held.len(),
            "pass"
        );
        self.forget_brakes();
        self.apply_all(mem::take(&mut plan.actions));
        if self.state.observed_generation != plan.observed_generation {
            self.state.observed_generation = plan.observed_generation;
            self.effects.changed.cluster = true;
        }
        let planner = self.planner.as_ref().expect("put back above");
        self.queue.cancel_requeue(&RunKey);
        if let Some(time) = planner.next_deadline() {
            self.queue.requeue_at(RunKey, time);
        }
        !self.touched.is_empty() || planner.has_work()
    }

    pub(crate) fn emit(&mut self, node: Option<&LogicalNodeId>, kind: EventKind) {
        let attempt = node.and_then(|id| self.state.nodes.get(id)).map(|node| node.attempt);
        self.emit_of(node.cloned(), attempt, kind);
    }

    pub(crate) fn emit_of(
        &mut self,
        node: Option<LogicalNodeId>,
        attempt: Option<NodeAttemptId>,
        kind: EventKind,
    ) {
        self.effects.changed.events.push(DriverEvent { at: self.now, node, attempt, kind });
    }

    /// Returns the observed state.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Returns the desired generation that is acted on now.
    pub fn generation(&self) -> u64 {
        self.desired.as_ref().map_or(self.state.observed_generation, |shape| shape.generation)
    }

    /// Returns the desired shape, once one was accepted.
    pub fn desired(&self) -> Option<&ClusterShape> {
        self.desired.as_ref()
    }

    /// Returns how failures are retried.
    pub fn retry_policy(&self) -> &RetryPolicy {
        &self.retry
    }

    /// Returns the run, once a shape was accepted.
    pub fn run_id(&self) -> Option<RunId> {
        self.desired().map(|shape| shape.run_id)
    }

    /// Returns the planner, once a shape was accepted.
    pub fn planner(&self) -> Option<&Planner> {
        self.planner.as_ref()
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how far the cluster is from what is desired.
    pub fn convergence(&self) -> Convergence {
        let Some((desired, planner)) = self.desired().zip(self.planner.as_ref()) else {
            return Convergence::default();
        };
        let observed_generation = self.state.observed_generation;
        let evaluated = observed_generation == desired.generation && self.touched.is_empty();
        Convergence {
            converged: evaluated && planner.is_settled(&self.state),
            generation: desired.generation,
            observed_generation,
            unsettled: planner.n_unsettled(),
        }
    }

    /// Says why a node is where it is, and when it is looked at again.
    pub fn explain(&self, node: &LogicalNodeId) -> Explanation {
        match &self.planner {
            Some(planner) => planner.explain(&self.state, node, self.now),
            None => Explanation::Unknown,
        }
    }
}

/// Sorts and drops repetitions. What passes and folds change comes in sorted runs, which a stable sort merges.
fn sort_once(nodes: &mut Vec<LogicalNodeId>) {
    nodes.sort();
    nodes.dedup();
}
