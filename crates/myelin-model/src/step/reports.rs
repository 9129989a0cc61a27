//! What agents, bootstraps and the inventory tell.

use myelin_state::{BootstrapStage, NodeEvent};

use super::Turn;
use crate::{
    Flaw, Slot,
    world::{Agent, swactor},
};

impl Turn<'_> {
    pub(super) fn report(&mut self, slot: Slot, stage: BootstrapStage, twice: bool) {
        let machine = self.machine(slot);
        let attempt = machine.attempt;
        let session = machine.session.as_mut().expect("the action is possible");
        session.sequence += 1;
        let (session, sequence) = (session.id, session.sequence);
        if stage.is_terminal() {
            machine.session = None;
        }
        if stage.is_failure() {
            machine.agent = Agent::Absent;
        }
        let event = NodeEvent::Bootstrap { session, sequence, stage, message: None };
        self.observe(slot, attempt, event, twice);
    }

    pub(super) fn joins(&mut self, slot: Slot, twice: bool) {
        let machine = self.machine(slot);
        machine.agent = Agent::Heard;
        let attempt = machine.attempt;
        let event = NodeEvent::Joined { swactor: swactor(slot, attempt) };
        self.observe(slot, attempt, event, twice);
    }

    pub(super) fn is_missed(&mut self, slot: Slot, twice: bool) {
        let attempt = self.machine(slot).attempt;
        let event = NodeEvent::Silent { swactor: swactor(slot, attempt), last_contact: self.now };
        self.observe(slot, attempt, event, twice);
    }

    pub(super) fn is_heard(&mut self, slot: Slot, twice: bool) {
        let machine = self.machine(slot);
        machine.agent = Agent::Heard;
        let attempt = machine.attempt;
        let event = NodeEvent::Contact { swactor: swactor(slot, attempt) };
        self.observe(slot, attempt, event, twice);
    }

    pub(super) fn is_gone(&mut self, slot: Slot, twice: bool) {
        let attempt = self.machine(slot).attempt;
        self.world.of(slot).machine = None;
        if self.scenario.flaw != Some(Flaw::IgnoresLostLeases) {
            self.observe(slot, attempt, NodeEvent::LeaseGone, twice);
        }
    }
}
