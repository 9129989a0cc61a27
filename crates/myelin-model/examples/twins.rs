//! Checks at length that states which look alike go on alike: `cargo run --release -p myelin-model --example twins`.

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::process::ExitCode;

use myelin_model::{Detail, Scenario, explore_twins};

fn main() -> ExitCode {
    let one_slot = |faults, detail| Scenario::one_slot(faults).with_all_classes().in_detail(detail);
    let scenarios = [
        one_slot(2, Detail::Finest),
        one_slot(3, Detail::Coarse),
        Scenario::replacement(1),
        Scenario::canary(1),
        Scenario::rolling(1),
        Scenario::scaling(1),
    ];
    let mut n_failed = 0;
    for scenario in scenarios {
        match explore_twins(&scenario) {
            Ok(n_states) => println!("{scenario}: {n_states} states, which go on as they look"),
            Err(failure) => {
                n_failed += 1;
                println!("{scenario}: FAILED: {failure}");
            }
        }
    }
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
