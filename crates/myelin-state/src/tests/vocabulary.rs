use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_shape::{LogicalNodeSpec, NodeAttemptId, RunId, RunNodeGroupSpec, expand_node_group};

use crate::{
    BootstrapStage, DeleteCause, ErrorClass, ManagedNode, NodeIntent, NodeStage, OperationError,
    OperationKind, Quarantine, RetryPolicy, Silence, after,
};

fn slot(image: &str) -> LogicalNodeSpec {
    let mut group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
    group.shape.image = image.into();
    expand_node_group(&group).next().unwrap()
}

fn node(stage: NodeStage) -> ManagedNode {
    let mut node = ManagedNode::new(NodeAttemptId(1), slot("a"));
    node.record.stage = stage;
    node
}

/// What may hold for a value, by name.
type Facts<'a, T> = &'a [(&'a str, fn(T) -> bool)];

/// Returns a line per value: its name, and the names of what holds for it.
fn table<T: std::fmt::Debug + Copy>(values: &[T], facts: Facts<'_, T>) -> String {
    let line = |value: &T| {
        let holds = facts.iter().filter(|(_, fact)| fact(*value));
        let names: Vec<_> = holds.map(|(name, _)| *name).collect();
        format!("{value:?}: {}", names.join(", ")).trim_end().to_owned()
    };
    values.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn stages_of_a_node() {
    let facts: Facts<'_, NodeStage> =
        &[("joined", NodeStage::has_joined), ("handed off", NodeStage::is_handed_off)];
    insta::assert_snapshot!(table(&NodeStage::ALL, facts), @r"
    New:
    LeaseRequested:
    LeaseCreated:
    EndpointKnown:
    BootstrapRunning:
    SwactorJoined: joined
    HandedOff: joined, handed off
    Dormant: joined, handed off
    Failed:
    Destroyed:
    ");
    assert!(NodeStage::ALL.is_sorted());
}

#[test]
fn stages_of_a_bootstrap() {
    let facts: Facts<'_, BootstrapStage> =
        &[("over", BootstrapStage::is_terminal), ("failed", BootstrapStage::is_failure)];
    insta::assert_snapshot!(table(&BootstrapStage::ALL, facts), @r"
    Created:
    SshConnecting:
    SshReady:
    StdoutStreaming:
    BootChecking:
    SwactorStarting:
    WaitingForSwactorJoin:
    Converged: over
    Closed: over
    SshConnectFailed: over, failed
    BootCheckFailed: over, failed
    StartFailed: over, failed
    SwactorJoinFailed: over, failed
    StreamError: over, failed
    Cancelled: over, failed
    ");
    assert!(BootstrapStage::ALL.is_sorted());
}

#[test]
fn kinds_of_effect() {
    let facts: Facts<'_, OperationKind> = &[("creates", OperationKind::creates)];
    insta::assert_snapshot!(table(&OperationKind::ALL, facts), @r"
    CreateLease: creates
    LookupEndpoint:
    StartBootstrap: creates
    BootstrapConvergenceObserved:
    CancelBootstrap:
    DestroyLease:
    ");
    assert!(OperationKind::ALL.is_sorted());
}

#[test]
fn causes_of_deletion() {
    let causes = [
        DeleteCause::Undesired,
        DeleteCause::SpecChanged,
        DeleteCause::Requested,
        DeleteCause::Failed,
        DeleteCause::Lost,
        DeleteCause::Abandoned,
    ];
    let facts: Facts<'_, DeleteCause> = &[("voluntary", DeleteCause::is_voluntary)];
    insta::assert_snapshot!(table(&causes, facts), @r"
    Undesired: voluntary
    SpecChanged: voluntary
    Requested: voluntary
    Failed:
    Lost:
    Abandoned:
    ");
    let texts = causes.map(|cause| cause.to_string());
    insta::assert_snapshot!(texts.join("\n"), @r"
    no longer desired
    spec changed
    replacement requested
    failed
    agent lost
    lease abandoned
    ");
}

#[test]
fn names_render_as_they_are_written_in_code() {
    assert_eq!(NodeStage::BootstrapRunning.to_string(), "BootstrapRunning");
    assert_eq!(OperationKind::CreateLease.to_string(), "CreateLease");
}

#[test]
fn errors_render_with_class_and_words() {
    let classes = [
        ErrorClass::Transient,
        ErrorClass::RateLimited(Duration::from_secs(3)),
        ErrorClass::NoCapacity,
        ErrorClass::Permanent,
        ErrorClass::Ambiguous,
        ErrorClass::AlreadyAbsent,
    ];
    let texts = classes.map(|class| {
        let message = "no such image".into();
        OperationError { class, message }.to_string()
    });
    insta::assert_snapshot!(texts.join("\n"), @r"
    transient: no such image
    rate limited: no such image
    no capacity: no such image
    permanent: no such image
    ambiguous: no such image
    already absent: no such image
    ");
}

#[test]
fn a_fresh_attempt_has_nothing() {
    let node = ManagedNode::new(NodeAttemptId(7), slot("a"));
    assert_eq!(node.intent, NodeIntent::Active);
    assert_eq!(node.record.desired, slot("a"));
    assert_eq!((node.pending, node.active_bootstrap), (None, None));
    assert_eq!(node.next_operation_sequence, 0);
    assert_eq!(node.retry.consecutive_failures, 0);
}

#[test]
fn a_node_is_ready_in_the_last_two_stages_while_it_is_heard_and_wanted() {
    for stage in NodeStage::ALL {
        let ready = matches!(stage, NodeStage::HandedOff | NodeStage::Dormant);
        assert_eq!(node(stage).is_ready(), ready, "{stage}");
        assert_eq!(node(stage).is_destroyed(), stage == NodeStage::Destroyed, "{stage}");
    }
    let mut silent = node(NodeStage::HandedOff);
    let lost_at = SystemTime::UNIX_EPOCH;
    let deadline = lost_at + Duration::from_secs(45);
    silent.record.silence = Some(Box::new(Silence { lost_at, deadline }));
    assert!(!silent.is_ready());
    assert_eq!(silent.record.lost_at(), Some(lost_at));
    let mut deleting = node(NodeStage::HandedOff);
    deleting.intent = NodeIntent::Deleting;
    assert!(!deleting.is_ready());
    assert_eq!(deleting.record.lost_at(), None);
}

#[test]
fn quarantine_holds_for_one_template() {
    let mut node = node(NodeStage::Destroyed);
    assert!(!node.is_quarantined_for(&slot("a").template));
    node.quarantine = Some(Box::new(Quarantine {
        template: slot("a").template,
        failures: 10,
        since: SystemTime::UNIX_EPOCH,
    }));
    let same = Arc::clone(&node.quarantine.as_ref().unwrap().template);
    assert!(node.is_quarantined_for(&same));
    assert!(node.is_quarantined_for(&slot("a").template), "content counts, not the pointer");
    assert!(!node.is_quarantined_for(&slot("b").template));
}

#[test]
fn what_is_too_far_away_is_never() {
    let start = SystemTime::UNIX_EPOCH;
    assert_eq!(after(start, Duration::from_secs(1)), Some(start + Duration::from_secs(1)));
    assert_eq!(after(start, Duration::MAX), None);
}

#[test]
fn the_default_retry_policy() {
    let policy = serde_json::to_string_pretty(&RetryPolicy::default()).unwrap();
    insta::assert_snapshot!(policy, @r#"
    {
      "initial_delay": "1s",
      "factor": 2,
      "max_delay": "1m",
      "jitter_percent": 20,
      "operation_timeout": "2m",
      "answer_timeout": "5s",
      "endpoint_probe_interval": "2s",
      "ready_timeout": "15m",
      "bootstrap_timeout": "10m",
      "stable_after": "10m",
      "lost_after": "45s",
      "max_consecutive_failures": 10,
      "max_cancel_failures": 3
    }
    "#);
}
