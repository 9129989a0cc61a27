//! What of everything that can happen is possible in a state.

use myelin_state::OperationKind;

use crate::{
    Action, Detail, Flaw, Scenario, Slot, State,
    world::{Agent, Machine, Progress, SlotWorld},
};

/// Lists what can happen in a state.
pub(crate) fn possible(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if state.broken.is_some() {
        return;
    }
    for (slot, world) in state.world.slots() {
        ordinary(scenario, state, slot, world, actions);
    }
    let n_late = u8::try_from(state.world.late.len()).expect("no more than there were faults");
    actions.extend((0..n_late).map(Action::Late));
    match state.wake_at {
        Some(_) if scenario.flaw == Some(Flaw::SleepsThroughDeadlines) => {}
        Some(_) if state.faults == 0 && state.would_be_slow() => {}
        Some(_) => actions.push(Action::TimePasses),
        None => actions.push(Action::Rests),
    }
    if state.applied < scenario.shapes.len() {
        actions.push(Action::Applies);
    }
    if state.driver.state().paused {
        actions.push(Action::Resumes);
    }
    if state.faults > 0 {
        for (slot, world) in state.world.slots() {
            faulty(scenario, state, slot, world, actions);
        }
        if scenario.detail == Detail::Finest {
            people(state, actions);
        }
        late(scenario, state, actions);
        crashes(scenario, state, actions);
    }
}

/// What people ask for: at any moment, but nothing that is so already.
fn people(state: &State, actions: &mut Vec<Action>) {
    let cluster = state.driver.state();
    if !cluster.paused {
        actions.push(Action::Pauses);
    }
    let asked = |slot: Slot| cluster.nodes.get(&slot.id()).is_none_or(|it| it.replace_requested);
    let slots = state.world.slots().map(|(slot, _)| slot);
    actions.extend(slots.filter(|&slot| !asked(slot)).map(Action::IsReplaced));
}

fn ordinary(
    scenario: &Scenario,
    state: &State,
    slot: Slot,
    world: &SlotWorld,
    actions: &mut Vec<Action>,
) {
    if let Some(call) = &world.call {
        let starts = in_two_steps(scenario, call.kind());
        match call.progress {
            Progress::Asked if starts => actions.push(Action::Performs(slot)),
            Progress::Asked | Progress::Done(_) => actions.push(Action::Replies(slot)),
            Progress::Lost => {}
        }
        if call.stopping {
            let asked = matches!(call.progress, Progress::Asked);
            actions.push(Action::Stops { slot, happened: !asked });
            if asked {
                actions.push(Action::Stops { slot, happened: true });
            }
        }
    }
    let node = state.driver.state().nodes.get(&slot.id());
    if let Some(node) = node.filter(|node| node.quarantine.is_some() || node.refused.is_some())
        && node.pending.is_none()
    {
        actions.push(Action::Retries(slot));
    }
    let Some(machine) = &world.machine else { return };
    if !machine.lives {
        actions.push(Action::IsGone(slot));
        if machine.agent == Agent::Dead {
            actions.push(Action::IsMissed(slot));
        }
        return;
    }
    match machine.agent {
        Agent::Absent => {}
        Agent::Starting => {
            actions.push(Action::Joins(slot));
            let fresh = machine.session.is_some_and(|session| session.sequence == 0);
            if scenario.detail == Detail::Finest && fresh {
                actions.push(Action::Progresses(slot));
            }
        }
        Agent::Heard => {
            if machine.session.is_some() && !scenario.detail.is_coarse() {
                actions.push(Action::Closes(slot));
            }
            // Contact of one that is not missed changes nothing.
            if node.is_some_and(|node| node.record.silence.is_some()) {
                actions.push(Action::IsHeard(slot));
            }
        }
        Agent::CutOff => actions.extend([Action::IsMissed(slot), Action::IsHeard(slot)]),
        Agent::Dead => actions.push(Action::IsMissed(slot)),
    }
}

/// Between a start and its reply there is time for the agent to join.
fn in_two_steps(scenario: &Scenario, kind: OperationKind) -> bool {
    kind == OperationKind::StartBootstrap && !scenario.detail.is_coarse()
}

fn faulty(
    scenario: &Scenario,
    state: &State,
    slot: Slot,
    world: &SlotWorld,
    actions: &mut Vec<Action>,
) {
    if let Some(call) = &world.call {
        let kind = call.kind();
        let told_twice: Option<fn(Slot) -> Action> =
            (!scenario.detail.is_coarse()).then_some(Action::RepliesTwice);
        let fails = |class| Action::Fails(slot, class);
        let unknown = |happened| {
            [Action::EndsUnknown { slot, happened }, Action::LosesReply { slot, happened }]
        };
        match call.progress {
            Progress::Asked => {
                actions.extend(scenario.failures(kind).map(fails));
                actions.extend(unknown(false));
                if kind == OperationKind::LookupEndpoint {
                    actions.push(Action::IsNotReady(slot));
                } else if !in_two_steps(scenario, kind) {
                    actions.extend(unknown(true));
                    actions.extend(told_twice.map(|twice| twice(slot)));
                }
            }
            Progress::Done(_) => {
                actions.extend(unknown(true));
                actions.extend(told_twice.map(|twice| twice(slot)));
            }
            Progress::Lost => {}
        }
    }
    if let Some(machine) = &world.machine {
        ill(scenario, state, slot, machine, actions);
    }
}

/// What may go wrong with a machine, and with what is said of it.
fn ill(
    scenario: &Scenario,
    state: &State,
    slot: Slot,
    machine: &Machine,
    actions: &mut Vec<Action>,
) {
    let is_told_twice = !scenario.detail.is_coarse();
    let mut twice = |action| actions.extend(is_told_twice.then_some(action));
    if !machine.lives {
        if is_recorded(state, slot, machine) {
            twice(Action::IsGoneTwice(slot));
        }
        return;
    }
    match machine.agent {
        Agent::Starting => {
            twice(Action::JoinsTwice(slot));
            if machine.session.is_some() {
                twice(Action::BootFailsTwice(slot));
                actions.push(Action::BootFails(slot));
            }
            actions.push(Action::AgentDies(slot));
        }
        Agent::Heard => {
            if machine.session.is_some() {
                twice(Action::ClosesTwice(slot));
            }
            actions.extend([Action::AgentDies(slot), Action::AgentIsCutOff(slot)]);
        }
        Agent::CutOff => {
            twice(Action::IsMissedTwice(slot));
            twice(Action::IsHeardTwice(slot));
        }
        Agent::Absent | Agent::Dead => {}
    }
    actions.push(Action::MachineDies(slot));
}

/// Returns whether the lease of a machine is on record. The inventory misses only what is: of another one it would say
/// after the attempt has a second machine that the lease is gone. That it does so at once and once does no harm.
fn is_recorded(state: &State, slot: Slot, machine: &Machine) -> bool {
    let node = state.driver.state().nodes.get(&slot.id());
    node.is_some_and(|node| node.attempt == machine.attempt && node.record.lease.is_some())
}

/// What happens so late that everything that is waited for is over.
fn late(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.is_late() {
        return;
    }
    let asked = asked(state);
    for (slot, _) in state.world.slots().filter(|(slot, _)| asked & slot.bit() != 0) {
        actions.push(Action::SubmitFails(slot));
    }
    if state.wake_at.is_some() {
        actions.push(Action::Oversleeps);
        actions.extend(subsets(asked).map(Action::StandsStill));
    }
}

/// A kill loses every reply. What was asked for has happened, or never will: what happens after the kill and before anybody
/// looks for it is the same as what has happened before, and when somebody looks, what was asked for before is over (that
/// is what settle windows are for).
fn crashes(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    let asked = asked(state);
    for happened in subsets(asked) {
        actions.push(Action::Crashes { happened, long: false });
        if scenario.is_late() && state.wake_at.is_some() {
            actions.push(Action::Crashes { happened, long: true });
        }
    }
}

/// Returns of which slots (one bit each) an effect was asked for of which nothing has happened.
fn asked(state: &State) -> u8 {
    let asked = state.world.slots().filter(|(_, world)| {
        let call = world.call.as_ref();
        call.is_some_and(|call| matches!(call.progress, Progress::Asked))
    });
    asked.map(|(slot, _)| slot.bit()).sum()
}

fn subsets(of: u8) -> impl Iterator<Item = u8> {
    (0..=of).filter(move |subset| subset & !of == 0)
}
