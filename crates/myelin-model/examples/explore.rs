//! Explores scenarios to their ends: `cargo run --release -p myelin-model --example explore -- [NAME [DETAIL FAULTS]]`.
//!
//! Without arguments it goes through all of [`LONG`], with a name through those of that name. Prints a line of figures
//! for each, and for one that fails the way there.

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::{env, num::NonZeroUsize, process::ExitCode};

use myelin_model::{Detail, Limits, Scenario, explore};

/// More than any of [`LONG`] needs. A search that gets here fails.
const LIMITS: Limits =
    Limits { most_transitions: NonZeroUsize::new(40_000_000).expect("not 0"), threads: 2 };

/// The bounds that are gone through at length.
const LONG: &[(&str, Detail, u8)] = &[
    ("one-slot", Detail::Finest, 2),
    ("one-slot", Detail::Fine, 3),
    ("revert", Detail::Fine, 2),
    ("replacement", Detail::Fine, 1),
    ("scaling", Detail::Fine, 1),
    ("rolling", Detail::Fine, 1),
    ("replacement", Detail::Coarse, 2),
    ("scaling", Detail::Coarse, 2),
    ("rolling", Detail::Coarse, 2),
];

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let Some(scenarios) = scenarios(&args) else {
        println!("usage: explore [NAME [coarse|fine|finest FAULTS]]");
        return ExitCode::FAILURE;
    };
    let mut n_failed = 0;
    for scenario in &scenarios {
        match explore(scenario, LIMITS) {
            Ok(report) => println!("{scenario}: {report}"),
            Err(failure) => {
                n_failed += 1;
                println!("{scenario}: FAILED: {failure}");
            }
        }
    }
    if n_failed == 0 && !scenarios.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
        return Some(vec![scenario(name, faults.parse().ok()?)?.in_detail(detail)]);
    }
    let wanted = LONG.iter().filter(|(name, ..)| names.is_empty() || names == [*name]);
    wanted.map(|&(name, detail, faults)| Some(scenario(name, faults)?.in_detail(detail))).collect()
}

fn scenario(name: &str, faults: u8) -> Option<Scenario> {
    let scenario = match name {
        "one-slot" => Scenario::one_slot(faults),
        "revert" => Scenario::revert(faults),
        "replacement" => Scenario::replacement(faults),
        "scaling" => Scenario::scaling(faults),
        "rolling" => Scenario::rolling(faults),
        _ => return None,
    };
    Some(scenario.with_all_classes())
}
