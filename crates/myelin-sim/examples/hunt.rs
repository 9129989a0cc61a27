//! Plays many seeds: `hunt FIRST COUNT`. Ends with 1 if one of them breaks a rule, and shows it cut down.

#![expect(clippy::print_stdout, reason = "what it finds is what it prints")]

use std::{process::ExitCode, time::Instant};

use myelin_sim::{Scenario, run, scenario, script, shrink};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    let [first, count] = numbers.as_slice() else {
        eprintln!("usage: hunt FIRST COUNT");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let (mut n_steps, mut n_bad) = (0, 0);
    for seed in *first..first.saturating_add(*count) {
        let history = scenario(seed);
        let outcome = run(&history);
        n_steps += outcome.n_steps;
        if let Some(breach) = outcome.breach {
            n_bad += 1;
            println!("seed {seed}: {breach}");
            show(&history);
        }
    }
    println!("{count} seeds, {n_bad} bad, {n_steps} steps, {:.1?}", start.elapsed());
    if n_bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(history: &Scenario) {
    let small = Scenario { traced: true, ..shrink(history) };
    println!("{}", script::render(&small));
    for line in run(&small).trace {
        println!("{line}");
    }
}
