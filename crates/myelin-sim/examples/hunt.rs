//! Plays many seeds: `hunt FIRST COUNT`. Ends with 1 if one of them breaks a rule, and says how to see it again.

#![expect(clippy::print_stdout, reason = "what it finds is what it prints")]

use std::{process::ExitCode, time::Instant};

use myelin_sim::{hunt, scenario};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    let [first, count] = numbers.as_slice() else {
        eprintln!("usage: hunt FIRST COUNT");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let found = hunt(*first..first.saturating_add(*count), scenario, |n| {
        if n % 10_000 == 0 {
            eprintln!("{n} seeds, {:.0} s", start.elapsed().as_secs_f64());
        }
        true
    });
    for (name, n) in &found.played {
        println!("{n:>8} {name}");
    }
    println!(
        "{} seeds from {first}: {} steps, {} calls, {} commits, {} starts of a control plane, {:.0} s, {} findings",
        found.n_runs,
        found.n_steps,
        found.n_calls,
        found.n_commits,
        found.n_starts,
        start.elapsed().as_secs_f64(),
        found.findings.len()
    );
    if let Some((within, (slowest, seed))) = found.converged_within(99).zip(found.slowest()) {
        let (within, slowest) = (within.as_secs(), slowest.as_secs());
        println!("as desired within {within} s in 99 of 100, {slowest} s at most (seed {seed})");
    }
    for (seed, breach) in &found.findings {
        println!("seed {seed}: {breach}\n  myelin sim --seed {seed} --trace");
    }
    if found.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
