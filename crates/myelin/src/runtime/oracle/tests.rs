//! That a broken rule is told, and ends a process.

use std::{
    env,
    process::Command,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use myelin_driver::{ClusterDriver, Effects, Options};
use myelin_shape::{NodeAttemptId, RunId, RunNodeGroupSpec, expand_node_group};
use myelin_state::{ClusterState, ManagedNode};

use super::{BROKEN_RULE, BROKEN_RULE_STATUS, Oracle, report};
use crate::runtime::Witness as _;

/// Set in the process that is to end.
const DOOMED: &str = "MYELIN_TEST_DOOMED";

/// Shows an oracle a node that no event has brought, and that nobody knows a reason for.
fn breaks_a_rule(mut oracle: Oracle) {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
    let nodes = expand_node_group(&group)
        .map(|spec| (spec.logical_node_id.clone(), ManagedNode::new(NodeAttemptId(0), spec)));
    let state =
        ClusterState { next_attempt_id: 1, nodes: nodes.collect(), ..ClusterState::default() };
    let driver = ClusterDriver::restore(Options::default(), state);
    oracle.settled(&driver, &Effects::default(), SystemTime::UNIX_EPOCH);
}

#[test]
fn every_line_of_a_finding_is_marked() {
    assert_eq!(report("one\ntwo"), "broken rule: one\nbroken rule: two\n");
}

#[test]
fn a_broken_rule_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    breaks_a_rule(Oracle::new(move |finding| teller.lock().unwrap().push(finding.to_owned())));
    let told = told.lock().unwrap().join("\n");
    assert!(told.contains("worker-0: appeared without an event"), "{told}");
    assert!(told.contains("worker-0 is New without a reason"), "{told}");
}

#[test]
fn a_broken_rule_ends_the_process() {
    if env::var_os(DOOMED).is_some() {
        breaks_a_rule(Oracle::fatal());
        return;
    }
    let name = "runtime::oracle::tests::a_broken_rule_ends_the_process";
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--exact", name]).env(DOOMED, "1").output().unwrap();
    assert_eq!(output.status.code(), Some(BROKEN_RULE_STATUS));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.lines().any(|line| line.starts_with(BROKEN_RULE)), "{stderr}");
}
