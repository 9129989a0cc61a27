//! Every single perturbation of a scenario, and every pair of them if asked for: bounded, exhaustive, not sampled.
//!
//! A scenario is played once as it is, which says how many calls, commits and reports there are. Then it is played again
//! with something wrong at each of them. Each of these runs must keep every rule, come to rest, and end with the machines
//! that the undisturbed run ends with: made from the same templates for the same slots, one each.

use std::{collections::BTreeMap, fmt, time::Duration};

use myelin_executor::fake::CallKind;
use myelin_state::ErrorClass;

use crate::{
    BootFate, CallFate, CommitFate, Counts, Outcome, ReportFate, Scenario, Step, run, script,
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
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(script::line).collect();
        write!(f, "{}: {}", steps.join(" and "), self.what)
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
    let places = perturbations(&undisturbed.counts);
    match depth {
        Depth::Single(every) => {
            for step in places.into_iter().step_by(every.max(1)) {
                found.play(scenario, vec![step], &undisturbed.end);
            }
        }
        Depth::Pairs(every) => {
            let places: Vec<_> = places.into_iter().step_by(every.max(1)).collect();
            for (index, first) in places.iter().enumerate() {
                for second in &places[index + 1..] {
                    found.play(scenario, vec![first.clone(), second.clone()], &undisturbed.end);
                }
            }
        }
    }
    Ok(found)
}

impl Exploration {
    fn play(&mut self, scenario: &Scenario, steps: Vec<Step>, end: &BTreeMap<String, String>) {
        let mut disturbed = scenario.clone();
        disturbed.steps.extend(steps.iter().cloned());
        let outcome = run(&disturbed);
        self.n_runs += 1;
        self.n_steps += outcome.n_steps;
        if let Some(what) = difference(&outcome, end) {
            self.findings.push(Finding { steps, what });
        }
    }
}

fn difference(outcome: &Outcome, end: &BTreeMap<String, String>) -> Option<String> {
    if let Some(breach) = &outcome.breach {
        return Some(breach.to_string());
    }
    (outcome.end != *end).then(|| format!("it ends with {:?} instead of {end:?}", outcome.end))
}

/// Returns everything that can be wrong with a run in which so much happens.
fn perturbations(counts: &Counts) -> Vec<Step> {
    let mut all = Vec::new();
    for (&kind, &n) in &counts.calls {
        for nth in 1..=n {
            all.extend(fates(kind).into_iter().map(|fate| Step::Call(kind, nth, fate)));
        }
    }
    let soon = Duration::from_secs(10);
    for nth in 1..=counts.commits {
        let fates = [
            CommitFate::CrashBefore,
            CommitFate::CrashAfter,
            CommitFate::Full,
            CommitFate::AnswerLost,
        ];
        all.extend(fates.map(|fate| Step::Commit(nth, fate)));
    }
    for nth in 1..=counts.reports {
        all.extend(
            [ReportFate::Late(soon), ReportFate::Again(soon)].map(|it| Step::Report(nth, it)),
        );
    }
    for nth in 1..=counts.boots {
        let fates = [
            BootFate::JoinsFirst,
            BootFate::Slow(soon),
            BootFate::Hangs,
            BootFate::Repeats,
            BootFate::Fails(myelin_state::BootstrapStage::BootCheckFailed),
            BootFate::DiesAfter(soon),
        ];
        all.extend(fates.map(|fate| Step::Boot(nth, fate)));
    }
    all
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
        CallKind::List => fates.extend([CallFate::FindsNothing, CallFate::ListsHalf]),
        CallKind::Endpoint => fates.push(CallFate::FindsNothing),
        CallKind::Destroy | CallKind::Conclude | CallKind::Cancel => {
            fates.push(CallFate::FailsAfter(ErrorClass::Transient));
        }
        CallKind::Identity | CallKind::Find | CallKind::Presence | CallKind::FindSession => {}
    }
    fates
}
