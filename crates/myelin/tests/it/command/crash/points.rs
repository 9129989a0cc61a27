//! Every moment: scenarios that are killed after each durable write, and before and after each call of a provider.

use std::{collections::BTreeMap, env, fmt::Write as _, sync::atomic::Ordering, time::Instant};

use super::{
    Tally,
    life::{Desired, Ended, Life, Moment},
    setting, truth,
};

/// Every how many moments are tried among all other tests.
const EVERY: u64 = 3;

/// How many violations are enough to look at.
const ENOUGH: u64 = 10;

/// No scenario has so many moments of a kind.
const MANY: u64 = 1000;

/// Something done to a cluster.
struct Scenario {
    name: &'static str,
    /// What is there before.
    before: Option<Desired>,
    /// Whether it was begun before, and killed then.
    begun: Option<Moment>,
    /// What is then wanted; nothing for `down`.
    after: Option<Desired>,
}

impl Scenario {
    /// Does it, killed at a moment; does it again, not killed; and checks what is there. Returns whether the moment came.
    ///
    /// No lease that fits is given up for a crash, and no agent that was ready is started anew.
    fn run(&self, moment: Moment, tally: &Tally) -> bool {
        let mut life = Life::new(tally);
        let mut ready = BTreeMap::new();
        if let Some(before) = &self.before {
            life.up(before, None);
            life.check_whole(before);
            ready = self.kept(&life);
        }
        if let Some(begun) = self.begun {
            assert_eq!(self.step(&mut life, Some(begun)), Ended::Killed);
        }
        let ended = self.step(&mut life, Some(moment));
        let mut leased = BTreeMap::new();
        if ended == Ended::Killed {
            leased = self.kept(&life);
            self.step(&mut life, None);
        }
        if let Some(after) = &self.after {
            life.check_whole(after);
        }
        let kept = self.kept(&life);
        if !ready.iter().all(|(name, agent)| kept.get(name) == Some(agent)) {
            life.fail(&format!("ready were {ready:?}, kept {kept:?}"));
        }
        if !leased.keys().all(|name| kept.contains_key(name)) {
            life.fail(&format!("leased were {leased:?}, kept {kept:?}"));
        }
        life.end();
        ended == Ended::Killed
    }

    fn step(&self, life: &mut Life<'_>, moment: Option<Moment>) -> Ended {
        match &self.after {
            Some(after) => life.up(after, moment),
            None => life.down(moment),
        }
    }

    fn kept(&self, life: &Life<'_>) -> BTreeMap<String, Vec<i32>> {
        self.after.as_ref().map(|after| truth::kept(&life.site, after)).unwrap_or_default()
    }

    /// Tries its moments, or the one that was asked for.
    fn check(&self) {
        let (tally, start, every) =
            (Tally::default(), Instant::now(), setting("CRASH_EVERY", EVERY));
        if let Ok(point) = env::var("CRASH_POINT") {
            let (name, moment) = point.split_once('/').unwrap();
            if name == self.name {
                let reached = self.reaches(moment.parse().unwrap(), &tally);
                assert!(reached, "{point} does not come");
                tally.tell(&point, "", start.elapsed());
            }
            return;
        }
        let mut more = String::new();
        // A commit that is tried again is so after a second, so of these fewer are tried.
        let seldom = if every == 1 { 1 } else { 3 * every };
        for (kind, first, every) in [
            (Moment::Write as fn(u64) -> Moment, 1, every),
            (Moment::Call, 2.min(every), every),
            (Moment::CallBefore, 3.min(every), every),
            (Moment::Unwritten, 2.min(every), seldom),
            (Moment::Unanswered, 3.min(every), seldom),
        ] {
            let end =
                (0..MANY).map(|n| first + n * every).find(|k| !self.reaches(kind(*k), &tally));
            let end = kind(end.unwrap());
            write!(more, " <{end}").unwrap();
        }
        let what = format!("{}, every {every} of", self.name);
        tally.tell(&what, &format!(" moments{more}"), start.elapsed());
    }

    /// Tries a moment. Returns whether it came. After enough violations none is looked for any more.
    fn reaches(&self, moment: Moment, tally: &Tally) -> bool {
        let replay = format!("--point {}/{moment}", self.name);
        let reached = tally.attempt(&replay, || self.run(moment, tally));
        reached.unwrap_or(tally.violations.load(Ordering::Relaxed) < ENOUGH)
    }
}

/// Nothing is lost by silence here, however busy the machine is.
const fn workers(count: u32, image: char) -> Desired {
    Desired { lost_after: 60_000, ..Desired::new(count, image) }
}

const THREE: Desired = workers(3, 'a');

#[test]
fn a_scale_up_from_nothing_is_killed_anywhere() {
    Scenario { name: "scale-up", before: None, begun: None, after: Some(THREE) }.check();
}

#[test]
fn a_replacement_is_killed_anywhere() {
    let after = workers(3, 'b');
    Scenario { name: "replacement", before: Some(THREE), begun: None, after: Some(after) }.check();
}

#[test]
fn a_scale_down_is_killed_anywhere() {
    let after = workers(1, 'a');
    Scenario { name: "scale-down", before: Some(THREE), begun: None, after: Some(after) }.check();
}

#[test]
fn a_down_is_killed_anywhere() {
    Scenario { name: "down", before: Some(THREE), begun: None, after: None }.check();
}

#[test]
fn a_taking_up_of_what_was_under_way_is_killed_anywhere() {
    // In the middle of a create: it is looked for first, and what else was under way is repeated.
    let (begun, after) = (Some(Moment::Call(3)), Some(workers(3, 'b')));
    Scenario { name: "taking-up", before: Some(THREE), begun, after }.check();
}
