//! All states and transitions that were met, and the search back from where the cluster is as wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use crate::{Action, State};

/// The place of a state in [`Graph::states`].
type Place = u32;

/// States by digest, and transitions between them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    places: BTreeMap<u64, Place>,
    states: Vec<Vertex>,
    /// Transitions that need neither a fault nor a person with another shape, nor a network that comes back.
    steps: Vec<(Place, Place)>,
    /// All other transitions.
    others: Vec<(Place, Place)>,
    /// The first step from a converged state to another one that nothing is the reason of.
    leaves: Option<(Place, Action)>,
    waits: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "there are millions of these")]
struct Vertex {
    /// How it was met first.
    parent: Option<(Place, Action)>,
    converged: bool,
    broken: bool,
    expanded: bool,
    /// Whether it waits for a person.
    held: bool,
    /// Whether something else follows by itself.
    moves: bool,
    /// Whether the driver is woken, does nothing, and asks to be woken again.
    polls: bool,
}

/// What there is of states in which nothing happens by itself, and the cluster is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// How many wait for nobody, and the way to the first of them.
    pub(crate) idle: Option<(usize, Vec<Action>)>,
    /// How many wait for a person.
    pub(crate) n_held: usize,
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
        let by_itself =
            to.faults == from.faults && action != Action::Applies && !from.is_healed_by(action);
        let list = if by_itself { &mut self.steps } else { &mut self.others };
        list.push((source, target));
        if !by_itself {
            return;
        }
        let by_person = matches!(action, Action::Retries(_) | Action::Resumes);
        let vertex = &mut self.states[source as usize];
        vertex.moves |= source != target && !by_person;
        vertex.polls |= source == target && action == Action::TimePasses;
        if vertex.converged
            && !from.is_doubted_by(action)
            && !self.states[target as usize].converged
        {
            self.leaves.get_or_insert((source, action));
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
                held: state.needs_a_person(),
                moves: false,
                polls: false,
            });
        }
        place
    }

    pub(crate) fn n_states(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn n_transitions(&self) -> u64 {
        (self.steps.len() + self.others.len()) as u64
    }

    /// Returns a way through a converged state to another one, if there is one without a reason.
    pub(crate) fn way_out(&self) -> Option<Vec<Action>> {
        let (place, action) = self.leaves?;
        let mut way = self.way_to(place);
        way.push(action);
        Some(way)
    }

    /// Finds the states in which nothing happens by itself any more.
    pub(crate) fn rest(&self) -> Rest {
        let rests = |vertex: &Vertex| !vertex.moves && !vertex.converged && !vertex.broken;
        let resting = || (0..).zip(&self.states).filter(|(_, vertex)| rests(vertex));
        let mut idle = resting().filter(|(_, vertex)| !vertex.held).map(|(place, _)| place);
        let n_idle = idle.clone().count();
        Rest {
            idle: idle.next().map(|place| (n_idle, self.way_to(place))),
            n_held: resting().filter(|(_, vertex)| vertex.held).count(),
        }
    }

    /// Returns how many transitions the longest shortest way to a state has.
    pub(crate) fn depth(&self) -> u32 {
        let all = self.steps.iter().chain(&self.others).copied();
        let after = Neighbours::new(self.states.len(), all);
        let distances = self.distances(|place| place == 0, &after);
        distances.into_iter().flatten().max().unwrap_or(0)
    }

    /// Returns how many steps each state is away from the nearest of some.
    fn distances(&self, from: impl Fn(Place) -> bool, by: &Neighbours) -> Vec<Option<u32>> {
        let mut distances: Vec<Option<u32>> = vec![None; self.states.len()];
        let mut queue: Vec<Place> = self.places().filter(|&place| from(place)).collect();
        for &place in &queue {
            distances[place as usize] = Some(0);
        }
        let mut at = 0;
        while let Some(&place) = queue.get(at) {
            at += 1;
            let next = distances[place as usize].map(|it| it + 1);
            for &neighbour in by.of(place) {
                if distances[neighbour as usize].is_none() {
                    distances[neighbour as usize] = next;
                    queue.push(neighbour);
                }
            }
        }
        distances
    }

    fn places(&self) -> Range<Place> {
        0..Place::try_from(self.states.len()).unwrap_or(Place::MAX)
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
        let is_converged = |place: Place| self.states[place as usize].converged;
        let distances = self.distances(is_converged, &before);
        let stuck = |place: &Place| distances[*place as usize].is_none();
        let n_stuck = self.places().filter(stuck).count();
        let first = self.places().find(stuck);
        let farthest = distances.iter().copied().flatten().max().unwrap_or(0);
        Backward {
            stuck: first.map(|place| (n_stuck, self.way_to(place))),
            farthest,
            cycle: self.on_cycle().map(|place| self.way_to(place)),
        }
    }

    /// Takes away states from which nothing but what was taken away is left to do; what remains is on a cycle, or goes to
    /// one.
    fn on_cycle(&self) -> Option<Place> {
        // What repeats itself and changes nothing is no circle, unless the driver has itself woken for it.
        let polls = self.places().find(|&place| self.states[place as usize].polls);
        if polls.is_some() {
            return polls;
        }
        let is_outside = |&(source, target): &(Place, Place)| {
            source != target && !self.states[source as usize].converged
        };
        let steps = || self.steps.iter().copied().filter(is_outside);
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
