//! A keyed, coalescing work queue with deadlines.
//!
//! A trigger adds a key, never a decision: whoever takes the key looks at all there is to know about it. Adding a
//! key that waits already is therefore no work, adding one that is being processed means exactly one more turn after it,
//! and of several times to look again at a key only the earliest counts (seed 1 §9).
//!
//! Time is passed in; nothing here reads a clock, spawns or blocks. Data is ordered, so equal calls give equal
//! answers. Every call is total: misuse, such as ending a turn nobody began, is answered and changes nothing. A key costs
//! memory only while it waits, is processed or has a deadline.
//!
//! Reading order: [`WorkQueue`], [`Added`], [`Done`], [`Requeue`].
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use myelin_workqueue::{Added, Done, WorkQueue};
//!
//! let start = SystemTime::UNIX_EPOCH;
//! let mut queue = WorkQueue::new();
//! assert_eq!(queue.add("worker-0"), Added::Queued);
//! assert_eq!(queue.add("worker-0"), Added::AlreadyQueued);
//!
//! assert_eq!(queue.take(), Some("worker-0"));
//! assert_eq!(queue.add("worker-0"), Added::MarkedDirty);
//! assert_eq!(queue.done(&"worker-0"), Done::Requeued);
//!
//! queue.requeue_at("worker-1", start + Duration::from_secs(5));
//! assert_eq!(queue.next_deadline(), Some(start + Duration::from_secs(5)));
//! assert_eq!(queue.advance(start + Duration::from_secs(5)), 1);
//! assert_eq!(queue.take(), Some("worker-0"));
//! assert_eq!(queue.take(), Some("worker-1"));
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    mem,
    time::SystemTime,
};

/// What adding a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key went to the end of the queue.
    Queued,
    /// The key was waiting already; it keeps its place.
    AlreadyQueued,
    /// The key is being processed and gets one more turn after that.
    MarkedDirty,
    /// The key is being processed and was to get one more turn already.
    AlreadyDirty,
}

/// What ending a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing came in meanwhile. A deadline of the key stays.
    Idle,
    /// The key was dirty and went to the end of the queue.
    Requeued,
    /// The key was not being processed; nothing changed.
    NotProcessing,
}

/// What asking for a time to look again did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// The key had no deadline and has one now.
    Added,
    /// The key had a later deadline.
    Updated,
    /// The key has a deadline that is no later.
    NotNeeded,
}

/// Where a key is in its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Neither waiting nor processed: only a deadline keeps the entry.
    #[default]
    Resting,
    /// Waiting under this ticket.
    Queued(u64),
    /// Taken, and not done.
    Processing,
    /// Taken, not done, and added since.
    Dirty,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    phase: Phase,
    deadline: Option<SystemTime>,
}

/// A first-in, first-out queue of keys that holds each key once.
///
/// Costs are logarithmic in the number of keys with any state, except [`advance`](Self::advance), which pays that
/// per key that came due.
#[derive(Clone, Debug)]
pub struct WorkQueue<K> {
    /// Every key with any state.
    entries: BTreeMap<K, Entry>,
    /// The waiting keys by ticket. A map rather than a deque, so that [`forget`](Self::forget) neither scans nor leaves
    /// holes behind.
    waiting: BTreeMap<u64, K>,
    /// The deadlines, earliest first.
    deadlines: BTreeSet<(SystemTime, K)>,
    next_ticket: u64,
    n_processing: usize,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_ticket: 0,
            n_processing: 0,
        }
    }
}

impl<K> WorkQueue<K> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many keys wait to be taken.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no key waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns how many keys are taken and not done.
    pub fn n_processing(&self) -> usize {
        self.n_processing
    }

    /// Returns how many keys have any state: waiting, processed, or with a deadline.
    pub fn n_tracked(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no key waits and none is processed. Deadlines may remain.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.n_processing == 0
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Sees to it that the key gets a turn that begins after this call.
    pub fn add(&mut self, key: K) -> Added {
        match self.entries.entry(key) {
            btree_map::Entry::Vacant(vacant) => {
                let ticket = enqueue(&mut self.waiting, &mut self.next_ticket, vacant.key());
                vacant.insert(Entry { phase: Phase::Queued(ticket), deadline: None });
                Added::Queued
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let phase = occupied.get().phase;
                let (phase, added) = match phase {
                    Phase::Queued(_) => (phase, Added::AlreadyQueued),
                    Phase::Dirty => (phase, Added::AlreadyDirty),
                    Phase::Processing => (Phase::Dirty, Added::MarkedDirty),
                    Phase::Resting => {
                        let (waiting, next) = (&mut self.waiting, &mut self.next_ticket);
                        let ticket = enqueue(waiting, next, occupied.key());
                        (Phase::Queued(ticket), Added::Queued)
                    }
                };
                occupied.get_mut().phase = phase;
                added
            }
        }
    }

    /// Sees to it that the key is added at `deadline` at the latest: the earlier of two deadlines wins.
    pub fn requeue_at(&mut self, key: K, deadline: SystemTime) -> Requeue {
        let mut occupied = match self.entries.entry(key) {
            btree_map::Entry::Vacant(vacant) => vacant.insert_entry(Entry::default()),
            btree_map::Entry::Occupied(occupied) => occupied,
        };
        let before = occupied.get().deadline;
        if before.is_some_and(|before| before <= deadline) {
            return Requeue::NotNeeded;
        }
        occupied.get_mut().deadline = Some(deadline);
        let key = occupied.key().clone();
        let Some(before) = before else {
            self.deadlines.insert((deadline, key));
            return Requeue::Added;
        };
        let old = (before, key);
        self.deadlines.remove(&old);
        self.deadlines.insert((deadline, old.1));
        Requeue::Updated
    }

    /// Returns the earliest deadline of any key: when [`advance`](Self::advance) has something to do next.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Drops the key's deadline and returns whether it had one. A deadline that came due is an addition already.
    pub fn cancel_requeue(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let Some(deadline) = entry.deadline.take() else {
            return false;
        };
        self.deadlines.remove(&(deadline, key.clone()));
        if entry.phase == Phase::Resting {
            self.entries.remove(key);
        }
        true
    }

    /// Adds every key whose deadline has come, earliest deadline first, and returns how many there were.
    pub fn advance(&mut self, now: SystemTime) -> usize {
        let mut n_due = 0;
        while self.next_deadline().is_some_and(|first| first <= now) {
            let Some((_, key)) = self.deadlines.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.deadline = None;
            }
            self.add(key);
            n_due += 1;
        }
        n_due
    }

    /// Takes the key that waits longest. It counts as processed until [`done`](Self::done).
    pub fn take(&mut self) -> Option<K> {
        let (_, key) = self.waiting.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.phase = Phase::Processing;
            self.n_processing += 1;
        }
        Some(key)
    }

    /// Ends the key's turn.
    pub fn done(&mut self, key: &K) -> Done {
        let Some(entry) = self.entries.get_mut(key) else {
            return Done::NotProcessing;
        };
        let done = match entry.phase {
            Phase::Resting | Phase::Queued(_) => return Done::NotProcessing,
            Phase::Dirty => {
                let ticket = enqueue(&mut self.waiting, &mut self.next_ticket, key);
                entry.phase = Phase::Queued(ticket);
                Done::Requeued
            }
            Phase::Processing if entry.deadline.is_some() => {
                entry.phase = Phase::Resting;
                Done::Idle
            }
            Phase::Processing => {
                self.entries.remove(key);
                Done::Idle
            }
        };
        self.n_processing -= 1;
        done
    }

    /// Drops all state of a key that is gone for good, and returns whether there was any.
    ///
    /// A turn under way is over with it: its [`done`](Self::done) finds nothing.
    pub fn forget(&mut self, key: &K) -> bool {
        let Some((key, entry)) = self.entries.remove_entry(key) else {
            return false;
        };
        match entry.phase {
            Phase::Resting => {}
            Phase::Queued(ticket) => drop(self.waiting.remove(&ticket)),
            Phase::Processing | Phase::Dirty => self.n_processing -= 1,
        }
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        true
    }
}

/// Puts a key at the end. 2⁶⁴ tickets outlast any process, so the order never wraps.
fn enqueue<K: Clone>(waiting: &mut BTreeMap<u64, K>, next_ticket: &mut u64, key: &K) -> u64 {
    let ticket = mem::replace(next_ticket, next_ticket.wrapping_add(1));
    waiting.insert(ticket, key.clone());
    ticket
}

#[cfg(test)]
mod tests;
