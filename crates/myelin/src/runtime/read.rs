//! What is said of a run and its nodes to whoever asks.

use std::slice;

use myelin_decider::{Explanation, HeldReason, Trigger, Until};
use myelin_shape::LogicalNodeId;
use myelin_state::ManagedNode;

use crate::{
    printable::shortened,
    view::{
        self, EventView, ExplainView, FileView, GroupView, NodeView, StatusView, TroubleView,
        Unheard,
    },
};

use super::{Error, core::Core, handle::EventQuery};

/// How many lines and events an explanation shows.
const EXPLAINED: usize = 20;

impl Core {
    pub(super) fn status(&self) -> StatusView {
        let of = view::Loop {
            run: self.shell.options.run.0,
            leaving: self.leaving,
            since: self.since,
            file: FileView::of(self.durable.source()),
        };
        let trouble = self.durable.trouble();
        let view = StatusView {
            converged: self.is_converged(),
            groups: self.groups(),
            unheard: view::unheard_view(&self.unheard()),
            trouble: trouble.map(|trouble| TroubleView {
                error: trouble.error.to_string(),
                since: view::stamp(trouble.since),
            }),
            ..view::status(self.driver(), &self.shell.ports.snapshot.get(), of)
        };
        match self.as_of.map(view::stamp) {
            None => view,
            as_of @ Some(since) => StatusView { as_of, since, pid: 0, ..view },
        }
    }

    pub(super) fn nodes(&self) -> Vec<NodeView> {
        let mut nodes = view::nodes(self.driver());
        view::correct_nodes(&mut nodes, &self.unheard());
        nodes
    }

    /// Returns the nodes that count as ready from before, and whose agents are awaited.
    fn unheard(&self) -> Unheard {
        let nodes = &self.driver().state().nodes;
        let mut awaited = self.shell.ports.roster.awaited();
        awaited.retain(|id, _| nodes.get(id).is_some_and(ManagedNode::is_ready));
        awaited
    }

    pub(super) fn groups(&self) -> Vec<GroupView> {
        let mut groups = view::groups(self.driver());
        view::correct_groups(&mut groups, &self.unheard());
        groups
    }

    /// Returns whether everything is as desired, recorded as such, and seen since this loop began.
    pub(super) fn is_converged(&self) -> bool {
        self.driver().convergence().converged
            && self.durable.trouble().is_none()
            && self.shell.ports.roster.n_unheard() == 0
    }

    pub(super) fn explain(&self, id: &LogicalNodeId) -> Result<ExplainView, Error> {
        let node = self.driver().state().nodes.get(id);
        let key = node.map(|node| self.key(id.clone(), node.attempt));
        // What is known of an agent from before is when the loop began to wait for it.
        let key = key.filter(|_| !self.shell.ports.roster.awaited().contains_key(id));
        let around = view::Around {
            last_contact: key.and_then(|key| self.shell.ports.roster.last_contact(&key)),
            output: self.shell.ports.outputs.after(id, 0, EXPLAINED),
            events: self.shell.ring.latest(Some(id), EXPLAINED),
        };
        let view = view::explain(self.driver(), id, around);
        let mut view = view.ok_or_else(|| self.unknown(id.as_str()))?;
        view::correct_nodes(slice::from_mut(&mut view.node), &self.unheard());
        if self.as_of.is_some() {
            "nothing, as long as no `myelin up` runs".clone_into(&mut view.next);
        }
        Ok(view)
    }

    pub(super) fn events(&self, query: &EventQuery) -> Result<Vec<EventView>, Error> {
        let node = query.node.as_ref();
        let events = match query.after {
            Some(after) => self.shell.ring.after(after, node, query.limit),
            None => self.shell.ring.latest(node, query.limit),
        };
        // A slot that is gone still has a history.
        match node.filter(|_| events.is_empty()) {
            Some(node) if self.shell.ring.latest(Some(node), 1).is_empty() => {
                self.knows(node).map(|()| events)
            }
            Some(_) | None => Ok(events),
        }
    }

    pub(super) fn knows(&self, id: &LogicalNodeId) -> Result<(), Error> {
        match self.driver().explain(id) {
            Explanation::Unknown => Err(self.unknown(id.as_str())),
            Explanation::Steady
            | Explanation::Missing
            | Explanation::Next(_)
            | Explanation::Held(_) => Ok(()),
        }
    }

    /// Returns the error about a name, with the name that was probably meant.
    pub(super) fn unknown(&self, name: &str) -> Error {
        let whole = name;
        let name = shortened(whole);
        if name != whole {
            // No name of ours is near, and to find that out would take long.
            return Error::Unknown { name, near: None };
        }
        let nodes = self.driver().state().nodes.keys().map(LogicalNodeId::as_str);
        let shape = self.driver().desired().into_iter();
        let groups = shape.flat_map(|shape| &shape.groups).map(|group| group.group_id.as_str());
        let distances =
            nodes.chain(groups).map(|known| (strsim::osa_distance(known, &name), known));
        // Nearer than a third of its letters, or it is another word.
        let near = distances.min().filter(|(distance, _)| distance * 3 <= name.len());
        let near = near.map(|(_, known)| known.to_owned());
        Error::Unknown { name, near }
    }

    /// Returns whether only a person can get any node further.
    pub(super) fn is_stuck(&self) -> bool {
        let Some(planner) = self.driver().planner() else {
            return false;
        };
        if self.driver().state().paused || planner.has_work() {
            return false;
        }
        let mut unsettled = planner.unsettled().peekable();
        let mut needs_person = false;
        let all_held = unsettled.peek().is_some()
            && unsettled.all(|id| match self.driver().explain(&id) {
                Explanation::Held(held) => match held.until {
                    Until::On(Trigger::SpecChange | Trigger::Operator) => {
                        needs_person = true;
                        true
                    }
                    Until::On(Trigger::GroupCounts) => !matches!(
                        held.reason,
                        HeldReason::Brake { .. } | HeldReason::AwaitingRepair { .. }
                    ),
                    Until::At(_) => false,
                },
                Explanation::Next(_) | Explanation::Missing => false,
                Explanation::Unknown | Explanation::Steady => true,
            });
        all_held && needs_person
    }
}
