//! Text to history.

use std::time::Duration;

use myelin_executor::fake::CallKind;
use myelin_membership::Timing;
use myelin_shape::LogicalNodeId;
use myelin_state::{BootstrapStage, ErrorClass, OperatorRequest};

use super::{
    groups::read_groups,
    line::{Line, ScriptError, shown},
};
use crate::{BootFate, CallFate, CommitFate, Config, Happening, Jump, ReportFate, Scenario, Step};

/// More lines than this are no script a person wrote.
const MOST_LINES: usize = 10_000;

/// Words that settings and steps begin with.
const WORDS: [&str; 16] = [
    "at",
    "boot",
    "boot-time",
    "call",
    "calm",
    "commit",
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

/// Reads a script.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn parse(text: &str) -> Result<Scenario, ScriptError> {
    let mut scenario = Scenario { calm_at: Duration::from_mins(5), ..Scenario::default() };
    for (number, text) in (1..).zip(text.lines()) {
        let mut line = Line::new(number, text);
        if number > MOST_LINES {
            return Err(line.error(format!("a script has at most {MOST_LINES} lines")));
        }
        let Some(word) = line.next() else { continue };
        read_line(word, &mut line, &mut scenario)?;
        line.end()?;
    }
    Ok(scenario)
}

fn read_line(word: &str, line: &mut Line<'_>, scenario: &mut Scenario) -> Result<(), ScriptError> {
    let Scenario { config, steps, .. } = scenario;
    match word {
        "settle-window" => config.settle_window = line.duration("the settle window")?,
        "endpoint-after" => config.endpoint_after = line.number("how many look-ups")?,
        "latency" => config.latency = line.duration("the latency")?,
        "jitter" => config.jitter = line.number("the jitter")?,
        "boot-time" => config.boot = line.duration("the boot time")?,
        "tick" => config.tick = line.duration("how often every node is looked at")?,
        "heartbeat" => {
            config.agent = Timing::heartbeat_every(line.duration("how often agents report")?);
        }
        "sweep" => config.sweep_interval = line.duration("the sweep interval")?,
        "retry" => read_retry(line, config)?,
        "limits" => read_limits(line, config)?,
        "calm" => scenario.calm_at = line.duration("when everything works again")?,
        "at" => {
            let at = line.duration("when")?;
            steps.push(Step::At(at, read_happening(line)?));
        }
        "call" => {
            let kind = read_call_kind(line)?;
            steps.push(Step::Call(kind, line.number("which call")?, read_call_fate(line)?));
        }
        "boot" => steps.push(Step::Boot(line.number("which boot")?, read_boot_fate(line)?)),
        "commit" => {
            steps.push(Step::Commit(line.number("which commit")?, read_commit_fate(line)?));
        }
        "report" => {
            steps.push(Step::Report(line.number("which report")?, read_report_fate(line)?));
        }
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
    let retry = &mut config.retry;
    while let Some(word) = line.next() {
        let (key, value) = pair(line, word)?;
        let number = || {
            let error = |_| line.error(format!("{key} is a number, not {}", shown(value)));
            value.parse().map_err(error)
        };
        match key {
            "initial-delay" => retry.initial_delay = line.duration_in(value, key)?,
            "max-delay" => retry.max_delay = line.duration_in(value, key)?,
            "operation-timeout" => retry.operation_timeout = line.duration_in(value, key)?,
            "answer-timeout" => retry.answer_timeout = line.duration_in(value, key)?,
            "ready-timeout" => retry.ready_timeout = line.duration_in(value, key)?,
            "bootstrap-timeout" => retry.bootstrap_timeout = line.duration_in(value, key)?,
            "stable-after" => retry.stable_after = line.duration_in(value, key)?,
            "lost-after" => retry.lost_after = line.duration_in(value, key)?,
            "max-failures" => retry.max_consecutive_failures = number()?,
            "jitter-percent" => retry.jitter_percent = number()?,
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
        "retry-group" => {
            Happening::AskGroup(line.word("which group")?.into(), OperatorRequest::Retry)
        }
        "replace-group" => {
            Happening::AskGroup(line.word("which group")?.into(), OperatorRequest::Replace)
        }
        "machine-dies" => Happening::MachineDies(read_node(line)?),
        "agent-dies" => Happening::AgentDies(read_node(line)?),
        "agent-stops" => Happening::AgentStops(read_node(line)?, line.duration("for how long")?),
        "agent-twin" => Happening::AgentTwin(read_node(line)?),
        "sever" => Happening::Sever(line.duration("for how long")?),
        "outage" => Happening::Outage(line.duration("for how long")?, read_class(line)?),
        "lists-nothing" => Happening::ListsNothing(line.duration("for how long")?),
        "other-account" => Happening::OtherAccount(line.duration("for how long")?),
        "crash" => Happening::Crash(line.duration("how long it is down")?),
        "power-loss" => Happening::PowerLoss(line.duration("how long it is down")?),
        "clock-ahead" => Happening::ClockJumps(Jump::Ahead(line.duration("by how much")?)),
        "clock-back" => Happening::ClockJumps(Jump::Back(line.duration("by how much")?)),
        other => return Err(line.unknown("happening", other, &WORDS)),
    })
}

fn read_node(line: &mut Line<'_>) -> Result<LogicalNodeId, ScriptError> {
    line.word("which node").map(LogicalNodeId::from)
}

pub(super) const CALLS: [(&str, CallKind); 11] = [
    ("identity", CallKind::Identity),
    ("create", CallKind::Create),
    ("find", CallKind::Find),
    ("endpoint", CallKind::Endpoint),
    ("presence", CallKind::Presence),
    ("destroy", CallKind::Destroy),
    ("list", CallKind::List),
    ("start", CallKind::Start),
    ("find-session", CallKind::FindSession),
    ("conclude", CallKind::Conclude),
    ("cancel", CallKind::Cancel),
];

fn read_call_kind(line: &mut Line<'_>) -> Result<CallKind, ScriptError> {
    let word = line.word("which kind of call")?;
    let known = CALLS.iter().find(|(name, _)| *name == word);
    let names = CALLS.map(|(name, _)| name);
    known.map(|(_, kind)| *kind).ok_or_else(|| line.unknown("call", word, &names))
}

fn read_call_fate(line: &mut Line<'_>) -> Result<CallFate, ScriptError> {
    const WORDS: [&str; 13] = [
        "slow",
        "loses-reply",
        "late",
        "hangs",
        "fails",
        "fails-after",
        "finds-nothing",
        "lists-half",
        "lies",
        "twice",
        "panics",
        "crash-before",
        "crash-after",
    ];
    let word = line.word("how it goes")?;
    Ok(match word {
        "slow" => CallFate::Slow(line.duration("how long it takes")?),
        "loses-reply" => CallFate::LosesReply,
        "late" => CallFate::Late(line.duration("how late it is")?),
        "hangs" => CallFate::Hangs,
        "fails" => CallFate::Fails(read_class(line)?),
        "fails-after" => CallFate::FailsAfter(read_class(line)?),
        "finds-nothing" => CallFate::FindsNothing,
        "lists-half" => CallFate::ListsHalf,
        "lies" => CallFate::Lies,
        "twice" => CallFate::Twice,
        "panics" => CallFate::Panics,
        "crash-before" => CallFate::CrashBefore,
        "crash-after" => CallFate::CrashAfter,
        other => return Err(line.unknown("way for a call to go", other, &WORDS)),
    })
}

fn read_class(line: &mut Line<'_>) -> Result<ErrorClass, ScriptError> {
    const WORDS: [&str; 6] =
        ["transient", "ambiguous", "no-capacity", "permanent", "absent", "rate-limited=10s"];
    let word = line.word("the class of the failure")?;
    if let Some(pause) = word.strip_prefix("rate-limited=") {
        return Ok(ErrorClass::RateLimited(line.duration_in(pause, "the pause")?));
    }
    Ok(match word {
        "transient" => ErrorClass::Transient,
        "ambiguous" => ErrorClass::Ambiguous,
        "no-capacity" => ErrorClass::NoCapacity,
        "permanent" => ErrorClass::Permanent,
        "absent" => ErrorClass::AlreadyAbsent,
        other => return Err(line.unknown("class of failure", other, &WORDS)),
    })
}

pub(super) const FAILED_STAGES: [(&str, BootstrapStage); 5] = [
    ("ssh", BootstrapStage::SshConnectFailed),
    ("check", BootstrapStage::BootCheckFailed),
    ("start", BootstrapStage::StartFailed),
    ("join", BootstrapStage::SwactorJoinFailed),
    ("stream", BootstrapStage::StreamError),
];

fn read_boot_fate(line: &mut Line<'_>) -> Result<BootFate, ScriptError> {
    const WORDS: [&str; 6] = ["joins-first", "slow", "fails", "hangs", "repeats", "dies-after"];
    let word = line.word("how it goes")?;
    Ok(match word {
        "joins-first" => BootFate::JoinsFirst,
        "slow" => BootFate::Slow(line.duration("how much later")?),
        "fails" => {
            let word = line.word("at what it fails")?;
            let known = FAILED_STAGES.iter().find(|(name, _)| *name == word);
            let names = FAILED_STAGES.map(|(name, _)| name);
            let stage = known.ok_or_else(|| line.unknown("failure of a boot", word, &names))?;
            BootFate::Fails(stage.1)
        }
        "hangs" => BootFate::Hangs,
        "repeats" => BootFate::Repeats,
        "dies-after" => BootFate::DiesAfter(line.duration("how much later")?),
        other => return Err(line.unknown("way for a boot to go", other, &WORDS)),
    })
}

pub(super) const COMMITS: [(&str, CommitFate); 5] = [
    ("full", CommitFate::Full),
    ("locked", CommitFate::Locked),
    ("answer-lost", CommitFate::AnswerLost),
    ("crash-before", CommitFate::CrashBefore),
    ("crash-after", CommitFate::CrashAfter),
];

fn read_commit_fate(line: &mut Line<'_>) -> Result<CommitFate, ScriptError> {
    let word = line.word("how it goes")?;
    let known = COMMITS.iter().find(|(name, _)| *name == word);
    let names = COMMITS.map(|(name, _)| name);
    known.map(|(_, fate)| *fate).ok_or_else(|| line.unknown("way for a commit to go", word, &names))
}

fn read_report_fate(line: &mut Line<'_>) -> Result<ReportFate, ScriptError> {
    let word = line.word("how it goes")?;
    match word {
        "late" => Ok(ReportFate::Late(line.duration("how late")?)),
        "again" => Ok(ReportFate::Again(line.duration("how much later")?)),
        other => Err(line.unknown("way for a report to go", other, &["late", "again"])),
    }
}
