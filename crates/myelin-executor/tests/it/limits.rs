//! The sentences of `spec 4.2` about one provider and its callers.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use tokio::time::advance;

use myelin_executor::{
    Limits,
    fake::{CallKind, CallRecord, FakeWorld, Step},
};
use myelin_state::{ErrorClass, LeaseMode};

use crate::support::*;

fn limited(limits: Limits) -> Rig {
    let world = FakeWorld::new();
    let mut setup = world.setup();
    setup.limits = limits;
    Rig::with([setup], world)
}

fn groups(calls: &[CallRecord]) -> String {
    let of = |call: &CallRecord| {
        let key = call.key.as_ref().expect("creates name a key");
        key.node.as_str().split('-').next().unwrap_or_default().to_owned()
    };
    calls.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn provider_has_no_more_calls_at_once_than_its_cap() {
    let mut rig = limited(Limits { concurrency: 4, ..Limits::default() });
    rig.world.always(CallKind::Create, Step::Late(SECOND));
    for attempt in 1..=9 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
    }
    rig.settle().await;
    let busy = rig.executor.snapshot().providers[0].clone();
    assert_eq!((busy.n_running, busy.n_waiting), (3, 6), "one of four is kept for deletions");
    for _ in 1..=9 {
        rig.outcome().await;
    }
    let idle = rig.executor.snapshot().providers[0].clone();
    assert_eq!((idle.n_running, idle.n_waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn hung_creates_do_not_starve_deletions_nor_the_other_way_round() {
    let (creates, deletions) =
        ((CallKind::Create, create()), (CallKind::Destroy, destroy(stray_lease())));
    for ((hung, command), (_, other)) in
        [(creates.clone(), deletions.clone()), (deletions, creates)]
    {
        let mut rig = limited(Limits::default());
        rig.world.always(hung, Step::Ignore);
        for attempt in 1..=40 {
            rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), command.clone())
                .expect("in order");
        }
        rig.settle().await;
        let before = rig.now();
        rig.try_submit("b-0", id(99, 0), other).expect("in order");
        let outcome = rig.outcome().await;
        assert!(["99.0 created lease-1", "99.0 LeaseDestroyed"].contains(&&*outcome), "{outcome}");
        assert_eq!(rig.now(), before, "it did not wait");
    }
}

#[tokio::test(start_paused = true)]
async fn hung_provider_does_not_delay_another() {
    let [hung, well] = ["hung", "fake"].map(FakeWorld::of_kind);
    hung.always(CallKind::Create, Step::Ignore);
    let mut rig = Rig::with([hung.setup(), well.setup()], well);
    for attempt in 1..=40 {
        let command = create_of(spec_of(template("", "hung")));
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), command).expect("in order");
    }
    rig.settle().await;
    let before = rig.now();
    rig.try_submit("b-0", id(99, 0), create()).expect("in order");
    assert_snapshot!(rig.outcome().await, @"99.0 created lease-1");
    assert_eq!(rig.now(), before, "it did not wait");
}

#[tokio::test(start_paused = true)]
async fn groups_take_turns() {
    let mut rig = limited(Limits { concurrency: 2, ..Limits::default() });
    rig.world.always(CallKind::Create, Step::Late(SECOND));
    for attempt in 1..=6 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
    }
    for (attempt, node) in [(7, "b-0"), (8, "b-1"), (9, "c-0")] {
        rig.try_submit(node, id(attempt, 0), create()).expect("in order");
    }
    for _ in 1..=9 {
        rig.outcome().await;
    }
    assert_eq!(groups(&rig.world.calls()), "abcabaaaa");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_burst_come_at_the_rate() {
    let mut rig = limited(Limits { calls_per_second: Some(2), ..Limits::default() });
    let start = rig.now();
    for attempt in 1..=6 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
    }
    for _ in 1..=6 {
        rig.outcome().await;
    }
    let since = |call: &CallRecord| call.at.duration_since(start).expect("later").as_millis();
    let times: Vec<_> = rig.world.calls().iter().map(since).collect();
    assert_eq!(times, [0, 0, 500, 1000, 1500, 2000]);
}

#[tokio::test(start_paused = true)]
async fn rate_limited_provider_is_left_alone_as_long_as_it_asked() {
    let mut rig = limited(Limits::default());
    let pause = 40 * SECOND;
    rig.world.script(CallKind::Create, Step::fail(ErrorClass::RateLimited(pause), "slow down"));
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 rate limited for 40s");
    assert_eq!(rig.executor.snapshot().providers[0].paused_for, Some(pause));
    let before = rig.now();
    rig.try_submit("b-0", id(2, 0), destroy(stray_lease())).expect("in order");
    assert_snapshot!(rig.outcome().await, @"2.0 LeaseDestroyed");
    assert_eq!(rig.now().duration_since(before).expect("later").as_secs(), 40);
    assert_eq!(rig.executor.snapshot().providers[0].paused_for, None);
}

#[tokio::test(start_paused = true)]
async fn provider_that_asks_for_an_age_is_asked_again_within_the_hour() {
    let mut rig = limited(Limits::default());
    let age = ErrorClass::RateLimited(1_000_000 * SECOND);
    rig.world.script(CallKind::Create, Step::fail(age, "slow down"));
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 rate limited for 3600s");
}

#[tokio::test(start_paused = true)]
async fn operation_expired_in_the_queue_was_never_sent() {
    let mut rig = limited(Limits { concurrency: 2, ..Limits::default() });
    rig.world.always(CallKind::Create, Step::Ignore);
    rig.try_submit("a-0", id(9, 0), create()).expect("in order");
    rig.settle().await;
    rig.submit(0, create());
    rig.settle().await;
    rig.expire(0);
    assert_snapshot!(rig.outcome().await, @"1.0 transient: never sent: no turn came before its deadline");
    rig.submit(1, create_again(LeaseMode::CreateOrAdopt, rig.now()));
    rig.settle().await;
    rig.expire(1);
    assert_snapshot!(rig.outcome().await, @"1.1 ambiguous: never sent; the outcome of an earlier call is still unknown");
    rig.settle().await;
    assert_eq!(rig.executor.snapshot().providers[0].n_waiting, 0, "its place is given up");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
}

#[tokio::test(start_paused = true)]
async fn offer_without_capacity_is_not_asked_for_again_until_it_expires() {
    let mut rig = limited(Limits::default());
    rig.world.script(CallKind::Create, Step::fail(ErrorClass::NoCapacity, "none left"));
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 no capacity: none left");
    assert_snapshot!(rig.perform(1, create()).await, @"1.1 no capacity: none left (remembered, not asked again)");
    let unsettled = create_again(LeaseMode::CreateOrAdopt, rig.now());
    assert_snapshot!(rig.perform(2, unsettled).await, @"1.2 no capacity: none left (remembered, not asked again)");
    let shown = rig.executor.snapshot().providers[0].no_capacity.clone();
    assert_eq!(*shown[0].template_digest, *spec().template.digest());
    assert_eq!((&*shown[0].message, shown[0].until), ("none left", rig.now() + 30 * SECOND));

    let other = create_of(spec_of(template("small", "fake")));
    rig.try_submit("b-0", id(2, 0), other).expect("in order");
    assert_snapshot!(rig.outcome().await, @"2.0 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Create), 2, "another offer is another matter");

    advance(30 * SECOND).await;
    assert!(rig.executor.snapshot().providers[0].no_capacity.is_empty());
    assert_snapshot!(rig.perform(3, create()).await, @"1.3 created lease-2");
}

#[tokio::test(start_paused = true)]
async fn deletions_get_half_of_a_scarce_rate() {
    let mut rig = limited(Limits { calls_per_second: Some(1), ..Limits::default() });
    for attempt in 1..=20 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
        let gone = destroy(stray_lease());
        rig.try_submit(&format!("b-{attempt}"), id(100 + attempt, 0), gone).expect("in order");
    }
    for _ in 0..10 {
        rig.outcome().await;
    }
    let mut by_kind = BTreeMap::<_, usize>::new();
    for call in rig.world.calls() {
        *by_kind.entry(call.kind).or_default() += 1;
    }
    assert_eq!(
        by_kind.into_iter().collect::<Vec<_>>(),
        [(CallKind::Create, 5), (CallKind::Destroy, 5)]
    );
}

#[tokio::test(start_paused = true)]
async fn looks_are_let_through_one_at_a_time_while_every_operation_hangs() {
    let rig = limited(Limits::default());
    rig.world.always(CallKind::Create, Step::Ignore);
    rig.world.always(CallKind::Destroy, Step::Ignore);
    for attempt in 1..=40 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
        let gone = destroy(stray_lease());
        rig.try_submit(&format!("b-{attempt}"), id(100 + attempt, 0), gone).expect("in order");
    }
    rig.settle().await;
    rig.world.always(CallKind::List, Step::Late(SECOND));
    let [provider] = &rig.executor.providers()[..] else { panic!("there is one") };
    let start = rig.now();
    let (first, second) = tokio::join!(provider.list(CLUSTER), provider.list(CLUSTER));
    assert_eq!((first.is_ok(), second.is_ok()), (true, true));
    assert_eq!(rig.now().duration_since(start).expect("later").as_secs(), 2);
    assert_eq!(rig.executor.snapshot().providers[0].n_running, 16, "a look takes nobody's place");
}

#[tokio::test(start_paused = true)]
async fn looks_and_operations_share_one_rate() {
    let mut rig = limited(Limits { calls_per_second: Some(1), ..Limits::default() });
    let start = rig.now();
    for attempt in 1..=4 {
        rig.try_submit(&format!("a-{attempt}"), id(attempt, 0), create()).expect("in order");
    }
    let [provider] = &rig.executor.providers()[..] else { panic!("there is one") };
    for _ in 1..=4 {
        provider.list(CLUSTER).await.expect("it waits for its turn");
    }
    for _ in 1..=4 {
        rig.outcome().await;
    }
    let since = |call: &CallRecord| call.at.duration_since(start).expect("later").as_secs();
    let times: Vec<_> = rig.world.calls().iter().map(since).collect();
    assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7], "one call a second, whosever it is");
}

#[tokio::test(start_paused = true)]
async fn look_that_is_told_to_slow_down_holds_operations_and_further_looks() {
    let mut rig = limited(Limits::default());
    let class = ErrorClass::RateLimited(40 * SECOND);
    rig.world.script(CallKind::List, Step::fail(class, "slow down"));
    let [provider] = &rig.executor.providers()[..] else { panic!("there is one") };
    assert_eq!(provider.list(CLUSTER).await.expect_err("it is scripted").class, class);
    let before = rig.now();
    let refused = provider.list(CLUSTER).await.expect_err("unknown is not empty");
    assert_snapshot!(refused, @"rate limited: it asked to be left alone for 40 s more");
    assert_eq!((rig.now(), rig.world.n_calls(CallKind::List)), (before, 1), "said at once");
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 created lease-1");
    assert_eq!(rig.now().duration_since(before).expect("later").as_secs(), 40);
    assert_eq!(provider.list(CLUSTER).await.expect("it may be asked again").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn look_after_the_shutdown_is_refused_and_does_not_wait() {
    let rig = limited(Limits::default());
    let [provider] = &rig.executor.providers()[..] else { panic!("there is one") };
    assert!(rig.executor.shutdown(SECOND).await);
    let refused = provider.list(CLUSTER).await.expect_err("nobody serves the queue");
    assert_snapshot!(refused, @"transient: the executor is shut down");
}
