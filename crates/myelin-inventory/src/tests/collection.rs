//! When a lease that is nobody's is taken, and when not.

use std::{collections::BTreeMap, time::Duration};

use insta::assert_snapshot;

use myelin_executor::{FoundLease, Presence, ProviderIdentity};
use myelin_shape::{LogicalNodeId, NodeAttemptId};

use super::fixture::*;
use crate::{Authority, Event, Rules, StoreDoubt, Sweeper, Taking};

/// Somewhat more than what was taken unasked is counted for.
const DAY: Duration = Duration::from_hours(25);

fn orphan() -> FoundLease {
    found("worker-77", 7, "lease-77")
}

#[test]
fn orphan_is_taken_at_the_second_sweep() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and waits
    nothing
    ");
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and goes
    look up: lease-77, to take as orphan
    ");
    assert_snapshot!(rig.answer(Presence::Present), @"destroy: orphan lease-77 of fake, made for worker-77 attempt 7");
    let taking: Taking = rig.duties.destroy[0].clone();
    let duties = rig.sweeper.handle(rig.now, Event::Taken { taking, outcome: Ok(()) });
    assert_snapshot!(show_duties(&duties), @"say: destroyed orphan lease-77 of fake, made for worker-77 attempt 7");
    assert_eq!(rig.classes().len(), 3);
}

#[test]
fn surplus_is_taken_beside_the_recorded_one_only() {
    let mut rig = Rig::of_nodes(20, [found("worker-0", 0, "lease-77")]);
    rig.lose("lease-0");
    rig.sweep();
    assert_snapshot!(rig.sweep(), @"
    lease-77 is surplus and waits
    lease-0 of worker-0 is missing since 1060
    look up: lease-0, gone from worker-0?
    ");
    rig.leases.push(found("worker-0", 0, "lease-0"));
    rig.sweep();
    assert_snapshot!(rig.answer(Presence::Present), @"destroy: surplus lease-77 of fake, made for worker-0 attempt 0");
}

#[test]
fn young_surplus_waits() {
    let mut lease = found("worker-0", 0, "lease-77");
    lease.created_at = at(1060);
    let mut rig = Rig::of_nodes(3, [lease]);
    rig.sweep();
    assert_snapshot!(rig.sweep(), @"
    lease-77 is surplus and waits
    nothing
    ");
}

#[test]
fn sightings_must_be_in_a_row() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.sweep();
    rig.lose("lease-77");
    rig.sweep();
    rig.leases.push(orphan());
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and waits
    nothing
    ");
}

#[test]
fn orphan_that_is_absent_is_forgotten() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.sweep();
    rig.sweep();
    assert_snapshot!(rig.answer(Presence::Absent), @"nothing");
    assert_eq!(rig.classes().len(), 3);
}

#[test]
fn another_one_that_answers_the_look_up_starts_the_sightings_anew() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.sweep();
    rig.sweep();
    let other = Ok((ProviderIdentity("account 2".to_owned()), Presence::Present));
    assert!(rig.answer_as(&other).contains("is another one"));
    assert!(rig.duties.destroy.is_empty());
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and waits
    say: fake is believed again
    ");
}

#[test]
fn records_are_asked_once_more_right_before() {
    let check = |change: fn(&mut Rig), why: &str| {
        let mut rig = Rig::of_nodes(3, [orphan()]);
        rig.sweep();
        rig.sweep();
        change(&mut rig);
        assert_eq!(rig.answer(Presence::Present), "nothing", "{why}");
    };
    check(|rig| rig.set("worker-77", creating(7)), "its attempt is current after all");
    check(|rig| rig.set("worker-8", leased(8, "lease-77")), "it is recorded elsewhere");
    check(|rig| rig.view.paused = true, "paused");
    check(|rig| rig.view.doubt = Some(StoreDoubt::Restored), "restored");
    check(|rig| rig.view.next_attempt_id = 7, "behind");
    check(|rig| rig.view.generation = 0, "behind by its generation");
}

#[test]
fn more_than_a_tenth_asks_and_goes_with_a_persons_yes() {
    let orphans: Vec<_> = (30..33).map(|n| found("gone-0", n, &format!("lease-{n}"))).collect();
    let mut rig = Rig::of_nodes(20, orphans);
    assert_snapshot!(rig.sweep(), @"
    lease-30 is orphan and asks
    lease-31 is orphan and asks
    lease-32 is orphan and asks
    say: leases that are nobody's are left alone: 3 at once, and no more than 2 are taken unasked
    ");
    assert!(rig.sweep().ends_with("nothing"), "said once");
    rig.authority = Authority::Person;
    rig.sweep();
    assert_snapshot!(rig.answer(Presence::Present), @"
    destroy: orphan lease-30 of fake, made for gone-0 attempt 30
    destroy: orphan lease-31 of fake, made for gone-0 attempt 31
    destroy: orphan lease-32 of fake, made for gone-0 attempt 32
    ");
}

/// Sweeps until a stray is about to go, and lets it.
fn take(rig: &mut Rig) -> String {
    rig.sweep();
    rig.sweep();
    let text = rig.answer(Presence::Present);
    for taking in std::mem::take(&mut rig.duties.destroy) {
        rig.leases.retain(|found| found.lease != taking.found.lease);
        rig.sweeper.handle(rig.now, Event::Taken { taking, outcome: Ok(()) });
    }
    text
}

#[test]
fn a_tenth_at_a_time_is_a_tenth_a_day() {
    let mut rig = Rig::of_nodes(20, []);
    for n in [30, 31] {
        rig.leases.push(found("gone-0", n, &format!("lease-{n}")));
        assert!(take(&mut rig).starts_with("destroy: "));
    }
    rig.leases.push(found("gone-0", 32, "lease-32"));
    assert_snapshot!(rig.sweep(), @"
    lease-32 is orphan and asks
    say: leases that are nobody's are left alone: 1 more after 2 within a day, and no more than 2 are taken unasked
    ");
    assert_eq!(take(&mut rig), "nothing");
    rig.now += DAY;
    assert!(take(&mut rig).starts_with("destroy: "), "a day later it is another one");
}

#[test]
fn records_that_forget_node_after_node_lose_no_more_than_a_tenth_a_day() {
    let mut rig = Rig::of_nodes(20, []);
    for n in 0..20 {
        rig.view.slots.remove(&LogicalNodeId::from(format!("worker-{n}")));
        rig.sweep();
        take(&mut rig);
    }
    assert_eq!(rig.leases.len(), 19, "a tenth of 19 is one");
}

#[test]
fn what_was_taken_unasked_is_remembered_over_a_restart() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    take(&mut rig);
    let unasked = rig.sweeper.unasked().clone();
    assert_eq!(unasked.len(), 1);
    rig.sweeper = Sweeper::new(Rules::default(), BTreeMap::new()).remembering(unasked);
    rig.leases.push(found("worker-78", 8, "lease-78"));
    assert_eq!(take(&mut rig), "nothing");
    assert!(rig.sweep().contains("lease-78 is orphan and asks"));
}

#[test]
fn persons_word_starts_the_count_anew() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    take(&mut rig);
    rig.leases.push(found("worker-78", 8, "lease-78"));
    rig.authority = Authority::Person;
    assert!(take(&mut rig).starts_with("destroy: "));
    assert!(rig.sweeper.unasked().is_empty());
    rig.authority = Authority::Rules;
    rig.leases.push(found("worker-79", 9, "lease-79"));
    assert!(take(&mut rig).starts_with("destroy: "));
}

#[test]
fn strays_of_one_sweep_are_counted_one_by_one() {
    let strays = [found("gone-0", 30, "lease-30"), found("gone-0", 31, "lease-31")];
    let mut rig = Rig::of_nodes(20, strays);
    rig.sweep();
    rig.sweep();
    // Meanwhile the run has become smaller.
    rig.view.slots.retain(|_, slot| slot.attempt.0 < 9);
    assert_snapshot!(rig.answer(Presence::Present), @"destroy: orphan lease-30 of fake, made for gone-0 attempt 30");
}

#[test]
fn lease_of_a_later_generation_is_a_store_behind() {
    let later = FoundLease { generation: Some(10), ..orphan() };
    let mut rig = Rig::of_nodes(3, [later]);
    rig.authority = Authority::Person;
    rig.sweep();
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and asks
    nothing
    ");
    assert_snapshot!(rig.sweeper.census().doubt.as_ref().expect("it is behind"), @"the store is behind: lease-77 of fake was made for worker-77 under generation 10, and the store's last generation is 9");
}

#[test]
fn lease_that_does_not_say_its_generation_is_like_any_other() {
    let mut rig = Rig::of_nodes(3, [FoundLease { generation: None, ..orphan() }]);
    assert!(take(&mut rig).starts_with("destroy: "));
}

#[test]
fn longer_creates_are_waited_for_once_the_records_know_of_them() {
    let mut lease = orphan();
    lease.created_at = at(800);
    let mut rig = Rig::of_nodes(3, [lease]);
    rig.view.longest_create = 8 * INTERVAL;
    for _ in 0..4 {
        assert_eq!(rig.sweep(), "lease-77 is young and waits\nnothing");
    }
    rig.view.longest_create = INTERVAL;
    assert_eq!(rig.sweep(), "lease-77 is orphan and waits\nnothing", "at 1300, 500 s old");
}

#[test]
fn doubted_store_takes_nothing_and_says_so_once() {
    let check = |doubt: StoreDoubt, yields: bool| {
        let mut rig = Rig::of_nodes(3, [orphan()]);
        rig.view.doubt = Some(doubt.clone());
        let first = rig.sweep();
        assert!(first.contains(&format!("left alone: {doubt}")), "{first}");
        assert_eq!(rig.sweep(), "lease-77 is orphan and asks\nnothing", "{doubt}");
        rig.authority = Authority::Person;
        rig.sweep();
        assert_eq!(!rig.duties.look_up.is_empty(), yields, "a person's word, {doubt}");
    };
    check(StoreDoubt::Empty, true);
    check(StoreDoubt::Restored, true);
    check(StoreDoubt::NotDurable("disk full".to_owned()), false);
    check(StoreDoubt::Unreadable("page 3".to_owned()), false);
}

#[test]
fn store_that_is_behind_acts_on_nothing() {
    let mut rig = Rig::of_nodes(20, [orphan()]);
    rig.sweep();
    rig.lose("lease-0");
    rig.sweep();
    rig.view.next_attempt_id = 18;
    rig.authority = Authority::Person;
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and asks
    lease-0 of worker-0 is missing
    say: leases that are nobody's are left alone: the store is behind: lease-19 of fake was made for attempt 19 of worker-19, and the store's next attempt is 18 (2 leases say so)
    ");
}

#[test]
fn empty_store_and_a_provider_full_of_leases_is_a_store_behind() {
    let mut rig = Rig::of_nodes(20, []);
    rig.view = view([]);
    rig.view.next_attempt_id = 0;
    for _ in 0..4 {
        rig.sweep();
        assert!(rig.duties.look_up.is_empty());
    }
    let Some(StoreDoubt::Behind(behind)) = &rig.sweeper.census().doubt else {
        panic!("{:?}", rig.sweeper.census().doubt);
    };
    assert_eq!((behind.n_leases, behind.key.attempt), (20, NodeAttemptId(19)));
}

#[test]
fn unreadable_store_stops_what_was_about_to_go() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.sweep();
    let duties = rig.sweeper.handle(rig.now, Event::Unread("page 3 is damaged".to_owned()));
    assert_snapshot!(show_duties(&duties), @"say: leases that are nobody's are left alone: the store cannot be read: page 3 is damaged");
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and waits
    nothing
    ");
}

#[test]
fn lease_of_a_later_attempt_than_the_recorded_one_is_a_persons_to_take() {
    let mut rig = Rig::of_nodes(3, [found("worker-0", 500, "lease-77")]);
    rig.sweep();
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and asks
    nothing
    ");
    rig.authority = Authority::Person;
    assert!(rig.sweep().contains("goes"));
}

#[test]
fn paused_run_takes_nothing_unasked() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.view.paused = true;
    rig.sweep();
    assert_snapshot!(rig.sweep(), @"
    lease-77 is orphan and asks
    nothing
    ");
}

#[test]
fn failed_destroy_is_tried_again_by_the_next_sweep() {
    let mut rig = Rig::of_nodes(3, [orphan()]);
    rig.sweep();
    rig.sweep();
    rig.answer(Presence::Present);
    let taking = rig.duties.destroy[0].clone();
    let outcome = Err("transient: busy".to_owned());
    let duties = rig.sweeper.handle(rig.now, Event::Taken { taking, outcome });
    assert_snapshot!(show_duties(&duties), @"say: cannot destroy orphan lease-77 of fake, made for worker-77 attempt 7: transient: busy");
    assert!(rig.sweep().contains("look up: lease-77"));
}
