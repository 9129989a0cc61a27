//! Checks at length that states which look alike go on alike: `cargo run --release -p myelin-model --example twins`.

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::process::ExitCode;

use myelin_model::{Detail, Scenario, explore_twins};

fn main() -> ExitCode {
    let one_slot = |faults, detail| Scenario::one_slot(faults).with_all_classes().in_detail(detail);
    let scenarios = [
        (one_slot(2, Detail::Finest), 1),
        (one_slot(1, Detail::Finest), 3),
        (one_slot(2, Detail::Coarse), 4),
        (one_slot(3, Detail::Coarse), 2),
        (Scenario::replacement(1), 1),
        (Scenario::canary(1), 2),
        (Scenario::rolling(1), 1),
        (Scenario::scaling(1), 1),
    ];
    let mut n_failed = 0;
    for (scenario, steps) in scenarios {
        match explore_twins(&scenario, steps) {
            Ok(n_states) => {
                println!(
                    "{scenario}: {n_states} states, which go on for {steps} steps as they look"
                );
            }
            Err(failure) => {
                n_failed += 1;
                println!("{scenario}: FAILED: {failure}");
            }
        }
    }
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
