//! The rules about single calls, and what they remember.
//!
//! What is remembered outlives every control plane: a rule that began anew with each would not see what two of them do
//! together.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use myelin_executor::fake::CallKind;
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId, OperationId, ProviderLeaseId};
use myelin_state::{ClusterState, DriverEvent, ErrorClass, EventKind, ManagedNode, OperationKind};

use super::{
    CLUSTER, World,
    calls::{Answer, Reply, Request},
    effects::{id_of, number_of},
};
use crate::CallFate;

/// What is recorded durably of a slot, as far as calls are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recorded {
    attempt: NodeAttemptId,
    pending: Option<(OperationKind, OperationId)>,
    is_leased: bool,
}

impl Recorded {
    fn of(node: &ManagedNode) -> Self {
        let pending = node.pending.as_ref().map(|it| (it.kind, it.id));
        Self { attempt: node.attempt, pending, is_leased: node.record.lease.is_some() }
    }
}

/// What the rules remember.
#[derive(Debug, Default)]
pub(super) struct Memory {
    recorded: BTreeMap<LogicalNodeId, Recorded>,
    /// Leases whose taking is recorded.
    taking: BTreeSet<ProviderLeaseId>,
    /// Which slot each attempt was first asked for.
    asked: BTreeMap<NodeAttemptId, LogicalNodeId>,
    /// Attempts whose machine was given back.
    spent: BTreeSet<AttemptKey>,
    /// Attempts whose machine was lost after it was recorded.
    lost: BTreeSet<AttemptKey>,
    /// Creates and starts of which nobody has told the living control plane how they went, and since when nobody can.
    unknown: BTreeMap<(CallKind, AttemptKey), Duration>,
    /// Slots of which more than one machine is not our doing: a provider broke what it promises, or somebody said that
    /// there is no machine.
    excused: BTreeSet<LogicalNodeId>,
}

impl World {
    /// Learns that a slot is recorded like this, or not at all.
    pub(crate) fn note_recorded(&mut self, id: &LogicalNodeId, node: Option<&ManagedNode>) {
        match node {
            Some(node) => drop(self.memory.recorded.insert(id.clone(), Recorded::of(node))),
            None => drop(self.memory.recorded.remove(id)),
        }
    }

    /// Learns what a loss of power has left.
    pub(crate) fn note_left<'a>(
        &mut self,
        state: &ClusterState,
        events: impl Iterator<Item = &'a DriverEvent>,
    ) {
        let nodes = state.nodes.iter();
        self.memory.recorded = nodes.map(|(id, node)| (id.clone(), Recorded::of(node))).collect();
        self.memory.taking = events.filter_map(taken).cloned().collect();
        // Where the record of a machine is gone nobody knows that there was one.
        let Memory { recorded, lost, .. } = &mut self.memory;
        lost.retain(|key| {
            recorded.get(&key.node).is_none_or(|it| it.attempt != key.attempt || it.is_leased)
        });
    }

    /// Learns that an event is recorded. What is taken because it is nobody's was left behind by somebody.
    pub(crate) fn note_event(&mut self, event: &DriverEvent) {
        let Some(lease) = taken(event) else { return };
        self.memory.taking.insert(lease.clone());
        if event.node.as_ref().is_none_or(|node| !self.memory.excused.contains(node)) {
            let of = event.node.as_ref().zip(event.attempt);
            let of = of.map(|(node, attempt)| format!(" of {node}#{attempt}"));
            let what = format!("{lease}{} is nobody's", of.unwrap_or_default());
            self.break_rule("nothing is left behind", what);
        }
    }

    /// Takes it that there may be more than one machine of a slot from now on.
    pub(crate) fn excuse(&mut self, node: LogicalNodeId) {
        self.memory.excused.insert(node);
    }

    /// Excuses the slot of a call that is about to be answered by what is not true, or to do what it must not.
    pub(super) fn excuse_if_lied(&mut self, request: &Request, fate: Option<&CallFate>) {
        let outage = self.troubles.outage.filter(|(until, _)| *until > self.now());
        let is_lie = if let Some((_, class)) = outage {
            class == ErrorClass::AlreadyAbsent && request.ends() && self.exists(request)
        } else {
            fate.is_some_and(|fate| self.is_lie(request, fate))
        };
        if is_lie && let Some(node) = self.slot_of(request) {
            self.excuse(node);
        }
    }

    fn is_lie(&self, request: &Request, fate: &CallFate) -> bool {
        let makes = request.made().is_some();
        match fate {
            CallFate::Lies => makes || self.exists(request),
            CallFate::Twice => makes,
            CallFate::FindsNothing => !request.ends() && self.exists(request),
            CallFate::Fails(class) => {
                *class == ErrorClass::AlreadyAbsent && request.ends() && self.exists(request)
            }
            CallFate::FailsAfter(class) => makes && *class != ErrorClass::Ambiguous,
            CallFate::Slow(_)
            | CallFate::LosesReply
            | CallFate::Late(_)
            | CallFate::Hangs
            | CallFate::ListsHalf
            | CallFate::ListsOld
            | CallFate::Panics
            | CallFate::CrashBefore
            | CallFate::CrashAfter => false,
        }
    }

    /// Returns whether there is what a request looks for, works on, or ends.
    fn exists(&self, request: &Request) -> bool {
        match request {
            Request::Find(key) => self.is_found(key),
            Request::Presence(lease) | Request::Destroy(lease) => {
                number_of(&lease.lease_id).is_some_and(|it| self.machines.contains_key(&it))
            }
            Request::Start(request) => {
                number_of(&request.lease.lease_id).is_some_and(|it| self.machines.contains_key(&it))
            }
            Request::FindSession(key) => self.open_session(key).is_some(),
            Request::Cancel(session) => self.sessions.get(&session.0).is_some_and(|it| it.open),
            Request::Identity
            | Request::Create(_)
            | Request::Endpoint(_)
            | Request::List(_)
            | Request::Conclude(_) => false,
        }
    }

    fn slot_of(&self, request: &Request) -> Option<LogicalNodeId> {
        let key = match request {
            Request::Create(request) => Some(&request.key),
            Request::Start(request) => Some(&request.key),
            Request::Find(key) | Request::FindSession(key) => Some(key),
            Request::Endpoint(lease) | Request::Presence(lease) | Request::Destroy(lease) => {
                let machine = number_of(&lease.lease_id).and_then(|it| self.machines.get(&it));
                machine.map(|it| &it.key)
            }
            Request::Conclude(session) | Request::Cancel(session) => {
                self.sessions.get(&session.0).map(|it| &it.key)
            }
            Request::Identity | Request::List(_) => None,
        };
        key.map(|key| key.node.clone())
    }

    /// What makes or ends something was recorded first, durably.
    pub(super) fn check_recorded(&mut self, request: &Request) {
        let (key, kind) = match request {
            Request::Create(request) => (request.key.clone(), OperationKind::CreateLease),
            Request::Start(request) => (request.key.clone(), OperationKind::StartBootstrap),
            Request::Destroy(lease) => {
                if self.memory.taking.contains(&lease.lease_id) {
                    return;
                }
                let machine = number_of(&lease.lease_id).and_then(|it| self.machines.get(&it));
                let Some(machine) = machine else { return };
                (machine.key.clone(), OperationKind::DestroyLease)
            }
            Request::Identity
            | Request::Find(_)
            | Request::Endpoint(_)
            | Request::Presence(_)
            | Request::List(_)
            | Request::FindSession(_)
            | Request::Conclude(_)
            | Request::Cancel(_) => return,
        };
        // A start says which effect it is of.
        let is_it = |operation| !matches!(request, Request::Start(it) if it.operation != operation);
        let recorded = self.memory.recorded.get(&key.node).filter(|it| it.attempt == key.attempt);
        let pending = recorded.and_then(|it| it.pending);
        let is_recorded = pending.is_some_and(|(it, operation)| it == kind && is_it(operation));
        if !is_recorded {
            let what = format!("{request}, while {recorded:?} is recorded of {}", key.node);
            self.break_rule("recorded before it is done", what);
        }
    }

    /// An attempt is of one slot, comes after those that the slot had before, and gets one machine.
    pub(super) fn check_attempt(&mut self, request: &Request) {
        let Some((kind, key)) = request.made() else { return };
        let first = self.memory.asked.entry(key.attempt).or_insert_with(|| key.node.clone());
        if *first != key.node {
            let what = format!("{request}, and attempt {} was of {first} before", key.attempt);
            return self.break_rule("attempts are used once", what);
        }
        let mut later = self.memory.asked.range(key.attempt..).skip(1);
        if let Some((attempt, _)) = later.find(|(_, node)| **node == key.node) {
            let what = format!("{request}, after attempt {attempt}");
            return self.break_rule("attempts are used once", what);
        }
        let recorded = self.memory.recorded.get(&key.node);
        let is_leased = recorded.is_some_and(|it| it.attempt == key.attempt && it.is_leased);
        if kind == CallKind::Create && is_leased {
            let what = format!("{request}, which has a lease");
            self.break_rule("attempts are used once", what);
        }
    }

    /// One machine a slot, and none of an attempt that had one before.
    pub(super) fn check_machine(&mut self, key: &AttemptKey, number: u64) {
        if key.cluster != CLUSTER || self.memory.excused.contains(&key.node) {
            return;
        }
        let of_slot = |key_of: &AttemptKey| key_of.cluster == CLUSTER && key_of.node == key.node;
        let other = self.machines.iter().find(|(_, it)| of_slot(&it.key));
        if let Some((&other, machine)) = other {
            let what = format!(
                "{} of attempt {} is made while there is {} of attempt {} for {}",
                id_of(number),
                key.attempt,
                id_of(other),
                machine.key.attempt,
                key.node
            );
            self.break_rule("one machine a slot", what);
        }
        if self.memory.spent.contains(key) || self.memory.lost.contains(key) {
            let what =
                format!("{} is the second machine of {}#{}", id_of(number), key.node, key.attempt);
            self.break_rule("attempts are used once", what);
        }
    }

    /// A machine that the control plane has given back.
    pub(super) fn note_given_back(&mut self, key: AttemptKey) {
        self.memory.spent.insert(key);
    }

    /// A machine that is gone by itself. Who does not know of it yet may ask for it once more.
    pub(super) fn note_lost(&mut self, key: &AttemptKey) {
        let recorded = self.memory.recorded.get(&key.node);
        if recorded.is_some_and(|it| it.attempt == key.attempt && it.is_leased) {
            self.memory.lost.insert(key.clone());
        }
    }

    /// What may exist is looked for before it is made again.
    pub(super) fn check_unknown(&mut self, request: &Request) {
        let Some(made) = request.made() else { return };
        let now = self.now();
        if self.memory.unknown.insert(made, now).is_some() {
            let what = format!("{request} again, and nobody knows what became of the last time");
            self.break_rule("what is unknown is looked for", what);
        }
    }

    /// From now on nobody hears what became of something.
    pub(super) fn note_unknown(&mut self, made: &(CallKind, AttemptKey)) {
        let now = self.now();
        if let Some(since) = self.memory.unknown.get_mut(made) {
            *since = now;
        }
    }

    /// Learns from what the living control plane was told, in answer to a question of `asked_at`.
    pub(super) fn note_told(&mut self, request: &Request, asked_at: Duration, reply: &Reply) {
        if let Some(made) = request.made() {
            if matches!(reply, Err(error) if error.class == ErrorClass::Ambiguous) {
                self.note_unknown(&made);
            } else {
                self.memory.unknown.remove(&made);
            }
            return;
        }
        let (made, found) = match (request, reply) {
            (Request::Find(key), Ok(Answer::Leases(leases))) => {
                ((CallKind::Create, key.clone()), !leases.is_empty())
            }
            (Request::FindSession(key), Ok(Answer::FoundSession(session))) => {
                ((CallKind::Start, key.clone()), session.is_some())
            }
            _ => return,
        };
        // "Not found" proves nothing before a settle window is over.
        let window = self.config.settle_window;
        let since = self.memory.unknown.get(&made).copied();
        if found || since.is_some_and(|since| asked_at >= since + window) {
            self.memory.unknown.remove(&made);
        }
    }
}

fn taken(event: &DriverEvent) -> Option<&ProviderLeaseId> {
    if let EventKind::Collecting { lease, .. } = &event.kind { Some(lease) } else { None }
}
