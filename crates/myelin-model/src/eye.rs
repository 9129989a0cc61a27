//! How a state is looked at: each record taken apart, with ids and times made relative.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use myelin_shape::{BootstrapSessionId, NodeAttemptId, NodeTemplate};
use myelin_state::{
    BootstrapFacts, ClusterState, GroupRecord, ManagedNode, NodeEvent, NodeManagerCommand,
    NodeObservation, NodeRecord, OperationOutcome, PendingOperation, RetryPolicy, RetryState,
};

use crate::{
    Flaw, Scenario, Slot, State,
    face::{CallFace, GroupFace, LateFace, Left, MachineFace, NodeFace, ProgressFace, RetryFace},
    world::{Call, Machine, Progress, SlotWorld},
};

/// What ids and times are relative to.
#[derive(Debug)]
pub(crate) struct Eye<'a> {
    scenario: &'a Scenario,
    pub(crate) state: &'a ClusterState,
    now: SystemTime,
    policy: RetryPolicy,
    /// Sessions that are named anywhere.
    sessions: BTreeSet<BootstrapSessionId>,
    /// Times that have passed and by which repairs are ordered.
    passed: BTreeSet<SystemTime>,
    /// When the silent were last heard.
    lost: BTreeSet<SystemTime>,
}

impl<'a> Eye<'a> {
    pub(crate) fn new(state: &'a State, scenario: &'a Scenario) -> Self {
        let (now, cluster) = (state.now, state.driver.state());
        let of_node = |node: &ManagedNode| {
            [node.active_bootstrap, node.record.bootstrap.as_ref().map(|facts| facts.session)]
        };
        let of_world = |(_, world): (Slot, &SlotWorld)| {
            let running = world.machine.as_ref().and_then(|it| it.session).map(|it| it.id);
            [running, world.call.as_ref().and_then(session_of)]
        };
        let sessions = cluster.nodes.values().flat_map(of_node);
        let sessions = sessions.chain(state.world.slots().flat_map(of_world)).flatten();
        let late = state.world.late.iter().filter_map(|late| session_reported(late, cluster));
        let sessions = sessions.chain(late).collect();
        let times =
            |node: &ManagedNode| [node.retry.next_effect_at, node.retry.restart_at, ended_at(node)];
        let passed = cluster.nodes.values().flat_map(times).flatten();
        let lost = cluster.nodes.values().filter_map(|node| node.record.lost_at());
        let lost = lost.chain(state.world.late.iter().filter_map(last_contact)).collect();
        let passed = passed.filter(|&time| time <= now).collect();
        Self { scenario, state: cluster, now, policy: scenario.retry(), sessions, passed, lost }
    }

    pub(crate) fn left(&self, time: SystemTime) -> Left {
        match time.duration_since(self.now) {
            Ok(left) if left > Duration::ZERO => {
                (u64::try_from(left.as_millis()).unwrap_or(u64::MAX), 0)
            }
            Ok(_) | Err(_) => (0, self.passed.range(..time).count()),
        }
    }

    fn session(&self, id: BootstrapSessionId) -> usize {
        self.sessions.range(..id).count()
    }

    fn template(&self, template: &NodeTemplate) -> usize {
        let mut groups = self.scenario.shapes.iter().flat_map(|shape| &shape.groups);
        let place = groups.position(|group| group.shape == template.shape);
        place.expect("a template comes from a shape of the scenario")
    }

    pub(crate) fn node(&self, node: &ManagedNode) -> NodeFace {
        let ManagedNode {
            attempt: _,
            intent,
            record,
            active_bootstrap,
            pending,
            next_operation_sequence: _,
            retry,
            delete_cause,
            recovering,
            repairing,
            spends_budget,
            replace_requested,
            keep_released,
            quarantine,
            refused,
        } = node;
        let NodeRecord {
            desired,
            stage,
            lease,
            connection,
            bootstrap,
            swactor,
            handed_off,
            ready_since,
            silence,
            ready_by,
            bootstrap_by,
            failed_reason: _,
            failed_at: _,
            destroyed_at: _,
        } = record;
        let facts = |facts: &BootstrapFacts| {
            let BootstrapFacts { session, stage, last_sequence, started_at: _ } = facts;
            (self.session(*session), *stage, *last_sequence)
        };
        let silence = silence.as_deref().map(|silence| {
            let given = silence.deadline > silence.lost_at + self.policy.lost_after;
            let order = self.lost.range(..silence.lost_at).count();
            (self.left(silence.deadline), given, order)
        });
        let pending = pending.as_deref().map(|pending| {
            let PendingOperation { id: _, kind, deadline, expired } = pending;
            (*kind, self.left(*deadline), *expired)
        });
        let steady = |since: SystemTime| since + self.policy.stable_after <= self.now;
        NodeFace {
            intent: *intent,
            template: self.template(&desired.template),
            stage: *stage,
            lease: lease.is_some(),
            connection: connection.is_some(),
            bootstrap: bootstrap.as_deref().map(facts),
            joined: swactor.is_some(),
            handed_off: *handed_off,
            steady: ready_since.map(steady),
            silence,
            ready_by: ready_by.map(|time| self.left(time)),
            bootstrap_by: bootstrap_by.map(|time| self.left(time)),
            session: active_bootstrap.map(|id| self.session(id)),
            pending,
            retry: self.retry(retry, node),
            delete_cause: *delete_cause,
            flags: [
                *recovering,
                *repairing,
                *spends_budget,
                *replace_requested,
                *keep_released,
                refused.is_some(),
            ],
            quarantine: quarantine.as_deref().map(|it| self.template(&it.template)),
        }
    }

    fn retry(&self, retry: &RetryState, node: &ManagedNode) -> RetryFace {
        let RetryState {
            consecutive_failures,
            ended_attempts,
            failed_cancels,
            next_effect_at,
            restart_at,
            last_error: _,
            ambiguous_operation,
            ambiguous_since: _,
        } = retry;
        RetryFace {
            failures: (*consecutive_failures).min(longest_after(&self.policy)),
            ended_attempts: (*ended_attempts).min(self.policy.max_consecutive_failures),
            failed_cancels: (*failed_cancels).min(self.policy.max_cancel_failures),
            next_effect_at: next_effect_at.map(|time| self.left(time)),
            restart_at: restart_at.map(|time| self.left(time)),
            destroyed_at: ended_at(node).map(|time| self.left(time)),
            ambiguous: ambiguous_operation.filter(|_| self.scenario.flaw != Some(Flaw::LooksAway)),
        }
    }

    pub(crate) fn machine(&self, machine: &Machine, current: Option<NodeAttemptId>) -> MachineFace {
        let Machine { attempt, lives, session, agent, stillborn: _ } = machine;
        MachineFace {
            age: age(*attempt, current),
            lives: *lives,
            session: session.map(|session| (self.session(session.id), session.sequence)),
            agent: *agent,
        }
    }

    pub(crate) fn call(&self, call: &Call, node: Option<&ManagedNode>) -> CallFace {
        let Call { operation, command, progress, stopping } = call;
        let (mode, unsettled) = match command {
            NodeManagerCommand::CreateLease { mode, unsettled_since, .. }
            | NodeManagerCommand::StartBootstrap { mode, unsettled_since, .. } => {
                (Some(*mode), unsettled_since.is_some())
            }
            NodeManagerCommand::LookupEndpoint { .. }
            | NodeManagerCommand::BootstrapConvergenceObserved { .. }
            | NodeManagerCommand::CancelBootstrap { .. }
            | NodeManagerCommand::DestroyLease { .. } => (None, false),
        };
        let pending = node.and_then(|node| node.pending.as_deref()).map(|pending| pending.id);
        CallFace {
            age: age(operation.attempt, node.map(|node| node.attempt)),
            is_pending: pending == Some(*operation),
            kind: command.kind(),
            mode,
            unsettled,
            session: session_of(call).map(|id| self.session(id)),
            progress: match progress {
                Progress::Asked => ProgressFace::Asked,
                Progress::Lost => ProgressFace::Lost,
                Progress::Done(OperationOutcome::BootstrapStarted { session }) => {
                    ProgressFace::Started(self.session(*session))
                }
                Progress::Done(outcome) => {
                    outcome.error_class().map_or(ProgressFace::NothingThere, ProgressFace::Failed)
                }
            },
            stopping: *stopping,
        }
    }

    pub(crate) fn late(&self, late: &NodeObservation) -> LateFace {
        let slot = Slot::named(&late.node);
        let current = self.state.nodes.get(&late.node).filter(|node| node.attempt == late.attempt);
        match &late.event {
            NodeEvent::Joined { .. } if current.is_some() => LateFace::Joined(slot),
            NodeEvent::Contact { .. } if current.is_some() => LateFace::Heard(slot),
            NodeEvent::LeaseGone if current.is_some() => LateFace::Gone(slot),
            NodeEvent::Bootstrap { session, sequence, stage, .. } if current.is_some() => {
                LateFace::Boots(slot, self.session(*session), *sequence, *stage)
            }
            NodeEvent::Silent { last_contact, .. } if current.is_some() => {
                let ago = self.now.duration_since(*last_contact).unwrap_or_default();
                let order = self.lost.range(..last_contact).count();
                LateFace::Silent(slot, ago.min(self.policy.lost_after), order)
            }
            // A result is copied when it arrives, so its effect is never pending again.
            NodeEvent::OperationFinished { .. }
            | NodeEvent::Joined { .. }
            | NodeEvent::Silent { .. }
            | NodeEvent::Bootstrap { .. }
            | NodeEvent::Contact { .. }
            | NodeEvent::LeaseGone
            | NodeEvent::DeadlinePassed
            | NodeEvent::Operator(_) => LateFace::Dead(slot),
        }
    }

    pub(crate) fn group(&self, group: &GroupRecord) -> GroupFace {
        let GroupRecord { proven, canary, brake } = group;
        GroupFace {
            proven: proven.iter().map(|template| self.template(template)).collect(),
            canary: canary
                .as_ref()
                .map(|canary| (canary.node.as_str().to_owned(), self.template(&canary.template))),
            ended_silent: brake.silent_machine_ended,
        }
    }
}

/// The time a repair without a restart time is ordered by.
fn ended_at(node: &ManagedNode) -> Option<SystemTime> {
    node.record.destroyed_at.filter(|_| node.retry.restart_at.is_none() && node.recovering)
}

fn last_contact(late: &NodeObservation) -> Option<SystemTime> {
    if let NodeEvent::Silent { last_contact, .. } = &late.event {
        Some(*last_contact)
    } else {
        None
    }
}

/// Returns the session that a late report of a current attempt is about.
fn session_reported(late: &NodeObservation, state: &ClusterState) -> Option<BootstrapSessionId> {
    let is_current = state.nodes.get(&late.node).is_some_and(|node| node.attempt == late.attempt);
    match &late.event {
        NodeEvent::Bootstrap { session, .. } if is_current => Some(*session),
        NodeEvent::Bootstrap { .. }
        | NodeEvent::OperationFinished { .. }
        | NodeEvent::Joined { .. }
        | NodeEvent::Contact { .. }
        | NodeEvent::Silent { .. }
        | NodeEvent::LeaseGone
        | NodeEvent::DeadlinePassed
        | NodeEvent::Operator(_) => None,
    }
}

fn session_of(call: &Call) -> Option<BootstrapSessionId> {
    if let Progress::Done(OperationOutcome::BootstrapStarted { session }) = &call.progress {
        return Some(*session);
    }
    match &call.command {
        NodeManagerCommand::CancelBootstrap { session, .. } => Some(*session),
        NodeManagerCommand::BootstrapConvergenceObserved { session, .. } => *session,
        NodeManagerCommand::CreateLease { .. }
        | NodeManagerCommand::LookupEndpoint { .. }
        | NodeManagerCommand::StartBootstrap { .. }
        | NodeManagerCommand::DestroyLease { .. } => None,
    }
}

/// Counts back from the current attempt. What has no node any more is older than any.
fn age(attempt: NodeAttemptId, current: Option<NodeAttemptId>) -> u64 {
    current.map_or(u64::MAX, |current| current.0.saturating_sub(attempt.0).min(1))
}

/// Returns the number of failures from which on the back-off does not grow.
fn longest_after(policy: &RetryPolicy) -> u32 {
    let grown = |failures: &u32| {
        let delay = policy.factor.checked_pow(failures - 1);
        delay.is_none_or(|factor| policy.initial_delay * factor >= policy.max_delay)
    };
    (1..=32).find(grown).expect("the delay grows")
}
