//! Folding of observations, deadlines and operators' words, and what they mean for the groups.

use std::{collections::BTreeMap, mem, sync::Arc, time::SystemTime};

use myelin_decider::Planner;
use myelin_reducer::{Folded, Ignored, observe, transition};
use myelin_shape::{LogicalNodeId, LogicalNodeSpec, NodeAttemptId, NodeTemplate, OperationId};
use myelin_state::{
    ErrorClass, GroupRecord, ManagedNode, NodeEvent, NodeIntent, NodeObservation, NodeStage,
    OperationError, OperationKind, OperationOutcome, OperatorRequest,
};

use crate::{ClusterDriver, DriverEvent, EventKind, Target};

/// Says what a fold has changed.
fn narrate(node: &ManagedNode, before: &Before, mut tell: impl FnMut(EventKind)) {
    let record = &node.record;
    if let Some((operation, effect)) = before.effect.filter(|_| node.pending.is_none()) {
        tell(if node.retry.consecutive_failures > before.failures {
            let error = node.retry.last_error.clone().unwrap_or_default();
            let class = before.failed.unwrap_or(ErrorClass::Transient);
            EventKind::EffectFailed { operation, effect, class, error }
        } else {
            EventKind::Succeeded { operation, effect }
        });
    }
    match (before.stage, record.stage) {
        (from, to) if from == to => {}
        (_, NodeStage::Failed) => {
            let reason = record.failed_reason.clone().unwrap_or_default();
            tell(EventKind::AttemptFailed { reason });
        }
        (from, to) => tell(EventKind::Advanced { from, to }),
    }
    if let Some(cause) = node.delete_cause.filter(|_| !before.deleting) {
        tell(EventKind::DeleteBegan { cause });
    }
    if let Some(quarantine) = node.quarantine.as_deref().filter(|_| !before.quarantined) {
        tell(EventKind::Quarantined { failures: quarantine.failures });
    }
    if let Some(refusal) = node.refused.as_deref().filter(|_| !before.refused) {
        tell(EventKind::Refused { message: refusal.message.clone() });
    }
    match (before.silent, record.silence.is_some()) {
        (false, true) => tell(EventKind::Silent),
        (true, false) if record.stage != NodeStage::Failed => tell(EventKind::Heard),
        (true | false, _) => {}
    }
    if node.is_ready() && !before.ready {
        tell(EventKind::Ready);
    }
}

/// What of a node is compared before and after a fold, to say what happened.
#[expect(clippy::struct_excessive_bools, reason = "one bit per thing that can happen")]
struct Before {
    stage: NodeStage,
    ready: bool,
    silent: bool,
    refused: bool,
    quarantined: bool,
    recovering: bool,
    deleting: bool,
    failures: u32,
    effect: Option<(OperationId, OperationKind)>,
    /// How the observation says that the effect failed.
    failed: Option<ErrorClass>,
}

impl Before {
    fn of(node: &ManagedNode) -> Self {
        Self {
            stage: node.record.stage,
            ready: node.is_ready(),
            silent: node.record.silence.is_some(),
            refused: node.refused.is_some(),
            quarantined: node.quarantine.is_some(),
            recovering: node.recovering,
            deleting: node.intent == NodeIntent::Deleting,
            failures: node.retry.consecutive_failures,
            effect: node.pending.as_deref().map(|pending| (pending.id, pending.kind)),
            failed: None,
        }
    }
}

/// Looks at a node while it is at hand, so that the pass that follows need not find it again.
pub(crate) fn look(
    planner: &mut Option<Planner>,
    node: &ManagedNode,
    paused: bool,
    now: SystemTime,
) {
    if let Some(planner) = planner {
        planner.look_at(node, paused, now);
    }
}

impl ClusterDriver {
    /// Folds an observation into the node it is about.
    pub(crate) fn observe(&mut self, observation: NodeObservation) {
        let (id, attempt) = (observation.node.clone(), observation.attempt);
        if let Folded::Ignored(reason) = self.fold_one(observation) {
            self.ignored(id, attempt, reason);
        }
    }

    fn ignored(&mut self, id: LogicalNodeId, attempt: NodeAttemptId, reason: Ignored) {
        *self.counters.ignored.entry(reason).or_default() += 1;
        tracing::debug!(node = %id, %attempt, reason = reason.code(), "observation ignored");
        let reason = reason.code().into();
        self.emit_of(Some(id), Some(attempt), EventKind::Ignored { reason });
    }

    /// Folds, and notes what that changed: in the history, for the next pass, and for the node's group.
    fn fold_one(&mut self, observation: NodeObservation) -> Folded {
        let (id, at) = (observation.node.clone(), self.now);
        let outcome = if let NodeEvent::OperationFinished { outcome, .. } = &observation.event {
            Some(outcome.error_class())
        } else {
            None
        };
        let Some(node) = self.state.nodes.get_mut(id.as_str()) else {
            return Folded::Ignored(Ignored::StaleAttempt);
        };
        let mut before = Before::of(node);
        // Without a result, an effect that is gone was given up, not ended.
        let given_up = before.effect.take_if(|_| outcome.is_none());
        before.failed = outcome.flatten();
        let folded = observe(node, observation, at, &self.retry);
        if folded == Folded::Applied {
            let attempt = Some(node.attempt);
            let events = &mut self.effects.changed.events;
            narrate(node, &before, |kind| {
                events.push(DriverEvent { at, node: Some(id.clone()), attempt, kind });
            });
            let proof = (node.is_ready() && !before.ready).then(|| node.record.desired.clone());
            look(&mut self.planner, node, self.state.paused, at);
            let pending = node.pending.as_deref().map(|pending| pending.id);
            // It may still wait for its turn, and would be done when nobody expects it any more.
            if let Some((operation, _)) = given_up.filter(|&(id, _)| pending != Some(id)) {
                self.effects.expire.push((id.clone(), operation));
            }
            self.effects.changed.nodes.push(id);
            if let Some(slot) = proof {
                self.prove(&slot, before.recovering);
            }
        }
        folded
    }

    /// Notes that a node's record has changed.
    pub(crate) fn changed(&mut self, id: &LogicalNodeId) {
        if let Some(node) = self.state.nodes.get(id) {
            look(&mut self.planner, node, self.state.paused, self.now);
        }
        self.effects.changed.nodes.push(id.clone());
    }

    /// A node that became ready proves its template; one that had failed lets the brakes forget.
    fn prove(&mut self, slot: &LogicalNodeSpec, repaired: bool) {
        let Some(planner) = &mut self.planner else {
            return;
        };
        let group = slot.group_id();
        let same = |template| NodeTemplate::same(template, &slot.template);
        // A node of an earlier spec that is heard again says nothing about the one on trial.
        let current = planner.topology().wanting(slot).is_some_and(|group| same(&group.template));
        if !self.state.groups.contains_key(group) {
            self.effects.changed.cluster = true;
            self.state.groups.insert(group.clone(), GroupRecord::default());
        }
        let record = self.state.groups.get_mut(group).expect("just inserted");
        if current && !record.has_proven(&slot.template) {
            if record.proven.len() == GroupRecord::MOST_PROVEN {
                record.proven.remove(0);
            }
            record.proven.push(Arc::clone(&slot.template));
            record.canary = None;
            planner.touch_group(group);
            self.effects.changed.cluster = true;
        }
        let run = &mut self.state.brake;
        if repaired && (record.brake.silent_machine_ended || run.silent_machine_ended) {
            record.brake.silent_machine_ended = false;
            run.silent_machine_ended = false;
            self.braked.remove(group);
            planner.touch_group(group);
            planner.touch_run();
            self.effects.changed.cluster = true;
            self.hear_out();
        }
    }

    /// Gives every silent agent time to dial again, now that one was heard.
    fn hear_out(&mut self) {
        let unsettled = self.planner.iter().flat_map(Planner::unsettled);
        for id in unsettled.collect::<Vec<_>>() {
            let node = self.state.nodes.get_mut(&id);
            if node.is_some_and(|node| transition::hear_out(node, self.now, &self.retry)) {
                self.changed(&id);
                self.emit(Some(&id), EventKind::HeardOut);
            }
        }
    }

    /// Lets brakes forget the silent machine they ended when no repair is to be waited for: nothing of their scope fails
    /// any more, or what was under repair is gone or was replaced on purpose.
    pub(crate) fn forget_brakes(&mut self) {
        let Some(planner) = &mut self.planner else {
            return;
        };
        if self.state.brake.silent_machine_ended && !planner.awaits_repair(None) {
            self.state.brake.silent_machine_ended = false;
            planner.touch_run();
            self.effects.changed.cluster = true;
        }
        for group in mem::take(&mut self.braked) {
            if planner.awaits_repair(Some(&group)) {
                self.braked.insert(group);
                continue;
            }
            if let Some(record) = self.state.groups.get_mut(&group) {
                record.brake.silent_machine_ended = false;
            }
            planner.touch_group(&group);
            self.effects.changed.cluster = true;
        }
    }

    pub(crate) fn submit_failed(
        &mut self,
        node: LogicalNodeId,
        operation: OperationId,
        message: Box<str>,
    ) {
        // What was never submitted has not happened, whatever it would have made.
        let error = OperationError { class: ErrorClass::Transient, message };
        let outcome = OperationOutcome::Failed(error);
        let event = NodeEvent::OperationFinished { operation, outcome };
        self.observe(NodeObservation { node, attempt: operation.attempt, event });
    }

    fn is_refused(&self, id: &LogicalNodeId) -> bool {
        self.state.nodes.get(id).is_some_and(|node| node.refused.is_some())
    }

    pub(crate) fn operator(&mut self, target: &Target, request: OperatorRequest) {
        let nodes: Vec<_> = match target {
            // A refusal holds all of its group, so releasing one releases them all.
            Target::Node(id) if request == OperatorRequest::Retry && self.is_refused(id) => {
                let group = self.state.nodes[id].record.desired.group_id();
                let refused = |(_, node): &(_, &ManagedNode)| {
                    node.refused.is_some() && node.record.desired.group_id() == group
                };
                self.state.nodes.iter().filter(refused).collect()
            }
            Target::Node(id) => self.state.nodes.get_key_value(id).into_iter().collect(),
            Target::Group(group) => {
                let of_group =
                    |(_, node): &(_, &ManagedNode)| node.record.desired.group_id() == group;
                self.state.nodes.iter().filter(of_group).collect()
            }
        };
        let asked: Vec<_> =
            nodes.into_iter().map(|(id, node)| (id.clone(), node.attempt)).collect();
        for (node, attempt) in asked {
            let event = NodeEvent::Operator(request);
            let at = self.effects.changed.events.len();
            let observation = NodeObservation { node: node.clone(), attempt, event };
            match self.fold_one(observation) {
                // The word comes before what it led to.
                Folded::Applied => {
                    let (node, attempt) = (Some(node), Some(attempt));
                    let kind = EventKind::OperatorAsked { request };
                    let asked = DriverEvent { at: self.now, node, attempt, kind };
                    self.effects.changed.events.insert(at, asked);
                }
                Folded::Ignored(reason) => self.ignored(node, attempt, reason),
            }
        }
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        if self.state.paused == paused {
            return;
        }
        self.state.paused = paused;
        self.effects.changed.cluster = true;
        self.emit(None, if paused { EventKind::Paused } else { EventKind::Resumed });
        if !paused {
            self.stood_still(&[]);
        }
        // What was held for the pause, and what is held from now on, is decided anew.
        let unsettled: Vec<_> = self.planner.iter().flat_map(Planner::unsettled).collect();
        for id in unsettled {
            if let Some(node) = self.state.nodes.get(&id) {
                look(&mut self.planner, node, paused, self.now);
            }
        }
    }

    /// Gives attempts whose times have passed while nothing could be done for them as long again.
    pub(crate) fn stood_still(&mut self, unsent: &[(LogicalNodeId, OperationId)]) {
        let unsent: BTreeMap<_, _> =
            unsent.iter().map(|(id, operation)| (id, *operation)).collect();
        let unsettled: Vec<_> = self.planner.iter().flat_map(Planner::unsettled).collect();
        for id in unsettled {
            let Some(node) = self.state.nodes.get_mut(&id) else { continue };
            let mut given = transition::resume(node, self.now, &self.retry);
            if let Some(operation) = unsent.get(&id) {
                given |= transition::resend(node, *operation, self.now, &self.retry);
            }
            if given {
                self.changed(&id);
                self.emit(Some(&id), EventKind::TimeGiven);
            }
        }
    }

    /// Folds every deadline that is due.
    pub(crate) fn expire_due(&mut self) {
        let Some(planner) = &mut self.planner else { return };
        for id in planner.take_due(self.now) {
            self.touched.push(id.clone());
            self.expire(id);
        }
    }

    /// Folds the deadlines of one node that are due.
    pub(crate) fn expire(&mut self, id: LogicalNodeId) {
        let policy = Arc::clone(&self.retry);
        let node = self.state.nodes.get_mut(&id);
        let expired = node.and_then(|node| {
            let operation = transition::expire_pending(node, self.now, &policy)?;
            Some((operation, node.pending.as_deref()?.kind))
        });
        if let Some((operation, effect)) = expired {
            self.effects.expire.push((id.clone(), operation));
            self.changed(&id);
            self.emit(Some(&id), EventKind::Expired { operation, effect });
        }
        // While effects are paused nothing can be done for an attempt, so its time is not held against it.
        let attempt = self.state.nodes.get(&id).map(|node| node.attempt);
        if let Some(attempt) = attempt.filter(|_| !self.state.paused) {
            let event = NodeEvent::DeadlinePassed;
            self.fold_one(NodeObservation { node: id, attempt, event });
        }
    }
}
