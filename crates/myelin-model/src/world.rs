//! What the driver acts on: machines, sessions and agents as they really are, and what is on its way to the driver.
//!
//! Provider, executor and membership source are one here, and honest: what they say is true, or that they do not know.
//! Only one thing is refused to them: to make something without a look at what an earlier effect may have made.

use std::fmt;

use myelin_driver::Submission;
use myelin_shape::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId, SwactorId};
use myelin_state::{
    Connection, ErrorClass, ExecEndpoint, LeaseFacts, LeaseMode, NodeManagerCommand,
    NodeObservation, OperationError, OperationKind, OperationOutcome,
};

use crate::{Flaw, Scenario, scenario::GROUP};

/// The number of a slot in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

impl Slot {
    /// Returns the slot's id.
    pub(crate) fn id(self) -> LogicalNodeId {
        LogicalNodeId::slot(&GROUP.into(), self.0.into())
    }

    /// Returns the slot's bit in a set of slots.
    pub(crate) fn bit(self) -> u8 {
        1 << self.0
    }

    /// Returns the slot of an id.
    pub(crate) fn named(id: &LogicalNodeId) -> Self {
        let index = id.as_str().rsplit_once('-').and_then(|(_, index)| index.parse().ok());
        Self(index.expect("the slots of scenarios are numbered"))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{GROUP}-{}", self.0)
    }
}

/// Everything around the driver.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// What there is of each slot.
    pub(crate) slots: Vec<SlotWorld>,
    /// Copies of messages that have arrived already, and will arrive again.
    pub(crate) late: Vec<NodeObservation>,
    next_session: u64,
    /// Whether a lease comes with how it is reached.
    endpoint_at_once: bool,
    flaw: Option<Flaw>,
}

/// What there is of one slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotWorld {
    /// The machine that is leased, or that was and died.
    pub(crate) machine: Option<Machine>,
    /// The effect that is under way.
    pub(crate) call: Option<Call>,
}

/// A lease and what runs on it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// What it was leased for.
    pub(crate) attempt: NodeAttemptId,
    /// Whether the lease still exists. What has died is reported until the driver knows.
    pub(crate) lives: bool,
    pub(crate) session: Option<Session>,
    pub(crate) agent: Agent,
    /// Whether no agent will ever run on it; only a planted defect does that.
    pub(crate) stillborn: bool,
}

/// A bootstrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) id: BootstrapSessionId,
    /// How many reports it has sent.
    pub(crate) sequence: u64,
}

/// What is true of an agent, not what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Agent {
    /// There is none that could join.
    Absent,
    /// It is about to join.
    Starting,
    /// It has joined, and is heard.
    Heard,
    /// It has joined, lives, and is not heard.
    CutOff,
    /// It had joined and is dead.
    Dead,
}

/// An effect under way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation: OperationId,
    pub(crate) command: NodeManagerCommand,
    pub(crate) progress: Progress,
    /// Whether its time is over and it is to be stopped.
    pub(crate) stopping: bool,
}

/// How far an effect is.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// Nothing of it has happened.
    Asked,
    /// It has happened, and the reply is on its way.
    Done(OperationOutcome),
    /// Its reply is lost; nothing more happens by itself.
    Lost,
}

/// What no shell, provider or driver may ever bring about.
pub(crate) type Breach = String;

impl World {
    pub(crate) fn new(n_slots: u32, scenario: &Scenario) -> Self {
        Self {
            slots: (0..n_slots).map(|_| SlotWorld::default()).collect(),
            late: Vec::new(),
            next_session: 1,
            endpoint_at_once: scenario.detail.is_coarse(),
            flaw: scenario.flaw,
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (Slot, &SlotWorld)> {
        (0..).map(Slot).zip(&self.slots)
    }

    pub(crate) fn of(&mut self, slot: Slot) -> &mut SlotWorld {
        &mut self.slots[usize::from(slot.0)]
    }

    /// Takes an effect on.
    pub(crate) fn submit(&mut self, slot: Slot, submission: Submission) -> Result<(), Breach> {
        let Submission { operation, command, .. } = submission;
        let call = Call { operation, command, progress: Progress::Asked, stopping: false };
        match self.of(slot).call.replace(call) {
            None => Ok(()),
            Some(other) => {
                Err(format!("{slot}: {operation} submitted while {} is under way", other.operation))
            }
        }
    }

    /// Carries the slot's effect out, and returns what is to be said of it.
    pub(crate) fn perform(&mut self, slot: Slot) -> Result<OperationOutcome, Breach> {
        let call = self.of(slot).call.clone().expect("only a call is carried out");
        let attempt = call.operation.attempt;
        match &call.command {
            NodeManagerCommand::CreateLease { mode, unsettled_since, .. } => {
                let looks = unsettled_since.is_some() && self.flaw != Some(Flaw::CreatesBlindly);
                self.create(slot, attempt, *mode, looks)
            }
            NodeManagerCommand::LookupEndpoint { lease } => self.look_up(slot, attempt, lease),
            NodeManagerCommand::StartBootstrap { lease, mode, unsettled_since, .. } => {
                self.owned(slot, attempt, lease)?;
                self.start(slot, attempt, *mode, unsettled_since.is_some())
            }
            NodeManagerCommand::BootstrapConvergenceObserved { session, .. } => {
                if let Some(machine) = self.running(slot, attempt, *session) {
                    machine.session = None;
                }
                Ok(OperationOutcome::ConvergenceRecorded)
            }
            NodeManagerCommand::CancelBootstrap { session, .. } => {
                let Some(machine) = self.running(slot, attempt, Some(*session)) else {
                    return Ok(failed(ErrorClass::AlreadyAbsent));
                };
                (machine.session, machine.agent) = (None, Agent::Absent);
                Ok(OperationOutcome::BootstrapCancelled)
            }
            NodeManagerCommand::DestroyLease { lease } => self.destroy(slot, attempt, lease),
        }
    }

    fn create(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        mode: LeaseMode,
        looks: bool,
    ) -> Result<OperationOutcome, Breach> {
        let skips = self.flaw == Some(Flaw::SkipsAdoption) && mode == LeaseMode::AdoptOnly;
        let found = self.of(slot).machine.as_ref().filter(|machine| machine.lives);
        match found {
            Some(_) if skips => return Ok(OperationOutcome::LeaseAbsent),
            Some(machine) if machine.attempt != attempt => {
                return Err(format!("{slot}: a second live lease, beside that of another attempt"));
            }
            Some(_) if !looks && mode == LeaseMode::CreateOrAdopt => {
                return Err(format!("{slot}: a second lease for one attempt, made without a look"));
            }
            None if mode == LeaseMode::AdoptOnly => return Ok(OperationOutcome::LeaseAbsent),
            None => {
                let stillborn = looks && self.flaw == Some(Flaw::HidesStillbirths);
                let (session, agent) = (None, Agent::Absent);
                let machine = Machine { attempt, lives: true, session, agent, stillborn };
                self.of(slot).machine = Some(machine);
            }
            Some(_) => {}
        }
        let lease = Box::new(lease(slot, attempt));
        let connection = self.endpoint_at_once.then(|| connection(slot, attempt));
        Ok(OperationOutcome::LeaseCreated { lease, connection })
    }

    fn look_up(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        facts: &LeaseFacts,
    ) -> Result<OperationOutcome, Breach> {
        Ok(match self.owned(slot, attempt, facts)? {
            Some(_) => OperationOutcome::EndpointFound(connection(slot, attempt)),
            None => failed(ErrorClass::AlreadyAbsent),
        })
    }

    fn start(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        mode: LeaseMode,
        looks: bool,
    ) -> Result<OperationOutcome, Breach> {
        let id = BootstrapSessionId(self.next_session);
        let Some(machine) = self.live(slot, attempt) else {
            return Ok(failed(ErrorClass::AlreadyAbsent));
        };
        let session = match machine.session {
            Some(_) if !looks && mode == LeaseMode::CreateOrAdopt => {
                return Err(format!("{slot}: a second session, started without a look"));
            }
            Some(session) => session.id,
            None if mode == LeaseMode::AdoptOnly => return Ok(OperationOutcome::BootstrapAbsent),
            None => {
                machine.session = Some(Session { id, sequence: 0 });
                if machine.agent == Agent::Absent && !machine.stillborn {
                    machine.agent = Agent::Starting;
                }
                self.next_session += 1;
                id
            }
        };
        Ok(OperationOutcome::BootstrapStarted { session })
    }

    fn destroy(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        facts: &LeaseFacts,
    ) -> Result<OperationOutcome, Breach> {
        let flaw = self.flaw;
        let there = self.owned(slot, attempt, facts)?;
        let skips = flaw == Some(Flaw::ForgetsUnreachable);
        if there.as_ref().is_some_and(|machine| skips && machine.agent == Agent::CutOff) {
            return Ok(failed(ErrorClass::AlreadyAbsent));
        }
        let there = there.is_some();
        self.of(slot).machine = None;
        Ok(if there { OperationOutcome::LeaseDestroyed } else { failed(ErrorClass::AlreadyAbsent) })
    }

    /// Returns the machine an effect names, if it still exists. It must be the attempt's own.
    fn owned(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        facts: &LeaseFacts,
    ) -> Result<Option<&mut Machine>, Breach> {
        if *facts != lease(slot, attempt) {
            return Err(format!("{slot}: attempt {attempt} uses the lease {}", facts.lease_id));
        }
        Ok(self.live(slot, attempt))
    }

    pub(crate) fn live(&mut self, slot: Slot, attempt: NodeAttemptId) -> Option<&mut Machine> {
        let machine = self.of(slot).machine.as_mut();
        machine.filter(|machine| machine.lives && machine.attempt == attempt)
    }

    fn running(
        &mut self,
        slot: Slot,
        attempt: NodeAttemptId,
        session: Option<BootstrapSessionId>,
    ) -> Option<&mut Machine> {
        let runs = |machine: &&mut Machine| machine.session.map(|it| it.id) == session;
        self.live(slot, attempt).filter(runs).filter(|_| session.is_some())
    }
}

impl Call {
    pub(crate) fn kind(&self) -> OperationKind {
        self.command.kind()
    }

    /// Returns what an executor says of an effect that it has stopped: of what makes something, that it does not know.
    pub(crate) fn given_up(&self) -> OperationOutcome {
        failed(if self.kind().creates() { ErrorClass::Ambiguous } else { ErrorClass::Transient })
    }
}

pub(crate) fn failed(class: ErrorClass) -> OperationOutcome {
    OperationOutcome::Failed(OperationError { class, message: "so it happens".into() })
}

pub(crate) fn swactor(slot: Slot, attempt: NodeAttemptId) -> SwactorId {
    format!("{slot}-{attempt}").into()
}

pub(crate) fn lease(slot: Slot, attempt: NodeAttemptId) -> LeaseFacts {
    let name = format!("{slot}-{attempt}");
    LeaseFacts {
        provider: "model".into(),
        lease_id: name.as_str().into(),
        provider_contract_id: name.as_str().into(),
        offer_id: None,
        destroy_handle: name.as_str().into(),
        provider_metadata: None,
        price: None,
    }
}

fn connection(slot: Slot, attempt: NodeAttemptId) -> Connection {
    Connection::Exec(ExecEndpoint { target: format!("{slot}-{attempt}").into() })
}
