//! What is learned while the store takes nothing, in bounded memory.
//!
//! The driver stands still meanwhile, so what it would ignore now it would ignore later, and of what repeats itself only
//! some matters: an agent that comes and goes for a day is here or not in the end. So there are at most a handful of
//! observations of each node, however long it takes.

use std::{collections::BTreeMap, mem};

use myelin_driver::Event;
use myelin_shape::{BootstrapSessionId, LogicalNodeId};
use myelin_state::{BootstrapStage, ClusterState, NodeEvent, NodeObservation};

/// Observations of one node that stand for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Finished,
    /// Progress of a bootstrap, or its end.
    Bootstrap(BootstrapSessionId, Option<BootstrapStage>),
    Joined,
    Contact,
    Silent,
    LeaseGone,
}

impl Kind {
    /// Returns whether the first of them says it all. Of others the last does.
    fn first_counts(self) -> bool {
        match self {
            Self::Finished | Self::Bootstrap(_, Some(_)) | Self::Joined | Self::LeaseGone => true,
            Self::Bootstrap(_, None) | Self::Contact | Self::Silent => false,
        }
    }
}

/// Events that wait to be folded, in their order.
#[derive(Debug, Default)]
pub(crate) struct Held {
    events: BTreeMap<u64, Event>,
    kinds: BTreeMap<(LogicalNodeId, Kind), u64>,
    n_ever: u64,
}

impl Held {
    /// Takes an event, unless it says nothing about this state or about what is held.
    pub(crate) fn push(&mut self, event: Event, state: &ClusterState) {
        match event {
            Event::Wake | Event::Tick => {}
            Event::Observed(observation) => self.observe(observation, state),
            // There are few of them: who would change something is refused meanwhile.
            event @ (Event::Desired(_)
            | Event::SubmitFailed { .. }
            | Event::Operator { .. }
            | Event::Pause
            | Event::Resume
            | Event::StoodStill { .. }) => self.append(event),
        }
    }

    /// Takes everything out, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Event> + use<> {
        mem::take(self).events.into_values()
    }

    fn append(&mut self, event: Event) {
        self.n_ever += 1;
        self.events.insert(self.n_ever, event);
    }

    fn observe(&mut self, observation: NodeObservation, state: &ClusterState) {
        let NodeObservation { node, attempt, event } = observation;
        let known = state.nodes.get(&node).filter(|known| known.attempt == attempt);
        let Some(known) = known else {
            return tracing::debug!(%node, %attempt, "an observation of an attempt that is over");
        };
        if let NodeEvent::OperationFinished { operation, .. } = &event
            && known.pending.as_deref().is_none_or(|pending| pending.id != *operation)
        {
            return tracing::debug!(%node, %operation, "a result that nobody waits for");
        }
        let event = self.unless_repeated(&node, event);
        let Some(kind) = kind(&event) else {
            return self.append(Event::Observed(NodeObservation { node, attempt, event }));
        };
        let before = self.kinds.get(&(node.clone(), kind)).copied();
        if before.is_some() && kind.first_counts() {
            return;
        }
        before.and_then(|at| self.events.remove(&at));
        self.append(Event::Observed(NodeObservation { node: node.clone(), attempt, event }));
        self.kinds.insert((node, kind), self.n_ever);
    }

    /// An agent joins once; after that it is heard again.
    fn unless_repeated(&self, node: &LogicalNodeId, event: NodeEvent) -> NodeEvent {
        if let NodeEvent::Joined { swactor } = &event
            && self.kinds.contains_key(&(node.clone(), Kind::Joined))
        {
            return NodeEvent::Contact { swactor: swactor.clone() };
        }
        event
    }
}

/// Returns the kind of what comes from outside; none for what the driver tells itself.
fn kind(event: &NodeEvent) -> Option<Kind> {
    Some(match event {
        NodeEvent::OperationFinished { .. } => Kind::Finished,
        NodeEvent::Bootstrap { session, stage, .. } => {
            let ends = *stage == BootstrapStage::Closed || stage.is_failure();
            Kind::Bootstrap(*session, ends.then_some(*stage))
        }
        NodeEvent::Joined { .. } => Kind::Joined,
        NodeEvent::Contact { .. } => Kind::Contact,
        NodeEvent::Silent { .. } => Kind::Silent,
        NodeEvent::LeaseGone => Kind::LeaseGone,
        NodeEvent::DeadlinePassed | NodeEvent::Operator(_) => return None,
    })
}

#[cfg(test)]
mod tests;
