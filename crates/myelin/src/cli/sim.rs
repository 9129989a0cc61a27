//! `sim`: the loop in a simulated world.

use std::{fs::File, io::Read as _, path::Path};

use myelin_sim::{Breach, Hunt, Outcome as Run, Scenario, hunt, run, scenario, script, shrink};
use serde::Serialize;

use super::{
    Outcome,
    args::SimArgs,
    failure::Failure,
    output::{self, note},
};

/// A script is at most so long.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// Plays a script, a seed, or many seeds.
pub(super) fn sim(args: &SimArgs) -> Outcome {
    let script = args.file.as_deref().map(read).transpose()?;
    // With a script, a seed only tells how long each call takes.
    let history = |seed| match &script {
        None => scenario(seed),
        Some(script) => {
            let mut history = script.clone();
            history.config.jitter ^= seed;
            history
        }
    };
    match args.seeds {
        Some(n) => many(args, n, history),
        None => one(args, history(args.seed)),
    }
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let mut text = String::new();
    let mut file = File::open(path).map_err(unreadable)?.take(LONGEST_SCRIPT + 1);
    file.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LONGEST_SCRIPT {
        let what = format!("{} is longer than a script may be, 1 MiB", path.display());
        return Err(Failure::new(what).hint("a script is a few lines"));
    }
    script::parse(script::split(&text).0).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display())).hint(
            "a line of a script is a setting such as `calm 5m` or a step such as `at 0s want a:3`; the page \
             \"The simulator\" of the documentation has them all",
        )
    })
}

fn one(args: &SimArgs, mut history: Scenario) -> Outcome {
    history.traced = true;
    let ran = run(&history);
    if args.json {
        print_json(&RunView::of(&history, &ran, args.trace))?;
    } else {
        if args.file.is_none() {
            output::print(&script::render(&history))?;
            output::print("\n")?;
        }
        output::print(&if args.trace { ran.trace.join("\n") + "\n" } else { ran.story() })?;
    }
    // The story says so itself, and the JSON.
    if args.trace && !args.json {
        for step in &ran.missed {
            note(format!("nothing came of `{}`", script::line(step)));
        }
    }
    match &ran.breach {
        None => Ok(0),
        Some(breach) => Err(broken(breach)),
    }
}

fn many(args: &SimArgs, n: u64, history: impl Fn(u64) -> Scenario + Sync + Copy) -> Outcome {
    let seeds = args.seed..args.seed.saturating_add(n);
    let found = hunt(seeds, history, |n| {
        if n.is_multiple_of(1000) {
            note(format!("{n} seeds"));
        }
        true
    });
    let first = found.findings.first().map(|(seed, breach)| {
        note(format!("seed {seed} is made as short as it can be"));
        let small = Scenario { traced: true, ..shrink(&history(*seed)) };
        (
            breach,
            FirstView { seed: *seed, script: script::render(&small), command: replay(args, *seed) },
            small,
        )
    });
    if args.json {
        print_json(&HuntView::of(&found, first.as_ref().map(|(_, view, _)| view)))?;
    } else {
        output::print(&summary(&found))?;
        for (seed, breach) in &found.findings {
            output::print(&format!("seed {seed}: {breach}\n"))?;
        }
    }
    let Some((breach, view, small)) = first else { return Ok(0) };
    if !args.json {
        output::print(&format!("\n{}\n{}\n", view.script, run(&small).trace.join("\n")))?;
    }
    Err(broken(breach).hint(format!("`{}` plays it again", view.command)))
}

/// Returns the command that plays a seed again.
fn replay(args: &SimArgs, seed: u64) -> String {
    let file = args.file.as_ref().map(|file| format!(" {}", file.display())).unwrap_or_default();
    format!("myelin sim{file} --seed {seed} --trace")
}

fn broken(breach: &Breach) -> Failure {
    Failure::new(format!("a rule was broken: {breach}"))
        .hint("this is a defect of myelin, not of the script; please report it with the script")
}

fn summary(found: &Hunt) -> String {
    let played = found.played.iter().map(|(name, n)| format!("{n:>8} {name}\n"));
    played.collect::<String>()
        + &format!(
            "{} seeds, {} steps, {} calls, {} commits, {} starts: {} broken rules\n",
            found.n_runs,
            found.n_steps,
            found.n_calls,
            found.n_commits,
            found.n_starts,
            found.findings.len()
        )
}

fn print_json(view: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(view);
    let text = text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    output::print(&(text + "\n"))
}

#[derive(Debug, Serialize)]
struct BreachView {
    at_seconds: f64,
    rule: String,
    what: String,
}

impl From<&Breach> for BreachView {
    fn from(breach: &Breach) -> Self {
        let (rule, what) = (breach.rule.to_owned(), breach.what.clone());
        Self { at_seconds: breach.at.as_secs_f64(), rule, what }
    }
}

/// One run.
#[derive(Debug, Serialize)]
struct RunView<'a> {
    script: String,
    broken: Option<BreachView>,
    converged_after_seconds: Option<f64>,
    steps: u64,
    commits: u32,
    starts: u64,
    calls: std::collections::BTreeMap<String, u32>,
    machines: Vec<&'a str>,
    did_nothing: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a [String]>,
}

impl<'a> RunView<'a> {
    fn of(history: &Scenario, ran: &'a Run, with_trace: bool) -> Self {
        let calls = ran.counts.calls.iter();
        Self {
            script: script::render(history),
            broken: ran.breach.as_ref().map(BreachView::from),
            converged_after_seconds: ran.converged_after.map(|it| it.as_secs_f64()),
            steps: ran.n_steps,
            commits: ran.counts.commits,
            starts: ran.counts.starts,
            calls: calls.map(|(kind, n)| (script::call_name(*kind).to_owned(), *n)).collect(),
            machines: ran.end.keys().map(String::as_str).collect(),
            did_nothing: ran.missed.iter().map(script::line).collect(),
            trace: with_trace.then_some(&ran.trace),
        }
    }
}

/// Many runs.
#[derive(Debug, Serialize)]
struct HuntView<'a> {
    seeds: u64,
    steps: u64,
    calls: u64,
    commits: u64,
    starts: u64,
    went_wrong: &'a std::collections::BTreeMap<String, u64>,
    broken: Vec<(u64, BreachView)>,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<&'a FirstView>,
}

/// A seed that breaks a rule, to be looked at.
#[derive(Debug, Serialize)]
struct FirstView {
    seed: u64,
    /// What breaks the rule in the same way, as short as it can be.
    script: String,
    /// What plays the whole history again.
    command: String,
}

impl<'a> HuntView<'a> {
    fn of(found: &'a Hunt, first: Option<&'a FirstView>) -> Self {
        let broken = found.findings.iter();
        Self {
            seeds: found.n_runs,
            steps: found.n_steps,
            calls: found.n_calls,
            commits: found.n_commits,
            starts: found.n_starts,
            went_wrong: &found.played,
            broken: broken.map(|(seed, breach)| (*seed, breach.into())).collect(),
            first,
        }
    }
}
