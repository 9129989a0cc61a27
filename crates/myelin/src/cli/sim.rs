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
    // What comes after the line is what somebody expects of it.
    let script = text.split("\n----\n").next().unwrap_or_default();
    script::parse(script).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()))
            .hint("docs/reference/simulation.md lists what can happen")
    })
}

fn one(args: &SimArgs, mut history: Scenario) -> Outcome {
    history.traced = true;
    let ran = run(&history);
    if args.json {
        print_json(&RunView::of(&history, &ran, args.trace))?;
        return Ok(u8::from(ran.breach.is_some()));
    }
    if args.file.is_none() {
        output::print(&script::render(&history))?;
        output::print("\n")?;
    }
    output::print(&if args.trace { ran.trace.join("\n") + "\n" } else { ran.story() })?;
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
    let Some((seed, breach)) = found.findings.first() else {
        if args.json {
            print_json(&HuntView::of(&found))?;
        } else {
            output::print(&summary(&found))?;
        }
        return Ok(0);
    };
    if args.json {
        print_json(&HuntView::of(&found))?;
        return Err(broken(breach));
    }
    output::print(&summary(&found))?;
    for (seed, breach) in &found.findings {
        output::print(&format!("seed {seed}: {breach}\n"))?;
    }
    note(format!("seed {seed}, as short as it can be:"));
    let small = Scenario { traced: true, ..shrink(&history(*seed)) };
    output::print(&format!("\n{}\n", script::render(&small)))?;
    output::print(&(run(&small).trace.join("\n") + "\n"))?;
    let file = args.file.as_ref().map(|file| format!(" {}", file.display())).unwrap_or_default();
    Err(broken(breach).hint(format!("`myelin sim{file} --seed {seed} --trace` plays it again")))
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
}

impl<'a> HuntView<'a> {
    fn of(found: &'a Hunt) -> Self {
        let broken = found.findings.iter();
        Self {
            seeds: found.n_runs,
            steps: found.n_steps,
            calls: found.n_calls,
            commits: found.n_commits,
            starts: found.n_starts,
            went_wrong: &found.played,
            broken: broken.map(|(seed, breach)| (*seed, breach.into())).collect(),
        }
    }
}
