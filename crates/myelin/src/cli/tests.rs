use std::{collections::BTreeMap, sync::Arc, time::Duration};

use insta::assert_snapshot;
use jiff::Timestamp;
use myelin_executor::{
    Provider,
    fake::{CallKind, FakeWorld, Step},
};
use myelin_shape::ClusterUid;
use myelin_state::ErrorClass;
use tokio::time::Instant;

use crate::view::{
    AgentView, BrakeView, EventView, ExplainView, GroupView, NodeView, RetryView, StatusView,
    TroubleView, UnheardView, Why,
};

use super::{down::sweep, output::Style, read, table};

const PLAIN: Style = Style { on: false };

/// The end of time is never any time ago, whenever a test runs.
const THEN: Timestamp = Timestamp::MAX;

fn node(state: &str, stage: &str, why: &str) -> NodeView {
    NodeView {
        node: "worker-0".to_owned(),
        group: "worker".to_owned(),
        attempt: Some(7),
        state: state.to_owned(),
        stage: stage.to_owned(),
        ready: false,
        ready_since: None,
        provider: "process".to_owned(),
        lease: None,
        delete_cause: None,
        why: Why {
            code: state.to_owned(),
            text: why.to_owned(),
            until: None,
            until_event: Some("an operator says so".to_owned()),
        },
    }
}

fn explained(node: NodeView) -> ExplainView {
    ExplainView {
        node,
        next: "nothing".to_owned(),
        connection: None,
        bootstrap: None,
        join_by: None,
        ready_by: None,
        agent: None,
        pending: None,
        retry: RetryView {
            failures: 0,
            failed_attempts: 0,
            quarantined_after: 10,
            last_error: None,
            unsettled: None,
        },
        output: Vec::new(),
        events: Vec::new(),
    }
}

#[test]
fn one_attempt_is_one_and_silence_says_since_when() {
    let mut silent = explained(node("silent", "Dormant", "the agent is silent"));
    silent.agent = Some(AgentView {
        agent: "aa".to_owned(),
        joined_at: THEN,
        last_contact: Some(THEN),
        silent_since: Some(THEN),
    });
    silent.node.delete_cause = Some("failed".to_owned());
    (silent.retry.failures, silent.retry.failed_attempts) = (1, 1);
    assert_snapshot!(read::explain_text(&silent, PLAIN), @"
    worker-0: silent
      why          the agent is silent
      until        an operator says so
      next         nothing
      ended        failed
      attempt      7, stage Dormant
      agent        aa, joined 9999-12-30T22:00:00Z (0s ago)
      last heard   9999-12-30T22:00:00Z (0s ago), silent from then on
      failures     1 in a row, 1 attempt ended (quarantine after 10)
    ");
}

#[test]
fn a_strangers_words_move_no_cursor() {
    let evil = "a\u{1b}[2Jb\u{7}\nc\u{202e}d";
    let mut view = explained(node("failed", "Failed", evil));
    view.retry.last_error = Some(evil.to_owned());
    view.events.push(EventView {
        sequence: 1,
        at: THEN,
        node: Some("worker-0".to_owned()),
        attempt: None,
        code: "attempt_failed".to_owned(),
        text: evil.to_owned(),
        stage: None,
        from: None,
        cause: None,
    });
    let nodes = table::nodes(&[node("failed", "Failed", evil)], None, PLAIN);
    let failure = super::Failure::new(evil).to_string();
    for text in [read::explain_text(&view, PLAIN), nodes, failure] {
        let moves = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(text.contains("a\u{fffd}[2Jb") && !text.contains(moves), "{text:?}");
    }
}

fn group(name: &str, brake: &BrakeView) -> GroupView {
    GroupView {
        group: name.to_owned(),
        provider: "process".to_owned(),
        desired: 10,
        ready: 3,
        leaving: 0,
        moving: BTreeMap::from([("brake".to_owned(), 7)]),
        brake: brake.clone(),
    }
}

fn run(groups: Vec<GroupView>, brake: BrakeView) -> StatusView {
    StatusView {
        run: 1,
        converged: false,
        generation: 1,
        observed_generation: 1,
        paused: false,
        leaving: false,
        since: THEN,
        pid: 1,
        groups,
        brake,
        providers: Vec::new(),
        inventory: None,
        file: None,
        unheard: None,
        trouble: None,
        as_of: None,
    }
}

/// Returns what is said of a run with these groups.
fn status(groups: Vec<GroupView>, brake: BrakeView) -> String {
    read::status_text(&run(groups, brake), PLAIN)
}

#[test]
fn no_more_is_claimed_than_is_known() {
    let off = BrakeView { on: false, unhealthy: 0, limit: Some(4), repairs: 0 };
    let unheard = UnheardView { agents: 2, until: None };
    let taken_up = StatusView { unheard: Some(unheard), ..run(Vec::new(), off.clone()) };
    assert_snapshot!(read::status_text(&taken_up, PLAIN), @"
    run 1: being taken up, generation 1, for 0s (pid 1)
    2 agents are not heard yet since the run was taken up

    GROUP  READY  PROVIDER  MOVING
    ");
    let error = "state.db cannot grow: the disk is full; make room".to_owned();
    let trouble = TroubleView { since: THEN, error };
    let stuck = StatusView { trouble: Some(trouble), ..run(Vec::new(), off.clone()) };
    let text = read::status_text(&stuck, PLAIN);
    assert!(text.contains("\nnothing is done since "), "{text}");
    assert!(text.contains(": state.db cannot grow: the disk is full; make room\n"), "{text}");
    let left = StatusView { converged: true, as_of: Some(THEN), pid: 0, ..run(Vec::new(), off) };
    let text = read::status_text(&left, PLAIN);
    assert!(text.starts_with("run 1: not running, last recorded "), "{text}");
    assert!(text.contains(": converged, generation 1\n"), "{text}");
    let text = read::status_text(&StatusView { pid: 7, ..left }, PLAIN);
    assert!(text.starts_with("run 1: not answering (pid 7), last recorded "), "{text}");
}

#[test]
fn a_brake_is_told_once() {
    let on = |unhealthy, limit| BrakeView { on: true, unhealthy, limit: Some(limit), repairs: 1 };
    let off = BrakeView { on: false, unhealthy: 0, limit: Some(4), repairs: 0 };
    assert_snapshot!(status(vec![group("a", &on(7, 4))], on(7, 4)), @"
    run 1: converging, generation 1, for 0s (pid 1)

    GROUP  READY  PROVIDER  MOVING
    a      3/10   process   7 brake, brake on: 7 nodes failing, more than 4: repairing one at a time, 1 under way
    ");
    assert_snapshot!(status(vec![group("a", &on(7, 4)), group("b", &off)], on(9, 8)), @"
    run 1: converging, generation 1, for 0s (pid 1)
    brake of the run: 9 nodes failing, more than 8: repairing one at a time, 1 under way

    GROUP  READY  PROVIDER  MOVING
    a      3/10   process   7 brake, brake on: 7 nodes failing, more than 4: repairing one at a time, 1 under way
    b      3/10   process   7 brake
    ");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_hears_nothing_ends_in_time() {
    let fake = FakeWorld::new();
    let providers: [Arc<dyn Provider>; 1] = [fake.provider()];
    fake.always(CallKind::List, Step::Hang);
    let deadline = Instant::now() + Duration::from_mins(1);
    let failure = sweep(&providers, ClusterUid([7; 16]), deadline).await.unwrap_err();
    assert!(failure.to_string().contains("the provider does not answer"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_waits_for_a_provider_that_asks_to_be_left_alone_while_there_is_time() {
    let fake = FakeWorld::new();
    let providers: [Arc<dyn Provider>; 1] = [fake.provider()];
    let pause = Duration::from_secs(40);
    let busy = Step::fail(ErrorClass::RateLimited(pause), "slow down");
    fake.script(CallKind::List, busy.clone());
    let start = Instant::now();
    let minute = Duration::from_mins(1);
    sweep(&providers, ClusterUid([7; 16]), start + minute).await.unwrap();
    assert_eq!(start.elapsed(), pause);
    fake.always(CallKind::List, busy);
    let failure = sweep(&providers, ClusterUid([7; 16]), start + 2 * minute).await.unwrap_err();
    assert!(failure.to_string().contains("cannot list the machines: rate limited"), "{failure}");
}
