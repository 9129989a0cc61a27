//! What is to go wrong, where something could, and what was to and did not.

use std::{mem, time::Duration};

use myelin_shape::LogicalNodeId;
use myelin_state::{NodeEvent, NodeObservation};

use super::{CLUSTER, Due, Fates, World};
use crate::{CommitFate, Happening, Place, ReportFate, Step};

impl World {
    /// Writes down a step of the scenario.
    pub(super) fn plan(&mut self, step: Step) {
        match step {
            Step::At(at, happening) => self.schedule(at, Due::Happens(happening)),
            Step::Call(kind, nth, fate) => {
                let before = self.fates.calls.insert((kind, nth), fate);
                self.note_overruled(before.map(|fate| Step::Call(kind, nth, fate)));
            }
            Step::Boot(nth, fate) => {
                let before = self.fates.boots.insert(nth, fate);
                self.note_overruled(before.map(|fate| Step::Boot(nth, fate)));
            }
            Step::Commit(nth, fate) => {
                let before = self.fates.commits.insert(nth, fate);
                self.note_overruled(before.map(|fate| Step::Commit(nth, fate)));
            }
            Step::Report(nth, fate) => {
                let before = self.fates.reports.insert(nth, fate);
                self.note_overruled(before.map(|fate| Step::Report(nth, fate)));
            }
        }
    }

    /// Returns how the next commit goes.
    pub(crate) fn next_commit(&mut self) -> Option<CommitFate> {
        self.counts.commits += 1;
        self.pass(Place::Commit(self.counts.commits));
        let fate = self.fates.commits.remove(&self.counts.commits)?;
        self.note_played(&Step::Commit(self.counts.commits, fate));
        Some(fate)
    }

    /// Returns how the next report goes.
    pub(crate) fn next_report(&mut self, report: &NodeObservation) -> Option<ReportFate> {
        self.counts.reports += 1;
        // That an agent is silent is told within the control plane, once: nothing is between that could lose it. What
        // comes from a machine or of a call may be lost on its way.
        let is_silence = matches!(report.event, NodeEvent::Silent { .. });
        let place = if is_silence { Place::Silence } else { Place::Report };
        self.pass(place(self.counts.reports));
        let fate = self.fates.reports.remove(&self.counts.reports)?;
        if is_silence && fate == ReportFate::Lost {
            self.missed.push(Step::Report(self.counts.reports, fate));
            return None;
        }
        self.note_played(&Step::Report(self.counts.reports, fate));
        Some(fate)
    }

    /// Returns how much later a report comes. What membership tells of an attempt comes through one channel and stays in its
    /// order: who joined late is not silent before.
    pub(crate) fn delay_of(
        &mut self,
        report: &NodeObservation,
        fate: Option<ReportFate>,
    ) -> Option<Duration> {
        let now = self.now();
        let late = match fate {
            Some(ReportFate::Lost) => return None,
            Some(ReportFate::Late(by)) => Some(now + by),
            Some(ReportFate::Again(_)) | None => None,
        };
        if !is_of_membership(&report.event) {
            return late.map(|due| due.saturating_sub(now));
        }
        let key = (report.node.clone(), report.attempt);
        let before = self.late.get(&key).copied().filter(|&due| due > now);
        let due = late.max(before)?;
        self.late.insert(key, due);
        Some(due.saturating_sub(now))
    }

    /// Notes that something comes with which something could go wrong.
    pub(super) fn pass(&mut self, place: Place) {
        if !self.calm {
            self.places.push(place);
        }
    }

    pub(crate) fn take_places(&mut self) -> Vec<Place> {
        mem::take(&mut self.places)
    }

    pub(crate) fn take_missed(&mut self) -> Vec<Step> {
        mem::take(&mut self.missed)
    }

    /// Notes a fate that another one of the same thing took the place of, if it did.
    fn note_overruled(&mut self, step: Option<Step>) {
        self.missed.extend(step);
    }

    /// Forgets what was to go wrong, but notes that it did not.
    pub(super) fn drop_fates(&mut self) {
        let Fates { calls, boots, commits, reports } = mem::take(&mut self.fates);
        let calls = calls.into_iter().map(|((kind, nth), fate)| Step::Call(kind, nth, fate));
        self.missed.extend(calls);
        self.missed.extend(boots.into_iter().map(|(nth, fate)| Step::Boot(nth, fate)));
        self.missed.extend(commits.into_iter().map(|(nth, fate)| Step::Commit(nth, fate)));
        self.missed.extend(reports.into_iter().map(|(nth, fate)| Step::Report(nth, fate)));
    }

    /// Notes what comes to something that is not there.
    pub(super) fn note_if_missed(&mut self, happening: &Happening) {
        let is_missed = match happening {
            Happening::MachineDies(node) => !self.machines().any(|(key, _)| key.node == *node),
            Happening::AgentDies(node)
            | Happening::AgentStops(node, _)
            | Happening::AgentTwin(node) => !self.has_agent(node),
            Happening::Crash(_) | Happening::PowerLoss(_) => self.incarnation == 0,
            Happening::Want(_)
            | Happening::Pause
            | Happening::Resume
            | Happening::Ask(..)
            | Happening::AskGroup(..)
            | Happening::Sever(_)
            | Happening::Outage(..)
            | Happening::ListsNothing(_)
            | Happening::OtherAccount(_)
            | Happening::ClockJumps(_) => false,
        };
        if is_missed {
            let now = self.now();
            self.missed.push(Step::At(now, happening.clone()));
        }
    }

    fn has_agent(&self, node: &LogicalNodeId) -> bool {
        self.agents.keys().any(|(key, _)| key.cluster == CLUSTER && key.node == *node)
    }
}

fn is_of_membership(event: &NodeEvent) -> bool {
    match event {
        NodeEvent::Joined { .. } | NodeEvent::Silent { .. } | NodeEvent::Contact { .. } => true,
        NodeEvent::OperationFinished { .. }
        | NodeEvent::Bootstrap { .. }
        | NodeEvent::LeaseGone
        | NodeEvent::DeadlinePassed
        | NodeEvent::Operator(_) => false,
    }
}
