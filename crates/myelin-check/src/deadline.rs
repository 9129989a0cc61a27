//! Times: each is stored once, and each is waited for (seed 1 §4.8, §6).

use std::{collections::BTreeSet, time::SystemTime};

use myelin_decider::{NodeAction, ReconcilePlan};
use myelin_shape::LogicalNodeId;
use myelin_state::{ClusterState, DriverEvent, EventKind, ManagedNode, NodeIntent, NodeStage};

use crate::{
    Settled,
    desired::Desired,
    violation::{Findings, Rule},
};

/// A stored time that something has to be done at.
struct Deadline {
    name: &'static str,
    time: SystemTime,
    /// Whether it takes effect as such: once it has passed, the record must show that.
    binds: bool,
}

/// Checks that no time is slept through: neither one a node is held until, nor one that is stored.
///
/// Without a plan there must be a settled driver: then there is nothing to act on.
pub(crate) fn check_covered(
    state: &ClusterState,
    desired: &Desired,
    plan: Option<&ReconcilePlan>,
    settled: Option<Settled>,
    now: SystemTime,
    findings: &mut Findings,
) {
    let covers = |alarm: Option<SystemTime>, time| alarm.is_some_and(|alarm| alarm <= time);
    let mut waited_for = |id: &LogicalNodeId, name: &str, time: SystemTime| {
        let planned = plan.is_none_or(|plan| covers(plan.requeue_at, time));
        findings.require(planned, Rule::Requeue, Some(id), || {
            format!("{name} is slept through by the plan")
        });
        let woken = settled.is_none_or(|settled| covers(settled.wake_at, time));
        findings.require(woken, Rule::Requeue, Some(id), || {
            format!("{name} is slept through by the driver")
        });
    };
    for (id, held) in plan.map_or(&[][..], |plan| &plan.held) {
        if let Some(time) = held.until.time() {
            waited_for(id, &format!("the end of `{held}`"), time);
        }
    }
    let actions = plan.map_or(&[][..], |plan| &plan.actions);
    let acted_on: BTreeSet<_> = actions.iter().map(NodeAction::node).collect();
    let idle = || state.nodes.iter().filter(|(id, _)| !acted_on.contains(id));
    for (id, node) in idle() {
        for deadline in deadlines(node, desired).filter(|deadline| deadline.time > now) {
            waited_for(id, deadline.name, deadline.time);
        }
    }
    for (id, node) in idle() {
        for Deadline { name, time, .. } in deadlines(node, desired).filter(|it| it.binds) {
            // While effects are paused an attempt's time is not held against it.
            let stopped = state.paused && name != EFFECT;
            findings.require(time > now || stopped, Rule::Requeue, Some(id), || {
                format!("{name} has passed, and nothing has come of it")
            });
        }
    }
}

const EFFECT: &str = "the deadline of its effect";

/// Lists the stored times that mean something for a node as it is.
fn deadlines(node: &ManagedNode, desired: &Desired) -> impl Iterator<Item = Deadline> {
    let (record, retry) = (&node.record, &node.retry);
    let lives = node.intent == NodeIntent::Active && record.stage < NodeStage::Failed;
    let on_the_way = lives && record.stage < NodeStage::HandedOff;
    let booting = on_the_way && record.stage != NodeStage::SwactorJoined;
    let destroyed = record.stage == NodeStage::Destroyed;
    let comes_back = destroyed
        && desired.wanting(&record.desired).is_some_and(|group| {
            node.quarantine.as_deref().is_none_or(|it| *it.template != *group.template)
        });
    let silence = record.silence.as_deref().map(|silence| silence.deadline);
    let pending = node.pending.as_deref().map(|pending| pending.deadline);
    [
        (EFFECT, true, pending),
        ("the time to become ready", true, record.ready_by.filter(|_| on_the_way)),
        ("the time to join", true, record.bootstrap_by.filter(|_| booting)),
        ("the time to be heard again", false, silence.filter(|_| lives)),
        ("the end of its back-off", false, retry.next_effect_at.filter(|_| !destroyed)),
        ("its next attempt", false, retry.restart_at.filter(|_| comes_back)),
    ]
    .into_iter()
    .filter_map(|(name, binds, time)| Some(Deadline { name, time: time?, binds }))
}

/// Checks that within an attempt times are set and cleared, and only moved where that is said.
pub(crate) fn check_moves(
    id: &LogicalNodeId,
    before: &ManagedNode,
    after: &ManagedNode,
    events: &[&DriverEvent],
    findings: &mut Findings,
) {
    let (old, new) = (&before.record, &after.record);
    let mut require = |holds: bool, name: &str| {
        findings.require(holds, Rule::StoredOnce, Some(id), || format!("{name} has moved"));
    };
    // What has passed while nothing could be done, or while the control plane was away, may be given again.
    let given_again = |old, new| {
        let given = |event: &&DriverEvent| {
            matches!(event.kind, EventKind::TimeGiven | EventKind::TakenUp) && event.at >= old
        };
        old < new && events.iter().any(given)
    };
    let stays = |old: Option<SystemTime>, new: Option<SystemTime>| match old.zip(new) {
        Some((old, new)) => old == new || given_again(old, new),
        None => true,
    };
    require(stays(old.ready_by, new.ready_by), "the time to become ready");
    require(stays(old.bootstrap_by, new.bootstrap_by), "the time to join");
    let restart = before.retry.restart_at.zip(after.retry.restart_at);
    require(restart.is_none_or(|(old, new)| old == new), "the time of the next attempt");

    let told = |kind: &dyn Fn(&EventKind) -> bool| events.iter().any(|event| kind(&event.kind));
    let effects = before.pending.as_deref().zip(after.pending.as_deref());
    if let Some((old, new)) = effects.filter(|(old, new)| old.id == new.id) {
        let expired = told(
            &|kind| matches!(kind, EventKind::Expired { operation, .. } if *operation == new.id),
        );
        let given = given_again(old.deadline, new.deadline);
        require(old.deadline == new.deadline || new.expired && expired || given, EFFECT);
    }
    let silences = old.silence.as_deref().zip(new.silence.as_deref());
    if let Some((old, new)) = silences.filter(|_| !told(&|kind| *kind == EventKind::Heard)) {
        require(old.lost_at == new.lost_at, "the last contact of a silent agent");
        let more = |kind: &EventKind| matches!(kind, EventKind::HeardOut | EventKind::TakenUp);
        let given = told(&more) && old.deadline < new.deadline;
        require(old.deadline == new.deadline || given, "the time to be heard again");
    }
}
