//! `census`: what exists, and what becomes of it.

use std::{fmt::Write as _, io::IsTerminal as _};

use crate::{
    control::{Reply, Request, Word},
    host::Idle,
    printable::printable,
    state_dir::StateDir,
    view::{CensusView, LeaseView},
};

use super::{
    Outcome,
    args::{CensusArgs, Globals},
    ask,
    connect::{self, Loop, ask, never_begun},
    down::{is_or_are, machines},
    failure::Failure,
    output::{self, Style, note},
    table, time,
};

pub(super) async fn census(globals: &Globals, args: CensusArgs) -> Outcome {
    let mut state = connect::state(globals).await?;
    if !state.is_begun()? {
        return Err(never_begun(&state));
    }
    state.create()?;
    let asked = Asked { state, fresh: args.fresh, accept_identity: args.accept_identity };
    let word = args.collect.then_some(if args.yes { Word::Person } else { Word::Rules });
    let mut view = asked.ask(word).await?;
    let mut agreed = args.yes;
    if args.collect && !agreed && asks(&view) > 0 && std::io::stdin().is_terminal() {
        note(census_text(&view, Style::stderr()));
        ask::confirm(&format!(
            "Give back {} that {} nobody's?",
            machines(asks(&view)),
            is_or_are(asks(&view))
        ))?;
        agreed = true;
        view = asked.ask(Some(Word::Person)).await?;
    }
    if args.collect && agreed && is_settled(&view) {
        asked.state.confirm_restored()?;
        // A person has seen what there is.
        view = CensusView { doubt: None, doubt_code: None, needs_person: false, ..view };
    }
    output::result(args.output.output, &view, || census_text(&view, Style::stdout()))?;
    judge(&view, agreed)
}

/// What is asked, of a loop or of the state.
struct Asked {
    state: StateDir,
    fresh: bool,
    accept_identity: Option<String>,
}

impl Asked {
    async fn ask(&self, collect: Option<Word>) -> Result<CensusView, Failure> {
        if let Some(mut looped) = Loop::find(&self.state).await? {
            let (fresh, accept_identity) = (self.fresh, self.accept_identity.clone());
            let request = Request::Census { fresh, collect, accept_identity };
            return Ok(ask!(looped, request, Reply::Census(view) => *view));
        }
        let idle = Idle::hold(&self.state)?;
        if let Some(provider) = &self.accept_identity
            && !idle.accept_identity(provider).await?
        {
            let message = format!("nobody asks who answers for {provider:?}");
            let hint = "`myelin census` says which providers are held, and why";
            return Err(Failure::new(message).hint(hint));
        }
        Ok(match collect {
            Some(word) => idle.collect(word == Word::Person).await?,
            None => idle.census().await?,
        })
    }
}

/// Returns whether nothing is in question any more, beside that the state comes from a backup.
fn is_settled(view: &CensusView) -> bool {
    view.doubt_code.as_deref().is_none_or(|code| code == "restored")
        && view.held.is_empty()
        && view.leases.iter().all(|lease| !matches!(lease.fate.as_str(), "asks" | "waits"))
        && view.collected.iter().all(|it| it.error.is_none())
}

fn asks(view: &CensusView) -> usize {
    view.leases.iter().filter(|lease| lease.fate == "asks").count()
}

/// Says with the exit status whether a person is needed, and what to do.
fn judge(view: &CensusView, agreed: bool) -> Outcome {
    if !view.needs_person {
        return Ok(0);
    }
    let other = view.held.iter().find(|hold| hold.code == "other_identity");
    let failed = view.collected.iter().find(|it| it.error.is_some());
    let (message, hint) = if let Some(doubt) = &view.doubt {
        let hint = match view.doubt_code.as_deref() {
            Some("restored") if !view.held.is_empty() => {
                "a provider is not believed yet; `myelin up FILE` replaces what is missing, then look again"
            }
            Some("restored") if agreed => {
                "some machines are too young to judge, or are seen for the first time; say it again later"
            }
            Some("restored") => {
                "look at the list; `myelin census --collect --yes` then gives back what is nobody's, and ends the doubt"
            }
            Some("not_durable") => "make it writable; it is tried again every second",
            Some("unreadable") => {
                "`myelin restore FILE` puts a backup in place; until then nothing is done to any machine"
            }
            _ => {
                "`myelin restore FILE` puts a backup in place, `myelin restore --accept` goes on with what is there"
            }
        };
        (format!("nothing is given back: {doubt}"), hint.to_owned())
    } else if let Some(hold) = other {
        let provider = &hold.provider;
        let hint = format!("if that is right: `myelin census --accept-identity {provider}`");
        (format!("{provider} {}", hold.reason), hint)
    } else if let Some(hold) = view.held.first() {
        let hint =
            "mend the way to the provider; it is asked again every minute while `myelin up` runs";
        (format!("{} {}", hold.provider, hold.reason), hint.to_owned())
    } else if let Some((lease, why)) = failed.and_then(|it| Some((&it.lease, it.error.as_ref()?))) {
        (
            format!("cannot give back {lease}: {why}"),
            "try again when the provider answers".to_owned(),
        )
    } else {
        let n = asks(view);
        let wait = if n == 1 { "waits" } else { "wait" };
        let why = view.stop.as_ref().map(|stop| format!(" ({stop})")).unwrap_or_default();
        let hint = "`myelin census --collect --yes` gives back what is nobody's";
        (format!("{} of nobody's {wait} for your word{why}", machines(n)), hint.to_owned())
    };
    Err(Failure::new(message).hint(hint))
}

/// Returns a census for people.
pub(super) fn census_text(view: &CensusView, style: Style) -> String {
    let mut text = String::new();
    if let Some(doubt) = &view.doubt {
        let line = format!("{}: nothing is given back", printable(doubt));
        let _ = writeln!(text, "{}\n", style.bad(&line));
    }
    if !view.leases.is_empty() {
        let head = ["CLASS", "NODE", "ATTEMPT", "PROVIDER", "AGE", "COST", "NEXT", "LEASE"];
        text.push_str(&table::table(
            &head,
            view.leases.iter().map(|lease| row(lease, view.doubt.is_some())),
        ));
        text.push('\n');
    }
    for missing in &view.missing {
        let since = missing.since.map(|time| format!(" since {}", time::clock(time)));
        let _ = writeln!(
            text,
            "missing: {} of {}, attempt {}, is not listed by {}{}",
            missing.lease,
            missing.node,
            missing.attempt,
            missing.provider,
            since.unwrap_or_default()
        );
    }
    for hold in &view.held {
        let line =
            format!("{} {}; nothing it lists is acted on", hold.provider, printable(&hold.reason));
        let _ = writeln!(text, "{}", style.bad(&line));
    }
    if let Some(stop) = view.stop.as_ref().filter(|_| view.doubt.is_none()) {
        let line = format!("machines that are nobody's are left alone: {}", printable(stop));
        let _ = writeln!(text, "{}", style.bad(&line));
    }
    for it in &view.collected {
        let (lease, node, attempt) = (&it.lease, &it.node, it.attempt);
        let _ = match &it.error {
            None => writeln!(text, "gave back {lease}, made for attempt {attempt} of {node}"),
            Some(error) => writeln!(text, "cannot give back {lease}: {}", printable(error)),
        };
    }
    text + &summary(view)
}

fn row(lease: &LeaseView, doubted: bool) -> Vec<String> {
    let next = match lease.fate.as_str() {
        "waits" if doubted => "stays while in doubt",
        "waits" => "given back if seen again",
        "goes" => "is given back",
        "asks" => "waits for your word",
        _ => "stays",
    };
    vec![
        lease.class.clone(),
        lease.node.clone(),
        lease.attempt.to_string(),
        lease.provider.clone(),
        time::span(std::time::Duration::from_secs(lease.age_seconds)),
        lease.micro_usd_per_hour.map_or("-".to_owned(), dollars),
        next.to_owned(),
        lease.lease.clone(),
    ]
}

/// Returns a price for people.
fn dollars(micro_usd_per_hour: u64) -> String {
    let (whole, part) = (micro_usd_per_hour / 1_000_000, micro_usd_per_hour % 1_000_000 / 100);
    format!("${whole}.{part:04}/h")
}

fn summary(view: &CensusView) -> String {
    let at = view.at.map(|time| format!(" at {}", time::clock(time))).unwrap_or_default();
    if view.leases.is_empty() {
        return format!("no machine is listed{at}\n");
    }
    let counts: Vec<_> = view.counts.iter().map(|(class, n)| format!("{n} {class}")).collect();
    let priced = view.leases.iter().any(|lease| lease.micro_usd_per_hour.is_some());
    let cost = if priced { dollars(view.micro_usd_per_hour) } else { "no prices known".to_owned() };
    format!("{}{at}: {}; {cost}\n", machines(view.leases.len()), counts.join(", "))
}
