//! The check of the abstraction itself.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{Action, Failure, Scenario, State, explore::trace, possible, step};

/// Checks that states which look alike also go on alike, for so many steps.
///
/// Goes on from every state that is met, also from those that look like one that is known, and compares what can happen
/// and what that looks like. Of two states that go on alike for so many steps only one is followed further: what shows
/// its difference later than that is not found.
///
/// # Errors
///
/// Two states that look alike and are not.
pub fn explore_twins(scenario: &Scenario, steps: u32) -> Result<usize, Failure> {
    let first = step::first(scenario);
    let mut known: BTreeMap<u64, Vec<(Action, u64)>> = BTreeMap::new();
    let mut pending = vec![(first, Vec::new())];
    while let Some((state, way)) = pending.pop() {
        let next = futures(scenario, &state);
        let look = |(action, next): &(Action, State)| (*action, look(scenario, next, steps - 1));
        let looks: Vec<_> = next.iter().map(look).collect();
        if let Some(others) = known.get(&state.digest) {
            let told_apart = looks
                .iter()
                .chain(others)
                .find(|&look| !(looks.contains(look) && others.contains(look)));
            if let Some(&(action, _)) = told_apart {
                return Err(Failure::Twins { action, trace: trace(scenario, &way) });
            }
            continue;
        }
        known.insert(state.digest, looks);
        for (action, next) in next {
            let mut way = way.clone();
            way.push(action);
            pending.push((next, way));
        }
    }
    Ok(known.len())
}

/// Digests a state and everything that it can become within so many steps.
fn look(scenario: &Scenario, state: &State, steps: u32) -> u64 {
    if steps == 0 {
        return state.digest;
    }
    let mut hasher = DefaultHasher::new();
    state.digest.hash(&mut hasher);
    for (action, next) in futures(scenario, state) {
        (action, look(scenario, &next, steps - 1)).hash(&mut hasher);
    }
    hasher.finish()
}

fn futures(scenario: &Scenario, state: &State) -> Vec<(Action, State)> {
    let mut actions = Vec::new();
    possible::possible(scenario, state, &mut actions);
    actions.into_iter().map(|action| (action, step::next(scenario, state, action))).collect()
}
