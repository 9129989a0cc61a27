//! Plays many seeds: `hunt FIRST COUNT`, with `FLAW=n` in the environment one with a planted defect. With `trace` after
//! it, the history is printed.

use std::time::Instant;

use myelin_sim::{Flaw, run, scenario, script, shrink};

fn main() {
    let mut args = std::env::args().skip(1);
    if let Ok(path) = std::env::var("SCRIPT") {
        let mut history = script::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        history.traced = true;
        let outcome = run(&history);
        println!("{}\n{:?}", outcome.trace.join("\n"), outcome.breach);
        return;
    }
    let from: u64 = args.next().unwrap().parse().unwrap();
    let n: u64 = args.next().unwrap().parse().unwrap();
    let show = args.next();
    let flaw = std::env::var("FLAW").ok().map(|it| Flaw::ALL[it.parse::<usize>().unwrap()]);
    let start = Instant::now();
    let (mut steps, mut bad) = (0, 0);
    for seed in from..from + n {
        let mut history = scenario(seed);
        history.flaw = flaw;
        let outcome = run(&history);
        steps += outcome.n_steps;
        if let Some(breach) = outcome.breach {
            bad += 1;
            let text = breach.to_string();
            println!("seed {seed}: {}", &text[..text.len().min(600)]);
        }
        if show.is_some() {
            let mut small = shrink(&history);
            small.traced = true;
            let outcome = run(&small);
            println!("{}", script::render(&small));
            for line in &outcome.trace {
                println!("{line}");
            }
            println!("{:?} {:?}", outcome.converged_after, outcome.counts);
        }
    }
    println!("{n} seeds, {bad} bad, {steps} steps, {:?}", start.elapsed());
}
