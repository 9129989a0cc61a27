//! The recent history, bounded.

use std::collections::VecDeque;

use myelin_driver::{DriverEvent, EventKind};
use myelin_shape::LogicalNodeId;
use myelin_store::StoredEvent;

use crate::view::{self, EventView};

/// The last events, numbered from 1.
#[derive(Debug)]
pub(super) struct EventRing {
    events: VecDeque<DriverEvent>,
    n_kept: usize,
    /// How many events there have been.
    last: u64,
}

impl EventRing {
    /// Returns a ring that goes on after these events.
    pub(super) fn new(n_kept: usize, before: Vec<StoredEvent>) -> Self {
        let last = before.last().map_or(0, |event| event.seq);
        let events = before.into_iter().map(|stored| stored.event).collect();
        Self { events, n_kept, last }
    }

    /// Returns the number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Keeps an event. What changed nothing is traced where it is noticed, and would only push out what did.
    pub(super) fn push(&mut self, event: DriverEvent) {
        if matches!(event.kind, EventKind::Ignored { .. }) {
            return;
        }
        if self.events.len() >= self.n_kept {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.last += 1;
    }

    fn numbered(&self) -> impl DoubleEndedIterator<Item = (u64, &DriverEvent)> {
        let first = self.last - self.events.len() as u64 + 1;
        self.events.iter().enumerate().map(move |(at, event)| (first + at as u64, event))
    }

    /// Returns at most `limit` events after one, oldest first, of one node or of all.
    pub(super) fn after(
        &self,
        after: u64,
        node: Option<&LogicalNodeId>,
        limit: usize,
    ) -> Vec<EventView> {
        let first = self.last - self.events.len() as u64;
        let skipped = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let events = self.numbered().skip(skipped);
        let of_node = events.filter(|(_, event)| is_of(event, node));
        of_node.take(limit).map(|(at, event)| view::event(at, event)).collect()
    }

    /// Returns the last `limit` events, oldest first, of one node or of all.
    pub(super) fn latest(&self, node: Option<&LogicalNodeId>, limit: usize) -> Vec<EventView> {
        let of_node = self.numbered().rev().filter(|(_, event)| is_of(event, node));
        let mut latest: Vec<_> =
            of_node.take(limit).map(|(at, event)| view::event(at, event)).collect();
        latest.reverse();
        latest
    }
}

fn is_of(event: &DriverEvent, node: Option<&LogicalNodeId>) -> bool {
    node.is_none() || event.node.as_ref() == node
}
