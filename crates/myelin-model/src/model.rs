//! The state machine as `stateright` sees it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stateright::{Model, Property};

use crate::{Action, Scenario, State, graph::Graph, possible, step};

/// The one property that is checked in each state: none of the rules is broken.
pub(crate) const SAFE: &str = "no rule is broken";

/// A scenario as a model. Each transition that is followed is noted in a graph, for the search backwards.
#[derive(Debug)]
pub(crate) struct DriverModel {
    scenario: Scenario,
    graph: Mutex<Graph>,
}

impl DriverModel {
    pub(crate) fn new(scenario: Scenario) -> Self {
        Self { scenario, graph: Mutex::default() }
    }

    pub(crate) fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for DriverModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = step::first(&self.scenario);
        self.graph().start(&first);
        vec![first]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        possible::possible(&self.scenario, state, actions);
        self.graph().expanded(state);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = step::next(&self.scenario, state, action);
        self.graph().follow(state, action, &next);
        Some(next)
    }

    fn format_action(&self, action: &Action) -> String {
        action.to_string()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(SAFE, |_, state: &State| state.broken.is_none())]
    }
}
