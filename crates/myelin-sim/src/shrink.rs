//! Makes a history that breaks a rule as short as it can be while it breaks the same one.

use std::time::Duration;

use myelin_shape::{GroupPolicy, RunNodeGroupSpec};

use crate::{Config, Happening, Scenario, Step, run};

/// Returns a smaller scenario that breaks the same rule. One that breaks none comes back as it is.
pub fn shrink(scenario: &Scenario) -> Scenario {
    let mut best = Scenario { traced: false, ..scenario.clone() };
    let Some(breach) = run(&best).breach else {
        return best;
    };
    let breaks = |it: &Scenario| run(it).breach.is_some_and(|found| found.rule == breach.rule);
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
    all.push(Scenario { calm_at: scenario.calm_at / 2, ..scenario.clone() });
    all
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
