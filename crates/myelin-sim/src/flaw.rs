//! Defects that are planted at the boundaries of the loop, each as if the code behind it had it.
//!
//! A simulator that finds nothing proves nothing. One that finds each of these within so many seeds has shown that it
//! would have found them.

use std::{sync::Arc, time::SystemTime};

use myelin_driver::{ClusterDriver, Desired, Event, Options, Submission};
use myelin_shape::{LogicalNodeId, OperationId};
use myelin_state::{
    BootstrapStage, ClusterState, LeaseMode, NodeEvent, NodeManagerCommand, NodeObservation,
    OperationKind, OperationOutcome,
};
use myelin_store::Batch;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Effects are handed out before they are recorded.
    SubmitsFirst,
    /// A commit that failed is taken for one that worked.
    ForgetsFailedCommits,
    /// Of the nodes that changed, the last is not named to the store.
    NamesTooFewNodes,
    /// What is wanted later than at first is not made durable.
    ForgetsDesired,
    /// A create after one of unknown outcome is sent as if there had been none.
    CreatesBlindly,
    /// A start after one of unknown outcome is sent as if there had been none.
    StartsBlindly,
    /// What may exist is not looked for before its attempt is cleaned up.
    SkipsAdoption,
    /// A result of an earlier effect is taken for that of the current one.
    FoldsStaleResults,
    /// What is said of an earlier attempt is taken for the current one's.
    FoldsOldAttempts,
    /// A machine that could not be destroyed counts as destroyed.
    BelievesFailedDestroys,
    /// A machine is not destroyed at all, and counts as destroyed.
    SkipsDestroys,
    /// Attempt ids are given out again after a restart.
    ReusesAttempts,
    /// What was under way at a restart is forgotten.
    ForgetsPending,
    /// That an outcome is unknown is forgotten at a restart.
    ForgetsAmbiguity,
    /// Nothing is done when its time has come.
    DropsWakeUps,
    /// A wake-up fails what is under way.
    FailsOnWakeUps,
    /// A wake-up counts as a failure of who waits: the count grows, and the delay with it.
    CountsWakeUps,
    /// What has to reach the disk before an effect is only committed.
    SkipsBarriers,
    /// Every machine is made from the first image there was.
    MakesOldImages,
    /// A bootstrap that ran through counts as an agent that joined.
    JoinsByBootstrap,
    /// Silence is not noticed.
    HearsNoSilence,
    /// After a restart nobody waits for the agents there were.
    ForgetsAgents,
    /// A lease that one listing misses counts as gone.
    BelievesListings,
    /// A failure is not reported.
    SwallowsFailures,
    /// Effects are handed out twice, under two numbers.
    DispatchesTwice,
    /// Nobody is told that an attempt is over.
    RetiresNobody,
}

impl Flaw {
    /// Every defect.
    pub const ALL: [Self; 26] = [
        Self::SubmitsFirst,
        Self::ForgetsFailedCommits,
        Self::NamesTooFewNodes,
        Self::ForgetsDesired,
        Self::CreatesBlindly,
        Self::StartsBlindly,
        Self::SkipsAdoption,
        Self::FoldsStaleResults,
        Self::FoldsOldAttempts,
        Self::BelievesFailedDestroys,
        Self::SkipsDestroys,
        Self::ReusesAttempts,
        Self::ForgetsPending,
        Self::ForgetsAmbiguity,
        Self::DropsWakeUps,
        Self::FailsOnWakeUps,
        Self::CountsWakeUps,
        Self::SkipsBarriers,
        Self::MakesOldImages,
        Self::JoinsByBootstrap,
        Self::HearsNoSilence,
        Self::ForgetsAgents,
        Self::BelievesListings,
        Self::SwallowsFailures,
        Self::DispatchesTwice,
        Self::RetiresNobody,
    ];
}

/// Spoils what the driver is told.
pub(crate) fn fold(flaw: Option<Flaw>, driver: &ClusterDriver, event: Event) -> Option<Event> {
    match (flaw, event) {
        (Some(Flaw::FailsOnWakeUps), Event::Wake) => Some(failure_of_pending(driver)),
        (Some(flaw), Event::Observed(report)) => {
            observed(flaw, driver, report).map(Event::Observed)
        }
        (_, event) => Some(event),
    }
}

fn failure_of_pending(driver: &ClusterDriver) -> Event {
    let mut nodes = driver.state().nodes.iter();
    let pending = nodes.find_map(|(id, node)| Some((id, node.pending.as_ref()?.id)));
    pending.map_or(Event::Wake, |(node, operation)| Event::SubmitFailed {
        node: node.clone(),
        operation,
        message: "woken up".into(),
    })
}

fn observed(
    flaw: Flaw,
    driver: &ClusterDriver,
    mut report: NodeObservation,
) -> Option<NodeObservation> {
    let node = driver.state().nodes.get(&report.node);
    match (flaw, &mut report.event) {
        (Flaw::FoldsStaleResults, NodeEvent::OperationFinished { operation, .. }) => {
            let pending = node.and_then(|node| node.pending.as_ref());
            if let Some(pending) = pending.filter(|it| it.id.attempt == operation.attempt) {
                *operation = pending.id;
            }
        }
        (Flaw::FoldsOldAttempts, NodeEvent::OperationFinished { operation, .. }) => {
            let pending = node.and_then(|node| node.pending.as_ref());
            if let Some(pending) = pending.filter(|it| it.id.attempt != operation.attempt) {
                *operation = pending.id;
                report.attempt = pending.id.attempt;
            }
        }
        (
            Flaw::FoldsOldAttempts,
            NodeEvent::Joined { .. } | NodeEvent::Contact { .. } | NodeEvent::Silent { .. },
        ) => report.attempt = node.map_or(report.attempt, |node| node.attempt),
        (Flaw::BelievesFailedDestroys, NodeEvent::OperationFinished { operation, outcome }) => {
            let destroys = is_pending(driver, *operation, OperationKind::DestroyLease);
            if destroys && matches!(outcome, OperationOutcome::Failed(_)) {
                *outcome = OperationOutcome::LeaseDestroyed;
            }
        }
        (Flaw::JoinsByBootstrap, NodeEvent::Bootstrap { stage, .. })
            if *stage == BootstrapStage::WaitingForSwactorJoin =>
        {
            report.event = NodeEvent::Joined { swactor: "assumed".into() };
        }
        (Flaw::HearsNoSilence, NodeEvent::Silent { .. })
        | (
            Flaw::SwallowsFailures,
            NodeEvent::OperationFinished { outcome: OperationOutcome::Failed(_), .. },
        ) => return None,
        _ => {}
    }
    Some(report)
}

fn is_pending(driver: &ClusterDriver, operation: OperationId, kind: OperationKind) -> bool {
    let mut pending = driver.state().nodes.values().filter_map(|node| node.pending.as_ref());
    pending.any(|it| it.id == operation && it.kind == kind)
}

/// Spoils what is written down.
pub(crate) fn commit(flaw: Option<Flaw>, mut batch: Batch<'_>) -> Batch<'_> {
    match flaw {
        Some(Flaw::NamesTooFewNodes) => {
            batch.nodes = batch.nodes.split_last().map_or(&[], |(_, others)| others);
        }
        Some(Flaw::ForgetsDesired) => {
            batch.desired = batch.desired.filter(|desired| desired.shape.generation == 1);
        }
        Some(Flaw::SkipsBarriers) => batch.barrier = false,
        _ => {}
    }
    batch
}

/// What becomes of something that is to be handed to the executor.
pub(crate) enum Handed {
    /// These are handed over, one after the other.
    Over(Vec<Submission>),
    /// It is not handed over, and this is reported of it.
    Instead(Event),
}

/// Spoils what is handed to the executor.
pub(crate) fn submit(flaw: Option<Flaw>, mut duty: Submission) -> Handed {
    match (flaw, &mut duty.command) {
        (
            Some(Flaw::CreatesBlindly),
            NodeManagerCommand::CreateLease { unsettled_since, mode, .. },
        )
        | (
            Some(Flaw::StartsBlindly),
            NodeManagerCommand::StartBootstrap { unsettled_since, mode, .. },
        ) => {
            *unsettled_since = None;
            *mode = LeaseMode::CreateOrAdopt;
        }
        (
            Some(Flaw::SkipsAdoption),
            NodeManagerCommand::CreateLease { mode: LeaseMode::AdoptOnly, .. },
        ) => return instead(duty, OperationOutcome::LeaseAbsent),
        (Some(Flaw::SkipsDestroys), NodeManagerCommand::DestroyLease { .. }) => {
            return instead(duty, OperationOutcome::LeaseDestroyed);
        }
        (Some(Flaw::MakesOldImages), NodeManagerCommand::CreateLease { spec, .. }) => {
            Arc::make_mut(&mut spec.template).shape.image = "v1".into();
        }
        (Some(Flaw::DispatchesTwice), _) => {
            let mut again = duty.clone();
            again.operation.sequence += 1;
            return Handed::Over(vec![duty, again]);
        }
        _ => {}
    }
    Handed::Over(vec![duty])
}

fn instead(duty: Submission, outcome: OperationOutcome) -> Handed {
    let Submission { node, operation, .. } = duty;
    let event = NodeEvent::OperationFinished { operation, outcome };
    Handed::Instead(Event::Observed(NodeObservation { node, attempt: operation.attempt, event }))
}

/// Spoils what is loaded after a restart.
pub(crate) fn load(flaw: Option<Flaw>, state: &mut ClusterState) {
    match flaw {
        Some(Flaw::ReusesAttempts) => {
            state.next_attempt_id = state.next_attempt_id.saturating_sub(2).max(1);
        }
        Some(Flaw::ForgetsPending) => {
            for node in state.nodes.values_mut() {
                node.pending = None;
            }
        }
        Some(Flaw::ForgetsAmbiguity) => {
            for node in state.nodes.values_mut() {
                node.retry.ambiguous_operation = None;
                node.retry.ambiguous_since = None;
            }
        }
        _ => {}
    }
}

/// Counts a wake-up as one more failure of each node that waits. `None`: none does, or effects are under way, which a driver
/// that is made anew would take for interrupted.
pub(crate) fn count_wake_up(driver: &ClusterDriver, now: SystemTime) -> Option<ClusterDriver> {
    let mut state = driver.state().clone();
    if state.nodes.values().any(|node| node.pending.is_some()) {
        return None;
    }
    let mut counts = false;
    for retry in state.nodes.values_mut().map(|node| &mut node.retry) {
        if let Some(at) = retry.next_effect_at.filter(|at| *at > now) {
            retry.consecutive_failures += 1;
            retry.next_effect_at = Some(at + at.duration_since(now).unwrap_or_default());
            counts = true;
        }
    }
    let desired =
        Desired { shape: driver.desired()?.clone(), retry: driver.retry_policy().clone() };
    let options = Options { max_nodes: u64::MAX };
    counts.then(|| ClusterDriver::resume(options, state, desired, now).ok()).flatten()
}

/// Returns what a believer in listings concludes from one.
pub(crate) fn missing(state: &ClusterState, listed: &[String]) -> Vec<Event> {
    let is_listed = |id: &str| listed.iter().any(|it| it == id);
    let of = |id: &LogicalNodeId, attempt| NodeObservation {
        node: id.clone(),
        attempt,
        event: NodeEvent::LeaseGone,
    };
    let nodes = state.nodes.iter().filter(|(_, node)| {
        node.record.lease.as_ref().is_some_and(|lease| !is_listed(lease.lease_id.as_str()))
    });
    nodes.map(|(id, node)| Event::Observed(of(id, node.attempt))).collect()
}
