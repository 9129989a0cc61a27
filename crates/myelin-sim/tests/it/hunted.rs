//! What seeds find, and what they must not find.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use myelin_sim::{Depth, Flaw, Scenario, explore, hunt, run, scenario, script, shrink};

#[test]
fn seeds_find_nothing() {
    let found = hunt(0..100, scenario, |_| true);
    assert_eq!(found.findings, [], "of {} runs", found.n_runs);
    assert_eq!(found.n_runs, 100);
    let (within, slowest) = (found.converged_within(50), found.slowest().map(|(after, _)| after));
    assert!(within.is_some() && within <= slowest, "{within:?}, {slowest:?}");
}

/// Which seed finds what, and the rule that it breaks. `examples/flaws.rs` prints this table.
const FOUND: [(Flaw, u64, &str); 26] = [
    (Flaw::SubmitsFirst, 4, "recorded before it is done"),
    (Flaw::ForgetsFailedCommits, 4, "recorded before it is done"),
    (Flaw::NamesTooFewNodes, 0, "recorded before it is done"),
    (Flaw::ForgetsDesired, 4, "the linter's"),
    (Flaw::CreatesBlindly, 17, "what is unknown is looked for"),
    (Flaw::StartsBlindly, 50, "what is unknown is looked for"),
    (Flaw::SkipsAdoption, 3, "nothing is left behind"),
    (Flaw::FoldsStaleResults, 128, "recorded before it is done"),
    (Flaw::FoldsOldAttempts, 101, "recorded before it is done"),
    (Flaw::BelievesFailedDestroys, 6, "one machine a slot"),
    (Flaw::SkipsDestroys, 0, "one machine a slot"),
    (Flaw::ReusesAttempts, 2, "the linter's"),
    (Flaw::ForgetsPending, 3, "nothing is left behind"),
    (Flaw::ForgetsAmbiguity, 166, "what is unknown is looked for"),
    (Flaw::DropsWakeUps, 0, "it converges"),
    (Flaw::FailsOnWakeUps, 4, "recorded before it is done"),
    (Flaw::CountsWakeUps, 6, "the linter's"),
    (Flaw::SkipsBarriers, 3, "what is restarted is not behind"),
    (Flaw::MakesOldImages, 2, "a machine runs what it was made for"),
    (Flaw::JoinsByBootstrap, 0, "it converges"),
    (Flaw::HearsNoSilence, 0, "it converges"),
    (Flaw::ForgetsAgents, 118, "it converges"),
    (Flaw::BelievesListings, 9, "it stays converged"),
    (Flaw::SwallowsFailures, 0, "it converges"),
    (Flaw::DispatchesTwice, 0, "it converges"),
    (Flaw::RetiresNobody, 0, "it converges"),
];

fn with(flaw: Flaw, seed: u64) -> Scenario {
    Scenario { flaw: Some(flaw), ..scenario(seed) }
}

#[test]
fn every_planted_defect_is_found_by_a_seed_that_finds_nothing_else() {
    let named: BTreeMap<_, _> =
        FOUND.iter().map(|(flaw, seed, rule)| (flaw, (seed, rule))).collect();
    assert!(Flaw::ALL.iter().all(|flaw| named.contains_key(flaw)), "a defect has no seed");
    for (flaw, seed, rule) in FOUND {
        assert!(seed < 2000, "{flaw:?}");
        let breach = run(&with(flaw, seed)).breach;
        assert_eq!(breach.map(|it| it.rule), Some(rule), "{flaw:?} with seed {seed}");
    }
    for seed in FOUND.iter().map(|(_, seed, _)| *seed).collect::<BTreeSet<_>>() {
        assert_eq!(run(&scenario(seed)).breach, None, "seed {seed} without a defect");
    }
}

#[test]
fn a_seed_has_one_history() {
    for seed in [3, 17, 58] {
        let traced = move || run(&Scenario { traced: true, ..scenario(seed) });
        let (first, second) = (traced(), thread::spawn(traced).join().expect("it runs"));
        assert!(first.trace.len() > 20, "seed {seed} has {} lines", first.trace.len());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
    }
}

#[test]
fn whether_it_is_written_down_changes_nothing() {
    let traced = run(&Scenario { traced: true, ..scenario(5) });
    let plain = run(&scenario(5));
    assert!(plain.trace.is_empty() && !traced.trace.is_empty());
    assert_eq!(
        (plain.counts, plain.end, plain.n_steps),
        (traced.counts, traced.end, traced.n_steps)
    );
}

#[test]
fn what_is_shrunk_is_smaller_and_breaks_the_same_rule() {
    let (flaw, seed, rule) = FOUND[2];
    let history = with(flaw, seed);
    let small = shrink(&history);
    assert_eq!(run(&small).breach.map(|it| it.rule), Some(rule));
    assert!(small.steps.len() < history.steps.len(), "{}", script::render(&small));
    assert!(small.steps.len() <= 3, "{}", script::render(&small));
}

#[test]
fn what_breaks_nothing_is_not_shrunk() {
    assert_eq!(shrink(&scenario(1)), scenario(1));
}

/// Explores a script, with something wrong at every `every`th place.
fn check(text: &str, every: usize) {
    let history = script::parse(text).expect("the script can be read");
    let found = explore(&history, Depth::Single(every)).expect("undisturbed, it keeps every rule");
    let findings: Vec<_> = found.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{text}\n{}", findings.join("\n"));
    assert!(found.n_runs > 10, "{} runs", found.n_runs);
}

#[test]
fn whatever_goes_wrong_once_it_ends_like_the_undisturbed_run() {
    check(include_str!("../../explored/create.txt"), 17);
    check(include_str!("../../explored/replace.txt"), 37);
    check(include_str!("../../explored/scale-down.txt"), 37);
    check(include_str!("../../explored/drain.txt"), 37);
    check(include_str!("../../explored/flips.txt"), 37);
}
