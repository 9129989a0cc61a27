//! A plan as text: what a new image does to three ready nodes when one may be taken at a time.
//!
//! ```sh
//! cargo run -p myelin-decider --example plan
//! ```
//!
//! The guide walks through this file in "Embed the decider".

use std::time::{Duration, SystemTime};

use myelin_decider::reconcile;
use myelin_shape::{
    ClusterShape, Limit, NodeAttemptId, RunId, RunNodeGroupSpec, ShapeErrors, expand_node_group,
};
use myelin_state::{ClusterState, ManagedNode, NodeStage};

const RUN: RunId = RunId(1);

/// Three web servers, of which one at a time may be taken on purpose.
fn group(image: &str) -> RunNodeGroupSpec {
    let mut group = RunNodeGroupSpec::new(RUN, "web", 3, "process");
    group.shape.image = image.into();
    group.policy.max_unavailable = Some(Limit::Count(1));
    group
}

/// A cluster in which every node of the group is ready.
fn ready(group: &RunNodeGroupSpec) -> ClusterState {
    let mut state = ClusterState::default();
    for spec in expand_node_group(group) {
        let id = spec.logical_node_id.clone();
        let mut node = ManagedNode::new(NodeAttemptId(state.next_attempt_id), spec);
        node.record.stage = NodeStage::Dormant;
        node.record.handed_off = true;
        state.nodes.insert(id, node);
        state.next_attempt_id += 1;
    }
    state
}

/// Returns the plan for the cluster, as people read it.
fn plan(state: &ClusterState, group: RunNodeGroupSpec) -> Result<String, ShapeErrors> {
    let shape = ClusterShape::new(RUN, 2, [group]);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    Ok(reconcile(state, &shape, now)?.to_string())
}

fn main() -> Result<(), ShapeErrors> {
    let state = ready(&group("v1"));
    let text = plan(&state, group("v2"))?;
    #[expect(clippy::print_stdout, reason = "an example shows something")]
    {
        print!("{text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use myelin_decider::{NodeDecision, reconcile_node};

    use super::*;

    #[test]
    fn a_new_image_takes_one_ready_node_and_holds_the_others() {
        let state = ready(&group("v1"));
        insta::assert_snapshot!(plan(&state, group("v2")).unwrap(), @r"
        generation 2
        web-2: begin delete of attempt 2 (spec changed)
        web-0: held, 1 of at most 1 nodes unavailable, until the counts move
        web-1: held, 1 of at most 1 nodes unavailable, until the counts move
        ");
    }

    #[test]
    fn a_policy_is_no_part_of_what_a_node_is_made_from() {
        let mut relaxed = group("v1");
        relaxed.policy.max_unavailable = None;
        insta::assert_snapshot!(plan(&ready(&group("v1")), relaxed).unwrap(), @"generation 2");
    }

    #[test]
    fn one_node_is_decided_from_its_own_facts() {
        let state = ready(&group("v1"));
        let desired = expand_node_group(&group("v1")).next().unwrap();
        let node = &state.nodes[&desired.logical_node_id];
        let decision = reconcile_node(node, Some(&desired), SystemTime::UNIX_EPOCH);
        assert_eq!(decision, NodeDecision::Steady);
    }
}
