//! Everything that can happen, and what of it is possible in a state.

use std::fmt;

use myelin_state::{ErrorClass, OperationKind};

use crate::{
    Detail, Flaw, Scenario, Slot, State,
    world::{Agent, Progress, SlotWorld},
};

/// One thing that happens. Named by slot and not by attempt, so that it means the same in all states that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A bootstrap is started; the reply is on its way.
    Performs(Slot),
    /// An effect is carried out, unless it was, and its true result arrives.
    Replies(Slot),
    /// An effect that was to be stopped is: its executor says that it does not know, or that it failed.
    Stops {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// A bootstrap reports that it gets on.
    Progresses(Slot),
    /// A bootstrap reports its end after the join.
    Closes(Slot),
    /// An agent joins.
    Joins(Slot),
    /// That an agent is silent is noticed.
    IsMissed(Slot),
    /// An agent that was silent is heard.
    IsHeard(Slot),
    /// That a lease is gone is noticed.
    IsGone(Slot),
    /// A copy of an earlier message arrives.
    Late(u8),
    /// The time that the driver wants to be woken at comes. A fault if something on its way is slower than its deadline.
    TimePasses,
    /// Nothing is waited for, and time passes.
    Rests,
    /// Somebody applies what is wanted next.
    Applies,
    /// Somebody says `retry` about a node that is held for it.
    Retries(Slot),
    /// Somebody says `resume`.
    Resumes,
    /// Fault: somebody says `pause`.
    Pauses,
    /// Fault: somebody says `replace` about a node.
    IsReplaced(Slot),
    /// Fault: an effect fails without having happened.
    Fails(Slot, ErrorClass),
    /// Fault: that an endpoint is not there yet.
    IsNotReady(Slot),
    /// Fault: an effect ends, and whether it has happened is not known.
    EndsUnknown {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// Fault: the reply of an effect is lost.
    LosesReply {
        /// Whose effect.
        slot: Slot,
        /// Whether it has happened.
        happened: bool,
    },
    /// Fault: the reply of an effect arrives, and will arrive again.
    RepliesTwice(Slot),
    /// Fault: an agent joins, and that will be told again.
    JoinsTwice(Slot),
    /// Fault: silence is noticed, and that will be told again.
    IsMissedTwice(Slot),
    /// Fault: a bootstrap fails.
    BootFails(Slot),
    /// Fault: an agent dies.
    AgentDies(Slot),
    /// Fault: an agent is not heard any more.
    AgentIsCutOff(Slot),
    /// Fault: a machine is lost with all that runs on it.
    MachineDies(Slot),
    /// Fault: the control plane is killed, and goes on from what it has recorded. What was asked for and not answered has
    /// happened for these slots (one bit each).
    Crashes(u8),
}

impl Action {
    /// Returns whether it is a fault whenever it happens. What people ask for beside the next shape counts as one.
    pub(crate) fn is_fault(self) -> bool {
        match self {
            Self::Performs(_)
            | Self::Replies(_)
            | Self::Stops { .. }
            | Self::Progresses(_)
            | Self::Closes(_)
            | Self::Joins(_)
            | Self::IsMissed(_)
            | Self::IsHeard(_)
            | Self::IsGone(_)
            | Self::Late(_)
            | Self::TimePasses
            | Self::Rests
            | Self::Applies
            | Self::Retries(_)
            | Self::Resumes => false,
            Self::Pauses
            | Self::IsReplaced(_)
            | Self::Fails(..)
            | Self::IsNotReady(_)
            | Self::EndsUnknown { .. }
            | Self::LosesReply { .. }
            | Self::RepliesTwice(_)
            | Self::JoinsTwice(_)
            | Self::IsMissedTwice(_)
            | Self::BootFails(_)
            | Self::AgentDies(_)
            | Self::AgentIsCutOff(_)
            | Self::MachineDies(_)
            | Self::Crashes(_) => true,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = |happened: bool| if happened { "has happened" } else { "has not happened" };
        match self {
            Self::Performs(slot) => write!(f, "{slot}: its bootstrap starts"),
            Self::Replies(slot) => write!(f, "{slot}: its effect is done"),
            Self::Stops { slot, happened } => {
                write!(f, "{slot}: its effect is stopped, and {}", effect(*happened))
            }
            Self::Progresses(slot) => write!(f, "{slot}: its bootstrap gets on"),
            Self::Closes(slot) => write!(f, "{slot}: its bootstrap closes"),
            Self::Joins(slot) => write!(f, "{slot}: its agent joins"),
            Self::IsMissed(slot) => write!(f, "{slot}: its agent is missed"),
            Self::IsHeard(slot) => write!(f, "{slot}: its agent is heard"),
            Self::IsGone(slot) => write!(f, "{slot}: its lease is found gone"),
            Self::Late(n) => write!(f, "late message {n} arrives"),
            Self::TimePasses => f.write_str("time passes"),
            Self::Rests => f.write_str("time passes, and nobody waits for it"),
            Self::Applies => f.write_str("the next shape is applied"),
            Self::Retries(slot) => write!(f, "{slot}: retry is asked"),
            Self::Resumes => f.write_str("resume is asked"),
            Self::Pauses => f.write_str("fault: pause is asked"),
            Self::IsReplaced(slot) => write!(f, "fault: {slot}: replace is asked"),
            Self::Fails(slot, class) => write!(f, "fault: {slot}: its effect fails ({class})"),
            Self::IsNotReady(slot) => write!(f, "fault: {slot}: its endpoint is not there yet"),
            Self::EndsUnknown { slot, happened } => {
                let effect = effect(*happened);
                write!(f, "fault: {slot}: its effect ends, nobody knows how; it {effect}")
            }
            Self::LosesReply { slot, happened } => {
                let effect = effect(*happened);
                write!(f, "fault: {slot}: the reply to its effect is lost; it {effect}")
            }
            Self::RepliesTwice(slot) => write!(f, "fault: {slot}: its effect is done, told twice"),
            Self::JoinsTwice(slot) => write!(f, "fault: {slot}: its agent joins, told twice"),
            Self::IsMissedTwice(slot) => {
                write!(f, "fault: {slot}: its agent is missed, told twice")
            }
            Self::BootFails(slot) => write!(f, "fault: {slot}: its bootstrap fails"),
            Self::AgentDies(slot) => write!(f, "fault: {slot}: its agent dies"),
            Self::AgentIsCutOff(slot) => write!(f, "fault: {slot}: its agent is cut off"),
            Self::MachineDies(slot) => write!(f, "fault: {slot}: its machine dies"),
            Self::Crashes(happened) => {
                write!(
                    f,
                    "fault: the control plane is killed and started again; happened: {happened:02b}"
                )
            }
        }
    }
}

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
            faulty(scenario, slot, world, actions);
        }
        if scenario.detail == Detail::Finest {
            people(state, actions);
        }
        crashes(state, actions);
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

fn faulty(scenario: &Scenario, slot: Slot, world: &SlotWorld, actions: &mut Vec<Action>) {
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
    let Some(machine) = world.machine.as_ref().filter(|machine| machine.lives) else { return };
    actions.push(Action::MachineDies(slot));
    match machine.agent {
        Agent::Starting => {
            actions.push(Action::AgentDies(slot));
            if !scenario.detail.is_coarse() {
                actions.push(Action::JoinsTwice(slot));
            }
            if machine.session.is_some() {
                actions.push(Action::BootFails(slot));
            }
        }
        Agent::Heard => actions.extend([Action::AgentDies(slot), Action::AgentIsCutOff(slot)]),
        Agent::CutOff if !scenario.detail.is_coarse() => actions.push(Action::IsMissedTwice(slot)),
        Agent::Absent | Agent::CutOff | Agent::Dead => {}
    }
}

/// A kill loses every reply. What was asked for has happened, or never will.
fn crashes(state: &State, actions: &mut Vec<Action>) {
    let asked = state.world.slots().filter(|(_, world)| {
        let call = world.call.as_ref();
        call.is_some_and(|call| matches!(call.progress, Progress::Asked))
    });
    let asked: u8 = asked.map(|(slot, _)| 1 << slot.0).sum();
    actions.extend((0..=asked).filter(|happened| happened & !asked == 0).map(Action::Crashes));
}
