//! Says which seed finds each planted defect: `flaws MOST`. Ends with 1 if one is not found.

use std::{process::ExitCode, time::Instant};

use myelin_sim::{Flaw, run, scenario};

fn main() -> ExitCode {
    let most: u64 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(2000);
    let mut all_found = true;
    for flaw in Flaw::ALL {
        let start = Instant::now();
        let found = (0..most).find_map(|seed| {
            let history = myelin_sim::Scenario { flaw: Some(flaw), ..scenario(seed) };
            Some((seed, run(&history).breach?))
        });
        match found {
            Some((seed, breach)) => println!(
                "| {flaw:?} | {seed} | {} | {:.1} s",
                breach.rule,
                start.elapsed().as_secs_f64()
            ),
            None => {
                all_found = false;
                println!("| {flaw:?} | not found | | {:.1} s", start.elapsed().as_secs_f64());
            }
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
