//! Plans that do not fit the state they were made from.

use myelin_decider::{
    Brakes, Held, HeldReason, NodeAction, PlannedEffect, ReconcilePlan, Until, reconcile,
};
use myelin_shape::{ClusterShape, FirstNode, Limit, NodeAttemptId, OperationId};
use myelin_state::{ClusterState, DeleteCause, LeaseMode, NodeManagerCommand, Refusal, Silence};

use super::fixture::{NOW, at, found, lease, node, shape, state};
use crate::{Rule, Snapshot, Violations, check};

/// A state, what is wanted of it, and a plan.
struct Case {
    state: ClusterState,
    shape: ClusterShape,
    plan: ReconcilePlan,
}

impl Case {
    fn new() -> Self {
        let (state, shape) = (state(), shape());
        let plan = reconcile(&state, &shape, at(NOW)).unwrap();
        Self { state, shape, plan }
    }

    /// Plans anew, and puts one action in place of what was planned for its node.
    fn plans(&mut self, action: NodeAction) {
        self.plan = reconcile(&self.state, &self.shape, at(NOW)).unwrap();
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
            let (attempt, spec) = (found.attempt, found.record.desired.clone());
            *found = ready.clone();
            found.attempt = attempt;
            found.record.desired = spec;
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
        let lease = *lease("lease");
        case.dispatches(4, NodeManagerCommand::DestroyLease { lease });
    }),
    ("a cleanup of what is to live", Rule::LevelBased, |case| {
        let lease = *lease("lease");
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
];

#[test]
fn the_deciders_own_plan_breaks_no_rule() {
    assert_eq!(Case::new().check(), Ok(()));
    let mut silent = Case::new();
    silent.silent(5);
    silent.plan = reconcile(&silent.state, &silent.shape, at(NOW)).unwrap();
    assert_eq!(silent.check(), Ok(()));
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
