use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use crate::{Added, Done, Requeue, WorkQueue};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn drain(queue: &mut WorkQueue<u8>) -> Vec<u8> {
    std::iter::from_fn(|| queue.take()).collect()
}

#[test]
fn keys_are_taken_in_the_order_they_were_added() {
    let mut queue = WorkQueue::new();
    for key in [3, 1, 2, 1, 3] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(drain(&mut queue), [3, 1, 2]);
}

#[test]
fn a_dirty_key_gets_one_more_turn_behind_those_that_wait() {
    let mut queue = WorkQueue::new();
    queue.add(1);
    assert_eq!(queue.take(), Some(1));
    assert_eq!(queue.add(1), Added::MarkedDirty);
    assert_eq!(queue.add(1), Added::AlreadyDirty);
    queue.add(2);
    assert_eq!(queue.take(), Some(2), "a key in process is not taken again");
    assert_eq!(queue.done(&1), Done::Requeued);
    assert_eq!(queue.take(), Some(1));
    assert_eq!(queue.done(&1), Done::Idle);
    assert_eq!(queue.done(&2), Done::Idle);
    assert_eq!(queue.n_tracked(), 0);
}

#[test]
fn ending_a_turn_nobody_began_changes_nothing() {
    let mut queue = WorkQueue::new();
    assert_eq!(queue.done(&1), Done::NotProcessing);
    queue.add(1);
    assert_eq!(queue.done(&1), Done::NotProcessing);
    queue.requeue_at(2, at(9));
    assert_eq!(queue.done(&2), Done::NotProcessing);
    assert_eq!(drain(&mut queue), [1]);
    assert_eq!(queue.next_deadline(), Some(at(9)));
}

#[test]
fn the_earliest_deadline_wins() {
    let mut queue = WorkQueue::new();
    assert_eq!(queue.requeue_at(1, at(5)), Requeue::Added);
    assert_eq!(queue.requeue_at(1, at(7)), Requeue::NotNeeded);
    assert_eq!(queue.requeue_at(1, at(5)), Requeue::NotNeeded);
    assert_eq!(queue.requeue_at(1, at(3)), Requeue::Updated);
    assert_eq!(queue.next_deadline(), Some(at(3)));
    assert_eq!(queue.advance(at(2)), 0);
    assert_eq!(queue.advance(at(3)), 1);
    assert_eq!(queue.advance(at(9)), 0, "the later deadlines are gone");
    assert_eq!(drain(&mut queue), [1]);
}

#[test]
fn due_keys_are_queued_by_deadline() {
    let mut queue = WorkQueue::new();
    for (key, deadline) in [(1, 8), (2, 4), (3, 6), (4, 9)] {
        queue.requeue_at(key, at(deadline));
    }
    assert_eq!(queue.advance(at(8)), 3);
    assert_eq!(drain(&mut queue), [2, 3, 1]);
    assert_eq!(queue.next_deadline(), Some(at(9)));
}

#[test]
fn a_deadline_that_comes_during_a_turn_makes_the_key_dirty() {
    let mut queue = WorkQueue::new();
    queue.add(1);
    queue.take();
    queue.requeue_at(1, at(1));
    assert_eq!(queue.advance(at(1)), 1);
    assert_eq!(queue.take(), None);
    assert_eq!(queue.done(&1), Done::Requeued);
}

#[test]
fn a_deadline_outlives_turns() {
    let mut queue = WorkQueue::new();
    queue.requeue_at(1, at(5));
    queue.add(1);
    queue.take();
    assert_eq!(queue.done(&1), Done::Idle);
    assert!(queue.is_idle());
    assert_eq!(queue.next_deadline(), Some(at(5)));
    assert!(queue.cancel_requeue(&1));
    assert!(!queue.cancel_requeue(&1));
    assert_eq!(queue.n_tracked(), 0);
}

#[test]
fn a_forgotten_key_leaves_nothing_whatever_its_phase() {
    let phases: [fn(&mut WorkQueue<u8>); 4] = [
        |queue| {
            queue.requeue_at(1, at(5));
        },
        |queue| {
            queue.add(1);
        },
        |queue| {
            queue.add(1);
            queue.take();
        },
        |queue| {
            queue.add(1);
            queue.take();
            queue.add(1);
            queue.requeue_at(1, at(5));
        },
    ];
    for reach in phases {
        let mut queue = WorkQueue::new();
        reach(&mut queue);
        assert!(queue.forget(&1));
        assert!(!queue.forget(&1));
        assert!(queue.is_idle());
        assert_eq!((queue.n_tracked(), queue.next_deadline()), (0, None));
        assert_eq!(queue.done(&1), Done::NotProcessing);
        assert_eq!(queue.take(), None);
    }
}

/// What the queue does, said with lists and scans.
#[derive(Clone, Debug, Default)]
struct Model {
    waiting: Vec<u8>,
    processing: Vec<u8>,
    dirty: Vec<u8>,
    /// In no order; a key at most once.
    deadlines: Vec<(u8, u64)>,
}

fn remove(list: &mut Vec<u8>, key: u8) -> bool {
    let before = list.len();
    list.retain(|other| *other != key);
    list.len() < before
}

impl Model {
    fn add(&mut self, key: u8) -> Added {
        if self.waiting.contains(&key) {
            Added::AlreadyQueued
        } else if self.dirty.contains(&key) {
            Added::AlreadyDirty
        } else if self.processing.contains(&key) {
            self.dirty.push(key);
            Added::MarkedDirty
        } else {
            self.waiting.push(key);
            Added::Queued
        }
    }

    fn deadline(&self, key: u8) -> Option<u64> {
        let found = self.deadlines.iter().find(|(other, _)| *other == key);
        found.map(|(_, deadline)| *deadline)
    }

    fn cancel(&mut self, key: u8) -> bool {
        let before = self.deadlines.len();
        self.deadlines.retain(|(other, _)| *other != key);
        self.deadlines.len() < before
    }

    fn requeue_at(&mut self, key: u8, deadline: u64) -> Requeue {
        let before = self.deadline(key);
        if before.is_some_and(|before| before <= deadline) {
            return Requeue::NotNeeded;
        }
        let had_one = self.cancel(key);
        self.deadlines.push((key, deadline));
        if had_one { Requeue::Updated } else { Requeue::Added }
    }

    fn advance(&mut self, now: u64) -> usize {
        let mut due: Vec<_> = self.deadlines.clone();
        due.retain(|(_, deadline)| *deadline <= now);
        due.sort_by_key(|(key, deadline)| (*deadline, *key));
        for (key, _) in &due {
            self.cancel(*key);
            self.add(*key);
        }
        due.len()
    }

    fn take(&mut self) -> Option<u8> {
        if self.waiting.is_empty() {
            return None;
        }
        let key = self.waiting.remove(0);
        self.processing.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) -> Done {
        if !remove(&mut self.processing, key) {
            Done::NotProcessing
        } else if remove(&mut self.dirty, key) {
            self.waiting.push(key);
            Done::Requeued
        } else {
            Done::Idle
        }
    }

    fn forget(&mut self, key: u8) -> bool {
        let mut found = self.cancel(key);
        for list in [&mut self.waiting, &mut self.processing, &mut self.dirty] {
            found |= remove(list, key);
        }
        found
    }

    fn tracked(&self) -> usize {
        let mut keys: Vec<_> = self.deadlines.iter().map(|(key, _)| *key).collect();
        keys.extend(&self.waiting);
        keys.extend(&self.processing);
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u8),
    RequeueAt(u8, u64),
    CancelRequeue(u8),
    Advance(u64),
    Take,
    Done(u8),
    Forget(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few keys and times, so that they meet.
    let (key, time) = (0..6_u8, 0..12_u64);
    let step = prop_oneof![
        4 => key.clone().prop_map(Step::Add),
        4 => (key.clone(), time.clone()).prop_map(|(key, time)| Step::RequeueAt(key, time)),
        1 => key.clone().prop_map(Step::CancelRequeue),
        3 => time.prop_map(Step::Advance),
        5 => Just(Step::Take),
        4 => key.clone().prop_map(Step::Done),
        1 => key.prop_map(Step::Forget),
    ];
    proptest::collection::vec(step, 0..120)
}

/// Does a step on both and returns what each answered.
fn step_both(step: Step, queue: &mut WorkQueue<u8>, model: &mut Model) -> [String; 2] {
    macro_rules! both {
        ($left:expr, $right:expr) => {
            [format!("{:?}", $left), format!("{:?}", $right)]
        };
    }
    match step {
        Step::Add(key) => both!(queue.add(key), model.add(key)),
        Step::RequeueAt(key, time) => {
            both!(queue.requeue_at(key, at(time)), model.requeue_at(key, time))
        }
        Step::CancelRequeue(key) => both!(queue.cancel_requeue(&key), model.cancel(key)),
        Step::Advance(now) => both!(queue.advance(at(now)), model.advance(now)),
        Step::Take => both!(queue.take(), model.take()),
        Step::Done(key) => both!(queue.done(&key), model.done(key)),
        Step::Forget(key) => both!(queue.forget(&key), model.forget(key)),
    }
}

proptest! {
    #[test]
    fn the_queue_answers_as_the_naive_model_does(steps in steps()) {
        let (mut queue, mut model) = (WorkQueue::new(), Model::default());
        for step in steps {
            let [answer, expected] = step_both(step, &mut queue, &mut model);
            prop_assert_eq!(answer, expected, "{:?}", step);
            prop_assert_eq!(queue.len(), model.waiting.len());
            prop_assert_eq!(queue.is_empty(), model.waiting.is_empty());
            prop_assert_eq!(queue.n_processing(), model.processing.len());
            prop_assert_eq!(queue.is_idle(), model.waiting.is_empty() && model.processing.is_empty());
            prop_assert_eq!(queue.n_tracked(), model.tracked());
            let next = model.deadlines.iter().map(|(_, deadline)| at(*deadline)).min();
            prop_assert_eq!(queue.next_deadline(), next);
        }
    }

    #[test]
    fn no_addition_is_lost(steps in steps()) {
        let mut queue = WorkQueue::new();
        let mut owed = [false; 6];
        for step in steps {
            if let Step::Forget(key) | Step::Add(key) = step {
                owed[usize::from(key)] = matches!(step, Step::Add(_));
            }
            let [answer, _] = step_both(step, &mut queue, &mut Model::default());
            if let (Step::Take, Some(key)) = (step, answer.strip_prefix("Some(")) {
                let key: usize = key.trim_end_matches(')').parse().expect("a key");
                owed[key] = false;
            }
        }
        for key in 0..6 {
            queue.done(&key);
        }
        for key in drain(&mut queue) {
            owed[usize::from(key)] = false;
        }
        prop_assert_eq!(owed, [false; 6]);
    }
}
