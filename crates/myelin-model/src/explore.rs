//! The search itself, and what it reports.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use stateright::{Checker, Model};

use crate::{
    Action, Scenario,
    model::{DriverModel, SAFE},
    step,
};

/// How far a search may go. One that gets there has shown nothing, and is an error.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// About how many transitions at most.
    pub most_transitions: NonZeroUsize,
    /// How many threads search.
    pub threads: usize,
}

/// A search that went through everything, and what it has seen.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many different states there are.
    pub n_states: usize,
    /// How many transitions between them were followed.
    pub n_transitions: u64,
    /// In how many states the cluster is as wanted: the driver says so, and it is true.
    pub n_converged: usize,
    /// In how many states nothing happens until a person says something: `retry` or `resume`.
    pub n_held: usize,
    /// How many transitions the longest shortest way to a state has.
    pub max_depth: u32,
    /// How many steps without a fault the state farthest away from a converged one needs at least.
    pub farthest: u32,
    /// Whether every way on without a fault ends in a converged state, not only one of them: provided that a person who is
    /// needed comes, and that what is on its way arrives at some time.
    pub inevitable: bool,
    /// What slots were met waiting for, by name: what the scenario did not lead to was not checked by it.
    pub waits: BTreeSet<&'static str>,
    /// How long it took.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_states, n_transitions, n_converged, n_held, max_depth, farthest, .. } = self;
        write!(f, "{n_states} states, {n_transitions} transitions, {n_converged} converged, ")?;
        write!(f, "{n_held} held for a person, ")?;
        write!(f, "depth {max_depth}, at most {farthest} steps from a converged one, ")?;
        let every = if self.inevitable { "on every way" } else { "on some way" };
        write!(f, "reached {every}, {:.1} s", self.time.as_secs_f64())
    }
}

/// Why a search does not show what it is to show.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// A rule is broken in a state.
    #[error("a rule is broken\n{trace}")]
    Broken {
        /// The way there, for people.
        trace: String,
    },
    /// From some states, no converged one is reachable without another fault or shape.
    #[error("from {n_states} states no converged one is reachable; the first of them\n{trace}")]
    Stuck {
        /// How many.
        n_states: usize,
        /// The way to the first, for people.
        trace: String,
    },
    /// The cluster was as wanted, and is not any more, without a fault.
    #[error("what was as wanted does not stay so\n{trace}")]
    Leaves {
        /// The way there, for people.
        trace: String,
    },
    /// In some states nothing happens any more; the cluster is not as wanted, and no person is asked.
    #[error("in {n_states} states nothing happens any more; the first of them\n{trace}")]
    Idle {
        /// How many.
        n_states: usize,
        /// The way to the first, for people.
        trace: String,
    },
    /// The search was cut off.
    #[error("cut off after {n_transitions} transitions, with {n_unexplored} states unexplored")]
    CutOff {
        /// How far it got.
        n_transitions: u64,
        /// How many states were met and not gone on from.
        n_unexplored: usize,
    },
    /// Two states look alike and go on differently: the abstraction hides something.
    #[error("two states look alike, and only one goes on so: {action}\n{trace}")]
    Twins {
        /// The action that tells them apart.
        action: Action,
        /// The way to the other one, for people.
        trace: String,
    },
}

/// Goes through all that can happen in a scenario.
///
/// # Errors
///
/// A broken rule, a converged state that does not last, a state from which nothing leads to a converged one, or a search
/// that was cut off.
pub fn explore(scenario: &Scenario, limits: Limits) -> Result<Report, Failure> {
    let start = Instant::now();
    let checker = DriverModel::new(scenario.clone())
        .checker()
        .threads(limits.threads)
        .target_state_count(limits.most_transitions.get())
        .spawn_bfs()
        .join();
    if let Some(path) = checker.discovery(SAFE) {
        return Err(Failure::Broken { trace: trace(scenario, &path.into_actions()) });
    }
    let graph = checker.model().graph();
    let (n_transitions, n_unexplored) = (graph.n_transitions(), graph.n_unexplored());
    // The checker and the graph count for themselves; only if both agree was everything seen.
    if n_unexplored > 0 || graph.n_states() != checker.unique_state_count() {
        return Err(Failure::CutOff { n_transitions, n_unexplored });
    }
    if let Some(way) = graph.way_out() {
        return Err(Failure::Leaves { trace: trace(scenario, &way) });
    }
    let rest = graph.rest();
    if let Some((n_states, way)) = rest.idle {
        return Err(Failure::Idle { n_states, trace: trace(scenario, &way) });
    }
    let backward = graph.backward();
    if let Some((n_states, way)) = backward.stuck {
        return Err(Failure::Stuck { n_states, trace: trace(scenario, &way) });
    }
    Ok(Report {
        n_states: graph.n_states(),
        n_transitions,
        n_converged: graph.n_converged(),
        n_held: rest.n_held,
        max_depth: graph.depth(),
        farthest: backward.farthest,
        inevitable: backward.cycle.is_none(),
        waits: graph.waits().clone(),
        time: start.elapsed(),
    })
}

/// Renders a way, action by action, with the state each leads to.
pub(crate) fn trace(scenario: &Scenario, way: &[Action]) -> String {
    let mut state = step::first(scenario);
    let mut text = format!("{state}\n");
    for &action in way {
        state = step::next(scenario, &state, action);
        // A String takes everything.
        let _ = writeln!(text, "-- {action}\n{state}");
    }
    text
}
