//! All states and transitions that were met, and the search back from where the cluster is as wanted.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Action, State};

/// The place of a state in [`Graph::states`].
type Place = u32;

/// States by digest, and transitions between them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    places: BTreeMap<u64, Place>,
    states: Vec<Vertex>,
    /// Transitions that need neither a fault nor a person with another shape, from and to.
    steps: Vec<(Place, Place)>,
    n_transitions: u64,
    waits: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Vertex {
    /// How it was met first.
    parent: Option<(Place, Action)>,
    converged: bool,
    broken: bool,
    expanded: bool,
}

/// What the search backwards has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backward {
    /// From how many states a converged one is not reachable, and the way to the first of them.
    pub(crate) stuck: Option<(usize, Vec<Action>)>,
    /// The most steps any state is away from a converged one, on the shortest way.
    pub(crate) farthest: u32,
    /// The way into a cycle outside of the converged states, if there is one: then it is possible, however unlikely, to go
    /// on forever without converging.
    pub(crate) cycle: Option<Vec<Action>>,
}

impl Graph {
    pub(crate) fn start(&mut self, state: &State) {
        self.place(state, None);
    }

    pub(crate) fn expanded(&mut self, state: &State) {
        let place = self.place(state, None);
        self.states[place as usize].expanded = true;
    }

    pub(crate) fn follow(&mut self, from: &State, action: Action, to: &State) {
        let source = self.place(from, None);
        let target = self.place(to, Some((source, action)));
        self.n_transitions += 1;
        let by_itself = to.faults == from.faults && action != Action::Applies;
        if by_itself && source != target {
            self.steps.push((source, target));
        }
    }

    fn place(&mut self, state: &State, parent: Option<(Place, Action)>) -> Place {
        let next = Place::try_from(self.states.len()).expect("memory ends before");
        let place = *self.places.entry(state.digest).or_insert(next);
        if place == next {
            self.waits.extend(state.waits());
            self.states.push(Vertex {
                parent,
                converged: state.is_converged(),
                broken: state.broken.is_some(),
                expanded: false,
            });
        }
        place
    }

    pub(crate) fn n_states(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn n_transitions(&self) -> u64 {
        self.n_transitions
    }

    /// Returns everything a slot was met waiting for.
    pub(crate) fn waits(&self) -> &BTreeSet<&'static str> {
        &self.waits
    }

    pub(crate) fn n_converged(&self) -> usize {
        self.states.iter().filter(|state| state.converged).count()
    }

    /// Returns how many states were met and not gone on from.
    pub(crate) fn n_unexplored(&self) -> usize {
        self.states.iter().filter(|state| !state.expanded && !state.broken).count()
    }

    /// Searches back from the converged states over the steps that need no fault.
    pub(crate) fn backward(&self) -> Backward {
        let before = Neighbours::new(self.states.len(), self.steps.iter().map(|&(s, t)| (t, s)));
        let mut distance: Vec<Option<u32>> = vec![None; self.states.len()];
        let mut queue: Vec<Place> = Vec::new();
        for (place, state) in (0..).zip(&self.states) {
            if state.converged {
                distance[place as usize] = Some(0);
                queue.push(place);
            }
        }
        let (mut at, mut farthest) = (0, 0);
        while let Some(&place) = queue.get(at) {
            at += 1;
            let next = distance[place as usize].map_or(0, |it| it + 1);
            for &earlier in before.of(place) {
                if distance[earlier as usize].is_none() {
                    distance[earlier as usize] = Some(next);
                    farthest = next;
                    queue.push(earlier);
                }
            }
        }
        let stuck = |place: &Place| distance[*place as usize].is_none();
        let places = 0..Place::try_from(self.states.len()).unwrap_or(Place::MAX);
        let n_stuck = places.clone().filter(stuck).count();
        let first = places.clone().find(stuck);
        Backward {
            stuck: first.map(|place| (n_stuck, self.way_to(place))),
            farthest,
            cycle: self.on_cycle().map(|place| self.way_to(place)),
        }
    }

    /// Takes away states from which nothing but what was taken away is left to do; what remains is on a cycle, or goes to
    /// one.
    fn on_cycle(&self) -> Option<Place> {
        let outside = |&&(source, _): &&(Place, Place)| !self.states[source as usize].converged;
        let steps = || self.steps.iter().filter(outside).copied();
        let before = Neighbours::new(self.states.len(), steps().map(|(s, t)| (t, s)));
        let mut ways: Vec<u32> = vec![0; self.states.len()];
        for (source, _) in steps() {
            ways[source as usize] += 1;
        }
        let ended = |(place, &ways): (Place, &u32)| (ways == 0).then_some(place);
        let mut queue: Vec<Place> = (0..).zip(&ways).filter_map(ended).collect();
        while let Some(place) = queue.pop() {
            for &earlier in before.of(place) {
                ways[earlier as usize] -= 1;
                if ways[earlier as usize] == 0 {
                    queue.push(earlier);
                }
            }
        }
        (0..).zip(&ways).find(|&(_, &ways)| ways > 0).map(|(place, _)| place)
    }

    /// Returns how a state was met first.
    fn way_to(&self, mut place: Place) -> Vec<Action> {
        let mut way = Vec::new();
        while let Some((parent, action)) = self.states[place as usize].parent {
            way.push(action);
            place = parent;
        }
        way.reverse();
        way
    }
}

/// A list of neighbours for each state, in one piece of memory.
struct Neighbours {
    ends: Vec<usize>,
    list: Vec<Place>,
}

impl Neighbours {
    fn new(n_states: usize, edges: impl Iterator<Item = (Place, Place)> + Clone) -> Self {
        let mut ends = vec![0; n_states + 1];
        for (at, _) in edges.clone() {
            ends[at as usize + 1] += 1;
        }
        for at in 0..n_states {
            ends[at + 1] += ends[at];
        }
        let mut free = ends.clone();
        let mut list = vec![0; ends[n_states]];
        for (at, neighbour) in edges {
            list[free[at as usize]] = neighbour;
            free[at as usize] += 1;
        }
        Self { ends, list }
    }

    fn of(&self, place: Place) -> &[Place] {
        &self.list[self.ends[place as usize]..self.ends[place as usize + 1]]
    }
}
