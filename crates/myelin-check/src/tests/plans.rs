//! Plans that do not fit the state they were made from.

use myelin_decider::{
    BrakeScope, Brakes, Held, HeldReason, NodeAction, PlannedEffect, ReconcilePlan, Trigger, Until,
    reconcile,
};
use myelin_shape::{ClusterShape, FirstNode, Limit, NodeAttemptId, OperationId};
use myelin_state::{ClusterState, DeleteCause, LeaseMode, NodeManagerCommand, Refusal, Silence};

use super::fixture::{NOW, at, copy, found, lease_of, node, shape, state};
use crate::{Rule, Settled, Snapshot, Violations, check};

/// A state, what is wanted of it, a plan, and what the driver says of itself.
struct Case {
    state: ClusterState,
    shape: ClusterShape,
    plan: ReconcilePlan,
    settled: Option<Settled>,
}

impl Case {
    fn new() -> Self {
        let (state, shape) = (state(), shape());
        let plan = reconcile(&state, &shape, at(NOW)).unwrap();
        Self { state, shape, plan, settled: None }
    }

    fn replans(&mut self) {
        self.plan = reconcile(&self.state, &self.shape, at(NOW)).unwrap();
    }

    /// Makes one node wait for something that somebody else has to move, while everybody is ready.
    fn waits_for_nobody(&mut self, reason: HeldReason) {
        self.silent(0);
        self.replans();
        let held = Held { reason, until: Until::On(Trigger::GroupCounts) };
        self.plan.held = vec![("worker-1".into(), held)];
        self.settled = Some(Settled { wake_at: None });
    }

    /// Plans anew, and puts one action in place of what was planned for its node.
    fn plans(&mut self, action: NodeAction) {
        self.replans();
        let node = action.node().clone();
        self.plan.actions.retain(|planned| *planned.node() != node);
        self.plan.held.retain(|(held, _)| *held != node);
        self.plan.actions.push(action);
        self.plan.actions.sort_by(|left, right| left.node().cmp(right.node()));
    }

    fn dispatches(&mut self, index: u32, command: NodeManagerCommand) {
        let found = node(&mut self.state, index);
        let effect = PlannedEffect {
            node: found.record.desired.logical_node_id.clone(),
            operation: OperationId {
                attempt: found.attempt,
                sequence: found.next_operation_sequence,
            },
            command,
        };
        self.plans(NodeAction::Dispatch(effect));
    }

    fn creates(&mut self, index: u32) {
        let spec = node(&mut self.state, index).record.desired.clone();
        self.dispatches(
            index,
            NodeManagerCommand::CreateLease {
                spec,
                mode: LeaseMode::CreateOrAdopt,
                unsettled_since: None,
            },
        );
    }

    fn restarts(&mut self, index: u32, new_attempt: u64) {
        let found = node(&mut self.state, index);
        let desired = found.record.desired.clone();
        let action = NodeAction::Restart {
            node: desired.logical_node_id.clone(),
            expected_attempt: found.attempt,
            new_attempt: NodeAttemptId(new_attempt),
            desired,
        };
        self.plans(action);
    }

    fn deletes(&mut self, index: u32, cause: DeleteCause) {
        let found = node(&mut self.state, index);
        let action = NodeAction::BeginDelete {
            node: found.record.desired.logical_node_id.clone(),
            expected_attempt: found.attempt,
            cause,
            brakes: Brakes::default(),
        };
        self.plans(action);
    }

    /// Makes a node new again.
    fn renew(&mut self, index: u32) {
        let found = node(&mut self.state, index);
        *found = myelin_state::ManagedNode::new(found.attempt, found.record.desired.clone());
    }

    /// Makes ready nodes of all, of which some are silent for too long.
    fn silent(&mut self, n_silent: u32) {
        let ready = node(&mut self.state, 0).clone();
        for index in 0..6 {
            let found = node(&mut self.state, index);
            copy(found, &ready);
            if index < n_silent {
                let silence = Silence { lost_at: at(900), deadline: at(945) };
                found.record.silence = Some(Box::new(silence));
                found.record.ready_since = None;
            }
        }
    }

    fn check(&self) -> Result<(), Violations> {
        check(&Snapshot {
            desired: Some(&self.shape),
            plan: Some(&self.plan),
            settled: self.settled,
            ..Snapshot::new(&self.state, at(NOW))
        })
    }
}

type Doctor = (&'static str, Rule, fn(&mut Case));

const DOCTORED: &[Doctor] = &[
    ("two actions for a node", Rule::OneAction, |case| {
        let action = case.plan.actions[0].clone();
        case.plan.actions.push(action);
    }),
    ("actions out of order", Rule::OneAction, |case| {
        case.plan.actions.reverse();
    }),
    ("acted on and held", Rule::OneAction, |case| {
        let node = case.plan.actions[0].node().clone();
        let held = Held { reason: HeldReason::Paused, until: Until::At(at(2000)) };
        case.plan.held.push((node, held));
        case.plan.held.sort_by(|(left, _), (right, _)| left.cmp(right));
    }),
    ("a plan for another generation", Rule::Acknowledgment, |case| {
        case.plan.observed_generation = 2;
    }),
    ("a pass asked for now", Rule::Coalesced, |case| {
        case.plan.requeue_at = Some(at(NOW));
    }),
    ("held until now", Rule::NoWaiting, |case| {
        case.plan.held[0].1.until = Until::At(at(NOW));
    }),
    ("actions while paused", Rule::Policy, |case| {
        case.state.paused = true;
    }),
    ("a node nobody looked at", Rule::Isolation, |case| {
        case.plan.held.clear();
    }),
    ("a missing node nobody looked at", Rule::Isolation, |case| {
        case.state.nodes.pop_last();
        case.plan.held.retain(|(node, _)| node.as_str() != "worker-5");
    }),
    ("an attempt out of turn", Rule::DistinctIdentities, |case| {
        node(&mut case.state, 5).retry.restart_at = None;
        case.restarts(5, 9);
    }),
    ("a restart before its time", Rule::LevelBased, |case| {
        case.restarts(5, 6);
    }),
    ("a restart of what is not destroyed", Rule::CleanupBeforeReuse, |case| case.restarts(4, 6)),
    ("a restart with an old spec", Rule::LatestWins, |case| {
        node(&mut case.state, 5).retry.restart_at = None;
        case.shape.groups[0].shape.image = "new".into();
        case.restarts(5, 6);
    }),
    ("an insert over a node", Rule::CleanupBeforeReuse, |case| {
        let desired = node(&mut case.state, 0).record.desired.clone();
        case.plans(NodeAction::Insert { attempt: NodeAttemptId(6), desired });
    }),
    ("an action on another attempt", Rule::AttemptCorrelation, |case| {
        let action =
            NodeAction::Reap { node: "worker-5".into(), expected_attempt: NodeAttemptId(0) };
        case.plans(action);
    }),
    ("a reap of what is desired", Rule::LatestWins, |case| {
        let action =
            NodeAction::Reap { node: "worker-5".into(), expected_attempt: NodeAttemptId(5) };
        case.plans(action);
    }),
    ("destroyed with a lease left", Rule::CleanupBeforeReuse, |case| {
        let action = NodeAction::MarkDestroyed {
            node: "worker-4".into(),
            expected_attempt: NodeAttemptId(4),
        };
        case.plans(action);
    }),
    ("an end without a reason", Rule::LevelBased, |case| {
        case.deletes(0, DeleteCause::Failed);
    }),
    ("a second effect beside one under way", Rule::RecordBeforeDispatch, |case| case.creates(2)),
    ("a create for a node that has a lease", Rule::LevelBased, |case| case.creates(1)),
    ("a destroy before the cancel", Rule::LevelBased, |case| {
        let lease = *lease_of(NodeAttemptId(4));
        case.dispatches(4, NodeManagerCommand::DestroyLease { lease });
    }),
    ("a cleanup of what is to live", Rule::LevelBased, |case| {
        let lease = *lease_of(NodeAttemptId(1));
        case.dispatches(1, NodeManagerCommand::DestroyLease { lease });
    }),
    ("an effect before its back-off is over", Rule::LevelBased, |case| {
        case.renew(1);
        node(&mut case.state, 1).retry.next_effect_at = Some(at(NOW + 1));
        case.creates(1);
    }),
    ("more creates than may be", Rule::Policy, |case| {
        case.shape.groups[0].policy.max_in_flight_creates = 1;
        case.renew(1);
        case.creates(1);
    }),
    ("a create of a refused template", Rule::Policy, |case| {
        case.renew(1);
        case.renew(2);
        let refusal = Refusal { message: "no".into(), at: at(900) };
        node(&mut case.state, 2).refused = Some(Box::new(refusal));
        case.creates(1);
    }),
    ("two nodes start with an unproven template", Rule::Policy, |case| {
        case.state.groups.clear();
        case.shape.groups[0].policy.first_node = Some(FirstNode::All);
        case.renew(1);
        case.renew(2);
        case.creates(1);
        case.shape.groups[0].policy.first_node = Some(FirstNode::Canary);
    }),
    ("more ready nodes taken than may be", Rule::Policy, |case| {
        case.silent(0);
        case.shape.groups[0].shape.image = "new".into();
        case.shape.groups[0].policy.first_node = Some(FirstNode::All);
        case.deletes(0, DeleteCause::SpecChanged);
        case.shape.groups[0].policy.max_unavailable = Some(Limit::Count(2));
    }),
    ("repairs beside another while the brake is on", Rule::Policy, |case| {
        case.silent(5);
        case.deletes(3, DeleteCause::Lost);
    }),
    ("a second silent machine ends before a repair is ready", Rule::Policy, |case| {
        case.silent(1);
        case.state.brake.silent_machine_ended = true;
        case.deletes(0, DeleteCause::Lost);
    }),
    ("a restart out of quarantine", Rule::Policy, |case| {
        let found = node(&mut case.state, 5);
        found.retry.restart_at = None;
        let template = found.record.desired.template.clone();
        let quarantine = myelin_state::Quarantine { template, failures: 10, since: at(990) };
        found.quarantine = Some(Box::new(quarantine));
        case.restarts(5, 6);
    }),
    ("a pass that is asked for by nobody", Rule::Requeue, |case| case.plan.requeue_at = None),
    ("a pass that is asked for too late", Rule::Requeue, |case| {
        case.plan.requeue_at = Some(at(1050));
    }),
    ("a driver that sleeps longer than its plan", Rule::Requeue, |case| {
        case.settled = Some(Settled { wake_at: Some(at(1200)) });
    }),
    ("a deadline that nothing has come of", Rule::Requeue, |case| {
        node(&mut case.state, 1).record.bootstrap_by = Some(at(NOW));
        case.replans();
    }),
    ("an effect's deadline that nothing has come of in a pause", Rule::Requeue, |case| {
        case.state.paused = true;
        node(&mut case.state, 2).pending.as_mut().unwrap().deadline = at(NOW);
        case.replans();
    }),
    ("actions left undone", Rule::Progress, |case| {
        case.settled = Some(Settled { wake_at: case.plan.requeue_at });
    }),
    ("a wait for creates that nobody makes", Rule::Progress, |case| {
        case.waits_for_nobody(HeldReason::CreateLimit { in_flight: 1, limit: 1 });
    }),
    ("a wait for a successor that does not come", Rule::Progress, |case| {
        case.waits_for_nobody(HeldReason::Budget { unavailable: 1, limit: 1 });
    }),
    ("a wait for a repair that nobody makes", Rule::Progress, |case| {
        let scope = BrakeScope::Run;
        case.waits_for_nobody(HeldReason::Brake { scope, unhealthy: 5, limit: 3, repairs: 0 });
    }),
    ("a wait for a repair that nobody may begin", Rule::Progress, |case| {
        let scope = BrakeScope::Group("worker".into());
        case.waits_for_nobody(HeldReason::AwaitingRepair { scope, stuck: None });
    }),
    ("a wait for a canary that does not sing", Rule::Progress, |case| {
        case.waits_for_nobody(HeldReason::Canary { node: "worker-0".into() });
    }),
    ("two that wait for each other", Rule::Progress, |case| {
        case.waits_for_nobody(HeldReason::Budget { unavailable: 1, limit: 1 });
        let (_, held) = case.plan.held[0].clone();
        case.plan.held.push(("worker-2".into(), held));
        node(&mut case.state, 1).spends_budget = true;
        node(&mut case.state, 2).spends_budget = true;
    }),
];

#[test]
fn the_deciders_own_plan_breaks_no_rule() {
    assert_eq!(Case::new().check(), Ok(()));
    let mut silent = Case::new();
    silent.silent(5);
    silent.replans();
    assert_eq!(silent.check(), Ok(()));
}

#[test]
fn a_driver_that_waits_is_held_to_every_deadline_without_a_plan_too() {
    let (state, shape) = (state(), shape());
    let check = |wake_at| {
        let settled = Some(Settled { wake_at });
        check(&Snapshot { desired: Some(&shape), settled, ..Snapshot::new(&state, at(NOW)) })
    };
    assert_eq!(check(Some(at(1010))), Ok(()));
    found("a late alarm", Rule::Requeue, check(Some(at(1011))));
    found("no alarm", Rule::Requeue, check(None));
}

#[test]
fn who_waits_for_somebody_that_waits_for_a_time_makes_progress() {
    let mut case = Case::new();
    case.silent(6);
    let silence = node(&mut case.state, 5).record.silence.as_mut().unwrap();
    silence.deadline = at(NOW + 5);
    // The repair under way has failed to become ready, and is tried again later.
    let found = node(&mut case.state, 0);
    let model = state().nodes["worker-5"].clone();
    copy(found, &model);
    found.repairing = true;
    case.state.brake.silent_machine_ended = true;
    case.replans();
    let waits = |(_, held): &(_, Held)| held.until == Until::On(Trigger::GroupCounts);
    assert_eq!(case.plan.held.iter().filter(|held| waits(held)).count(), 4, "{}", case.plan);
    case.settled = Some(Settled { wake_at: case.plan.requeue_at });
    assert_eq!(case.check(), Ok(()));
}

#[test]
fn time_that_passes_in_a_pause_is_not_held_against_an_attempt() {
    let mut case = Case::new();
    case.state.paused = true;
    node(&mut case.state, 1).record.bootstrap_by = Some(at(NOW));
    case.replans();
    assert_eq!(case.check(), Ok(()));
}

#[test]
fn every_check_of_a_plan_fires() {
    let doctored = DOCTORED.iter().map(|(name, rule, doctor)| {
        let mut case = Case::new();
        doctor(&mut case);
        found(name, *rule, case.check())
    });
    insta::assert_snapshot!(doctored.collect::<String>());
}
