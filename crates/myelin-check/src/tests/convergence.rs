//! What a converged cluster is.

use myelin_state::{ClusterState, NodeIntent, NodeStage, Silence};

use super::fixture::{at, copy, node, shape, state};
use crate::converged;

/// Six ready nodes.
fn ready() -> ClusterState {
    let mut state = state();
    let ready = node(&mut state, 0).clone();
    for index in 1..6 {
        copy(node(&mut state, index), &ready);
    }
    state
}

fn check(doctor: fn(&mut ClusterState)) -> String {
    let mut state = ready();
    doctor(&mut state);
    let reasons = converged(&state, &shape()).unwrap_err();
    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    reasons.join("; ")
}

#[test]
fn six_ready_nodes_of_six_are_converged() {
    assert_eq!(converged(&ready(), &shape()), Ok(()));
}

#[test]
fn handed_off_is_as_good_as_dormant() {
    let mut state = ready();
    node(&mut state, 0).record.stage = NodeStage::HandedOff;
    assert_eq!(converged(&state, &shape()), Ok(()));
}

#[test]
fn every_condition_counts() {
    let found = [
        check(|state| state.observed_generation = 2),
        check(|state| drop(state.nodes.remove("worker-3"))),
        check(|state| node(state, 1).intent = NodeIntent::Deleting),
        check(|state| node(state, 1).record.stage = NodeStage::SwactorJoined),
        check(|state| {
            let silence = Silence { lost_at: at(1), deadline: at(46) };
            node(state, 1).record.silence = Some(Box::new(silence));
        }),
        check(|state| {
            let pending = super::fixture::state().nodes["worker-2"].pending.clone();
            node(state, 1).pending = pending;
        }),
        check(|state| {
            let slot = &mut node(state, 1).record.desired;
            std::sync::Arc::make_mut(&mut slot.template).shape.image = "old".into();
        }),
    ];
    insta::assert_snapshot!(found.join("\n"));
    let mut smaller = shape();
    smaller.groups[0].count = 5;
    assert_eq!(
        converged(&ready(), &smaller).unwrap_err()[0].to_string(),
        "worker-5 is not desired"
    );
    smaller.groups[0].group_id = "Not an id".into();
    assert!(
        converged(&ready(), &smaller).unwrap_err()[0]
            .to_string()
            .starts_with("the shape is invalid")
    );
}
