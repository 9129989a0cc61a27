//! Plays many seeds: `hunt FIRST COUNT`. Ends with 1 if one of them breaks a rule, says how to see it again, and tells the
//! first one as short as it can be.

#![expect(clippy::print_stdout, reason = "what it finds is what it prints")]

use std::{process::ExitCode, time::Instant};

use myelin_sim::{Scenario, hunt, run, scenario, script, shrink};

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
    let Some((seed, _)) = found.findings.first() else { return ExitCode::SUCCESS };
    tell_in_short(*seed);
    ExitCode::FAILURE
}

fn tell_in_short(seed: u64) {
    let small = Scenario { traced: true, ..shrink(&scenario(seed)) };
    println!("\nseed {seed}, as short as it can be (`myelin sim FILE --trace` plays it):\n");
    println!("{}\n{}", script::render(&small), run(&small).story());
}
