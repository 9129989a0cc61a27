//! What a planner says of itself between two plans.

use myelin_state::ClusterState;

use super::fixture::{NOW, all, at, change, create_failed, lost, new, node, ready, shape, workers};
use crate::{Planner, Topology, reconcile};

#[test]
fn there_is_work_until_everything_that_moved_was_planned_for() {
    let observed = all(&workers(2), ready);
    let mut planner = Planner::new(Topology::new(&shape([workers(2)])).unwrap());
    let worker = &"worker".into();
    let moves: [fn(&mut Planner, &myelin_shape::NodeGroupId); 4] =
        [|_, _| (), |planner, _| planner.touch_run(), Planner::touch_group, Planner::recheck_group];
    for (n, moved) in moves.into_iter().enumerate() {
        moved(&mut planner, worker);
        assert!(planner.has_work(), "after move {n}");
        let _ = planner.plan(&observed, [], at(NOW));
        assert!(!planner.has_work(), "after the plan of move {n}");
    }
    planner.look_at(&node(&workers(2), 0, new), false, at(NOW));
    assert_eq!(planner.n_looks(), 1);
    assert!(planner.has_work());
    let _ = planner.plan(&observed, [], at(NOW));
    assert_eq!(planner.n_looks(), 0);
}

#[test]
fn while_paused_there_is_work_only_for_what_is_looked_at() {
    let mut observed = all(&workers(2), ready);
    observed.paused = true;
    let mut planner = Planner::new(Topology::new(&shape([workers(2)])).unwrap());
    let _ = planner.plan(&observed, [], at(NOW));
    planner.touch_run();
    planner.touch_group(&"worker".into());
    assert!(!planner.has_work());
    planner.look_at(&node(&workers(2), 0, new), true, at(NOW));
    assert!(planner.has_work());
}

#[test]
fn it_is_settled_when_every_wanted_node_is_as_wanted_and_there_is_no_other() {
    let mut observed = all(&workers(2), ready);
    let mut planner = Planner::new(Topology::new(&shape([workers(2)])).unwrap());
    assert!(!planner.is_settled(&observed), "nothing was looked for yet");
    let _ = planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
    assert!(planner.is_settled(&observed));
    assert!(!planner.is_settled(&all(&workers(3), ready)), "one is left over");
    change(&mut observed, "worker-1", new);
    let _ = planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
    assert!(!planner.is_settled(&observed));
}

#[test]
fn a_repair_is_awaited_while_one_can_become_ready_and_something_fails() {
    let awaits = |make| {
        let observed = all(&workers(3), make);
        let mut planner = Planner::new(Topology::new(&shape([workers(3)])).unwrap());
        let _ = planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
        let group = planner.awaits_repair(Some(&"worker".into()));
        assert_eq!(planner.awaits_repair(None), group);
        assert!(!planner.awaits_repair(Some(&"other".into())));
        group
    };
    assert!(!awaits(ready));
    assert!(!awaits(lost), "nothing is under repair");
    assert!(awaits(create_failed));
    assert!(
        !awaits(|node| {
            super::fixture::refused(node);
            node.recovering = true;
        }),
        "what waits for a person does not fail"
    );
}

#[test]
fn a_sweep_finds_what_nobody_told() {
    let swept = |observed: &ClusterState| {
        let mut planner = Planner::new(Topology::new(&shape([workers(3)])).unwrap());
        let converged = all(&workers(3), ready);
        let _ = planner.plan(&converged, converged.nodes.keys().cloned(), at(NOW));
        let found = planner.sweep(observed, at(NOW));
        assert!(planner.has_work(), "brakes and lines are looked at again");
        let plan = planner.plan(observed, found.iter().cloned(), at(NOW));
        assert_eq!(
            plan.actions,
            reconcile(observed, &shape([workers(3)]), at(NOW)).unwrap().actions
        );
        found
    };
    let mut observed = all(&workers(3), ready);
    assert_eq!(swept(&observed), []);
    change(&mut observed, "worker-1", lost);
    assert_eq!(swept(&observed), ["worker-1".into()]);
    assert_eq!(swept(&all(&workers(4), ready)), ["worker-3".into()]);
    assert_eq!(swept(&all(&workers(2), ready)), [], "what is missing is inserted");
}

#[test]
fn a_sweep_looks_again_at_what_was_not_as_desired() {
    let mut planner = Planner::new(Topology::new(&shape([workers(3)])).unwrap());
    let mut observed = all(&workers(3), ready);
    change(&mut observed, "worker-2", lost);
    let _ = planner.plan(&observed, observed.nodes.keys().cloned(), at(NOW));
    change(&mut observed, "worker-0", lost);
    change(&mut observed, "worker-2", ready);
    assert_eq!(planner.sweep(&observed, at(NOW)), ["worker-0".into(), "worker-2".into()]);
}
