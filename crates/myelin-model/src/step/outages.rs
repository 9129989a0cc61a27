//! Times in which the driver is not there, or nothing that it wants can be done.

use myelin_driver::{ClusterDriver, Desired, Event, Options};
use myelin_state::{ClusterState, NodeStage, OperationKind, PendingOperation};

use super::{LONG, Turn};
use crate::{Flaw, Slot, world::SlotWorld};

impl Turn<'_> {
    pub(super) fn submit_fails(&mut self, slot: Slot) {
        let call = self.world.of(slot).call.take().expect("the action is possible");
        let (node, operation, message) = (slot.id(), call.operation, "so it happens".into());
        self.handle(Event::SubmitFailed { node, operation, message });
    }

    /// Lets time pass in which nothing is recorded, and so nothing is done; the same events follow as in the real shell.
    pub(super) fn stand_still(&mut self, unsent: u8) {
        self.now += LONG;
        let calls = self.world.slots().filter(|(slot, _)| unsent & slot.bit() != 0);
        let call = |(slot, world): (Slot, &SlotWorld)| {
            Some((slot.id(), world.call.as_ref().map(|call| call.operation)?))
        };
        let unsent = calls.filter_map(call).collect();
        self.driver.fold(self.now, Event::StoodStill { unsent });
        self.handle(Event::Tick);
    }

    /// Ends the driver and resumes another one from its state.
    ///
    /// A kill between a fold and its commit is the same as one before the fold, in which the message is lost.
    pub(super) fn crash(&mut self, happened: u8, long: bool) {
        let slots: Vec<_> = self.world.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            if self.world.of(slot).call.is_some() {
                self.happen(slot, happened & slot.bit() != 0);
                self.world.of(slot).call = None;
            }
        }
        let mut state = self.driver.state().clone();
        if self.scenario.flaw == Some(Flaw::SubmitsBeforeRecording) {
            forget_creates(&mut state);
        }
        let shape = self.driver.desired().expect("one was applied").clone();
        let desired = Desired { shape, retry: self.scenario.retry() };
        self.stored = Some(state.clone());
        let before = self.now;
        if long {
            self.now += LONG;
        }
        let forgets = self.scenario.flaw == Some(Flaw::ForgetsLostTime);
        let taken_up = if forgets { before } else { self.now };
        match ClusterDriver::resume(Options::default(), state, desired, taken_up) {
            Ok(driver) => self.driver = driver,
            Err(error) => return self.breaches.push(format!("it cannot go on: {error}")),
        }
        let effects = self.driver.run(self.now);
        self.follow(effects);
    }
}

/// What a store knows if creates are submitted before they are recorded.
fn forget_creates(state: &mut ClusterState) {
    for node in state.nodes.values_mut() {
        let create =
            |pending: &&mut Box<PendingOperation>| pending.kind == OperationKind::CreateLease;
        if let Some(pending) = node.pending.as_mut().filter(create) {
            node.next_operation_sequence = pending.id.sequence;
            node.record.stage = NodeStage::New;
            node.pending = None;
        }
    }
}
