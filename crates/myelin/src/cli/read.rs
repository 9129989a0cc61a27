//! The readers.

use std::{fmt::Write as _, io, path::Path, time::Duration};

use myelin_store::Source;
use serde::Serialize;

use crate::{
    control::{self, FailureKind, Reply, Request},
    file,
    hangup::hung_up,
    printable::printable,
    view::{
        BrakeView, EventView, ExplainView, FileView, GroupView, InventoryView, OutputView,
        StatusView, UnheardView,
    },
};

use super::{
    Outcome,
    args::{EventsArgs, Format, Globals, LogsArgs, NodeReadArgs, OutputArgs},
    connect::{Loop, ask, unexpected},
    down::machines,
    output::{self, Style},
    table, time,
};

/// How long a follower waits at the loop before it asks again.
const FOLLOW_FOR: Duration = Duration::from_secs(20);

/// How many events a follower takes at once.
const MAX_FOLLOWED: usize = 1000;

pub(super) async fn status(globals: &Globals, args: OutputArgs) -> Outcome {
    let mut looped = Loop::read(globals).await?;
    let view = ask!(looped, Request::Status {}, Reply::Status(view) => view);
    output::result(args.output, &view, || status_text(&view, Style::stdout()))?;
    Ok(0)
}

/// Says how the run is; where no loop answers, how it was and when.
fn head(view: &StatusView, style: Style) -> String {
    let word = match (view.leaving, view.paused, view.converged) {
        (true, ..) => style.warn("being taken down"),
        (_, true, _) => style.warn("paused"),
        (_, _, true) => style.good("converged"),
        (..) if view.unheard.is_some() => style.paint("36", "being taken up"),
        (..) => style.paint("36", "converging"),
    };
    let StatusView { run, generation, pid, .. } = view;
    let Some(as_of) = view.as_of else {
        let ago = time::ago(view.since);
        return format!("run {run}: {word}, generation {generation}, for {ago} (pid {pid})\n");
    };
    let absent = match pid {
        0 => style.warn("not running"),
        pid => style.warn(&format!("not answering (pid {pid})")),
    };
    let as_of = time::as_of(as_of);
    format!("run {run}: {absent}, last recorded {as_of}: {word}, generation {generation}\n")
}

/// Says where what is wanted comes from, and whether that says the same still.
fn file_line(file: &FileView) -> String {
    let FileView { path, digest } = file;
    let name = path.clone();
    let digest_of = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Source { name, text, ..Source::default() }.digest()
    };
    let now = file::read_bounded(Path::new(path)).ok().map(|(bytes, _)| digest_of(bytes));
    let since = match now {
        None => ", which cannot be read now",
        Some(now) if now.as_ref() != Some(digest) => ", which has changed since",
        Some(_) => "",
    };
    let digest = digest.get(..12).unwrap_or(digest);
    format!("from {} ({digest}){since}\n", printable(path))
}

pub(super) fn status_text(view: &StatusView, style: Style) -> String {
    let mut text = head(view, style);
    text.extend(view.file.as_ref().map(file_line));
    if let Some(trouble) = &view.trouble {
        let (since, error) = (time::clock(trouble.since), printable(&trouble.error));
        let line = format!("nothing is done since {since}, until it can be recorded: {error}");
        let _ = writeln!(text, "{}", style.bad(&line));
    }
    if let Some(unheard) = &view.unheard {
        let _ = writeln!(text, "{}", unheard_line(unheard));
    }
    // A single group says it below.
    let is_told = view.groups.iter().any(|group| group.brake == view.brake);
    if view.brake.on && !is_told {
        let _ =
            writeln!(text, "{}", style.bad(&format!("brake of the run: {}", brake(&view.brake))));
    }
    for provider in &view.providers {
        for (message, until) in &provider.no_capacity {
            let (name, left) = (&provider.provider, time::left(*until));
            let _ = writeln!(
                text,
                "{name} has no capacity: {} (asked again in {left})",
                printable(message)
            );
        }
    }
    for line in view.inventory.iter().flat_map(inventory_lines) {
        let _ = writeln!(text, "{}", style.bad(&line));
    }
    text.push('\n');
    let rows = view.groups.iter().map(|group| {
        vec![
            group.group.clone(),
            format!("{}/{}", group.ready, group.desired),
            group.provider.clone(),
            moving(group),
        ]
    });
    text + &table::table(&["GROUP", "READY", "PROVIDER", "MOVING"], rows)
}

/// Says which agents are waited for, and how long.
fn unheard_line(view: &UnheardView) -> String {
    let (agents, them) = match view.agents {
        1 => ("1 agent is".to_owned(), "it counts"),
        n => (format!("{n} agents are"), "they count"),
    };
    let until = view.until.map(|until| format!("; in {} {them} as silent", time::left(until)));
    format!("{agents} not heard yet since the run was taken up{}", until.unwrap_or_default())
}

/// Says what of the inventory people should know.
fn inventory_lines(view: &InventoryView) -> Vec<String> {
    let held = view.held.iter().map(|hold| {
        let since = time::clock(hold.since);
        let reason = printable(&hold.reason);
        format!("{} {reason}; nothing it lists is acted on since {since}", hold.provider)
    });
    let why = view.stop.as_ref().or(view.doubt.as_ref());
    let asking = match (view.n_asking, why) {
        (0, None) => None,
        (0, Some(why)) => {
            Some(format!("{}; nothing is given back: `myelin census`", printable(why)))
        }
        (n, why) => {
            let why = why.map(|why| format!(" ({})", printable(why))).unwrap_or_default();
            let wait = if n == 1 { "waits" } else { "wait" };
            Some(format!("{} of nobody's {wait} for your word{why}: `myelin census`", machines(n)))
        }
    };
    held.chain(asking).collect()
}

/// Says how a brake stands.
pub(super) fn brake(brake: &BrakeView) -> String {
    let limit = brake.limit.unwrap_or(0);
    format!(
        "{} nodes failing, more than {limit}: repairing one at a time, {} under way",
        brake.unhealthy, brake.repairs
    )
}

/// Says what of a group is not as desired.
pub(super) fn moving(group: &GroupView) -> String {
    let counts = group.moving.iter();
    let counts = counts.map(|(code, n)| format!("{n} {}", code.replace('_', " ")));
    let mut parts: Vec<_> = counts.collect();
    if group.leaving > 0 {
        parts.push(format!("{} leaving", group.leaving));
    }
    if group.brake.on {
        parts.push(format!("brake on: {}", brake(&group.brake)));
    }
    parts.join(", ")
}

pub(super) async fn nodes(globals: &Globals, args: OutputArgs) -> Outcome {
    let mut looped = Loop::read(globals).await?;
    let views = ask!(looped, Request::Nodes {}, Reply::Nodes(views) => views);
    let as_of = looped.as_of();
    output::result(args.output, &views, || table::nodes(&views, as_of, Style::stdout()))?;
    Ok(0)
}

pub(super) async fn explain(globals: &Globals, args: NodeReadArgs) -> Outcome {
    let mut looped = Loop::read(globals).await?;
    let request = Request::Explain { node: args.node };
    let view = ask!(looped, request, Reply::Explain(view) => view);
    output::result(args.output.output, &view, || explain_text(&view, Style::stdout()))?;
    Ok(0)
}

/// Returns everything about a node, for people.
pub(super) fn explain_text(view: &ExplainView, style: Style) -> String {
    let node = &view.node;
    let mut text =
        format!("{}: {}\n", style.bold(&node.node), style.state(&node.state, &node.state));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<12} {}", printable(&value));
        }
    };
    row("why", node.why.text.clone());
    row(
        "until",
        match (node.why.until, &node.why.until_event) {
            (Some(time), _) => time::until(time),
            (None, Some(event)) => event.clone(),
            (None, None) => String::new(),
        },
    );
    row("next", view.next.clone());
    // "cleanup failed" would be read as a sentence.
    row("ended", node.delete_cause.clone().unwrap_or_default());
    let attempt = node.attempt.map(|attempt| format!("{attempt}, stage {}", node.stage));
    row("attempt", attempt.unwrap_or_default());
    row(
        "ready",
        node.ready_since.map(|time| format!("since {}", time::since(time))).unwrap_or_default(),
    );
    let lease = node.lease.as_ref().map(|lease| format!("{lease} ({})", node.provider));
    row("lease", lease.unwrap_or_default());
    row("connection", view.connection.clone().unwrap_or_default());
    row("bootstrap", view.bootstrap.clone().unwrap_or_default());
    row("join by", view.join_by.map(time::until).unwrap_or_default());
    row("ready by", view.ready_by.map(time::until).unwrap_or_default());
    if let Some(agent) = &view.agent {
        row("agent", format!("{}, joined {}", agent.agent, time::since(agent.joined_at)));
        let silent = agent.silent_since.map(|_| ", silent from then on").unwrap_or_default();
        let contact = agent.last_contact.map(|time| time::since(time) + silent);
        row("last heard", contact.unwrap_or_default());
    }
    if let Some(pending) = &view.pending {
        let what = format!("{} {}", pending.kind, pending.operation);
        row("under way", format!("{what}, given up at {}", time::until(pending.deadline)));
    }
    let retry = &view.retry;
    if retry.failures > 0 || retry.failed_attempts > 0 {
        let quarantine = match retry.quarantined_after {
            0 => String::new(),
            n => format!(" (quarantine after {n})"),
        };
        let ended = match retry.failed_attempts {
            1 => "1 attempt ended".to_owned(),
            n => format!("{n} attempts ended"),
        };
        row("failures", format!("{} in a row, {ended}{quarantine}", retry.failures));
    }
    row("last error", retry.last_error.clone().unwrap_or_default());
    row("unsettled", retry.unsettled.clone().unwrap_or_default());
    section(
        &mut text,
        style,
        "last output",
        view.output.iter().map(|line| output_line(line, style)),
    );
    section(
        &mut text,
        style,
        "last events",
        view.events.iter().map(|event| event_line(event, style)),
    );
    text
}

fn section(text: &mut String, style: Style, name: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.bold(name));
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

pub(super) fn event_line(event: &EventView, style: Style) -> String {
    let attempt = event.attempt.map(|attempt| style.dim(&format!("#{attempt} ")));
    let node = event.node.as_deref().unwrap_or("-");
    let at = style.dim(&time::clock(event.at));
    format!("{at} {node} {}{}", attempt.unwrap_or_default(), printable(&event.text))
}

fn output_line(line: &OutputView, style: Style) -> String {
    let at = style.dim(&format!("{} #{}", time::clock(line.at), line.attempt));
    let text = printable(&line.text);
    match line.stream.as_str() {
        "stderr" => format!("{at} {}", style.warn(&text)),
        _ => format!("{at} {text}"),
    }
}

pub(super) async fn events(globals: &Globals, args: EventsArgs) -> Outcome {
    let mut looped = Loop::read(globals).await?;
    let style = Style::stdout();
    let format = args.output.output;
    // Whom to begin with none is told where to go on by the last one.
    let limit = if args.follow { args.lines.max(1) } else { args.lines };
    let latest = Request::Events { node: args.node.clone(), after: None, limit, wait_ms: 0 };
    let mut events = ask!(looped, latest, Reply::Events(events) => events);
    if !args.follow {
        output::result(format, &events, || {
            events.iter().map(|event| event_line(event, style) + "\n").collect()
        })?;
        return Ok(0);
    }
    let after = events.last().map_or(0, |event| event.sequence);
    events.drain(..events.len().saturating_sub(args.lines));
    if !looped.is_running() {
        for event in &events {
            output::item(format, event, || event_line(event, style))?;
        }
        return Ok(0);
    }
    let story = Story {
        more: |after| Request::Events {
            node: args.node.clone(),
            after: Some(after),
            limit: MAX_FOLLOWED,
            wait_ms: millis(FOLLOW_FOR),
        },
        take: |reply| if let Reply::Events(events) = reply { Ok(events) } else { Err(reply) },
        sequence: |event: &EventView| event.sequence,
        line: |event: &EventView| event_line(event, style),
    };
    story.follow(looped, format, events, after).await
}

/// Something that goes on: how more of it is asked for, and how it is shown.
struct Story<More, Take, Sequence, Line> {
    more: More,
    take: Take,
    sequence: Sequence,
    line: Line,
}

impl<More, Take, Sequence, Line> Story<More, Take, Sequence, Line> {
    /// Shows what is there, and then what follows on number `after`, until the story or its reader is at the end.
    async fn follow<T: Serialize>(
        self,
        mut looped: Loop,
        format: Format,
        mut fresh: Vec<T>,
        mut after: u64,
    ) -> Outcome
    where
        More: Fn(u64) -> Request,
        Take: Fn(Reply) -> Result<Vec<T>, Reply>,
        Sequence: Fn(&T) -> u64,
        Line: Fn(&T) -> String,
    {
        loop {
            for item in &fresh {
                output::item(format, item, || (self.line)(item))?;
                after = (self.sequence)(item);
            }
            let answer = tokio::select! {
                answer = looped.ask((self.more)(after)) => answer,
                // Who follows something would else wait for the next thing to happen before it notices.
                () = hung_up(io::stdout()) => return Ok(0),
            };
            fresh = match answer {
                Ok(reply) => (self.take)(reply).map_err(|reply| unexpected(&reply))?,
                Err(error) => return followed_to_its_end(error),
            };
        }
    }
}

/// A loop that ends, and a node that is removed, are the ends of their stories.
fn followed_to_its_end(error: control::Error) -> Outcome {
    let is_end = match &error {
        control::Error::Ended => true,
        control::Error::Failure(failure) => {
            matches!(failure.kind, FailureKind::Ended | FailureKind::Unknown)
        }
        control::Error::NotRunning(_) | control::Error::Late | control::Error::Malformed(_) => {
            false
        }
    };
    if is_end { Ok(0) } else { Err(error.into()) }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn logs(globals: &Globals, args: LogsArgs) -> Outcome {
    let mut looped = Loop::read(globals).await?;
    let style = Style::stdout();
    let format = args.output.output;
    let more = |after, wait_ms| Request::Logs { node: args.node.clone(), after, wait_ms };
    let lines = ask!(looped, more(0, 0), Reply::Logs(lines) => lines);
    if !args.follow {
        output::result(format, &lines, || {
            lines.iter().map(|line| output_line(line, style) + "\n").collect()
        })?;
        return Ok(0);
    }
    if !looped.is_running() {
        for line in &lines {
            output::item(format, line, || output_line(line, style))?;
        }
        return Ok(0);
    }
    let story = Story {
        more: |after| more(after, millis(FOLLOW_FOR)),
        take: |reply| if let Reply::Logs(lines) = reply { Ok(lines) } else { Err(reply) },
        sequence: |line: &OutputView| line.sequence,
        line: |line: &OutputView| output_line(line, style),
    };
    story.follow(looped, format, lines, 0).await
}
