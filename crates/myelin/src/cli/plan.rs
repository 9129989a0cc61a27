//! `plan` and `apply`.

use std::{fmt::Write as _, time::SystemTime};

use myelin_driver::ClusterDriver;

use crate::{
    control::{self, FailureKind, Reply, Request, Source},
    file, host,
    printable::printable,
    runtime,
    view::{self, ChangeView, FieldView, PlanView, PlannedAction},
};

use super::{
    Outcome,
    args::{ApplyArgs, Format, Globals, PlanArgs},
    ask,
    connect::{self, Loop, ask, unexpected},
    failure::Failure,
    output::{self, Style, note},
    time,
};

/// How many nodes of one kind of change are listed; a person reads no more.
const MAX_LISTED: usize = 50;

pub(super) async fn plan(globals: &Globals, args: PlanArgs) -> Outcome {
    let path = connect::file(args.file.file)?;
    let (source, file) = Source::read(&path)?;
    if args.show_defaults {
        output::print(&file::defaults_shown(&file))?;
        return Ok(0);
    }
    let state = connect::state_of(globals, file.run)?;
    let view = match Loop::read_of(&state).await? {
        Some(mut looped) => ask!(looped, Request::Plan { source }, Reply::Plan(view) => *view),
        None => against_nothing(&file)?,
    };
    let format = if args.json { Format::Json } else { args.output.output };
    output::result(format, &view, || plan_text(&view, Style::stdout()))?;
    Ok(if args.detailed_exitcode && view.has_changes() { 2 } else { 0 })
}

/// Plans for a cluster that does not exist.
fn against_nothing(file: &file::ClusterFile) -> Result<PlanView, Failure> {
    runtime::check_providers(file, &host::kinds())?;
    let driver = ClusterDriver::new(myelin_driver::Options { max_nodes: u64::MAX });
    let view = view::plan(&driver, None, file, SystemTime::now());
    view.map_err(|error| runtime::Error::from(error).into())
}

/// Returns a plan for people.
pub(super) fn plan_text(view: &PlanView, style: Style) -> String {
    let mut text = String::new();
    for field in &view.fields {
        let _ = writeln!(text, "{}", field_line(field, style));
    }
    if !view.fields.is_empty() {
        text.push('\n');
    }
    for action in [PlannedAction::Create, PlannedAction::Replace, PlannedAction::Delete] {
        let changes: Vec<_> = view.changes.iter().filter(|it| it.action == action).collect();
        for change in changes.iter().take(MAX_LISTED) {
            let _ = writeln!(text, "{}", change_line(change, style));
        }
        if changes.len() > MAX_LISTED {
            let _ = writeln!(text, "  and {} more to {}", changes.len() - MAX_LISTED, verb(action));
        }
    }
    if !view.changes.is_empty() {
        text.push('\n');
    }
    if !view.waiting.is_empty() {
        text.push_str("not changed by this, and not ready yet:\n");
        for waiting in view.waiting.iter().take(MAX_LISTED) {
            let _ = writeln!(text, "  {}  {}", waiting.node, printable(&waiting.why.text));
        }
        text.push('\n');
    }
    text + &summary(view)
}

fn verb(action: PlannedAction) -> &'static str {
    match action {
        PlannedAction::Create => "create",
        PlannedAction::Replace => "replace",
        PlannedAction::Delete => "delete",
    }
}

fn field_line(field: &FieldView, style: Style) -> String {
    let group = if field.group.is_empty() { "run" } else { &field.group };
    let old = field.old.as_deref().unwrap_or("unset");
    let new = field.new.as_deref().unwrap_or("unset");
    let note = match (field.replaces, field.next_up) {
        (true, _) => style.warn("  (replaces its nodes)"),
        (_, true) => style.warn("  (not before the next `up`)"),
        (false, false) => String::new(),
    };
    format!("~ {group}: {} {old} → {new}{note}", field.field)
}

fn change_line(change: &ChangeView, style: Style) -> String {
    let sign = match change.action {
        PlannedAction::Create => style.good("+ create "),
        PlannedAction::Replace => style.warn("± replace"),
        PlannedAction::Delete => style.bad("- delete "),
    };
    let mut line = format!("{sign} {}", change.node);
    if let Some(attempt) = change.attempt {
        let ready = if change.ready { ", ready now" } else { "" };
        let _ = write!(line, " (attempt {attempt}{ready})");
    }
    if let Some(held) = &change.held {
        let until = match (held.until, &held.until_event) {
            (Some(time), _) => format!(", until {}", time::until(time)),
            (None, Some(event)) => format!(", until {event}"),
            (None, None) => String::new(),
        };
        let _ = write!(line, "  held: {}{until}", printable(&held.text));
    }
    line
}

fn summary(view: &PlanView) -> String {
    if !view.has_changes() {
        let stay = if view.unchanged == 1 { "stays as it is" } else { "stay as they are" };
        return format!("no changes: {} {stay}\n", nodes(view.unchanged));
    }
    format!(
        "plan: {} to create, {} to replace, {} to delete, {} unchanged; {} ready {} taken\n",
        view.count(PlannedAction::Create),
        view.count(PlannedAction::Replace),
        view.count(PlannedAction::Delete),
        view.unchanged,
        view.ready_taken,
        if view.ready_taken == 1 { "node is" } else { "nodes are" }
    )
}

/// Returns how many nodes, in words.
fn nodes(n: usize) -> String {
    match n {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    }
}

pub(super) async fn apply(globals: &Globals, args: ApplyArgs) -> Outcome {
    let (source, file) = Source::read(&args.file)?;
    let source = source.absolute();
    let state = connect::state_of(globals, file.run)?;
    let find = async || {
        let not_running = || {
            let at = state.path().display();
            Failure::new(format!("no `myelin up` is running with the state in {at}"))
                .hint(format!("start one with `myelin up {}`", args.file.display()))
        };
        Loop::find(&state).await?.ok_or_else(not_running)
    };
    let request = |if_generation, may_take_ready| Request::Apply {
        source: source.clone(),
        if_generation,
        may_take_ready,
    };
    let first = find().await?.ask(request(args.if_generation, args.yes)).await;
    let mut shown = false;
    let reply = match first {
        Err(control::Error::Failure(failure)) if failure.kind == FailureKind::TakesReady => {
            let Some(plan) = failure.plan.as_deref() else {
                return Err(failure.into());
            };
            note(plan_text(plan, Style::stderr()));
            shown = true;
            let taken = nodes(plan.ready_taken);
            ask::confirm(&format!("This takes {taken} ready now. Go on?"))?;
            // What was agreed to is what was shown: if somebody else changed the cluster meanwhile, it is refused.
            // A loop waits for no request as long as a person thinks, so it is dialled again.
            find().await?.ask(request(Some(plan.generation), true)).await?
        }
        other => other?,
    };
    let Reply::Applied { generation, plan } = reply else {
        return Err(unexpected(&reply));
    };
    if !shown {
        output::print(&plan_text(&plan, Style::stdout()))?;
    }
    output::print(&if plan.has_changes() {
        format!("applied as generation {generation}; `myelin status` shows how far it is\n")
    } else {
        format!("generation {generation} stays\n")
    })?;
    warn_of_next_up(&plan);
    Ok(0)
}

/// Names what this `up` goes on to do as before, which its user might take for done.
fn warn_of_next_up(plan: &PlanView) {
    let later = plan.fields.iter().filter(|field| field.next_up);
    let keys: Vec<_> = later.map(|field| field.field.as_str()).collect();
    if !keys.is_empty() {
        let keys = keys.join(" and ");
        note(format!("warning: {keys} cannot change while `up` runs; end it and start a new one"));
    }
}
