//! What each command means, and the sentences of `spec 4.2` about operations.

use std::time::Duration;

use insta::assert_snapshot;
use tokio::{
    sync::mpsc::unbounded_channel,
    time::{advance, timeout},
};

use myelin_executor::{
    Bootstrap as _, CreateRequest, EffectExecutor as _, Provider as _, SubmitError,
    fake::{CallKind, FakeWorld, REFUSED_IMAGE, Step},
};
use myelin_shape::{BootstrapSessionId, LogicalNodeId, NodeAttemptId};
use myelin_state::{ErrorClass, LeaseMode, NodeManagerCommand};

use crate::support::*;

const ADOPT_ONLY: LeaseMode = LeaseMode::AdoptOnly;
const CREATE_OR_ADOPT: LeaseMode = LeaseMode::CreateOrAdopt;

#[tokio::test(start_paused = true)]
async fn whole_life_of_an_attempt_takes_one_call_each() {
    let mut rig = Rig::new();
    rig.world.set_endpoint_after(1);
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 created lease-1");
    assert_snapshot!(rig.perform(1, look_up(rig.lease())).await, @"1.1 EndpointNotReady");
    assert_snapshot!(rig.perform(2, look_up(rig.lease())).await, @"1.2 endpoint found");
    assert_snapshot!(rig.perform(3, start(rig.lease())).await, @"1.3 started 2");
    assert_snapshot!(rig.perform(4, conclude(Some(2))).await, @"1.4 ConvergenceRecorded");
    assert_snapshot!(rig.perform(5, cancel(2)).await, @"1.5 BootstrapCancelled");
    assert_snapshot!(rig.perform(6, destroy(rig.lease())).await, @"1.6 LeaseDestroyed");
    assert_eq!(rig.world.calls().len(), 7);
    assert_eq!(rig.world.calls()[0].key, Some(key(1)));
    assert!(rig.world.leases().is_empty());
}

#[tokio::test(start_paused = true)]
async fn endpoint_known_at_create_is_reported_with_the_lease() {
    let mut rig = Rig::new();
    rig.world.connect_at_once();
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 created lease-1, connected");
}

#[tokio::test(start_paused = true)]
async fn repeated_operation_is_executed_once_and_answers_what_is_recorded() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Late(SECOND));
    rig.submit(0, create());
    rig.submit(0, create());
    assert_snapshot!(rig.outcome().await, @"1.0 created lease-1");
    rig.settle().await;
    rig.no_outcome();
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
}

#[tokio::test(start_paused = true)]
async fn same_identity_with_another_command_is_refused() {
    let mut rig = Rig::new();
    rig.submit(0, create());
    let other = create_of(spec_of(template("other", "fake")));
    let refusal = rig.try_submit("worker-0", id(1, 0), other).expect_err("another image");
    assert_snapshot!(refusal, @"operation 1.0 of worker-0 was submitted before with another command");
    assert_snapshot!(rig.outcome().await, @"1.0 created lease-1");
}

#[tokio::test(start_paused = true)]
async fn operation_past_or_of_another_slot_is_refused() {
    let mut rig = Rig::new();
    rig.perform(1, create()).await;
    let past = rig.try_submit("worker-0", id(1, 0), create()).expect_err("sequence 1 came");
    assert_snapshot!(past, @"operation 1.0 of worker-0 is past: sequence 1 was submitted already");
    let foreign = rig.try_submit("worker-1", id(1, 2), create()).expect_err("not its attempt");
    assert_snapshot!(foreign, @"attempt 1 belongs to worker-0, not to worker-1");
}

#[tokio::test(start_paused = true)]
async fn expired_create_is_stopped_and_ambiguous_and_then_adopted() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Hang);
    rig.submit(0, create());
    advance(TIMEOUT / 2).await;
    rig.settle().await;
    let since = rig.now();
    rig.expire(0);
    assert_snapshot!(rig.outcome().await, @"1.0 ambiguous: stopped at its deadline; it may have taken effect");
    let again = create_again(CREATE_OR_ADOPT, since);
    assert_snapshot!(rig.perform(1, again).await, @"1.1 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
    assert_eq!(rig.world.most_leases_of_a_slot(), 1);
    assert_eq!(rig.executor.snapshot().providers[0].n_adopted, 1);
}

#[tokio::test(start_paused = true)]
async fn operation_nobody_expires_ends_at_its_deadline() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Ignore);
    rig.world.script(CallKind::Destroy, Step::Ignore);
    let before = rig.now();
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 ambiguous: stopped at its deadline; it may have taken effect");
    assert_eq!(rig.now().duration_since(before).expect("time passed").as_secs(), TIMEOUT.as_secs());
    assert_snapshot!(rig.perform(1, destroy(stray_lease())).await, @"1.1 transient: stopped at its deadline");
    assert_eq!(rig.executor.snapshot().providers[0].n_running, 0, "the calls were stopped");
}

#[tokio::test(start_paused = true)]
async fn expiry_of_what_is_over_or_unknown_is_answered() {
    let mut rig = Rig::new();
    rig.perform(0, create()).await;
    rig.expire(0);
    assert_snapshot!(rig.outcome().await, @"1.0 created lease-1");
    rig.expire(7);
    assert_snapshot!(rig.outcome().await, @"1.7 ambiguous: the executor does not know this operation: was it restarted?");
}

#[tokio::test(start_paused = true)]
async fn late_answer_is_adopted_and_never_reported_for_the_expired_operation() {
    let mut rig = Rig::new();
    rig.world.set_settle_window(60 * SECOND);
    rig.world.script(CallKind::Create, Step::Late(SECOND));
    rig.submit(0, create());
    rig.settle().await;
    // The answer and the expiry meet: the expiry is first, and the call is there to be taken.
    advance(SECOND).await;
    rig.expire(0);
    let since = rig.now();
    rig.settle().await;
    assert_snapshot!(rig.outcome().await, @"1.0 ambiguous: stopped at its deadline; it may have taken effect");
    rig.no_outcome();
    let again = create_again(CREATE_OR_ADOPT, since);
    assert_snapshot!(rig.perform(1, again).await, @"1.1 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Find), 1, "the provider is asked first");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
}

#[tokio::test(start_paused = true)]
async fn late_answer_about_a_lease_that_is_gone_is_not_adopted() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Late(SECOND));
    rig.submit(0, create());
    rig.settle().await;
    advance(SECOND).await;
    rig.expire(0);
    rig.outcome().await;
    rig.settle().await;
    rig.world.lose_lease(&rig.lease().lease_id);
    let again = create_again(ADOPT_ONLY, rig.now());
    assert_snapshot!(rig.perform(1, again).await, @"1.1 LeaseAbsent");
}

#[tokio::test(start_paused = true)]
async fn late_session_is_adopted() {
    let mut rig = Rig::new();
    rig.perform(0, create()).await;
    rig.world.script(CallKind::Start, Step::Late(SECOND));
    rig.submit(1, start(rig.lease()));
    rig.settle().await;
    advance(SECOND).await;
    rig.expire(1);
    rig.settle().await;
    assert_snapshot!(rig.outcome().await, @"1.1 ambiguous: stopped at its deadline; it may have taken effect");
    rig.world.cancel(BootstrapSessionId(2)).await.expect("the world allows it");
    let again = start_again(rig.lease(), ADOPT_ONLY, Some(rig.now()));
    assert_snapshot!(rig.perform(2, again).await, @"1.2 started 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adoption_waits_for_a_call_that_cannot_be_stopped() {
    let mut rig = Rig::new();
    let (entered, mut enters) = unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    rig.world.refuse(move |_| {
        // Blocks the call's thread, inside the provider.
        entered.send(()).ok();
        released.recv_timeout(TIMEOUT).ok();
        None
    });
    rig.submit(0, create());
    timeout(TIMEOUT, enters.recv()).await.expect("the call comes").expect("the world lives");
    rig.expire(0);
    assert_snapshot!(rig.outcome().await, @"1.0 ambiguous: stopped at its deadline; it may have taken effect");
    rig.submit(1, create_again(ADOPT_ONLY, rig.now()));
    rig.settle().await;
    rig.no_outcome();
    let released_at = rig.now();
    release.send(()).expect("the call waits");
    assert_snapshot!(rig.outcome().await, @"1.1 created lease-1");
    let calls = rig.world.calls();
    assert_eq!(
        calls.iter().map(|call| call.kind).collect::<Vec<_>>(),
        [CallKind::Create, CallKind::Find]
    );
    assert!(calls[1].at >= released_at, "nothing was asked while the call ran");
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_provider_is_a_failed_operation() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Panic);
    rig.world.script(CallKind::Destroy, Step::Panic);
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 ambiguous: the provider panicked: scripted panic; it may have taken effect");
    assert_snapshot!(rig.perform(1, create()).await, @"1.1 created lease-1");
    assert_snapshot!(rig.perform(2, destroy(rig.lease())).await, @"1.2 transient: the provider panicked: scripted panic");
    assert_snapshot!(rig.perform(3, destroy(rig.lease())).await, @"1.3 LeaseDestroyed");
}

#[tokio::test(start_paused = true)]
async fn not_found_within_the_settle_window_is_ambiguous_in_every_mode() {
    let mut rig = Rig::new();
    rig.world.set_settle_window(30 * SECOND);
    let since = rig.now();
    assert_snapshot!(rig.perform(0, create_again(ADOPT_ONLY, since)).await, @"1.0 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
    assert_snapshot!(rig.perform(1, create_again(CREATE_OR_ADOPT, since)).await, @"1.1 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
    advance(30 * SECOND).await;
    assert_snapshot!(rig.perform(2, create_again(ADOPT_ONLY, since)).await, @"1.2 LeaseAbsent");
    assert_snapshot!(rig.perform(3, create_again(CREATE_OR_ADOPT, since)).await, @"1.3 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_reply_is_adopted_once_the_lease_shows() {
    let mut rig = Rig::new();
    rig.world.set_settle_window(30 * SECOND);
    rig.world.script(CallKind::Create, Step::LoseReply);
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 ambiguous: reply lost");
    let since = rig.now();
    assert_snapshot!(rig.perform(1, create_again(ADOPT_ONLY, since)).await, @"1.1 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
    advance(30 * SECOND).await;
    assert_snapshot!(rig.perform(2, create_again(ADOPT_ONLY, since)).await, @"1.2 created lease-1");
}

#[tokio::test(start_paused = true)]
async fn create_after_an_ambiguous_one_looks_first_even_if_not_told_to() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::LoseReply);
    assert_snapshot!(rig.perform(0, create()).await, @"1.0 ambiguous: reply lost");
    assert_snapshot!(rig.perform(1, create()).await, @"1.1 created lease-1");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1);
    rig.perform(2, start(rig.lease())).await;
    assert_eq!(rig.world.n_calls(CallKind::FindSession), 0, "that is settled");
}

#[tokio::test(start_paused = true)]
async fn create_lost_after_the_first_window_opens_a_window_of_its_own() {
    let mut rig = Rig::new();
    rig.world.set_settle_window(30 * SECOND);
    let since = rig.now();
    advance(60 * SECOND).await;
    rig.world.script(CallKind::Create, Step::LoseReply);
    assert_snapshot!(rig.perform(0, create_again(CREATE_OR_ADOPT, since)).await, @"1.0 ambiguous: reply lost");
    advance(5 * SECOND).await;
    assert_snapshot!(rig.perform(1, create_again(ADOPT_ONLY, since)).await, @"1.1 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
    advance(25 * SECOND).await;
    assert_snapshot!(rig.perform(2, create_again(ADOPT_ONLY, since)).await, @"1.2 created lease-1");
}

#[tokio::test(start_paused = true)]
async fn asking_again_within_the_window_does_not_restart_it() {
    let mut rig = Rig::new();
    rig.world.set_settle_window(30 * SECOND);
    let since = rig.now();
    for sequence in 0..3 {
        let outcome = rig.perform(sequence, create_again(CREATE_OR_ADOPT, since)).await;
        assert!(outcome.contains("ambiguous: not found"), "{outcome}");
        advance(10 * SECOND).await;
    }
    assert_snapshot!(rig.perform(3, create_again(CREATE_OR_ADOPT, since)).await, @"1.3 created lease-1");
}

#[tokio::test(start_paused = true)]
async fn failed_look_up_leaves_the_outcome_unknown() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Find, Step::fail(ErrorClass::Permanent, "forbidden"));
    let again = create_again(CREATE_OR_ADOPT, rig.now());
    assert_snapshot!(rig.perform(0, again).await, @"1.0 ambiguous: an earlier outcome is still unknown, and looking failed: permanent: forbidden");
    assert_eq!(rig.world.n_calls(CallKind::Create), 0);
}

#[tokio::test(start_paused = true)]
async fn oldest_of_two_leases_is_adopted_and_the_other_is_surplus() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Twice);
    rig.perform(0, create()).await;
    let again = create_again(ADOPT_ONLY, rig.now());
    assert_snapshot!(rig.perform(1, again).await, @"1.1 created lease-1");
    let surplus = rig.executor.snapshot().providers[0].surplus.clone();
    assert_eq!(surplus.into_iter().collect::<Vec<_>>(), [(key(1), 1)]);
    assert_eq!(rig.world.leases().len(), 2, "nothing is destroyed here");
    rig.executor.forget(&LogicalNodeId::from("worker-0"), NodeAttemptId(1));
    assert!(rig.executor.snapshot().providers[0].surplus.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lease_with_another_digest_is_never_adopted() {
    let mut rig = Rig::new();
    let foreign = CreateRequest {
        key: key(1),
        template_digest: "another".into(),
        generation: 1,
        spec: spec(),
    };
    rig.world.create(&foreign).await.expect("the world allows it");
    let again = create_again(CREATE_OR_ADOPT, rig.now());
    let digest = spec().template.digest();
    let outcome = rig.perform(0, again).await.replace(&digest, "DIGEST");
    assert_snapshot!(outcome, @"1.0 permanent: lease lease-1 carries the name of attempt 07070707070707070707070707070707.1.worker-0.1 but was made from template another, not DIGEST; it is not adopted");
    assert_eq!(rig.world.n_calls(CallKind::Create), 1, "the one of this test");
}

#[tokio::test(start_paused = true)]
async fn refused_template_is_permanent() {
    let mut rig = Rig::new();
    let refused = create_of(spec_of(template(REFUSED_IMAGE, "fake")));
    assert_snapshot!(rig.perform(0, refused).await, @"1.0 permanent: no such image");
}

#[tokio::test(start_paused = true)]
async fn unknown_provider_is_permanent_and_names_the_known_ones() {
    let [one, two] = ["docker", "fake"].map(FakeWorld::of_kind);
    let mut rig = Rig::with([one.setup(), two.setup()], two);
    let elsewhere = create_of(spec_of(template("", "ec2")));
    assert_snapshot!(rig.perform(0, elsewhere).await, @r#"1.0 permanent: there is no provider "ec2"; known: docker, fake"#);
    let unsettled = NodeManagerCommand::CreateLease {
        spec: spec_of(template("", "ec2")),
        mode: ADOPT_ONLY,
        unsettled_since: None,
    };
    assert_snapshot!(rig.perform(1, unsettled).await, @r#"1.1 ambiguous: there is no provider "ec2"; known: docker, fake"#);
    rig.try_submit("worker-1", id(2, 0), cancel_at("ec2", 1)).expect("it is in order");
    assert_snapshot!(rig.outcome().await, @r#"2.0 permanent: there is no provider "ec2"; known: docker, fake"#);
}

#[tokio::test(start_paused = true)]
async fn executor_that_remembers_nothing_ends_a_session_at_the_provider_that_has_it() {
    let [one, two] = ["docker", "fake"].map(FakeWorld::of_kind);
    let mut rig = Rig::with([one.setup(), two.setup()], two);
    assert_snapshot!(rig.perform(7, cancel(2)).await, @"1.7 BootstrapCancelled");
    assert_snapshot!(rig.perform(8, conclude(Some(2))).await, @"1.8 ConvergenceRecorded");
    assert_eq!((one.calls().len(), rig.world.calls().len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn create_lost_just_before_a_restart_has_its_settle_window_from_the_restart() {
    let world = FakeWorld::new();
    world.set_settle_window(30 * SECOND);
    let before = Rig::with([world.setup()], world.clone());
    let first_unknown = before.now();
    advance(60 * SECOND).await;
    world.script(CallKind::Create, Step::LoseReply);
    before.submit(0, create_again(CREATE_OR_ADOPT, first_unknown));
    before.settle().await;
    drop(before);
    let mut after = Rig::with([world.setup()], world.clone());
    assert_snapshot!(after.perform(1, create_again(ADOPT_ONLY, first_unknown)).await, @"1.1 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
    advance(30 * SECOND).await;
    assert_snapshot!(after.perform(2, create_again(ADOPT_ONLY, first_unknown)).await, @"1.2 created lease-1");
    assert_eq!(world.n_calls(CallKind::Create), 1);
}

#[tokio::test(start_paused = true)]
async fn session_is_ended_at_the_provider_that_started_it() {
    let [one, two] = ["docker", "fake"].map(FakeWorld::of_kind);
    let mut rig = Rig::with([one.setup(), two.setup()], two);
    rig.perform(0, create()).await;
    rig.perform(1, start(rig.lease())).await;
    assert_snapshot!(rig.perform(2, cancel(2)).await, @"1.2 BootstrapCancelled");
    assert_eq!((one.calls().len(), rig.world.n_calls(CallKind::Cancel)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn absent_is_success_for_destroy_cancel_and_conclude_whatever_the_wording() {
    let mut rig = Rig::new();
    let gone = Step::fail(ErrorClass::AlreadyAbsent, "404");
    for call in [CallKind::Destroy, CallKind::Cancel, CallKind::Conclude] {
        rig.world.script(call, gone.clone());
    }
    assert_snapshot!(rig.perform(0, destroy(stray_lease())).await, @"1.0 LeaseDestroyed");
    assert_snapshot!(rig.perform(1, cancel(9)).await, @"1.1 BootstrapCancelled");
    assert_snapshot!(rig.perform(2, conclude(Some(9))).await, @"1.2 ConvergenceRecorded");
    assert_snapshot!(rig.perform(3, conclude(None)).await, @"1.3 ConvergenceRecorded");
    assert_eq!(
        rig.world.n_calls(CallKind::Conclude),
        1,
        "without a session there is nothing to call"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_destroy_error_is_followed_by_a_look_up_and_absence_wins() {
    let mut rig = Rig::new();
    let unclear = Step::fail(ErrorClass::Permanent, "InvalidState");
    rig.world.always(CallKind::Destroy, unclear);
    rig.perform(0, create()).await;
    assert_snapshot!(rig.perform(1, destroy(rig.lease())).await, @"1.1 permanent: InvalidState");
    let lease = rig.lease();
    rig.world.lose_lease(&lease.lease_id);
    assert_snapshot!(rig.perform(2, destroy(lease)).await, @"1.2 LeaseDestroyed");
    assert_eq!(rig.world.n_calls(CallKind::Presence), 2);
}

#[tokio::test(start_paused = true)]
async fn absent_session_is_proven_or_made_by_mode() {
    let mut rig = Rig::new();
    rig.perform(0, create()).await;
    let lease = rig.lease();
    let proof = start_again(lease.clone(), ADOPT_ONLY, None);
    assert_snapshot!(rig.perform(1, proof).await, @"1.1 BootstrapAbsent");
    let since = rig.now();
    let made = start_again(lease.clone(), CREATE_OR_ADOPT, Some(since));
    assert_snapshot!(rig.perform(2, made).await, @"1.2 started 2");
    let adopted = start_again(lease.clone(), ADOPT_ONLY, Some(since));
    assert_snapshot!(rig.perform(3, adopted).await, @"1.3 started 2");
    rig.world.set_settle_window(30 * SECOND);
    rig.world.cancel(BootstrapSessionId(2)).await.expect("the world allows it");
    let unclear = start_again(lease, ADOPT_ONLY, Some(rig.now()));
    assert_snapshot!(rig.perform(4, unclear).await, @"1.4 ambiguous: not found, which proves nothing within 30 s of an unknown outcome");
}

#[tokio::test(start_paused = true)]
async fn ambiguous_answer_about_what_may_be_repeated_is_transient() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Cancel, Step::fail(ErrorClass::Ambiguous, "reset"));
    assert_snapshot!(rig.perform(0, cancel(9)).await, @"1.0 transient: reset");
}

#[tokio::test(start_paused = true)]
async fn newer_operation_of_an_attempt_stops_the_older_and_waits_for_it() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Hang);
    rig.submit(0, create());
    rig.settle().await;
    rig.submit(1, create_again(CREATE_OR_ADOPT, rig.now()));
    assert_snapshot!(rig.outcome().await, @"1.1 created lease-1");
    rig.no_outcome();
}

#[tokio::test(start_paused = true)]
async fn agents_of_a_joining_world_join_by_themselves() {
    let mut rig = Rig::new();
    let (sender, mut joins) = unbounded_channel();
    rig.world.auto_join(sender, 3 * SECOND);
    rig.perform(0, create()).await;
    rig.perform(1, start(rig.lease())).await;
    assert!(joins.try_recv().is_err(), "not before its time");
    assert_eq!(joins.recv().await, Some(FakeWorld::join_event(&key(1))));
}

#[tokio::test(start_paused = true)]
async fn shut_down_executor_stops_its_calls_and_takes_nothing() {
    let mut rig = Rig::new();
    rig.world.script(CallKind::Create, Step::Hang);
    rig.submit(0, create());
    rig.settle().await;
    assert!(rig.executor.shutdown(Duration::from_secs(5)).await, "all tasks ended");
    rig.no_outcome();
    let refusal = rig.try_submit("worker-0", id(1, 1), create()).expect_err("it is shut down");
    assert_eq!(refusal, SubmitError::Closed);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_by_the_attempts_that_were_not_forgotten() {
    let mut rig = Rig::new();
    for attempt in 1..=200_u64 {
        for sequence in 0..20 {
            rig.try_submit("worker-0", id(attempt, sequence), conclude(None)).expect("in order");
            rig.outcome().await;
        }
        assert_eq!(rig.executor.snapshot().n_attempts, 1, "at attempt {attempt}");
        let node = LogicalNodeId::from("worker-0");
        rig.executor.forget(&node, NodeAttemptId(attempt));
    }
    assert_eq!(rig.executor.snapshot().n_attempts, 0);
}
