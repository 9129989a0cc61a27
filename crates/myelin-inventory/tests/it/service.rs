//! The loop: order of calls, deadlines, and what people may ask.

use std::time::Duration;

use insta::assert_snapshot;
use tokio::time::sleep;

use myelin_executor::{
    ProviderIdentity,
    fake::{CallKind, Flaw, Step},
};
use myelin_inventory::{Class, Error, Fate, HoldReason, StoreDoubt};
use myelin_shape::ProviderKind;
use myelin_state::{ErrorClass, NodeEvent};

use crate::support::*;

/// A moment after so many sweeps.
async fn after_sweeps(n: u32) {
    sleep(Duration::from_mins(1) * (n - 1) + Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn orphan_is_gone_within_two_sweeps_and_recorded_first() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(1).await;
    let (handle, _task) = rig.start();
    after_sweeps(1).await;
    assert_eq!(handle.snapshot().counts[&Class::Orphan], 1);
    assert_eq!(rig.world.leases().len(), 4);
    after_sweeps(2).await;
    assert_eq!(rig.world.leases().len(), 3);
    assert_eq!(handle.snapshot().counts.get(&Class::Orphan), None);
    let takings = &rig.books.inner().takings;
    assert!(matches!(&takings[..], [(taking, true)] if taking.class == Class::Orphan));
}

#[tokio::test(start_paused = true)]
async fn records_are_read_after_every_listing() {
    let mut rig = Rig::of_nodes(3).await;
    let (_handle, _task) = rig.start();
    after_sweeps(3).await;
    assert_eq!(rig.books.inner().readings, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_is_not_destroyed() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(1).await;
    rig.books.inner().refusal = Some("disk full".to_owned());
    let (_handle, _task) = rig.start();
    after_sweeps(4).await;
    assert_eq!(rig.world.leases().len(), 4);
    assert_eq!(rig.world.n_calls(CallKind::Destroy), 0);
    assert_snapshot!(rig.said()[0], @"cannot destroy orphan lease-4 of fake, made for worker-500 attempt 500: it cannot be recorded first: disk full");
}

#[tokio::test(start_paused = true)]
async fn lease_that_vanished_is_observed_once() {
    let mut rig = Rig::of_nodes(3).await;
    let lost = rig.world.leases()[0].clone();
    rig.world.lose_lease(&lost.lease.lease_id);
    let (_handle, _task) = rig.start();
    after_sweeps(2).await;
    let observation = rig.observations.try_recv().expect("two sweeps are enough");
    assert_eq!((observation.node, observation.attempt), (lost.key.node, lost.key.attempt));
    assert_eq!(observation.event, NodeEvent::LeaseGone);
    assert!(rig.observations.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn provider_that_hangs_fails_or_panics_is_held_and_the_loop_goes_on() {
    for (step, words) in [
        (Step::Ignore, "no answer within 30 s"),
        (Step::fail(ErrorClass::Transient, "no route"), "transient: no route"),
        (Step::Panic, "the provider panicked"),
    ] {
        let mut rig = Rig::of_nodes(3).await;
        rig.make_orphans(1).await;
        rig.world.always(CallKind::List, step);
        let (handle, _task) = rig.start();
        let census = handle.sweep_now().await.expect("the loop lives");
        let hold = census.accounts["fake"].hold.as_ref().expect("held");
        assert_eq!(hold.reason, HoldReason::Unlisted { error: words.to_owned() });
        rig.world.always(CallKind::List, Step::Succeed);
        let census = handle.sweep_now().await.expect("the loop lives");
        assert_eq!(census.accounts["fake"].hold, None);
        assert_eq!(rig.said().len(), 2, "held once and released once: {:?}", rig.said());
    }
}

#[tokio::test(start_paused = true)]
async fn destroy_that_hangs_ends_at_its_deadline_and_is_tried_again() {
    let mut rig = Rig::of_nodes(40).await;
    rig.make_orphans(4).await;
    rig.world.script(CallKind::Destroy, Step::Ignore);
    let (handle, _task) = rig.start();
    sleep(Duration::from_secs(200)).await;
    assert_eq!(rig.world.n_calls(CallKind::Destroy), 1, "the others wait for the next sweep");
    handle.sweep_now().await.expect("the loop lives");
    assert_eq!(rig.world.leases().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn too_many_orphans_wait_for_a_persons_yes() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(5).await;
    let (handle, _task) = rig.start();
    after_sweeps(4).await;
    assert_eq!(rig.world.leases().len(), 8);
    let shown = handle.collect(false).await.expect("the loop lives");
    assert!(shown.taken.is_empty());
    assert!(shown.census.of(Class::Orphan).all(|entry| entry.fate == Fate::Asks));
    assert_snapshot!(shown.census.stop.as_ref().expect("stopped"), @"5 at once, and no more than 1 are taken unasked");
    let collected = handle.collect(true).await.expect("the loop lives");
    assert_eq!((collected.taken.len(), collected.failed.len()), (5, 0));
    assert_eq!(rig.world.leases().len(), 3);
    assert!(collected.census.of(Class::Orphan).next().is_none());
}

#[tokio::test(start_paused = true)]
async fn persons_collection_sees_every_stray_twice() {
    let mut rig = Rig::of_nodes(3).await;
    rig.options.sweep_interval = Duration::from_hours(1);
    let (handle, _task) = rig.start();
    after_sweeps(1).await;
    rig.make_orphans(5).await;
    let before = rig.world.n_calls(CallKind::List);
    handle.collect(true).await.expect("the loop lives");
    assert_eq!(rig.world.n_calls(CallKind::List) - before, 2);
    assert_eq!(rig.world.leases().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn unreadable_records_stop_everything() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(1).await;
    rig.world.lose_lease(&rig.world.leases()[0].lease.lease_id);
    let view = std::mem::replace(&mut rig.books.inner().view, Err("page 3".to_owned()));
    let (handle, _task) = rig.start();
    after_sweeps(5).await;
    assert_eq!(handle.census().doubt, Some(StoreDoubt::Unreadable("page 3".to_owned())));
    assert_eq!(rig.said().len(), 1, "{:?}", rig.said());
    assert_eq!(rig.world.leases().len(), 3);
    assert!(rig.observations.try_recv().is_err());
    rig.books.inner().view = view;
    sleep(Duration::from_mins(4)).await;
    assert_eq!(rig.world.leases().len(), 2, "it goes on once they can be read");
    assert!(rig.observations.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn identity_is_recorded_and_a_changed_one_waits_for_a_person() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(1).await;
    let other = ProviderIdentity("another world".to_owned());
    rig.options.identities.insert("fake".into(), other);
    let (handle, _task) = rig.start();
    after_sweeps(3).await;
    assert_eq!(rig.world.leases().len(), 4);
    assert_snapshot!(rig.said()[0], @r#"fake is another one: it was "another world", and is "fake world"; nothing it says is acted on"#);
    assert!(rig.books.inner().identities.is_empty());
    assert_eq!(handle.accept_identity("fake".into()).await, Ok(true));
    assert_eq!(handle.accept_identity("none".into()).await, Ok(false));
    assert_eq!(rig.books.inner().identities[0].1.0, "fake world");
    after_sweeps(3).await;
    assert_eq!(rig.world.leases().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn identity_that_wanders_during_a_listing_is_no_listing() {
    let mut rig = Rig::of_nodes(3).await;
    rig.world.plant(Flaw::IdentityWanders);
    let (handle, _task) = rig.start();
    after_sweeps(1).await;
    let hold = handle.snapshot().held["fake"].clone();
    assert!(hold.reason.to_string().contains("another one answers after the listing"), "{hold:?}");
}

#[tokio::test(start_paused = true)]
async fn identity_that_could_not_be_recorded_is_recorded_later() {
    let mut rig = Rig::of_nodes(3).await;
    rig.books.inner().lose_identities = true;
    let (_handle, _task) = rig.start();
    after_sweeps(2).await;
    rig.books.inner().lose_identities = false;
    after_sweeps(3).await;
    assert_eq!(rig.books.inner().identities.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_it_whatever_is_under_way() {
    let mut rig = Rig::of_nodes(3).await;
    rig.world.always(CallKind::List, Step::Ignore);
    let (handle, task) = rig.start();
    after_sweeps(1).await;
    rig.shutdown.cancel();
    task.await.expect("it ends by itself");
    assert_eq!(handle.sweep_now().await, Err(Error::Closed));
    assert_eq!(handle.census().at, None, "there was no sweep");
}

#[tokio::test(start_paused = true)]
async fn lease_being_born_is_never_taken() {
    let mut rig = Rig::of_nodes(3).await;
    let lease = rig.world.leases()[2].clone();
    {
        let mut inner = rig.books.inner();
        let slots = &mut inner.view.as_mut().expect("readable").slots;
        let slot = slots.get_mut(&lease.key.node).expect("recorded");
        (slot.lease, slot.may_be_creating) = (None, true);
    }
    let (handle, _task) = rig.start();
    after_sweeps(5).await;
    assert_eq!(rig.world.leases().len(), 3);
    assert_eq!(handle.snapshot().counts[&Class::Pending], 1);
    handle.collect(true).await.expect("the loop lives");
    assert_eq!(rig.world.leases().len(), 3, "not by a person's word either");
}

#[tokio::test(start_paused = true)]
async fn provider_that_is_rate_limited_is_unknown_and_not_empty() {
    let mut rig = Rig::of_nodes(3).await;
    let class = ErrorClass::RateLimited(Duration::from_secs(20));
    rig.world.always(CallKind::List, Step::fail(class, "slow down"));
    let (handle, _task) = rig.start();
    after_sweeps(4).await;
    let census = handle.census();
    assert!(census.missing.is_empty());
    let held = census.accounts[&ProviderKind::from("fake")].hold.as_ref().expect("it is held");
    assert_snapshot!(held.reason, @"cannot be listed: rate limited: slow down");
    assert_eq!(rig.world.n_calls(CallKind::Presence) + rig.world.n_calls(CallKind::Destroy), 0);
    assert!(rig.observations.try_recv().is_err(), "no node has lost anything");
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_unasked_is_recorded_and_a_restart_goes_on_counting() {
    let mut rig = Rig::of_nodes(3).await;
    rig.make_orphans(1).await;
    let (_, task) = rig.start();
    after_sweeps(2).await;
    assert_eq!(rig.world.leases().len(), 3);
    drop(task);
    rig.options.unasked = rig.books.inner().unasked.clone();
    assert_eq!(rig.options.unasked.len(), 1);
    rig.make_orphans(2).await;
    let (handle, _task) = rig.start();
    after_sweeps(3).await;
    assert_eq!(rig.world.leases().len(), 5);
    assert!(handle.snapshot().stop.is_some());
}
