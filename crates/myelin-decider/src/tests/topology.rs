//! Desired and observed sets (seed 1 §8).

use myelin_shape::{ClusterShape, RunId};
use myelin_state::ClusterState;

use super::fixture::{
    NOW, all, at, change, deleting_leased, destroyed, due, group, image, new, node, plan, ready,
    shape, state, workers,
};
use crate::{Planner, Topology, reconcile};

#[test]
fn sets_are_compared_as_the_table_says() {
    let both = all(&workers(2), ready);
    let rows = [
        ("desired only", plan(&ClusterState::default(), &shape([workers(2)]))),
        ("observed only", plan(&both, &shape([]))),
        ("both, same spec", plan(&both, &shape([workers(2)]))),
        ("both, different spec", plan(&both, &shape([image(workers(2), "new")]))),
        ("more desired", plan(&both, &shape([workers(3)]))),
        ("fewer desired", plan(&both, &shape([workers(1)]))),
        ("another group", plan(&both, &shape([group("other", 1)]))),
        ("returned while deleted", plan(&all(&workers(1), deleting_leased), &shape([workers(1)]))),
        (
            "returned when destroyed",
            plan(&all(&workers(1), due), &shape([image(workers(1), "new")])),
        ),
        ("gone when destroyed", plan(&all(&workers(1), destroyed), &shape([]))),
    ];
    let rows = rows.map(|(name, plan)| format!("# {name}\n{plan}"));
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn attempts_are_allocated_in_the_order_of_ids_over_all_actions() {
    let nodes = [node(&workers(12), 10, due), node(&workers(12), 2, ready)];
    insta::assert_snapshot!(plan(&state(nodes), &shape([workers(12), group("a", 1)])));
}

#[test]
fn the_order_of_the_groups_changes_nothing() {
    let groups = [workers(3), group("a", 2), group("b", 7)];
    let observed = all(&workers(4), ready);
    let mut reversed = groups.clone();
    reversed.reverse();
    assert_eq!(plan(&observed, &shape(groups)), plan(&observed, &shape(reversed)));
}

#[test]
fn only_an_invalid_shape_is_an_error() {
    let foreign = ClusterShape::new(RunId(2), 1, [workers(1)]);
    assert!(reconcile(&ClusterState::default(), &foreign, at(NOW)).is_err());
}

#[test]
fn one_node_without_attempt_ids_does_not_hold_the_others() {
    let mut observed = state([node(&workers(1), 0, new)]);
    observed.next_attempt_id = u64::MAX - 1;
    insta::assert_snapshot!(plan(&observed, &shape([workers(4)])));
}

#[test]
fn nothing_is_done_while_paused() {
    let mut observed = all(&workers(3), ready);
    change(&mut observed, "worker-0", new);
    change(&mut observed, "worker-1", due);
    observed.paused = true;
    insta::assert_snapshot!(plan(&observed, &shape([workers(4)])));
}

#[test]
fn a_change_of_count_touches_only_the_slots_between() {
    let observed = all(&workers(20), ready);
    let mut planner = Planner::new(Topology::new(&shape([workers(20)])).unwrap());
    planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
    let fewer = Topology::new(&shape([workers(18)])).unwrap();
    let touched = planner.set_topology(fewer, &observed);
    let touched: Vec<_> = touched.iter().map(ToString::to_string).collect();
    assert_eq!(touched, ["worker-18", "worker-19"]);
}

#[test]
fn an_index_of_groups_that_are_mostly_gone_is_made_anew() {
    // Of the groups that stay, one has a node that is not as desired.
    let observed = state([node(&group("kept", 1), 0, new)]);
    let kept = || [group("kept", 1), group("too", 1), group("also", 1)];
    let looked_at_again = |n_gone: u32| {
        let gone = (0..n_gone).map(|n| group(&format!("gone{n}"), 1));
        let mut planner =
            Planner::new(Topology::new(&shape(kept().into_iter().chain(gone))).unwrap());
        let _ = planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
        !planner.set_topology(Topology::new(&shape(kept())).unwrap(), &observed).is_empty()
    };
    // The index knows the kept one and those that are gone.
    assert!(!looked_at_again(69), "70 groups are not too many for 3");
    assert!(looked_at_again(70));
}
