//! Explores a script: `explore FILE single|pairs EVERY`. Ends with 1 if anything is found.

use std::{process::ExitCode, time::Instant};

use myelin_sim::{Depth, explore, script};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [path, depth, every] = args.as_slice() else {
        eprintln!("explore FILE single|pairs EVERY");
        return ExitCode::FAILURE;
    };
    let every = every.parse().unwrap_or(1);
    let depth = if depth == "pairs" { Depth::Pairs(every) } else { Depth::Single(every) };
    let text = std::fs::read_to_string(path).expect("the file can be read");
    let scenario = script::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let start = Instant::now();
    match explore(&scenario, depth) {
        Err(breach) => {
            println!("{path}: undisturbed: {breach}");
            ExitCode::FAILURE
        }
        Ok(found) => {
            for finding in &found.findings {
                println!("{finding}");
            }
            println!(
                "{path}: {} runs, {} steps, {} findings, {:.1} s",
                found.n_runs,
                found.n_steps,
                found.findings.len(),
                start.elapsed().as_secs_f64()
            );
            if found.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
