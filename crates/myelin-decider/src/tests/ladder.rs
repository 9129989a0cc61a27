//! The decision ladder, row by row (seed 1 §7.2, `spec 1.2`).

use myelin_state::{ManagedNode, NodeStage, OperationKind, Refusal};

use super::fixture::{
    NOW, ambiguous, at, booting, creating, deleting, deleting_bare, deleting_leased, destroyed,
    due, failed, image, joined, leased, lost, new, node, pending, plan, reachable, ready, shape,
    silent, state, workers,
};

/// Plans for one desired node in a state.
fn check(name: &str, make: fn(&mut ManagedNode)) -> String {
    let group = workers(1);
    let text = plan(&state([node(&group, 0, make)]), &shape([group]));
    format!("# {name}\n{text}")
}

/// As [`check`], for a slot nobody wants.
fn undesired(name: &str, make: fn(&mut ManagedNode)) -> String {
    let text = plan(&state([node(&workers(1), 0, make)]), &shape([]));
    format!("# {name}, undesired\n{text}")
}

/// As [`check`], for a slot that another image is wanted in.
fn changed(name: &str, make: fn(&mut ManagedNode)) -> String {
    let text = plan(&state([node(&workers(1), 0, make)]), &shape([image(workers(1), "new")]));
    format!("# {name}, spec changed\n{text}")
}

#[test]
fn an_active_node_goes_forward_by_its_facts() {
    let rows = [
        check("new", new),
        check("lease requested, retry due", |node| {
            node.record.stage = NodeStage::LeaseRequested;
            node.retry.next_effect_at = Some(at(NOW));
        }),
        check("lease requested, retry not due", |node| {
            node.record.stage = NodeStage::LeaseRequested;
            node.retry.next_effect_at = Some(at(NOW + 1));
            node.retry.consecutive_failures = 1;
        }),
        check("create pending", creating),
        check("create timed out", |node| {
            creating(node);
            node.pending.as_mut().unwrap().expired = true;
        }),
        check("create ambiguous", |node| {
            node.record.stage = NodeStage::LeaseRequested;
            ambiguous(node, OperationKind::CreateLease);
        }),
        check("create refused", |node| {
            node.record.stage = NodeStage::LeaseRequested;
            let refusal = Refusal { message: "no such image".into(), at: at(900) };
            node.refused = Some(Box::new(refusal));
        }),
        check("lease known", leased),
        check("endpoint probe not due", |node| {
            leased(node);
            node.retry.next_effect_at = Some(at(NOW + 2));
        }),
        check("connection known", reachable),
        check("start ambiguous", |node| {
            reachable(node);
            ambiguous(node, OperationKind::StartBootstrap);
        }),
        check("bootstrap running", booting),
        check("bootstrap session lost", |node| {
            booting(node);
            node.active_bootstrap = None;
        }),
        check("joined", joined),
        check("joined, session lost", |node| {
            joined(node);
            node.active_bootstrap = None;
        }),
        check("joined before the lease is known", |node| {
            let swactor = node.record.swactor.take();
            joined(node);
            node.record.lease = None;
            node.record.connection = None;
            node.record.swactor = swactor.or(node.record.swactor.take());
        }),
        check("dormant", ready),
        check("handed off", |node| {
            ready(node);
            node.record.stage = NodeStage::HandedOff;
        }),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn an_active_node_ends_by_its_facts() {
    let rows = [
        check("failed", failed),
        check("failed with an effect pending", |node| {
            failed(node);
            pending(node, OperationKind::StartBootstrap);
        }),
        check("silent", silent),
        check("silent with a back-off that is due", |node| {
            silent(node);
            node.record.stage = NodeStage::SwactorJoined;
            node.record.handed_off = false;
            node.retry.next_effect_at = Some(at(NOW));
        }),
        check("lost", lost),
        check("replacement requested", |node| {
            ready(node);
            node.replace_requested = true;
        }),
        undesired("new", new),
        undesired("ready", ready),
        undesired("failed", failed),
        undesired("silent", silent),
        undesired("create pending", creating),
        changed("new", new),
        changed("ready", ready),
        changed("failed", failed),
        changed("silent", silent),
        changed("create pending", creating),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn a_deleted_node_is_cleaned_up_step_by_step() {
    let rows = [
        check("session, lease", deleting),
        check("lease", deleting_leased),
        check("nothing", deleting_bare),
        check("nothing, with a back-off", |node| {
            deleting_bare(node);
            node.retry.next_effect_at = Some(at(NOW + 50));
        }),
        check("lease, with a back-off", |node| {
            deleting_leased(node);
            node.retry.next_effect_at = Some(at(NOW + 50));
        }),
        check("effect pending", |node| {
            deleting_bare(node);
            pending(node, OperationKind::CreateLease);
        }),
        check("ambiguous create", |node| {
            deleting_bare(node);
            ambiguous(node, OperationKind::CreateLease);
        }),
        check("ambiguous create, with a back-off", |node| {
            deleting_bare(node);
            ambiguous(node, OperationKind::CreateLease);
            node.retry.next_effect_at = Some(at(NOW + 50));
        }),
        check("ambiguous start", |node| {
            deleting_leased(node);
            ambiguous(node, OperationKind::StartBootstrap);
        }),
        check("ambiguous start, unreachable", |node| {
            deleting_leased(node);
            node.record.connection = None;
            ambiguous(node, OperationKind::StartBootstrap);
        }),
        undesired("lease", deleting_leased),
        changed("lease", deleting_leased),
    ];
    insta::assert_snapshot!(rows.concat());
}

#[test]
fn a_destroyed_slot_is_reaped_or_restarted_when_due() {
    let rows = [
        check("restart due", due),
        check("restart not due", destroyed),
        check("no restart time", |node| {
            destroyed(node);
            node.retry.restart_at = None;
        }),
        check("effect back-off left over", |node| {
            due(node);
            node.retry.next_effect_at = Some(at(NOW + 50));
        }),
        undesired("restart not due", destroyed),
        changed("restart due", due),
        changed("restart not due", destroyed),
    ];
    insta::assert_snapshot!(rows.concat());
}
