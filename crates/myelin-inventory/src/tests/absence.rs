//! When a recorded lease is called gone, and the races in which it must not be.

use std::time::Duration;

use insta::assert_snapshot;

use myelin_executor::{Presence, ProviderIdentity};

use super::fixture::*;
use crate::Slot;

#[test]
fn two_listings_and_a_look_up_make_a_lease_gone() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1060
    nothing
    ");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1060
    look up: lease-0, gone from worker-0?
    ");
    assert_snapshot!(rig.answer(Presence::Absent), @"
    say: lease-0 of fake no longer exists; it was worker-0's, attempt 0
    observe: LeaseGone of worker-0, attempt 0
    ");
}

#[test]
fn lease_that_is_listed_again_was_never_missing() {
    let mut rig = Rig::of_nodes(5, []);
    let leases = rig.leases.clone();
    rig.lose("lease-0");
    rig.sweep();
    rig.leases = leases;
    assert_snapshot!(rig.sweep(), @"nothing");
    rig.lose("lease-0");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1180
    nothing
    ");
}

#[test]
fn lease_recorded_while_the_listing_was_made_is_not_missing() {
    let mut rig = Rig::of_nodes(4, []);
    rig.set("worker-9", leased(9, "lease-9"));
    assert_snapshot!(rig.sweep(), @"nothing");
    assert_snapshot!(rig.sweep(), @"
    lease-9 of worker-9 is missing since 1120
    nothing
    ");
}

#[test]
fn lease_adopted_under_another_attempt_starts_anew() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.set("worker-0", leased(10, "lease-10"));
    assert_snapshot!(rig.sweep(), @"nothing");
}

#[test]
fn lease_being_cleaned_up_is_not_missing() {
    let mut rig = Rig::of_nodes(5, []);
    rig.set("worker-0", ending(leased(0, "lease-0")));
    rig.lose("lease-0");
    assert_snapshot!(rig.sweep(), @"nothing");
    assert_snapshot!(rig.sweep(), @"nothing");
}

#[test]
fn settle_window_parts_the_two_listings() {
    let mut rig = Rig::of_nodes(5, []);
    rig.settle_window = Duration::from_secs(100);
    rig.lose("lease-0");
    assert_snapshot!(rig.sweep(), @"nothing");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1120
    nothing
    ");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1120
    nothing
    ");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1120
    look up: lease-0, gone from worker-0?
    ");
}

#[test]
fn two_listings_in_a_moment_are_not_enough() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.now += Duration::from_secs(1);
    let listing = rig.listing();
    assert_snapshot!(rig.fold(listing), @"
    lease-0 of worker-0 is missing since 1060
    nothing
    ");
}

#[test]
fn agent_that_is_heard_outweighs_listings() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.set("worker-0", Slot { last_contact: Some(at(1100)), ..leased(0, "lease-0") });
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1120
    nothing
    ");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1120
    look up: lease-0, gone from worker-0?
    ");
    rig.set("worker-0", Slot { last_contact: Some(at(1180)), ..leased(0, "lease-0") });
    assert_snapshot!(rig.answer(Presence::Absent), @"nothing");
}

#[test]
fn look_up_that_finds_the_lease_or_fails_changes_nothing() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.sweep();
    assert_snapshot!(rig.answer_as(&Err("no answer".to_owned())), @"say: cannot look up lease-0 of fake: no answer");
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1060
    look up: lease-0, gone from worker-0?
    ");
    assert_snapshot!(rig.answer(Presence::Present), @"say: fake does not list lease-0 of worker-0, but it exists");
}

#[test]
fn another_one_that_answers_the_look_up_is_not_believed() {
    let mut rig = Rig::of_nodes(20, []);
    rig.lose("lease-0");
    rig.lose("lease-1");
    rig.sweep();
    rig.sweep();
    let other = Ok((ProviderIdentity("account 2".to_owned()), Presence::Absent));
    assert_snapshot!(rig.answer_as(&other), @r#"say: fake is another one: it was "account 1", and is "account 2"; nothing it says is acted on"#);
}

#[test]
fn attempt_that_ended_during_the_look_up_is_not_ended_again() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.sweep();
    rig.set("worker-0", ending(leased(0, "lease-0")));
    assert_snapshot!(rig.answer(Presence::Absent), @"nothing");
}

#[test]
fn failed_listing_neither_counts_nor_clears() {
    let mut rig = Rig::of_nodes(5, []);
    rig.lose("lease-0");
    rig.sweep();
    rig.unlisted = Some("no route");
    assert_snapshot!(rig.sweep(), @"say: fake cannot be listed: no route; nothing it says is acted on");
    rig.unlisted = None;
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1060
    say: fake is believed again
    look up: lease-0, gone from worker-0?
    ");
}
