//! Providers that are held.

use insta::assert_snapshot;

use super::fixture::*;
use crate::{Event, Slot};

#[test]
fn empty_inventory_is_held_and_said_once() {
    let mut rig = Rig::of_nodes(3, []);
    rig.leases.clear();
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing
    lease-1 of worker-1 is missing
    lease-2 of worker-2 is missing
    say: fake does not list 3 of the 3 leases it should, and lists 0 of ours; nothing it says is acted on
    ");
    for _ in 0..5 {
        assert!(rig.sweep().ends_with("nothing"));
    }
    assert!(rig.sweeper.census().needs_attention());
}

#[test]
fn empty_inventory_is_held_for_a_single_node_too() {
    let mut rig = Rig::of_nodes(1, []);
    rig.leases.clear();
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing
    say: fake does not list 1 of the 1 leases it should, and lists 0 of ours; nothing it says is acted on
    ");
}

#[test]
fn empty_inventory_is_held_at_the_first_sweep_inside_a_settle_window() {
    let mut rig =
        Rig::new([("worker-0", Slot { existed_at: Some(at(10)), ..leased(0, "lease-0") })], []);
    rig.settle_window = INTERVAL * 2;
    assert!(rig.sweep().contains("nothing it says is acted on"));
}

#[test]
fn empty_inventory_of_an_empty_run_is_in_order() {
    let mut rig = Rig::of_nodes(0, []);
    assert_snapshot!(rig.sweep(), @"nothing");
}

#[test]
fn more_than_a_tenth_missing_is_held() {
    let mut rig = Rig::of_nodes(29, []);
    rig.lose("lease-0");
    rig.lose("lease-1");
    assert!(!rig.sweep().contains("acted on"), "two of 29 are a tenth");
    rig.lose("lease-2");
    let text = rig.sweep();
    assert!(text.contains("does not list 3 of the 29 leases it should, and lists 26"), "{text}");
    assert!(rig.duties.look_up.is_empty());
    rig.leases.push(found("worker-2", 2, "lease-2"));
    assert_snapshot!(rig.sweep(), @"
    lease-0 of worker-0 is missing since 1180
    lease-1 of worker-1 is missing since 1180
    say: fake is believed again
    ");
}

#[test]
fn one_of_few_may_be_missing() {
    let mut rig = Rig::of_nodes(2, []);
    rig.lose("lease-1");
    assert_snapshot!(rig.sweep(), @"
    lease-1 of worker-1 is missing since 1060
    nothing
    ");
}

#[test]
fn other_identity_is_held_until_it_changes_back() {
    let mut rig = Rig::of_nodes(3, [found("worker-7", 7, "lease-7")]);
    rig.sweep();
    rig.identity = "account 2";
    assert_snapshot!(rig.sweep(), @r#"
    lease-7 is orphan and asks
    say: fake is another one: it was "account 1", and is "account 2"; nothing it says is acted on
    "#);
    assert_snapshot!(rig.sweep(), @"
    lease-7 is orphan and asks
    nothing
    ");
    rig.identity = "account 1";
    assert_snapshot!(rig.sweep(), @"
    lease-7 is orphan and waits
    say: fake is believed again
    ");
}

#[test]
fn other_identity_is_believed_once_a_person_accepts_it() {
    let mut rig = Rig::of_nodes(3, []);
    rig.sweep();
    rig.identity = "account 2";
    rig.sweep();
    let duties = rig.sweeper.handle(rig.now, Event::IdentityAccepted("fake".into()));
    assert_eq!(duties.remember.len(), 1);
    assert_eq!(duties.remember[0].1.0, "account 2");
    assert_snapshot!(rig.sweep(), @"say: fake is believed again");
    let again = rig.sweeper.handle(rig.now, Event::IdentityAccepted("fake".into()));
    assert!(again.remember.is_empty(), "it is in question no more");
}

#[test]
fn identity_of_a_held_listing_is_not_learned() {
    let mut rig = Rig::of_nodes(3, []);
    rig.identity = "wrong account";
    let leases = std::mem::take(&mut rig.leases);
    rig.sweep();
    assert!(rig.duties.remember.is_empty());
    (rig.identity, rig.leases) = ("account 1", leases);
    rig.sweep();
    assert_eq!(rig.duties.remember[0].1.0, "account 1");
}

#[test]
fn older_listing_than_the_last_is_not_believed() {
    let mut rig = Rig::of_nodes(3, []);
    let old = rig.listing();
    rig.sweep();
    assert_snapshot!(rig.fold(old), @"say: fake cannot be listed: a later listing was folded before; nothing it says is acted on");
}
