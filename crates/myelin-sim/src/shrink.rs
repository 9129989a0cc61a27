//! Makes a history that breaks a rule as short as it can be while it breaks the same one.

use std::{collections::BTreeSet, time::Duration};

use myelin_shape::{GroupPolicy, RunNodeGroupSpec};

use crate::{Breach, Config, Happening, Scenario, Step, run, script};

/// Returns a smaller scenario that breaks the same rule in the same way. One that breaks none comes back as it is.
///
/// What is wanted in the end can be had in the smaller one too if it can in the given one: with a history that cannot end
/// well, nothing would be shown.
pub fn shrink(scenario: &Scenario) -> Scenario {
    let mut best = Scenario { traced: false, ..scenario.clone() };
    let Some(breach) = run(&best).breach else {
        return best;
    };
    let (symptom, ends_well) = (Symptom::of(&breach), script::problem(scenario).is_none());
    let breaks = |it: &Scenario| {
        let can_be_played = !ends_well || script::problem(it).is_none();
        can_be_played && run(it).breach.is_some_and(|found| symptom.is_of(&found))
    };
    loop {
        let before = size(&best);
        best = without_steps(best, &breaks);
        for smaller in simpler(&best) {
            if size(&smaller) < size(&best) && breaks(&smaller) {
                best = smaller;
            }
        }
        if size(&best) >= before {
            return best;
        }
    }
}

/// Leaves out steps: first many at once, in the end each alone.
fn without_steps(mut best: Scenario, breaks: &impl Fn(&Scenario) -> bool) -> Scenario {
    let mut chunk = best.steps.len().max(1);
    while chunk > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut smaller = best.clone();
            smaller.steps.drain(at..(at + chunk).min(best.steps.len()));
            if breaks(&smaller) {
                best = smaller;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    best
}

/// Returns scenarios that are simpler in one respect each.
fn simpler(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        let Step::At(at, Happening::Want(groups)) = step else { continue };
        let mut with = |groups| {
            let mut smaller = scenario.clone();
            smaller.steps[index] = Step::At(*at, Happening::Want(groups));
            all.push(smaller);
        };
        for (of, group) in groups.iter().enumerate() {
            let mut fewer = groups.clone();
            fewer.remove(of);
            with(fewer);
            for count in [1, group.count.saturating_sub(1)] {
                let mut fewer = groups.clone();
                fewer[of].count = count.min(group.count);
                with(fewer);
            }
            let mut plain = groups.clone();
            plain[of].policy = GroupPolicy::default();
            with(plain);
        }
    }
    let config = |config| Scenario { config, ..scenario.clone() };
    let (now, plain) = (&scenario.config, Config::default());
    all.push(config(plain.clone()));
    all.push(config(Config { retry: plain.retry, ..now.clone() }));
    all.push(config(Config { limits: plain.limits, ..now.clone() }));
    all.push(config(Config { latency: Duration::ZERO, ..now.clone() }));
    all.push(config(Config { settle_window: Duration::ZERO, ..now.clone() }));
    all.push(config(Config { endpoint_after: 0, ..now.clone() }));
    all.push(calmer(scenario));
    all
}

/// Returns the scenario with half of the time in which things go wrong.
fn calmer(scenario: &Scenario) -> Scenario {
    let calm_at = scenario.calm_at / 2;
    let comes = |step: &&Step| !matches!(step, Step::At(at, _) if *at > calm_at);
    let steps = scenario.steps.iter().filter(comes).cloned().collect();
    Scenario { steps, calm_at, ..scenario.clone() }
}

/// How much there is to read.
fn size(scenario: &Scenario) -> usize {
    let Scenario { config, steps, calm_at, .. } = scenario;
    let plain = Config::default();
    let odd = [
        config.retry != plain.retry,
        config.limits != plain.limits,
        !config.latency.is_zero(),
        !config.settle_window.is_zero(),
        config.endpoint_after != 0,
        config.boot != plain.boot,
    ];
    let slots: usize = steps.iter().map(size_of_step).sum();
    let minutes = usize::try_from(calm_at.as_secs() / 60).unwrap_or(usize::MAX);
    steps.len() * 1000 + slots * 10 + odd.iter().filter(|&&it| it).count() * 10 + minutes
}

fn size_of_step(step: &Step) -> usize {
    let Step::At(_, Happening::Want(groups)) = step else { return 0 };
    let of = |group: &RunNodeGroupSpec| {
        1 + group.count as usize + usize::from(group.policy != GroupPolicy::default())
    };
    groups.iter().map(of).sum()
}

/// What a breach looks like, whatever the nodes, times and numbers in it are.
#[derive(Debug)]
struct Symptom {
    rule: &'static str,
    parts: BTreeSet<String>,
}

impl Symptom {
    fn of(breach: &Breach) -> Self {
        // The linter tells a violation in each line, and what does not converge is told node by node.
        let parts = breach.what.split(['\n', ';']).map(plain).collect();
        Self { rule: breach.rule, parts }
    }

    /// Returns whether a breach looks like this in part: a smaller history has fewer nodes with something wrong.
    fn is_of(&self, breach: &Breach) -> bool {
        let other = Self::of(breach);
        self.rule == other.rule && !self.parts.is_disjoint(&other.parts)
    }
}

/// Returns a text without what differs between two breaches of one kind: names of nodes, and numbers. The linter's rules
/// have names.
fn plain(text: &str) -> String {
    let is_name = |word: &str| word.contains('-') && word.ends_with(|it: char| it.is_ascii_digit());
    let words = text.split_whitespace().filter_map(|word| {
        let bare = word.trim_matches(|it: char| !it.is_alphanumeric());
        let letters: String = word.chars().filter(|it| it.is_alphabetic()).collect();
        (!is_name(bare) && !letters.is_empty()).then_some(letters)
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
