//! What the driver has done and nobody but us knows yet: nothing leaves before its record is durable (`spec 5`).

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_driver::{ClusterDriver, DriverEvent, Effects, EventKind, Submission};
use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_state::OperationKind;
use myelin_store::{Batch, Source, Store, StoreError, StoredDesired};

/// How long after a failed commit the next one is tried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many notes are kept while the store takes nothing: of a sweep a minute, those of the last hours.
const MAX_NOTES: usize = 256;

/// What follows from a commit, in this order.
#[derive(Debug, Default)]
pub(crate) struct Duties {
    pub(crate) submit: Vec<Submission>,
    pub(crate) expire: Vec<(LogicalNodeId, OperationId)>,
    pub(crate) forget: Vec<(LogicalNodeId, NodeAttemptId)>,
}

/// Why nothing is acted on: the store does not take what happened.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What it says.
    pub error: Arc<StoreError>,
    /// Since when.
    pub since: SystemTime,
    /// When the commit is tried again.
    pub retry_at: SystemTime,
}

/// What waits for the next commit. A failed one leaves all of it here.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    nodes: Vec<LogicalNodeId>,
    cluster: bool,
    desired: Option<StoredDesired>,
    events: Vec<DriverEvent>,
    /// The last events that nobody waits for, in the meantime of a failed commit and the next that works.
    notes: VecDeque<DriverEvent>,
    duties: Duties,
    /// Whether somebody else than the driver waits for the commit before something is ended.
    barrier: bool,
    trouble: Option<Trouble>,
}

impl Outbox {
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Takes over what one run of the driver has changed, and what is to follow from it.
    pub(crate) fn absorb(
        &mut self,
        effects: Effects,
        driver: &ClusterDriver,
        source: &Source,
        now: SystemTime,
    ) {
        let changed = effects.changed;
        if self.nodes.is_empty() {
            self.nodes = changed.nodes;
        } else {
            self.nodes.extend(changed.nodes);
            self.nodes.sort_unstable();
            self.nodes.dedup();
        }
        self.cluster |= changed.cluster;
        if let Some(shape) = driver.desired().filter(|_| changed.desired) {
            self.desired = Some(StoredDesired {
                shape: shape.clone(),
                retry: driver.retry_policy().clone(),
                source: source.clone(),
                accepted_at: now,
            });
        }
        // What changed nothing is traced where it is noticed.
        let told = |event: &DriverEvent| !matches!(event.kind, EventKind::Ignored { .. });
        self.events.extend(changed.events.into_iter().filter(told));
        self.duties.submit.extend(effects.submit);
        self.duties.expire.extend(effects.expire);
        self.duties.forget.extend(effects.forget);
    }

    /// Takes over an event that is not the driver's and that somebody waits for: its commit outlives a loss of power.
    pub(crate) fn record(&mut self, event: DriverEvent) {
        self.events.push(event);
        self.barrier = true;
    }

    /// Takes over an event that is not the driver's. While the store takes nothing, only the last of them are kept.
    pub(crate) fn note(&mut self, event: DriverEvent) {
        if self.trouble.is_none() {
            return self.events.push(event);
        }
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(event);
    }

    /// Makes everything durable, and returns what happened and what is to be done now; `None` after a failure.
    pub(crate) async fn commit(
        &mut self,
        store: &dyn Store,
        driver: &ClusterDriver,
        now: SystemTime,
    ) -> Option<(Vec<DriverEvent>, Duties)> {
        if self.is_durable() {
            return Some((Vec::new(), mem::take(&mut self.duties)));
        }
        let batch = Batch {
            now,
            state: driver.state(),
            nodes: &self.nodes,
            cluster: self.cluster,
            desired: self.desired.as_ref(),
            events: &self.events,
            barrier: self.barrier
                || self.desired.is_some()
                || self.duties.submit.iter().any(needs_barrier),
        };
        if let Err(error) = store.commit(batch).await {
            self.fail(error, now);
            return None;
        }
        if let Some(trouble) = self.trouble.take() {
            tracing::info!(error = %trouble.error, "the store takes what happens again");
        }
        self.nodes.clear();
        (self.cluster, self.desired, self.barrier) = (false, None, false);
        let told = mem::replace(&mut self.events, mem::take(&mut self.notes).into());
        Some((told, mem::take(&mut self.duties)))
    }

    /// Returns whether the store knows everything.
    fn is_durable(&self) -> bool {
        self.nodes.is_empty() && !self.cluster && self.desired.is_none() && self.events.is_empty()
    }

    fn fail(&mut self, error: StoreError, now: SystemTime) {
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        if self.trouble.is_none() {
            tracing::error!(%error, "the store does not take what happened; nothing is done until it does");
        }
        let retry_at = now + RETRY_AFTER;
        self.trouble = Some(Trouble { error: Arc::new(error), since, retry_at });
    }
}

/// What makes something, or ends a machine, must not happen before a record of it that outlives a loss of power: who does
/// not know that it was begun would begin it once more.
fn needs_barrier(submission: &Submission) -> bool {
    let kind = submission.command.kind();
    kind.creates() || kind == OperationKind::DestroyLease
}
