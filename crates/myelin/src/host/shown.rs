//! What was recorded last, where no loop runs.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use myelin_driver::{ClusterDriver, Desired};
use myelin_executor::{Clock, Executor, Options as ExecutorOptions};
use myelin_provider_process::read_log;
use myelin_shape::{AttemptKey, LogicalNodeId, NodeAttemptId};
use myelin_state::ErrorClass;
use myelin_store::{Doubt, Identity, Loaded, Store, StoredDesired};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    control::{Failure, FailureKind},
    runtime::{
        self, Before, Handle, LINES_PER_NODE, Outputs, Parts, Roster, Service, SnapshotSource,
    },
    state_dir::StateDir,
    view::OutputView,
};

use super::{Error, N_EVENTS, Opened, kinds, last_events};

/// The durable state of a run, which answers as its loop would. Nothing changes it.
#[derive(Debug)]
pub struct Shown {
    /// The way to ask.
    pub handle: Handle,
    /// When it was recorded.
    pub as_of: SystemTime,
    /// Why nothing may be acted on, if so.
    pub doubt: Option<Doubt>,
    identity: Identity,
    _task: AbortOnDropHandle<()>,
}

/// Where no loop runs, no agent is heard.
#[derive(Debug)]
struct Nobody;

impl Roster for Nobody {
    fn retire(&self, _: &AttemptKey) {}

    fn last_contact(&self, _: &AttemptKey) -> Option<SystemTime> {
        None
    }

    fn n_unheard(&self) -> usize {
        0
    }

    fn awaited(&self) -> BTreeMap<LogicalNodeId, Option<SystemTime>> {
        BTreeMap::new()
    }

    fn suspend(&self, _: bool) {}
}

impl Opened {
    /// Returns what is recorded, so that it can be asked as a loop is.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not valid.
    pub async fn show(self) -> Result<Shown, Error> {
        let Self { store, loaded } = self;
        let Loaded { identity, state, desired, now, doubt, acted_generation, .. } = loaded;
        let (cluster, run) = (identity.cluster, identity.run);
        let (desired, source) = desired
            .map(|StoredDesired { shape, retry, source, .. }| (Desired { shape, retry }, source))
            .unzip();
        let source = source.unwrap_or_default();
        let driver = ClusterDriver::show(runtime::driver_options(), state, desired, now)?;
        let clock = Clock::runtime().not_before(now);
        let (sender, observations) = unbounded_channel();
        let outputs = Outputs::new(clock.clone(), sender.clone());
        let options = ExecutorOptions { cluster, run, clock: clock.clone() };
        let executor = Executor::new(options, [], sender);
        let snapshots = executor.clone();
        let parts = Parts {
            executor: Arc::new(executor),
            snapshot: SnapshotSource::new(move || snapshots.snapshot()),
            roster: Arc::new(Nobody),
            outputs,
            observations,
            witness: None,
            store: store.clone() as Arc<dyn Store>,
        };
        let events = last_events(&*store).await?;
        let options = runtime::Options {
            n_events: N_EVENTS,
            ..runtime::Options::new(cluster, run, clock, kinds())
        };
        let (service, handle) =
            Service::new(options, parts, Before { driver, events, acted_generation, source });
        let task = AbortOnDropHandle::new(tokio::spawn(service.show(now)));
        Ok(Shown { handle, as_of: now, doubt, identity, _task: task })
    }
}

impl Shown {
    /// Returns what the last bootstrap of a node has printed, as it is on disk; nothing where there is no machine.
    ///
    /// # Errors
    ///
    /// There is no such node, or what is there cannot be read.
    pub async fn output(&self, state: &StateDir, node: &str) -> Result<Vec<OutputView>, Failure> {
        let view = self.handle.explain(node.into()).await?.node;
        let Some(attempt) = view.attempt.map(NodeAttemptId) else {
            return Ok(Vec::new());
        };
        let Identity { cluster, run, .. } = self.identity;
        let key = AttemptKey { cluster, run, node: node.into(), attempt };
        match read_log(&state.leases(), &key, LINES_PER_NODE).await {
            Ok(log) => {
                Ok(runtime::outputs_of(&key, log.lines, log.written_at.unwrap_or(self.as_of)))
            }
            Err(error) if error.class == ErrorClass::AlreadyAbsent => Ok(Vec::new()),
            Err(error) => Err(Failure {
                kind: FailureKind::Refused,
                message: format!("what {node} has printed cannot be read: {error}"),
                hint: Some("look into the directories below leases/ of the state".to_owned()),
                plan: None,
            }),
        }
    }
}

/// Says why nothing may be acted on with a state.
pub fn doubtful(doubt: &Doubt) -> String {
    match doubt {
        Doubt::Behind(behind) => format!("the state is behind what was acted on: {behind}"),
        Doubt::MarkLost => {
            "state.mark is missing or unreadable, so nothing shows whether the state is the latest"
                .to_owned()
        }
    }
}
