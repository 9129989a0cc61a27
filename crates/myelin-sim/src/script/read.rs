//! Text to history.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use myelin_membership::Timing;
use myelin_shape::{LogicalNodeId, NodeGroupId, check_id};
use myelin_state::OperatorRequest;

use super::{
    check::{Spot, problem},
    fates::{
        read_boot_fate, read_call_fate, read_call_kind, read_class, read_commit_fate,
        read_report_fate,
    },
    groups::read_groups,
    line::{Line, Place, ScriptError, shown},
};
use crate::{Config, Happening, Jump, Scenario, Step};

/// More lines than this are no script a person wrote.
const MOST_LINES: usize = 1000;

/// Words that settings and steps begin with.
const WORDS: [&str; 17] = [
    "at",
    "boot",
    "boot-time",
    "call",
    "calm",
    "commit",
    "down-for",
    "endpoint-after",
    "heartbeat",
    "jitter",
    "latency",
    "limits",
    "report",
    "retry",
    "settle-window",
    "sweep",
    "tick",
];

/// The shortest time that is none at all.
const NONE: Duration = Duration::ZERO;

/// What goes on when everything works does so for no longer: four hours must be enough for everything to end.
pub(super) const LASTS: RangeInclusive<Duration> = NONE..=Duration::from_hours(1);

/// A clock that is wrong by more was not set by a person.
const JUMPS: RangeInclusive<Duration> = NONE..=Duration::from_hours(24 * 30);

/// Nobody reads a history of more than a day.
const HAPPENS: RangeInclusive<Duration> = NONE..=Duration::from_hours(24);

/// Where each thing was written that may have to be found again.
#[derive(Debug, Default)]
struct Places<'a> {
    steps: Vec<Place>,
    settings: BTreeMap<&'a str, Place>,
}

impl Places<'_> {
    fn error(&self, spot: Spot, what: String) -> ScriptError {
        let place = match spot {
            Spot::Step(index) => self.steps.get(index),
            Spot::Settings(words) => words.iter().find_map(|&word| self.settings.get(word)),
        };
        place.copied().unwrap_or_default().error(what)
    }
}

/// Reads a script.
///
/// # Errors
///
/// The first thing that is wrong with it; or, if each line can be read, why the history cannot end well.
pub fn parse(text: &str) -> Result<Scenario, ScriptError> {
    let mut scenario = Scenario { calm_at: Duration::from_mins(5), ..Scenario::default() };
    let mut places = Places::default();
    for (number, text) in (1..).zip(text.lines()) {
        let mut line = Line::new(number, text);
        if number > MOST_LINES {
            return Err(line.error(format!("a script has at most {MOST_LINES} lines")));
        }
        let Some(word) = line.next() else { continue };
        let place = line.place();
        read_line(word, &mut line, &mut scenario)?;
        line.end()?;
        places.settings.insert(word, place);
        places.steps.resize(scenario.steps.len(), place);
    }
    match problem(&scenario) {
        Some((spot, what)) => Err(places.error(spot, what)),
        None => Ok(scenario),
    }
}

fn read_line(word: &str, line: &mut Line<'_>, scenario: &mut Scenario) -> Result<(), ScriptError> {
    let steps = &mut scenario.steps;
    match word {
        "at" => {
            let at = line.duration("when", HAPPENS)?;
            steps.push(Step::At(at, read_happening(line)?));
        }
        "call" => {
            let kind = read_call_kind(line)?;
            steps.push(Step::Call(kind, line.nth("which call")?, read_call_fate(line)?));
        }
        "boot" => steps.push(Step::Boot(line.nth("which boot")?, read_boot_fate(line)?)),
        "commit" => steps.push(Step::Commit(line.nth("which commit")?, read_commit_fate(line)?)),
        "report" => steps.push(Step::Report(line.nth("which report")?, read_report_fate(line)?)),
        "calm" => scenario.calm_at = line.duration("when everything works again", HAPPENS)?,
        _ => read_setting(word, line, &mut scenario.config)?,
    }
    Ok(())
}

fn read_setting(word: &str, line: &mut Line<'_>, config: &mut Config) -> Result<(), ScriptError> {
    // What each may be at most is what a hunt draws or some times more; with more, little would be done in four hours.
    let seconds = |most| NONE..=Duration::from_secs(most);
    match word {
        "settle-window" => {
            config.settle_window = line.duration("the settle window", seconds(300))?;
        }
        "endpoint-after" => {
            config.endpoint_after = line.number("how many look-ups")?;
            if config.endpoint_after > 10 {
                return Err(line.error("an endpoint is there after at most 10 look-ups"));
            }
        }
        "latency" => config.latency = line.duration("the latency", seconds(10))?,
        "jitter" => config.jitter = line.number("the jitter")?,
        "boot-time" => config.boot = line.duration("the boot time", seconds(60))?,
        "sweep" => {
            let within = Duration::from_secs(1)..=Duration::from_mins(10);
            config.sweep_interval = line.duration("the sweep interval", within)?;
        }
        "tick" => {
            let within = NONE..=Duration::from_mins(10);
            config.tick = line.duration("how often every node is looked at", within)?;
        }
        "heartbeat" => {
            let within = Duration::from_secs(1)..=Duration::from_mins(1);
            let every = line.duration("how often agents report", within)?;
            config.agent = Timing::heartbeat_every(every);
        }
        "down-for" => config.down_for = line.duration("how long it is down", LASTS)?,
        "retry" => read_retry(line, config)?,
        "limits" => read_limits(line, config)?,
        other => return Err(line.unknown("setting or step", other, &WORDS)),
    }
    Ok(())
}

/// Splits `key=value`.
pub(super) fn pair<'a>(line: &Line<'_>, word: &'a str) -> Result<(&'a str, &'a str), ScriptError> {
    let error = || line.error(format!("{} is not of the form key=value", shown(word)));
    word.split_once('=').ok_or_else(error)
}

fn read_retry(line: &mut Line<'_>, config: &mut Config) -> Result<(), ScriptError> {
    const KEYS: [&str; 10] = [
        "initial-delay",
        "max-delay",
        "operation-timeout",
        "answer-timeout",
        "ready-timeout",
        "bootstrap-timeout",
        "stable-after",
        "lost-after",
        "max-failures",
        "jitter-percent",
    ];
    // As a cluster file, which refuses what is shorter; and nothing takes so long that four hours are not enough.
    let within = |least: u64| Duration::from_millis(least)..=Duration::from_mins(30);
    let retry = &mut config.retry;
    while let Some(word) = line.next() {
        let (key, value) = pair(line, word)?;
        let number = || {
            let error = |_| line.error(format!("{key} is a number, not {}", shown(value)));
            value.parse().map_err(error)
        };
        match key {
            "initial-delay" => {
                retry.initial_delay = line.duration_in(value, key, within(10))?;
            }
            "max-delay" => retry.max_delay = line.duration_in(value, key, within(10))?,
            "operation-timeout" => {
                retry.operation_timeout = line.duration_in(value, key, within(1000))?;
            }
            "answer-timeout" => {
                retry.answer_timeout = line.duration_in(value, key, within(1000))?;
            }
            "ready-timeout" => {
                retry.ready_timeout = line.duration_in(value, key, within(10))?;
            }
            "bootstrap-timeout" => {
                retry.bootstrap_timeout = line.duration_in(value, key, within(10))?;
            }
            "stable-after" => {
                retry.stable_after = line.duration_in(value, key, within(10))?;
            }
            "lost-after" => {
                retry.lost_after = line.duration_in(value, key, within(1000))?;
            }
            "max-failures" => retry.max_consecutive_failures = number()?,
            "jitter-percent" => {
                retry.jitter_percent = number()?;
                if retry.jitter_percent > 100 {
                    return Err(line.error(format!("{key} is at most 100")));
                }
            }
            other => return Err(line.unknown("time of retry", other, &KEYS)),
        }
    }
    Ok(())
}

fn read_limits(line: &mut Line<'_>, config: &mut Config) -> Result<(), ScriptError> {
    const KEYS: [&str; 2] = ["concurrency", "calls-per-second"];
    while let Some(word) = line.next() {
        let (key, value) = pair(line, word)?;
        let error = || line.error(format!("{key} is a number above 0, not {}", shown(value)));
        let number = value.parse::<u32>().ok().filter(|&it| it > 0).ok_or_else(error)?;
        match key {
            "concurrency" => config.limits.concurrency = number,
            "calls-per-second" => config.limits.calls_per_second = Some(number),
            other => return Err(line.unknown("limit", other, &KEYS)),
        }
    }
    Ok(())
}

fn read_happening(line: &mut Line<'_>) -> Result<Happening, ScriptError> {
    const WORDS: [&str; 20] = [
        "want",
        "pause",
        "resume",
        "retry",
        "replace",
        "abandon",
        "retry-group",
        "replace-group",
        "machine-dies",
        "agent-dies",
        "agent-stops",
        "agent-twin",
        "sever",
        "outage",
        "lists-nothing",
        "other-account",
        "crash",
        "power-loss",
        "clock-ahead",
        "clock-back",
    ];
    let word = line.word("what happens")?;
    Ok(match word {
        "want" => Happening::Want(read_groups(line)?),
        "pause" => Happening::Pause,
        "resume" => Happening::Resume,
        "retry" => Happening::Ask(read_node(line)?, OperatorRequest::Retry),
        "replace" => Happening::Ask(read_node(line)?, OperatorRequest::Replace),
        "abandon" => Happening::Ask(read_node(line)?, OperatorRequest::Abandon),
        "retry-group" => Happening::AskGroup(read_group(line)?, OperatorRequest::Retry),
        "replace-group" => Happening::AskGroup(read_group(line)?, OperatorRequest::Replace),
        "machine-dies" => Happening::MachineDies(read_node(line)?),
        "agent-dies" => Happening::AgentDies(read_node(line)?),
        "agent-stops" => {
            Happening::AgentStops(read_node(line)?, line.duration("for how long", HAPPENS)?)
        }
        "agent-twin" => Happening::AgentTwin(read_node(line)?),
        "sever" => Happening::Sever(line.duration("for how long", HAPPENS)?),
        "outage" => Happening::Outage(line.duration("for how long", HAPPENS)?, read_class(line)?),
        "lists-nothing" => Happening::ListsNothing(line.duration("for how long", HAPPENS)?),
        "other-account" => Happening::OtherAccount(line.duration("for how long", HAPPENS)?),
        "crash" => Happening::Crash(line.duration("how long it is down", LASTS)?),
        "power-loss" => Happening::PowerLoss(line.duration("how long it is down", LASTS)?),
        "clock-ahead" => Happening::ClockJumps(Jump::Ahead(line.duration("by how much", JUMPS)?)),
        "clock-back" => Happening::ClockJumps(Jump::Back(line.duration("by how much", JUMPS)?)),
        other => return Err(line.unknown("happening", other, &WORDS)),
    })
}

fn read_node(line: &mut Line<'_>) -> Result<LogicalNodeId, ScriptError> {
    let word = line.word("which node")?;
    let slot = word.rsplit_once('-').filter(|(_, index)| index.parse::<u32>().is_ok());
    if check_id(word).is_err() || slot.is_none() {
        return Err(line.error(format!("a node is named like a-0, not {}", shown(word))));
    }
    Ok(word.into())
}

fn read_group(line: &mut Line<'_>) -> Result<NodeGroupId, ScriptError> {
    let word = line.word("which group")?;
    check_id(word).map_err(|error| line.error(format!("{} is no group: {error}", shown(word))))?;
    Ok(word.into())
}
