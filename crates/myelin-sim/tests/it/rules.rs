//! What breaks which rule, and what breaks none.

use myelin_sim::{Flaw, Scenario, run, script};

/// Plays a script with a defect. Returns the rule that is broken.
fn check(text: &str, flaw: Flaw) -> &'static str {
    let history = script::parse(text).expect("the script can be read");
    assert_eq!(run(&history).breach, None, "without the defect");
    run(&Scenario { flaw: Some(flaw), ..history }).breach.map_or("none", |breach| breach.rule)
}

#[test]
fn what_sweeps_take_was_left_behind() {
    let text = "at 0s want a:1\nat 60s want\ncalm 2m";
    assert_eq!(check(text, Flaw::SkipsDestroys), "nothing is left behind");
}

#[test]
fn a_lie_that_is_never_told_excuses_nothing() {
    let text = "at 0s want a:1\nat 60s want a:1,image=v2\ncall presence 99 lies\ncalm 2m";
    assert_eq!(check(text, Flaw::SkipsDestroys), "one machine a slot");
}

#[test]
fn a_lie_excuses_its_own_slot_only() {
    let text = "at 0s want a:2,first=all\ncall create 1 twice\nat 60s want a:1\ncalm 5m";
    assert_eq!(check(text, Flaw::SkipsDestroys), "nothing is left behind");
}

#[test]
fn another_image_than_is_wanted_is_noticed() {
    let text = "at 0s want a:1,image=v2\ncalm 1m";
    assert_eq!(check(text, Flaw::MakesOldImages), "a machine runs what it was made for");
}

#[test]
fn an_effect_that_is_recorded_in_memory_only_is_noticed() {
    let text = "at 0s want a:1\nat 20s power-loss 5s\ncalm 1m";
    assert_eq!(check(text, Flaw::SkipsBarriers), "what is restarted is not behind");
}
