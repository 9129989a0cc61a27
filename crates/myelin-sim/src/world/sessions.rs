//! Bootstraps: they get further, fail, and end with an agent that dials.

use std::time::Duration;

use myelin_shape::{AttemptKey, BootstrapSessionId};
use myelin_state::{BootstrapStage, NodeEvent, NodeObservation};

use super::{Due, World};
use crate::{BootFate, Place, Step};

/// A bootstrap that was started on a machine that exists.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) key: AttemptKey,
    pub(super) machine: u64,
    pub(super) open: bool,
    pub(super) stage: BootstrapStage,
}

impl World {
    pub(super) fn open_session(&self, key: &AttemptKey) -> Option<u64> {
        let mut sessions = self.sessions.iter();
        sessions.find(|(_, it)| it.open && it.key == *key).map(|(&number, _)| number)
    }

    pub(super) fn add_session(&mut self, key: &AttemptKey, machine: u64) -> u64 {
        let number = self.next_number();
        let session =
            Session { key: key.clone(), machine, open: true, stage: BootstrapStage::Created };
        self.sessions.insert(number, session);
        self.counts.boots += 1;
        self.pass(Place::Boot(self.counts.boots));
        let fate = self.fates.boots.remove(&self.counts.boots);
        if let Some(fate) = fate {
            self.note_played(&Step::Boot(self.counts.boots, fate));
        }
        self.boot(key, number, fate);
        number
    }

    fn boot(&mut self, key: &AttemptKey, session: u64, fate: Option<BootFate>) {
        let boot = self.config.boot;
        let times = if fate == Some(BootFate::Repeats) { 3 } else { 1 };
        let mut stages = vec![BootstrapStage::SshConnecting, BootstrapStage::SshReady];
        match fate {
            Some(BootFate::Hangs) => return,
            Some(BootFate::Fails(stage)) => stages.push(stage),
            _ => stages.push(BootstrapStage::WaitingForSwactorJoin),
        }
        for (sequence, &stage) in (1..).zip(&stages) {
            for _ in 0..times {
                let at = boot * u32::try_from(sequence).unwrap_or(1) / 4;
                self.reach_stage_in(at, key, session, sequence, stage);
            }
        }
        let dials_in = match fate {
            Some(BootFate::Fails(_)) => return,
            Some(BootFate::JoinsFirst) => Duration::ZERO,
            Some(BootFate::Slow(by)) => boot + by,
            _ => boot,
        };
        self.add_agent(key, session, dials_in, false);
        if let Some(BootFate::DiesAfter(delay)) = fate {
            self.schedule_in(dials_in + delay, Due::AgentEnds(key.clone()));
        }
    }

    fn reach_stage_in(
        &mut self,
        delay: Duration,
        key: &AttemptKey,
        session: u64,
        sequence: u64,
        stage: BootstrapStage,
    ) {
        let event = NodeEvent::Bootstrap {
            session: BootstrapSessionId(session),
            sequence,
            stage,
            message: stage.is_failure().then(|| "it does not boot".into()),
        };
        let (node, attempt) = (key.node.clone(), key.attempt);
        let report = NodeObservation { node, attempt, event };
        self.schedule_in(delay, Due::Stage(session, stage, Box::new(report)));
    }

    /// A session got further, if it is still there.
    pub(crate) fn reach_stage(
        &mut self,
        session: u64,
        stage: BootstrapStage,
        report: NodeObservation,
    ) {
        let Some(session) = self.sessions.get_mut(&session).filter(|it| it.open) else { return };
        session.stage = stage;
        self.tell(report);
    }
}
