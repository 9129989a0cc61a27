use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{LaneId, Limits, Queue, Ticket};

const LANES: [LaneId; 2] = [LaneId::Build, LaneId::Clean];

const ALL: [LaneId; 3] = [LaneId::Build, LaneId::Clean, LaneId::Look];

fn queue(concurrency: u32, calls_per_second: Option<u32>) -> Queue<u32> {
    Queue::new(Limits { concurrency, calls_per_second, ..Limits::default() })
}

/// Grants whatever can be granted, and returns it in order.
fn granted(queue: &mut Queue<u32>, now: Instant) -> Vec<(LaneId, u32)> {
    std::iter::from_fn(|| queue.grant(now)).collect()
}

#[test]
fn one_slot_is_given_to_the_lanes_in_turn() {
    let (mut queue, now) = (queue(1, None), Instant::now());
    for n in 0..3 {
        for lane in LANES {
            queue.push(lane, "a".into(), n);
        }
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let (lane, n) = queue.grant(now).expect("a slot is free");
        assert!(queue.grant(now).is_none(), "there is one slot");
        order.push((lane, n));
        queue.release(lane);
    }
    let expected = (0..3).flat_map(|n| [(LaneId::Clean, n), (LaneId::Build, n)]);
    assert_eq!(order, expected.collect::<Vec<_>>());
}

#[test]
fn place_given_up_is_skipped() {
    let (mut queue, now) = (queue(16, None), Instant::now());
    let first = queue.push(LaneId::Build, "a".into(), 1);
    queue.push(LaneId::Build, "a".into(), 2);
    queue.remove(&first);
    assert_eq!(granted(&mut queue, now), [(LaneId::Build, 2)]);
    queue.remove(&first);
    assert_eq!((queue.n_running(), queue.n_waiting()), (1, 0));
}

#[test]
fn shorter_pause_does_not_end_a_longer_one() {
    let (mut queue, now) = (queue(16, None), Instant::now());
    queue.push(LaneId::Build, "a".into(), 1);
    queue.pause(now, Duration::from_secs(9));
    queue.pause(now, Duration::from_secs(2));
    assert_eq!(queue.next_grant_at(), Some(now + Duration::from_secs(9)));
    assert!(queue.grant(now + Duration::from_secs(8)).is_none());
    assert!(queue.grant(now + Duration::from_secs(9)).is_some());
}

#[test]
fn absurd_pause_is_cut_to_an_hour() {
    let (mut queue, now) = (queue(16, None), Instant::now());
    queue.pause(now, Duration::MAX);
    assert_eq!(queue.paused_until(), Some(now + Duration::from_hours(1)));
}

#[derive(Clone, Debug)]
enum Event {
    Push { lane: usize, group: u8 },
    Remove { nth: usize },
    Release { nth: usize },
    Pass { millis: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..ALL.len(), 0..4_u8).prop_map(|(lane, group)| Event::Push { lane, group }),
        1 => (0..8_usize).prop_map(|nth| Event::Remove { nth }),
        3 => (0..8_usize).prop_map(|nth| Event::Release { nth }),
        2 => (0..700_u64).prop_map(|millis| Event::Pass { millis }),
    ]
}

proptest! {
    #[test]
    fn caps_and_rate_hold_and_nobody_waits_without_a_reason(
        cap in 1..9_u32,
        rate in prop::option::of(1..5_u32),
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut queue = queue(cap, rate);
        let start = Instant::now();
        let (mut now, mut places, mut running) = (start, Vec::<Ticket>::new(), Vec::new());
        let mut times = Vec::new();
        for (n, event) in (0..).zip(events) {
            match event {
                Event::Push { lane, group } => {
                    let lane = ALL[lane];
                    places.push(queue.push(lane, format!("g{group}").into(), n));
                }
                Event::Remove { nth } if nth < places.len() => queue.remove(&places.swap_remove(nth)),
                Event::Release { nth } if nth < running.len() => {
                    let (lane, _) = running.swap_remove(nth);
                    queue.release(lane);
                }
                Event::Remove { .. } | Event::Release { .. } => {}
                Event::Pass { millis } => now += Duration::from_millis(millis),
            }
            let new = granted(&mut queue, now);
            times.extend(new.iter().map(|_| now));
            running.extend(new);
            for lane in LANES {
                let of_lane = running.iter().filter(|(it, _)| *it == lane).count();
                let most = if cap == 1 { 1 } else { cap - (cap / 4).max(1) };
                prop_assert!(of_lane <= most as usize);
            }
            let n_looks = running.iter().filter(|(it, _)| *it == LaneId::Look).count();
            prop_assert!(n_looks <= 1);
            prop_assert!(running.len() - n_looks <= cap as usize);
            prop_assert_eq!(queue.n_running() as usize, running.len() - n_looks);
            // With free slots in both lanes, only time may stand between.
            let looks_wait = queue.has_turn(LaneId::Look);
            if looks_wait || running.is_empty() && queue.n_waiting() > 0 {
                prop_assert!(queue.next_grant_at().is_some_and(|at| at > now));
            }
        }
        if let Some(rate) = rate {
            // No second holds more than a burst and what the rate adds.
            for (first, &time) in times.iter().enumerate() {
                let until = time + Duration::from_secs(1);
                let n_within = times[first..].iter().filter(|&&it| it < until).count();
                prop_assert!(n_within <= 2 * rate as usize);
            }
        }
    }
}
