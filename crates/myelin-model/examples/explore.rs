//! Explores scenarios to their ends: `cargo run --release -p myelin-model --example explore -- [NAME [DETAIL FAULTS]]`.
//!
//! Without arguments it goes through all of [`LONG`], with a name through those of that name. Prints a line of figures
//! for each, and for one that fails the way there.

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::{collections::BTreeSet, env, num::NonZeroUsize, process::ExitCode, thread};

use myelin_model::{Detail, Limits, Scenario, explore};

/// More transitions than any of [`LONG`] has. A search that gets here fails.
const MOST_TRANSITIONS: NonZeroUsize = NonZeroUsize::new(40_000_000).expect("not 0");

/// The bounds that are gone through at length.
const LONG: &[(&str, Detail, u8)] = &[
    ("one-slot", Detail::Finest, 2),
    ("one-slot", Detail::Fine, 3),
    ("revert", Detail::Fine, 2),
    ("canary", Detail::Coarse, 2),
    ("scaling", Detail::Coarse, 2),
    ("rolling", Detail::Coarse, 2),
    ("replacement", Detail::Coarse, 2),
    ("overslept", Detail::Coarse, 1),
    ("replacement", Detail::Fine, 1),
];

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let Some(scenarios) = scenarios(&args) else {
        let names: Vec<_> = Scenario::names().collect();
        println!("usage: explore [NAME [coarse|fine|finest FAULTS]]");
        println!("NAME is one of {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let limits = Limits { most_transitions: MOST_TRANSITIONS, threads };
    let (mut n_failed, mut waits) = (0, BTreeSet::new());
    for scenario in &scenarios {
        match explore(scenario, limits) {
            Ok(report) => {
                println!("{scenario}: {report}");
                waits.extend(report.waits);
            }
            Err(failure) => {
                n_failed += 1;
                println!("{scenario}: FAILED: {failure}");
            }
        }
    }
    println!("met waiting for: {}", waits.into_iter().collect::<Vec<_>>().join(", "));
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn scenarios(args: &[String]) -> Option<Vec<Scenario>> {
    let names: Vec<_> = args.iter().map(String::as_str).collect();
    if let [name, detail, faults] = names[..] {
        let detail = match detail {
            "coarse" => Detail::Coarse,
            "fine" => Detail::Fine,
            "finest" => Detail::Finest,
            _ => return None,
        };
        return Some(vec![Scenario::named(name, faults.parse().ok()?)?.in_detail(detail)]);
    }
    let wanted = LONG.iter().filter(|(name, ..)| names.is_empty() || names == [*name]);
    let scenarios = wanted
        .map(|&(name, detail, faults)| Some(Scenario::named(name, faults)?.in_detail(detail)));
    scenarios.collect::<Option<Vec<_>>>().filter(|scenarios| !scenarios.is_empty())
}
