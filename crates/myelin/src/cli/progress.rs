//! What `up` shows while it works: a live view on a terminal, plain lines elsewhere.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use myelin_state::{DeleteCause, NodeStage};
use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    printable::printable,
    runtime::Handle,
    view::{EventView, GroupView, NodeView},
};

use super::{
    log,
    output::{self, Style},
    read, table,
    terminal::Terminal,
    time,
};

/// The live view is drawn at most this often.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// And at least this often, since it shows times that are left.
const DRAW_AT_LEAST: Duration = Duration::from_secs(1);

/// How many nodes the live view shows.
const MAX_MOVING: usize = 12;

/// How many events are told at once.
const MAX_TOLD: usize = 1000;

/// Returns whether both streams are a terminal's.
pub(super) fn is_live() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Shows progress until `done`, then what has happened last, and clears what was only for the moment. Events up to
/// `last` are an old story.
pub(super) async fn show(handle: Handle, live: bool, last: u64, done: CancellationToken) {
    let mut teller = Teller::new(handle.clone(), live, last);
    let view = live.then(|| LiveView::new(handle.clone()));
    let mut pulse = handle.pulse();
    loop {
        let began = Instant::now();
        teller.tell().await;
        if let Some(view) = &view {
            view.draw().await;
        }
        if done.is_cancelled() {
            return;
        }
        // Ten times what it took, so that showing never costs more than a tenth.
        let pause = DRAW_EVERY.max(began.elapsed() * 10);
        tokio::select! {
            () = done.cancelled() => continue,
            () = sleep(pause) => {}
        }
        tokio::select! {
            () = done.cancelled() => {}
            _ = timeout(DRAW_AT_LEAST, pulse.changed()) => {}
        }
    }
}

/// Tells what happened, a line each.
struct Teller {
    handle: Handle,
    live: bool,
    style: Style,
    last: u64,
    brakes: BTreeMap<String, bool>,
}

impl Teller {
    fn new(handle: Handle, live: bool, last: u64) -> Self {
        Self { handle, live, style: Style::stdout(), last, brakes: BTreeMap::new() }
    }

    async fn tell(&mut self) {
        while let Ok(events) = self.handle.events(None, Some(self.last), MAX_TOLD).await {
            for event in &events {
                self.last = event.sequence;
                let leaving = self.handle.pulse().borrow().leaving;
                if let Some(text) = told(event, self.live, leaving) {
                    let node = event.node.as_deref().unwrap_or("run");
                    self.say(&time::clock(event.at), node, &text);
                }
            }
            if events.len() < MAX_TOLD {
                break;
            }
        }
        if let Ok((groups, _, _)) = self.handle.progress(0).await {
            self.tell_brakes(&groups);
        }
    }

    fn tell_brakes(&mut self, groups: &[GroupView]) {
        for group in groups {
            let was_on = self.brakes.insert(group.group.clone(), group.brake.on);
            let text = match (was_on.unwrap_or(false), group.brake.on) {
                (false, true) => format!("brake on: {}", read::brake(&group.brake)),
                (true, false) => "brake off: repairing at full speed again".to_owned(),
                (true, true) | (false, false) => continue,
            };
            self.say(&time::clock(jiff::Timestamp::now()), &group.group, &text);
        }
    }

    fn say(&self, at: &str, of: &str, text: &str) {
        let line = format!("{} {of} {}\n", self.style.dim(at), printable(text));
        // A closed terminal is noticed by its signal.
        let _ = log::above_live(|| output::print(&line));
    }
}

/// Returns what is told of an event; nothing of the steps between, and less where they are seen anyway.
fn told(event: &EventView, live: bool, leaving: bool) -> Option<String> {
    let plain = |text: &str| Some(text.to_owned());
    match event.code.as_str() {
        "advanced" if !live => match event.stage.as_deref() {
            Some("LeaseCreated" | "EndpointKnown")
                if is(event.from.as_deref(), NodeStage::LeaseRequested) =>
            {
                plain("leased")
            }
            Some("BootstrapRunning") => plain("booting"),
            _ => None,
        },
        "ready" | "destroyed" | "expired" | "heard" if !live => Some(event.text.clone()),
        "restarted" if !live => {
            let attempt = event.attempt.unwrap_or_default();
            Some(format!("starting anew as attempt {attempt}"))
        }
        "reaped" if !live => plain("removed"),
        "delete_began" if !live || !is(event.cause.as_deref(), DeleteCause::Undesired) => {
            Some(event.text.clone())
        }
        "desired_accepted" | "resumed" if leaving => None,
        // What `up` was started for.
        "desired_accepted" if event.sequence == 1 => None,
        "silent" | "attempt_failed" | "effect_failed" | "quarantined" | "refused" | "paused"
        | "resumed" | "operator_asked" | "desired_accepted" => Some(event.text.clone()),
        _ => None,
    }
}

/// Returns whether a view names this value.
fn is(name: Option<&str>, value: impl Display) -> bool {
    name.is_some_and(|name| *name == value.to_string())
}

/// Keeps the terminal from showing `^C`, which would push the live view a line down. Undone when dropped.
struct QuietKeys(Option<Termios>);

impl QuietKeys {
    fn new() -> Self {
        let stdin = io::stdin();
        // A process in the background would be stopped for touching its terminal.
        let in_front = tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp());
        let before = tcgetattr(&stdin).ok().filter(|_| in_front);
        if let Some(before) = &before {
            let mut quiet = before.clone();
            quiet.local_modes.remove(LocalModes::ECHOCTL);
            // Then a line is torn, no more.
            let _ = tcsetattr(&stdin, OptionalActions::Now, &quiet);
        }
        Self(before)
    }
}

impl Drop for QuietKeys {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// A block of lines that is drawn again and again.
struct LiveView {
    handle: Handle,
    bar: ProgressBar,
    style: Style,
    _keys: QuietKeys,
}

impl LiveView {
    fn new(handle: Handle) -> Self {
        let live = log::live();
        let terminal = Box::new(Terminal::default());
        live.set_draw_target(ProgressDrawTarget::term_like_with_hz(terminal, 20));
        let bar = live.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{msg}").expect("the template is well-formed");
        bar.set_style(style);
        Self { handle, bar, style: Style::stderr(), _keys: QuietKeys::new() }
    }

    async fn draw(&self) {
        let Ok((groups, nodes, n_unsettled)) = self.handle.progress(MAX_MOVING).await else {
            return;
        };
        let width = output::width(io::stderr());
        let mut lines: Vec<_> = groups.iter().map(|it| group_line(it, self.style, width)).collect();
        lines.extend(nodes.iter().map(|it| node_line(it, self.style, width)));
        if n_unsettled > nodes.len() {
            lines.push(format!("  and {} more", n_unsettled - nodes.len()));
        }
        self.bar.set_message(lines.join("\n"));
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The width of the bar of a group.
const BAR: usize = 20;

fn group_line(group: &GroupView, style: Style, width: usize) -> String {
    let total = usize::try_from(group.desired.max(1)).unwrap_or(1);
    let ready = usize::try_from(group.ready).unwrap_or(0);
    let full = ready.saturating_mul(BAR) / total;
    let bar = format!("{}{}", "█".repeat(full.min(BAR)), "░".repeat(BAR - full.min(BAR)));
    let counts = format!("{}/{} ready", group.ready, group.desired);
    let moving = read::moving(group);
    let plain = format!("{:<12} {BAR} {counts:<14} {moving}", group.group).chars().count() + BAR;
    let moving =
        output::cut(&moving, moving.chars().count().saturating_sub(plain.saturating_sub(width)));
    let done = group.ready == group.desired && group.leaving == 0;
    let bar = if done { style.good(&bar) } else { style.paint("36", &bar) };
    format!(
        "{} {bar} {counts:<14} {}",
        style.bold(&format!("{:<12}", group.group)),
        style.dim(&moving)
    )
}

fn node_line(node: &NodeView, style: Style, width: usize) -> String {
    let head = format!("  {:<14} ", node.node);
    let state = format!("{:<12}", node.state);
    let room = width.saturating_sub(head.chars().count() + state.chars().count() + 1);
    let why = output::cut(&table::why(node), room);
    format!("{head}{} {why}", style.state(&node.state, &state))
}
