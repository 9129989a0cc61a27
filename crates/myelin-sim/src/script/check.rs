//! What a history must be like so that it can end as it is wanted.
//!
//! Whatever breaks a rule is to be a defect of what is simulated. So what no control plane can bring to a good end within
//! the time there is, is refused before it is played.

use std::time::Duration;

use humantime::format_duration;
use myelin_shape::RunNodeGroupSpec;

use crate::{Config, Happening, Scenario, Step};

/// More nodes at a time are no cluster to read the history of, and do not come and go one by one in a few hours.
pub(super) const MOST_NODES: u32 = 100;

/// What is done for a node one after another, beside its bootstrap: the agent dials, steps are committed and settled.
const MARGIN: Duration = Duration::from_secs(5);

/// So many nodes share a provider that is as slow as a script may make it, and become ready all the same.
const FEW: u32 = 12;

/// If all nodes are made one after another, this is left of the time there is for what was wrong before.
const ONE_BY_ONE: Duration = Duration::from_hours(2);

/// Where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In the step at this position.
    Step(usize),
    /// In one of these settings.
    Settings(&'static [&'static str]),
}

/// Returns why a history cannot end well, if it cannot.
pub(crate) fn problem(scenario: &Scenario) -> Option<(Spot, String)> {
    late_step(scenario)
        .or_else(|| short_timeout(scenario))
        .or_else(|| crowd(scenario))
        .or_else(|| unattainable(scenario))
}

/// What comes when everything works already does not come.
fn late_step(scenario: &Scenario) -> Option<(Spot, String)> {
    let calm = scenario.calm_at;
    let is_late = |step: &Step| matches!(step, Step::At(at, _) if *at > calm);
    let index = scenario.steps.iter().position(is_late)?;
    let calm = format_duration(calm);
    let what = format!("nothing happens later than {calm}; `calm TIME` says until when it does");
    Some((Spot::Step(index), what))
}

/// What takes longer than it is given never gets done.
fn short_timeout(scenario: &Scenario) -> Option<(Spot, String)> {
    let config = &scenario.config;
    let retry = &config.retry;
    let (latency, looks) = (config.latency, config.endpoint_after);
    let boot = config.boot + MARGIN;
    let ready = boot + retry.endpoint_probe_interval * looks + latency / 2 * (looks + 2);
    // It waits for its turn beside the calls of sweeps and of other operations, and may have to look before it makes.
    let operation = (latency * 2).max(pause(config) * 10);
    let all: [(_, _, _, &[&str]); 5] = [
        ("operation-timeout", retry.operation_timeout, operation, &["retry", "latency", "limits"]),
        ("max-delay", retry.max_delay, retry.initial_delay, &["retry"]),
        ("lost-after", retry.lost_after, config.agent.silent_after, &["retry", "heartbeat"]),
        ("bootstrap-timeout", retry.bootstrap_timeout, boot, &["retry", "boot-time"]),
        (
            "ready-timeout",
            retry.ready_timeout,
            ready,
            &["retry", "endpoint-after", "boot-time", "latency"],
        ),
    ];
    let (key, given, needed, settings) =
        all.into_iter().find(|(_, given, needed, _)| given < needed)?;
    let [given, needed] = [given, needed].map(format_duration);
    let what = format!("{key} is {given}, and must be {needed} here, so that something gets done");
    Some((Spot::Settings(settings), what))
}

/// Returns how long a provider is left alone between two calls.
fn pause(config: &Config) -> Duration {
    let rate = config.limits.calls_per_second;
    rate.map(|rate| Duration::from_secs(1) / rate).unwrap_or_default()
}

fn wants(scenario: &Scenario) -> impl Iterator<Item = (usize, Duration, &[RunNodeGroupSpec])> {
    scenario.steps.iter().enumerate().filter_map(|(index, step)| match step {
        Step::At(at, Happening::Want(groups)) => Some((index, *at, groups.as_slice())),
        Step::At(..) | Step::Call(..) | Step::Boot(..) | Step::Commit(..) | Step::Report(..) => {
            None
        }
    })
}

fn n_nodes(groups: &[RunNodeGroupSpec]) -> u32 {
    groups.iter().map(|group| group.count).fold(0, u32::saturating_add)
}

/// Many nodes need a provider that is quick enough for them.
fn crowd(scenario: &Scenario) -> Option<(Spot, String)> {
    let (index, n) = wants(scenario)
        .map(|(index, _, groups)| (index, n_nodes(groups)))
        .max_by_key(|&(_, n)| n)
        .filter(|&(_, n)| n > FEW)?;
    if n > MOST_NODES {
        let what = format!("{n} nodes are wanted, at most {MOST_NODES} can be");
        return Some((Spot::Step(index), what));
    }
    let config = &scenario.config;
    let n_calls = config.endpoint_after + 3;
    let call = (config.latency / config.limits.concurrency).max(pause(config));
    let alone = config.boot + MARGIN + config.latency * n_calls;
    let is_quick = call * n_calls * n <= config.retry.ready_timeout;
    let what = || format!("for {n} nodes, what is called and booted takes too long here");
    (!is_quick || alone * n > ONE_BY_ONE).then(|| (Spot::Step(index), what()))
}

/// What is wanted in the end can be had.
fn unattainable(scenario: &Scenario) -> Option<(Spot, String)> {
    // Of those at one time, the last one counts.
    let (index, _, groups) = wants(scenario).max_by_key(|&(index, at, _)| (at, index))?;
    let refused = |group: &&RunNodeGroupSpec| group.count > 0 && group.shape.image == "refused";
    let group = groups.iter().find(refused)?;
    let id = &group.group_id;
    let what = format!(
        "the image of {id} is refused for good; the last thing wanted must be one that can be had"
    );
    Some((Spot::Step(index), what))
}
