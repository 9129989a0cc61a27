//! What each lease is called.

use std::time::Duration;

use myelin_executor::FoundLease;
use myelin_shape::{ClusterUid, RunId};
use myelin_state::Price;

use super::fixture::*;
use crate::{Class, Slot};

/// Returns the class of a lease of attempt 5 of `worker-0` that was made long ago, the slot being this.
fn check(slot: Option<Slot>, change: impl FnOnce(&mut FoundLease)) -> Class {
    let mut lease = found("worker-0", 5, "lease-1");
    change(&mut lease);
    let mut rig = Rig::new(slot.map(|slot| ("worker-0", slot)), [lease]);
    rig.sweep();
    rig.classes()[0].1
}

fn as_is(_: &mut FoundLease) {}

fn of_another_template(lease: &mut FoundLease) {
    lease.template_digest = "other".to_owned();
}

#[test]
fn class_follows_from_the_slot() {
    let table = [
        ("recorded", Some(leased(5, "lease-1")), Class::Owned),
        ("recorded, being cleaned up", Some(ending(leased(5, "lease-1"))), Class::Owned),
        ("to be adopted by the next create", Some(bare(5)), Class::Owned),
        ("being created", Some(creating(5)), Class::Pending),
        ("cleaned up while the create is unknown", Some(ending(creating(5))), Class::Pending),
        ("another one recorded", Some(leased(5, "lease-2")), Class::Surplus),
        ("another one, being cleaned up", Some(ending(leased(5, "lease-2"))), Class::Surplus),
        ("attempt over", Some(over(5)), Class::Orphan),
        ("attempt replaced", Some(creating(6)), Class::Orphan),
        ("attempt replaced and leased", Some(leased(6, "lease-2")), Class::Orphan),
        ("slot gone", None, Class::Orphan),
    ];
    for (name, slot, class) in table {
        assert_eq!(check(slot, as_is), class, "{name}");
    }
}

#[test]
fn another_template_of_a_current_attempt_is_never_nobodys() {
    assert_eq!(check(Some(bare(5)), of_another_template), Class::Pending);
    assert_eq!(check(Some(leased(5, "lease-1")), of_another_template), Class::Owned);
}

#[test]
fn surplus_needs_a_settled_create() {
    let slot = Slot { may_be_creating: true, ..leased(5, "lease-2") };
    assert_eq!(check(Some(slot), as_is), Class::Pending);
}

#[test]
fn other_clusters_and_runs_are_foreign_even_for_a_known_slot() {
    let slot = || Some(leased(5, "lease-1"));
    assert_eq!(check(slot(), |it| it.key.cluster = ClusterUid([8; 16])), Class::Foreign);
    assert_eq!(check(slot(), |it| it.key.run = RunId(2)), Class::Foreign);
    assert_eq!(check(None, |it| it.key.run = RunId(2)), Class::Foreign);
}

#[test]
fn what_is_recorded_is_owned_whatever_its_label_says() {
    let by_id = |it: &mut FoundLease| it.key.attempt.0 = 3;
    assert_eq!(check(Some(leased(5, "lease-1")), by_id), Class::Owned);
    let by_handle = |it: &mut FoundLease| {
        it.key.attempt.0 = 3;
        it.lease.lease_id = "another-name".into();
    };
    assert_eq!(check(Some(leased(5, "lease-1")), by_handle), Class::Owned);
}

#[test]
fn age_parts_young_from_orphan() {
    let made_ago = |seconds| {
        move |it: &mut FoundLease| it.created_at = at(1060) - Duration::from_secs(seconds)
    };
    assert_eq!(check(None, made_ago(0)), Class::Young);
    assert_eq!(check(None, made_ago(124)), Class::Young);
    assert_eq!(check(None, made_ago(125)), Class::Orphan, "two minutes and five seconds");
    assert_eq!(check(None, |it| it.created_at = at(5000)), Class::Young, "their clock is ahead");
}

#[test]
fn lease_from_the_future_is_as_old_as_we_know_it() {
    let mut lease = found("worker-9", 9, "lease-9");
    lease.created_at = at(1_000_000);
    let mut rig = Rig::of_nodes(2, [lease]);
    let mut young = 0;
    while rig.sweep().contains("young") {
        young += 1;
    }
    assert_eq!(young, 3, "the fourth sweep is 180 s after the first");
}

#[test]
fn what_was_let_go_during_the_listing_is_young() {
    let mut rig = Rig::of_nodes(2, []);
    rig.set("worker-0", creating(7));
    insta::assert_snapshot!(rig.sweep(), @"
    lease-0 is young and waits
    nothing
    ");
}

#[test]
fn census_has_age_and_price_from_the_listing_or_the_record() {
    let mut slot = leased(5, "lease-1");
    let price = Price { micro_usd_per_hour: 120_000 };
    slot.lease.as_mut().expect("leased").price = Some(price);
    let mut rig = Rig::new([("worker-0", slot)], [found("worker-0", 5, "lease-1")]);
    rig.sweep();
    let census = rig.sweeper.census();
    assert_eq!(census.entries[0].age, Duration::from_secs(1060));
    assert_eq!(census.entries[0].price, Some(price));
    assert_eq!(census.micro_usd_per_hour(Class::Owned), 120_000);
    assert_eq!(census.micro_usd_per_hour(Class::Orphan), 0);
}
