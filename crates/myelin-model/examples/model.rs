//! Goes through scenarios to their ends: `cargo run --release -p myelin-model --example model -- NAME FAULTS ...`.

use std::{env, num::NonZeroUsize, process::ExitCode};

use myelin_model::{Limits, Scenario, explore};

#[expect(clippy::print_stdout, reason = "what it is for")]
fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let mut failed = false;
    for pair in args.chunks(2) {
        let faults = pair[1].parse().expect("number");
        let scenario = match pair[0].as_str() {
            "one" => Scenario::one_slot(faults),
            "oneall" => Scenario::one_slot(faults).with_all_classes().with_progress(),
            "replacement" => Scenario::replacement(faults),
            "rolling" => Scenario::rolling(faults),
            _ => Scenario::scaling(faults),
        };
        let limits = Limits { most_transitions: NonZeroUsize::new(env::var("MOST").ok().and_then(|m| m.parse().ok()).unwrap_or(50_000_000)).expect("x"), threads: 1 };
        match explore(&scenario, limits) {
            Ok(report) => println!("{scenario}: {report}"),
            Err(failure) => {
                failed = true;
                println!("{scenario}: {failure}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
