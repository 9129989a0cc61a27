//! History to text.

use std::{fmt::Write as _, iter, time::Duration};

use myelin_executor::Limits;
use myelin_shape::{FirstNode, GroupPolicy, Limit, OnFailure, RunNodeGroupSpec};
use myelin_state::{ErrorClass, OperatorRequest, RetryPolicy};

use super::{
    call_name,
    fates::{COMMITS, FAILED_STAGES},
};
use crate::{BootFate, CallFate, Config, Happening, Jump, ReportFate, Scenario, Step};

/// Renders a history; [`parse`](super::parse) reads it back. A planted flaw is not part of it.
pub fn render(scenario: &Scenario) -> String {
    let Scenario { config, steps, calm_at, flaw: _, traced: _ } = scenario;
    let mut text = settings(config);
    for step in steps {
        writeln!(text, "{}", line(step)).expect("a string takes everything");
    }
    writeln!(text, "calm {}", time(*calm_at)).expect("a string takes everything");
    text
}

/// Renders a time as one word.
pub(crate) fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace(' ', "")
}

fn settings(config: &Config) -> String {
    let plain = Config::default();
    let mut lines = Vec::new();
    if config.settle_window != plain.settle_window {
        lines.push(format!("settle-window {}", time(config.settle_window)));
    }
    if config.endpoint_after != plain.endpoint_after {
        lines.push(format!("endpoint-after {}", config.endpoint_after));
    }
    if config.latency != plain.latency {
        lines.push(format!("latency {}", time(config.latency)));
    }
    if config.jitter != plain.jitter {
        lines.push(format!("jitter {}", config.jitter));
    }
    if config.boot != plain.boot {
        lines.push(format!("boot-time {}", time(config.boot)));
    }
    if config.sweep_interval != plain.sweep_interval {
        lines.push(format!("sweep {}", time(config.sweep_interval)));
    }
    if config.down_for != plain.down_for {
        lines.push(format!("down-for {}", time(config.down_for)));
    }
    if config.tick != plain.tick {
        lines.push(format!("tick {}", time(config.tick)));
    }
    if config.agent != plain.agent {
        lines.push(format!("heartbeat {}", time(config.agent.heartbeat_every)));
    }
    for (word, pairs) in [("retry", retry(&config.retry)), ("limits", limits(&config.limits))] {
        if !pairs.is_empty() {
            lines.push(format!("{word} {}", pairs.join(" ")));
        }
    }
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

fn retry(retry: &RetryPolicy) -> Vec<String> {
    let plain = RetryPolicy::default();
    let times = [
        ("initial-delay", retry.initial_delay, plain.initial_delay),
        ("max-delay", retry.max_delay, plain.max_delay),
        ("operation-timeout", retry.operation_timeout, plain.operation_timeout),
        ("answer-timeout", retry.answer_timeout, plain.answer_timeout),
        ("ready-timeout", retry.ready_timeout, plain.ready_timeout),
        ("bootstrap-timeout", retry.bootstrap_timeout, plain.bootstrap_timeout),
        ("stable-after", retry.stable_after, plain.stable_after),
        ("lost-after", retry.lost_after, plain.lost_after),
    ];
    let odd = times.iter().filter(|(_, is, plain)| is != plain);
    let mut pairs: Vec<_> = odd.map(|(key, is, _)| format!("{key}={}", time(*is))).collect();
    if retry.max_consecutive_failures != plain.max_consecutive_failures {
        pairs.push(format!("max-failures={}", retry.max_consecutive_failures));
    }
    if retry.jitter_percent != plain.jitter_percent {
        pairs.push(format!("jitter-percent={}", retry.jitter_percent));
    }
    pairs
}

fn limits(limits: &Limits) -> Vec<String> {
    let mut pairs = Vec::new();
    if limits.concurrency != Limits::default().concurrency {
        pairs.push(format!("concurrency={}", limits.concurrency));
    }
    pairs.extend(limits.calls_per_second.map(|rate| format!("calls-per-second={rate}")));
    pairs
}

/// Renders one step as the line that it is.
pub fn line(step: &Step) -> String {
    match step {
        Step::At(at, what) => format!("at {} {}", time(*at), happening(what)),
        Step::Call(kind, nth, fate) => {
            format!("call {} {nth} {}", call_name(*kind), call(fate))
        }
        Step::Boot(nth, fate) => format!("boot {nth} {}", boot(*fate)),
        Step::Commit(nth, fate) => {
            let name = COMMITS.iter().find(|(_, it)| it == fate).map_or("", |(name, _)| name);
            format!("commit {nth} {name}")
        }
        Step::Report(nth, ReportFate::Lost) => format!("report {nth} lost"),
        Step::Report(nth, ReportFate::Late(by)) => format!("report {nth} late {}", time(*by)),
        Step::Report(nth, ReportFate::Again(by)) => format!("report {nth} again {}", time(*by)),
    }
}

/// Renders what happens, without when.
pub(crate) fn happening(happening: &Happening) -> String {
    match happening {
        Happening::Want(groups) => {
            let groups = groups.iter().map(group);
            iter::once("want".to_owned()).chain(groups).collect::<Vec<_>>().join(" ")
        }
        Happening::Pause => "pause".to_owned(),
        Happening::Resume => "resume".to_owned(),
        Happening::Ask(node, request) => format!("{} {node}", asks(*request)),
        Happening::AskGroup(group, request) => format!("{}-group {group}", asks(*request)),
        Happening::MachineDies(node) => format!("machine-dies {node}"),
        Happening::AgentDies(node) => format!("agent-dies {node}"),
        Happening::AgentStops(node, lasts) => format!("agent-stops {node} {}", time(*lasts)),
        Happening::AgentTwin(node) => format!("agent-twin {node}"),
        Happening::Sever(lasts) => format!("sever {}", time(*lasts)),
        Happening::Outage(lasts, of) => format!("outage {} {}", time(*lasts), class(*of)),
        Happening::ListsNothing(lasts) => format!("lists-nothing {}", time(*lasts)),
        Happening::OtherAccount(lasts) => format!("other-account {}", time(*lasts)),
        Happening::Crash(down_for) => format!("crash {}", time(*down_for)),
        Happening::PowerLoss(down_for) => format!("power-loss {}", time(*down_for)),
        Happening::ClockJumps(Jump::Ahead(by)) => format!("clock-ahead {}", time(*by)),
        Happening::ClockJumps(Jump::Back(by)) => format!("clock-back {}", time(*by)),
    }
}

fn asks(request: OperatorRequest) -> &'static str {
    match request {
        OperatorRequest::Retry => "retry",
        OperatorRequest::Replace => "replace",
        OperatorRequest::Abandon => "abandon",
    }
}

fn group(group: &RunNodeGroupSpec) -> String {
    let plain = GroupPolicy::default();
    let policy = &group.policy;
    let mut parts = vec![format!("{}:{}", group.group_id, group.count)];
    if group.shape.image != "v1" {
        parts.push(format!("image={}", group.shape.image));
    }
    if let Some(it) = policy.max_unavailable {
        parts.push(format!("max-unavailable={}", limit(it)));
    }
    if policy.max_unhealthy != plain.max_unhealthy {
        parts.push(format!("max-unhealthy={}", limit(policy.max_unhealthy)));
    }
    if let Some(first) = policy.first_node {
        let name = match first {
            FirstNode::All => "all",
            FirstNode::Canary => "canary",
        };
        parts.push(format!("first={name}"));
    }
    if policy.max_in_flight_creates != plain.max_in_flight_creates {
        parts.push(format!("in-flight={}", policy.max_in_flight_creates));
    }
    if policy.keep_limit != plain.keep_limit {
        parts.push(format!("keep-limit={}", policy.keep_limit));
    }
    if policy.on_failure == OnFailure::Keep {
        parts.push("on-failure=keep".to_owned());
    }
    parts.join(",")
}

fn limit(limit: Limit) -> String {
    match limit {
        Limit::Count(count) => count.to_string(),
        Limit::Percent(share) => format!("{share}%"),
    }
}

fn class(class: ErrorClass) -> String {
    match class {
        ErrorClass::Transient => "transient".to_owned(),
        ErrorClass::RateLimited(pause) => format!("rate-limited={}", time(pause)),
        ErrorClass::NoCapacity => "no-capacity".to_owned(),
        ErrorClass::Permanent => "permanent".to_owned(),
        ErrorClass::Ambiguous => "ambiguous".to_owned(),
        ErrorClass::AlreadyAbsent => "absent".to_owned(),
    }
}

fn call(fate: &CallFate) -> String {
    match fate {
        CallFate::Slow(by) => format!("slow {}", time(*by)),
        CallFate::LosesReply => "loses-reply".to_owned(),
        CallFate::Late(by) => format!("late {}", time(*by)),
        CallFate::Hangs => "hangs".to_owned(),
        CallFate::Fails(of) => format!("fails {}", class(*of)),
        CallFate::FailsAfter(of) => format!("fails-after {}", class(*of)),
        CallFate::FindsNothing => "finds-nothing".to_owned(),
        CallFate::ListsHalf => "lists-half".to_owned(),
        CallFate::ListsOld => "lists-old".to_owned(),
        CallFate::Lies => "lies".to_owned(),
        CallFate::Twice => "twice".to_owned(),
        CallFate::Panics => "panics".to_owned(),
        CallFate::CrashBefore => "crash-before".to_owned(),
        CallFate::CrashAfter => "crash-after".to_owned(),
    }
}

fn boot(fate: BootFate) -> String {
    match fate {
        BootFate::JoinsFirst => "joins-first".to_owned(),
        BootFate::Slow(by) => format!("slow {}", time(by)),
        BootFate::Fails(stage) => {
            let name = FAILED_STAGES.iter().find(|(_, it)| *it == stage);
            format!("fails {}", name.map_or("check", |(name, _)| name))
        }
        BootFate::Hangs => "hangs".to_owned(),
        BootFate::Repeats => "repeats".to_owned(),
        BootFate::DiesAfter(by) => format!("dies-after {}", time(by)),
    }
}
