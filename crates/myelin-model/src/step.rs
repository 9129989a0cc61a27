//! What one action makes of a state.

mod outages;
mod reports;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_driver::{ClusterDriver, Desired, Effects, Event, Options, Target};
use myelin_shape::NodeAttemptId;
use myelin_state::{
    BootstrapStage, ClusterState, DriverEvent, ErrorClass, NodeEvent, NodeObservation,
    OperationOutcome, OperatorRequest,
};

use crate::{
    Action, Flaw, Scenario, Slot, State,
    oracle::{self, After},
    scenario::GROUP,
    world::{Agent, Breach, Call, Machine, Progress, World, failed},
};

/// How long it takes until something happens for which nobody waits.
const REST: Duration = Duration::from_secs(1);

/// Longer than anything that is waited for, under the policies of all scenarios.
const LONG: Duration = Duration::from_mins(1);

/// Returns the state in which the first shape was just applied.
pub(crate) fn first(scenario: &Scenario) -> State {
    let slots = scenario.shapes.iter().flat_map(|shape| &shape.groups).map(|group| group.count);
    let start = State {
        driver: Arc::new(ClusterDriver::new(Options::default())),
        world: Arc::new(World::new(slots.max().unwrap_or(0), scenario)),
        now: SystemTime::UNIX_EPOCH,
        wake_at: None,
        applied: 0,
        faults: scenario.faults,
        broken: None,
        digest: 0,
    };
    next(scenario, &start, Action::Applies)
}

/// Returns the state after an action.
pub(crate) fn next(scenario: &Scenario, state: &State, action: Action) -> State {
    let mut turn = Turn {
        scenario,
        before: state.driver.state(),
        stored: None,
        driver: ClusterDriver::clone(&state.driver),
        world: World::clone(&state.world),
        now: state.now,
        wake_at: state.wake_at,
        history: Vec::new(),
        breaches: Vec::new(),
    };
    let slow = action == Action::TimePasses && state.would_be_slow();
    turn.act(state, action);
    let before = turn.stored.as_ref().unwrap_or(turn.before);
    let faults = state.faults - u8::from(action.is_fault() || slow);
    let after = After {
        driver: &turn.driver,
        world: &turn.world,
        history: &turn.history,
        wake_at: turn.wake_at,
        now: turn.now,
        action,
        retry: &scenario.retry(),
        spent: scenario.faults - faults,
    };
    turn.breaches.extend(oracle::check(before, &after));
    let broken = (!turn.breaches.is_empty()).then(|| turn.breaches.join("\n").into());
    let mut next = State {
        driver: Arc::new(turn.driver),
        world: Arc::new(turn.world),
        now: turn.now,
        wake_at: turn.wake_at,
        applied: state.applied + usize::from(action == Action::Applies),
        faults,
        broken,
        digest: 0,
    };
    next.seal(scenario);
    next
}

struct Turn<'a> {
    scenario: &'a Scenario,
    before: &'a ClusterState,
    /// What was read from the store, if a crash made that necessary; the history goes on from it.
    stored: Option<ClusterState>,
    driver: ClusterDriver,
    world: World,
    now: SystemTime,
    wake_at: Option<SystemTime>,
    history: Vec<DriverEvent>,
    breaches: Vec<Breach>,
}

impl Turn<'_> {
    fn act(&mut self, state: &State, action: Action) {
        match action {
            Action::Performs(slot) => self.perform(slot),
            Action::Replies(slot) => self.reply(slot, false),
            Action::RepliesTwice(slot) => self.reply(slot, true),
            Action::Stops { slot, happened } => {
                self.happen(slot, happened);
                let outcome = self.call(slot).given_up();
                self.finish(slot, outcome, false);
            }
            Action::Fails(slot, class) => {
                let refuses = self.scenario.flaw == Some(Flaw::RefusesForGood);
                let class = if refuses { ErrorClass::Permanent } else { class };
                self.finish(slot, failed(class), false);
            }
            Action::IsNotReady(slot) => {
                self.finish(slot, OperationOutcome::EndpointNotReady, false);
            }
            Action::EndsUnknown { slot, happened } => {
                self.happen(slot, happened);
                self.finish(slot, failed(ErrorClass::Ambiguous), false);
            }
            Action::LosesReply { slot, happened } => {
                self.happen(slot, happened);
                self.world.of(slot).call.as_mut().expect("it has one").progress = Progress::Lost;
            }
            Action::Late(n) => self.late(usize::from(n)),
            Action::TimePasses => {
                self.now = state.wake_at.map_or(self.now, |time| self.now.max(time));
                self.handle(Event::Wake);
            }
            Action::Rests => {
                self.now += REST;
                self.tire();
                self.handle(Event::Wake);
            }
            Action::Oversleeps => {
                self.now += LONG;
                self.handle(Event::Wake);
            }
            Action::StandsStill(unsent) => self.stand_still(unsent),
            Action::SubmitFails(slot) => self.submit_fails(slot),
            Action::Applies => {
                let shape = self.scenario.shapes[state.applied].clone();
                self.handle(Event::Desired(Box::new(Desired {
                    shape,
                    retry: self.scenario.retry(),
                })));
            }
            Action::Retries(slot) => {
                let target = Target::Node(slot.id());
                self.handle(Event::Operator { target, request: OperatorRequest::Retry });
            }
            Action::Pauses => self.handle(Event::Pause),
            Action::Resumes => self.handle(Event::Resume),
            Action::IsReplaced(slot) => {
                let target = Target::Node(slot.id());
                self.handle(Event::Operator { target, request: OperatorRequest::Replace });
            }
            Action::Crashes { happened, long } => self.crash(happened, long),
            Action::Progresses(slot) => self.report(slot, BootstrapStage::SshReady, false),
            Action::Closes(slot) => self.report(slot, BootstrapStage::Closed, false),
            Action::ClosesTwice(slot) => self.report(slot, BootstrapStage::Closed, true),
            Action::BootFails(slot) => self.report(slot, BootstrapStage::StartFailed, false),
            Action::BootFailsTwice(slot) => self.report(slot, BootstrapStage::StartFailed, true),
            Action::Joins(slot) => self.joins(slot, false),
            Action::JoinsTwice(slot) => self.joins(slot, true),
            Action::IsMissed(slot) => self.is_missed(slot, false),
            Action::IsMissedTwice(slot) => self.is_missed(slot, true),
            Action::IsHeard(slot) => self.is_heard(slot, false),
            Action::IsHeardTwice(slot) => self.is_heard(slot, true),
            Action::IsGone(slot) => self.is_gone(slot, false),
            Action::IsGoneTwice(slot) => self.is_gone(slot, true),
            Action::AgentDies(slot) => {
                let machine = self.machine(slot);
                let joined = machine.agent == Agent::Heard;
                machine.agent = if joined { Agent::Dead } else { Agent::Absent };
            }
            Action::AgentIsCutOff(slot) => self.machine(slot).agent = Agent::CutOff,
            Action::MachineDies(slot) => {
                let machine = self.machine(slot);
                (machine.lives, machine.session) = (false, None);
                // One that has joined is missed.
                let joined = matches!(machine.agent, Agent::Heard | Agent::CutOff | Agent::Dead);
                machine.agent = if joined { Agent::Dead } else { Agent::Absent };
            }
        }
    }

    fn machine(&mut self, slot: Slot) -> &mut Machine {
        self.world.of(slot).machine.as_mut().expect("the action is possible")
    }

    fn call(&mut self, slot: Slot) -> &mut Call {
        self.world.of(slot).call.as_mut().expect("the action is possible")
    }

    /// Gives the driver an event, and everything around it what follows.
    fn handle(&mut self, event: Event) {
        let effects = self.driver.handle(self.now, event);
        self.follow(effects);
    }

    fn follow(&mut self, effects: Effects) {
        let Effects { changed, submit, expire, forget: _, wake_at, refused } = effects;
        self.history.extend(changed.events);
        self.wake_at = wake_at;
        self.breaches.extend(refused.iter().map(|error| format!("a shape was refused: {error}")));
        for submission in submit {
            let node = self.driver.state().nodes.get(&submission.node);
            let pending = node.and_then(|node| node.pending.as_deref()).map(|pending| pending.id);
            if pending != Some(submission.operation) {
                self.breaches.push(format!("{submission} is submitted and not recorded"));
            }
            let slot = Slot::named(&submission.node);
            let taken = self.world.submit(slot, submission);
            self.breaches.extend(taken.err());
        }
        for (node, operation) in expire {
            let call = self.world.of(Slot::named(&node)).call.as_mut();
            if let Some(call) = call.filter(|call| call.operation == operation) {
                call.stopping = true;
            }
        }
    }

    /// Lets an observation arrive, and keeps a copy if that is to arrive again.
    fn observe(&mut self, slot: Slot, attempt: NodeAttemptId, event: NodeEvent, twice: bool) {
        let observation = NodeObservation { node: slot.id(), attempt, event };
        if twice {
            self.world.late.push(observation.clone());
        }
        self.handle(Event::Observed(observation));
    }

    /// Carries an effect out without a word of it, if it has happened and was not carried out before.
    fn happen(&mut self, slot: Slot, happened: bool) {
        if happened && matches!(self.call(slot).progress, Progress::Asked) {
            self.perform(slot);
        }
    }

    fn perform(&mut self, slot: Slot) {
        match self.world.perform(slot) {
            Ok(outcome) => self.call(slot).progress = Progress::Done(outcome),
            Err(breach) => self.breaches.push(breach),
        }
    }

    fn reply(&mut self, slot: Slot, twice: bool) {
        self.happen(slot, true);
        if let Progress::Done(outcome) = &self.call(slot).progress {
            let outcome = outcome.clone();
            self.finish(slot, outcome, twice);
        }
    }

    fn finish(&mut self, slot: Slot, outcome: OperationOutcome, twice: bool) {
        let call = self.world.of(slot).call.take().expect("the action is possible");
        let operation = call.operation;
        let event = NodeEvent::OperationFinished { operation, outcome };
        self.observe(slot, operation.attempt, event, twice);
    }

    fn late(&mut self, n: usize) {
        let mut late = self.world.late.remove(n);
        if self.scenario.flaw == Some(Flaw::FoldsStaleResults) {
            self.pass_off_as_current(&mut late);
        }
        self.handle(Event::Observed(late));
    }

    fn pass_off_as_current(&mut self, late: &mut NodeObservation) {
        let current = &mut self.world.of(Slot::named(&late.node)).call;
        if let NodeEvent::OperationFinished { operation, .. } = &mut late.event
            && let Some(call) = current.take()
        {
            *operation = call.operation;
            late.attempt = call.operation.attempt;
        }
    }

    /// Replaces what is as wanted, if that is the defect.
    fn tire(&mut self) {
        if self.scenario.flaw == Some(Flaw::TiresOfNodes) {
            let target = Target::Group(GROUP.into());
            self.handle(Event::Operator { target, request: OperatorRequest::Replace });
        }
    }
}
