//! Any moment: clusters that are scaled and replaced, lose agents, and are killed all the time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    Tally,
    life::{Desired, Ended, Life, Moment},
    setting,
};

/// How many kills there are among all other tests, at least.
const KILLS: u64 = 25;

const SEED: u64 = 1;

/// How many lives go on at once: about as many as there are cores to test on.
const N_AT_ONCE: usize = 2;

/// No life goes on for longer, whether or not its moments come.
const MOST_STEPS: u64 = 40;

/// Numbers that look random: `SplitMix64`.
struct Random(u64);

impl Random {
    /// Returns a number below another.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Changes what is wanted: more, fewer, others, or nothing at all.
    fn change(&mut self, desired: &mut Desired) {
        match self.below(4) {
            0 | 1 => desired.count = u32::try_from(1 + self.below(5)).unwrap(),
            2 => desired.image = ['a', 'b', 'c'][usize::try_from(self.below(3)).unwrap()],
            _ => {}
        }
    }

    /// Returns a moment: mostly while much happens, now and then later, when who is dead has been missed.
    fn moment(&mut self) -> Moment {
        match self.below(8) {
            0 => Moment::Write(1 + self.below(30)),
            1 => Moment::Call(1 + self.below(16)),
            2 => Moment::CallBefore(1 + self.below(16)),
            3 => Moment::After(Duration::from_millis(self.below(60))),
            4 => Moment::After(Duration::from_millis(self.below(4000))),
            _ => Moment::After(Duration::from_millis(self.below(400))),
        }
    }
}

/// Lives a life of 4 to 12 kills.
fn live(seed: u64, tally: &Tally) {
    let mut random = Random(seed);
    let mut life = Life::new(tally);
    let mut desired = Desired::new(u32::try_from(1 + random.below(4)).unwrap(), 'a');
    if random.one_in(2) {
        desired.more = ", boot: {verify_commands: [sleep 0.05]}";
    }
    let (mut n_left, mut is_begun) = (4 + random.below(9), false);
    for _ in 0..MOST_STEPS {
        if is_begun {
            random.change(&mut desired);
        }
        if random.one_in(5) {
            let node = random.below(u64::from(desired.count));
            life.kill_agent(&format!("worker-{node}"));
        }
        let moment = random.moment();
        n_left -= u64::from(life.up(&desired, Some(moment)) == Ended::Killed);
        is_begun = true;
        if n_left == 0 {
            break;
        }
    }
    life.settle(&desired);
    while random.one_in(2) {
        let moment = random.moment();
        life.down(Some(moment));
    }
    life.end();
}

#[test]
fn clusters_that_are_killed_all_the_time_converge_and_leave_nothing() {
    let (kills, first) = (setting("CRASH_KILLS", KILLS), setting("CRASH_SEED", SEED));
    if std::env::var_os("CRASH_POINT").is_some() {
        return;
    }
    let (tally, start, next) = (Tally::default(), Instant::now(), AtomicU64::new(first));
    thread::scope(|scope| {
        for _ in 0..N_AT_ONCE {
            scope.spawn(|| {
                // A life that was begun counts as one kill, so that one kill is one life.
                let enough = |seed| tally.kills.load(Ordering::Relaxed).max(seed - first) >= kills;
                let more = |seed: u64| (!enough(seed)).then(|| seed + 1);
                while let Ok(seed) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
                    tally.attempt(&format!("--life {seed}"), || live(seed, &tally));
                }
            });
        }
    });
    let lives = next.into_inner() - first;
    tally.tell("random", &format!(" lives={lives} seeds={first}.."), start.elapsed());
}
