//! Every single perturbation of a scenario, and every pair of them if asked for: bounded, exhaustive, not sampled.
//!
//! A scenario is played once as it is, which says which calls, commits, reports and bootstraps there are until everything
//! works again. Then it is played again with something wrong at each of them. Each of these runs must keep every rule, come
//! to rest, and end with the machines that the undisturbed run ends with: made from the same templates for the same slots,
//! one each. What was to go wrong must have gone wrong.
//!
//! The second of two things goes wrong at what comes after the first one, in the run that it disturbs: so what only happens
//! because of the first, as a look-up of what is unknown, is disturbed too.

use std::{collections::BTreeMap, fmt, time::Duration};

use myelin_executor::fake::CallKind;
use myelin_state::{BootstrapStage, ErrorClass};

use crate::{
    BootFate, CallFate, CommitFate, Outcome, Place, ReportFate, Scenario, Step, run, script,
};

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// How many runs there were, the undisturbed one included.
    pub n_runs: u64,
    /// How many things happened in all of them.
    pub n_steps: u64,
    /// What was wrong with which run.
    pub findings: Vec<Finding>,
}

/// A run that does not end like the undisturbed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was done to it.
    pub steps: Vec<Step>,
    /// How long the control plane was down, if not for as long as in the scenario.
    pub down_for: Option<Duration>,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(script::line).collect();
        let [steps, what] = [&steps.join(" and "), &self.what];
        match self.down_for {
            Some(time) => {
                let time = script::time(time);
                write!(f, "{steps} and down-for {time}: {what}")
            }
            None => write!(f, "{steps}: {what}"),
        }
    }
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// One thing wrong, at every `n`th place.
    Single(usize),
    /// Two things wrong, every pair of every `n`th places.
    Pairs(usize),
}

/// Plays a scenario with everything wrong that can be, one after the other.
///
/// # Errors
///
/// The undisturbed run breaks a rule already.
pub fn explore(scenario: &Scenario, depth: Depth) -> Result<Exploration, crate::Breach> {
    let undisturbed = run(scenario);
    if let Some(breach) = undisturbed.breach {
        return Err(breach);
    }
    let mut found = Exploration { n_runs: 1, n_steps: undisturbed.n_steps, ..Default::default() };
    let (Depth::Single(every) | Depth::Pairs(every)) = depth;
    for first in disturbances(&undisturbed.places, every) {
        let disturbed = first.of(scenario);
        let outcome = found.play(&disturbed, &[&first], &undisturbed.end);
        if depth != Depth::Pairs(every) || outcome.breach.is_some() {
            continue;
        }
        let after = outcome.places.iter().position(|it| *it == first.place).map_or(0, |it| it + 1);
        // How long it is down is one setting: where both kill it, the first one's counts, or it would not go the same way.
        let goes_on = |second: &Disturbance| second.down_for.is_none() || !kills(&first.step);
        for second in disturbances(&outcome.places[after..], every).filter(goes_on) {
            found.play(&second.of(&disturbed), &[&first, &second], &undisturbed.end);
        }
    }
    Ok(found)
}

/// One thing that goes wrong.
#[derive(Clone, Debug)]
struct Disturbance {
    place: Place,
    step: Step,
    /// How long the control plane is down, if that kills it.
    down_for: Option<Duration>,
}

impl Disturbance {
    fn of(&self, scenario: &Scenario) -> Scenario {
        let mut disturbed = scenario.clone();
        disturbed.steps.push(self.step.clone());
        disturbed.config.down_for = self.down_for.unwrap_or(disturbed.config.down_for);
        disturbed
    }
}

impl Exploration {
    fn play(
        &mut self,
        disturbed: &Scenario,
        with: &[&Disturbance],
        end: &BTreeMap<String, String>,
    ) -> Outcome {
        let outcome = run(disturbed);
        self.n_runs += 1;
        self.n_steps += outcome.n_steps;
        if let Some(what) = difference(&outcome, with, end) {
            let steps = with.iter().map(|it| it.step.clone()).collect();
            let down_for = with.iter().rev().find_map(|it| it.down_for);
            self.findings.push(Finding { steps, down_for, what });
        }
        outcome
    }
}

fn difference(
    outcome: &Outcome,
    with: &[&Disturbance],
    end: &BTreeMap<String, String>,
) -> Option<String> {
    if let Some(breach) = &outcome.breach {
        return Some(breach.to_string());
    }
    if let Some(missed) = with.iter().find(|it| outcome.missed.contains(&it.step)) {
        return Some(format!("nothing comes of {}", script::line(&missed.step)));
    }
    (outcome.end != *end).then(|| format!("it ends with {:?} instead of {end:?}", outcome.end))
}

/// A time in which something is over that went on while the control plane was down: an operation, a silence.
const LONG: Duration = Duration::from_mins(3);

/// Returns what can go wrong at every `every`th place and fate.
fn disturbances(places: &[Place], every: usize) -> impl Iterator<Item = Disturbance> {
    let all = places.iter().flat_map(|&place| {
        let steps = steps_at(place).into_iter();
        steps.flat_map(move |step| {
            let lengths = if kills(&step) { vec![None, Some(LONG)] } else { vec![None] };
            let step = move |down_for| Disturbance { place, step: step.clone(), down_for };
            lengths.into_iter().map(step)
        })
    });
    all.step_by(every.max(1))
}

/// Returns whether the control plane is killed.
fn kills(step: &Step) -> bool {
    matches!(
        step,
        Step::Call(_, _, CallFate::CrashBefore | CallFate::CrashAfter)
            | Step::Commit(
                _,
                CommitFate::CrashBefore | CommitFate::CrashAfter | CommitFate::PowerLoss
            )
    )
}

/// Returns everything that can go wrong at a place.
fn steps_at(place: Place) -> Vec<Step> {
    let soon = Duration::from_secs(10);
    match place {
        Place::Call(kind, nth) => {
            fates(kind).into_iter().map(|fate| Step::Call(kind, nth, fate)).collect()
        }
        Place::Commit(nth) => {
            let fates = [
                CommitFate::CrashBefore,
                CommitFate::CrashAfter,
                CommitFate::PowerLoss,
                CommitFate::Full,
                CommitFate::AnswerLost,
            ];
            fates.map(|fate| Step::Commit(nth, fate)).into()
        }
        Place::Report(nth) => {
            let fates = [ReportFate::Late(soon), ReportFate::Again(soon), ReportFate::Lost];
            fates.map(|fate| Step::Report(nth, fate)).into()
        }
        Place::Silence(nth) => {
            [ReportFate::Late(soon), ReportFate::Again(soon)].map(|it| Step::Report(nth, it)).into()
        }
        Place::Boot(nth) => {
            let fates = [
                BootFate::JoinsFirst,
                BootFate::Slow(soon),
                BootFate::Hangs,
                BootFate::Repeats,
                BootFate::Fails(BootstrapStage::BootCheckFailed),
                BootFate::DiesAfter(soon),
            ];
            fates.map(|fate| Step::Boot(nth, fate)).into()
        }
    }
}

/// Returns what can be wrong with a call without making the provider a liar.
fn fates(kind: CallKind) -> Vec<CallFate> {
    let mut fates = vec![
        CallFate::CrashBefore,
        CallFate::CrashAfter,
        CallFate::LosesReply,
        CallFate::Hangs,
        CallFate::Slow(Duration::from_secs(20)),
        CallFate::Fails(ErrorClass::Transient),
        CallFate::Fails(ErrorClass::RateLimited(Duration::from_secs(10))),
    ];
    match kind {
        CallKind::Create | CallKind::Start => {
            fates.extend([
                CallFate::Fails(ErrorClass::Ambiguous),
                CallFate::FailsAfter(ErrorClass::Ambiguous),
            ]);
        }
        CallKind::List => {
            fates.extend([CallFate::FindsNothing, CallFate::ListsHalf, CallFate::ListsOld]);
        }
        CallKind::Endpoint => fates.push(CallFate::FindsNothing),
        CallKind::Destroy | CallKind::Conclude | CallKind::Cancel => {
            fates.push(CallFate::FailsAfter(ErrorClass::Transient));
        }
        CallKind::Identity | CallKind::Find | CallKind::Presence | CallKind::FindSession => {}
    }
    fates
}
