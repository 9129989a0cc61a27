//! Says which seed finds each planted defect: `flaws MOST`. Ends with 1 if one is not found.

#![expect(clippy::print_stdout, reason = "what it finds is what it prints")]

use std::{process::ExitCode, time::Instant};

use myelin_sim::{Breach, Flaw, Scenario, run, scenario};

fn main() -> ExitCode {
    let most = std::env::args().nth(1).map_or(Ok(2000), |it| it.parse::<u64>());
    let Ok(most) = most else {
        eprintln!("usage: flaws [MOST]");
        return ExitCode::from(2);
    };
    let mut all_found = true;
    for flaw in Flaw::ALL {
        let start = Instant::now();
        let (seed, rule) = match find(flaw, most) {
            Some((seed, breach)) => (seed.to_string(), breach.rule),
            None => ("not found".to_owned(), ""),
        };
        all_found &= !rule.is_empty();
        println!("| {flaw:?} | {seed} | {rule} | {:.1?} |", start.elapsed());
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn find(flaw: Flaw, most: u64) -> Option<(u64, Breach)> {
    (0..most).find_map(|seed| {
        let history = Scenario { flaw: Some(flaw), ..scenario(seed) };
        Some((seed, run(&history).breach?))
    })
}
