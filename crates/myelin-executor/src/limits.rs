//! Whose turn it is to call a provider: concurrency, rate, fairness (`spec 4.2`).
//!
//! [`Queue`] is synchronous and gets time passed in. Work comes in three lanes, so that neither creates nor deletions
//! nor looks can starve the others, and within a lane groups take turns.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use tokio::time::Instant;

use myelin_shape::NodeGroupId;
use myelin_state::OperationKind;

/// What one provider is spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many operations may be with the provider at once; at least 1. A quarter of it, at least 1 from 2 on, is kept
    /// for deletions, and the same for everything else. One look of the inventory is let through beside them.
    pub concurrency: u32,
    /// How many calls may be made per second, with bursts of as many. Absent: no limit.
    pub calls_per_second: Option<u32>,
    /// How long an offer without capacity is not asked for again.
    pub no_capacity_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 16, calls_per_second: None, no_capacity_for: Duration::from_secs(30) }
    }
}

/// A provider that asks for more than this is asking for nothing sensible.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The kinds of work that must not starve each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneId {
    Build,
    Clean,
    /// Asking what there is: one at a time, even while operations hang, since that is when it has to be known.
    Look,
}

impl LaneId {
    pub(crate) fn of(kind: OperationKind) -> Self {
        match kind {
            OperationKind::CreateLease
            | OperationKind::LookupEndpoint
            | OperationKind::StartBootstrap
            | OperationKind::BootstrapConvergenceObserved => Self::Build,
            OperationKind::CancelBootstrap | OperationKind::DestroyLease => Self::Clean,
        }
    }

    /// Returns all lanes, this one last.
    fn rotated(self) -> [Self; 3] {
        match self {
            Self::Build => [Self::Clean, Self::Look, Self::Build],
            Self::Clean => [Self::Look, Self::Build, Self::Clean],
            Self::Look => [Self::Build, Self::Clean, Self::Look],
        }
    }
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) lane: LaneId,
    pub(crate) group: NodeGroupId,
    number: u64,
}

#[derive(Debug)]
struct Lane<W> {
    running: u32,
    waiting: BTreeMap<NodeGroupId, BTreeMap<u64, W>>,
    /// The group that had its turn last.
    last: Option<NodeGroupId>,
}

impl<W> Default for Lane<W> {
    fn default() -> Self {
        Self { running: 0, waiting: BTreeMap::new(), last: None }
    }
}

impl<W> Lane<W> {
    fn next_group(&self) -> Option<&NodeGroupId> {
        let after = self.last.as_ref().and_then(|last| {
            let mut later = self.waiting.range((Excluded(last.clone()), Unbounded));
            later.next()
        });
        let (group, _) = after.or_else(|| self.waiting.first_key_value())?;
        Some(group)
    }

    fn pop(&mut self) -> Option<W> {
        let group = self.next_group()?.clone();
        let queue = self.waiting.get_mut(&group)?;
        let (_, waiter) = queue.pop_first()?;
        if queue.is_empty() {
            self.waiting.remove(&group);
        }
        self.last = Some(group);
        Some(waiter)
    }

    fn remove(&mut self, group: &NodeGroupId, number: u64) {
        let Some(queue) = self.waiting.get_mut(group) else {
            return;
        };
        queue.remove(&number);
        if queue.is_empty() {
            self.waiting.remove(group);
        }
    }

    fn n_waiting(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }
}

/// Who waits for a provider, and what it is spared.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    limits: Limits,
    build: Lane<W>,
    clean: Lane<W>,
    look: Lane<W>,
    /// The lane that had its turn last.
    last: LaneId,
    next_number: u64,
    /// When a call would be on time if calls came evenly spaced; how far that is ahead of now is the burst used up.
    due: Option<Instant>,
    paused_until: Option<Instant>,
}

impl<W> Queue<W> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            build: Lane::default(),
            clean: Lane::default(),
            look: Lane::default(),
            last: LaneId::Build,
            next_number: 0,
            due: None,
            paused_until: None,
        }
    }

    pub(crate) fn push(&mut self, lane: LaneId, group: NodeGroupId, waiter: W) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        let queue = self.lane(lane).waiting.entry(group.clone()).or_default();
        queue.insert(number, waiter);
        Ticket { lane, group, number }
    }

    /// Gives up a place. One that had its turn already is none.
    pub(crate) fn remove(&mut self, ticket: &Ticket) {
        self.lane(ticket.lane).remove(&ticket.group, ticket.number);
    }

    /// Ends a turn.
    pub(crate) fn release(&mut self, lane: LaneId) {
        let lane = self.lane(lane);
        lane.running = lane.running.checked_sub(1).expect("a turn ends once");
    }

    /// Starts the next turn, if there is one now.
    pub(crate) fn grant(&mut self, now: Instant) -> Option<(LaneId, W)> {
        if self.opens_at().is_some_and(|at| at > now) {
            return None;
        }
        let id = self.last.rotated().into_iter().find(|&id| self.has_turn(id))?;
        let lane = self.lane(id);
        let waiter = lane.pop()?;
        lane.running += 1;
        self.last = id;
        self.charge(now);
        Some((id, waiter))
    }

    /// Returns when the next turn starts, if only time stands between.
    pub(crate) fn next_grant_at(&self) -> Option<Instant> {
        let somebody = self.last.rotated().into_iter().any(|id| self.has_turn(id));
        somebody.then(|| self.opens_at()).flatten()
    }

    /// Counts one call against the rate. A turn counts one by itself.
    pub(crate) fn charge(&mut self, now: Instant) {
        if let Some(spacing) = self.spacing() {
            self.due = Some(self.due.map_or(now, |due| due.max(now)) + spacing);
        }
    }

    /// Keeps everybody waiting for a time the provider asked for.
    pub(crate) fn pause(&mut self, now: Instant, pause: Duration) {
        let until = now + pause.min(LONGEST_PAUSE);
        self.paused_until = Some(self.paused_until.map_or(until, |at| at.max(until)));
    }

    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Returns how many operations are with the provider; a look is none.
    pub(crate) fn n_running(&self) -> u32 {
        self.build.running + self.clean.running
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.build.n_waiting() + self.clean.n_waiting()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    fn lane(&mut self, id: LaneId) -> &mut Lane<W> {
        match id {
            LaneId::Build => &mut self.build,
            LaneId::Clean => &mut self.clean,
            LaneId::Look => &mut self.look,
        }
    }

    fn has_turn(&self, id: LaneId) -> bool {
        let lane = match id {
            LaneId::Build => &self.build,
            LaneId::Clean => &self.clean,
            LaneId::Look => return self.look.running == 0 && !self.look.waiting.is_empty(),
        };
        let cap = self.limits.concurrency.max(1);
        let kept_for_other = if cap == 1 { 0 } else { (cap / 4).max(1) };
        let free = self.n_running() < cap && lane.running < cap - kept_for_other;
        free && !lane.waiting.is_empty()
    }

    fn spacing(&self) -> Option<Duration> {
        let rate = self.limits.calls_per_second?;
        Some(Duration::from_secs(1) / rate.max(1))
    }

    /// Returns before when no turn starts, whoever waits.
    fn opens_at(&self) -> Option<Instant> {
        let burst = self.spacing().map(|spacing| Duration::from_secs(1).saturating_sub(spacing));
        let rate = self.due.zip(burst).and_then(|(due, burst)| due.checked_sub(burst));
        self.paused_until.max(rate)
    }
}

#[cfg(test)]
mod tests;
