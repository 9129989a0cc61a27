//! Explores a script: `explore FILE single|pairs EVERY`. Ends with 1 if anything is found.

#![expect(clippy::print_stdout, reason = "what it finds is what it prints")]

use std::{fs, process::ExitCode, time::Instant};

use myelin_sim::{Depth, Exploration, Scenario, explore, script};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let depth = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "single", every] => every.parse().map(Depth::Single).ok(),
        [_, "pairs", every] => every.parse().map(Depth::Pairs).ok(),
        _ => None,
    };
    let Some((path, depth)) = args.first().zip(depth) else {
        eprintln!("usage: explore FILE single|pairs EVERY");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let found = read(path).and_then(|scenario| {
        explore(&scenario, depth).map_err(|breach| format!("undisturbed: {breach}"))
    });
    match found {
        Ok(found) => {
            report(path, &found, start);
            if found.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<Scenario, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    script::parse(script::split(&text).0).map_err(|error| error.to_string())
}

fn report(path: &str, found: &Exploration, start: Instant) {
    for finding in &found.findings {
        println!("{finding}");
    }
    let Exploration { n_runs, n_steps, findings } = found;
    let n_findings = findings.len();
    println!(
        "{path}: {n_runs} runs, {n_steps} steps, {n_findings} findings, {:.1?}",
        start.elapsed()
    );
}
