//! The executor: submissions in, tagged outcomes out, one task per operation.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use myelin_shape::{
    AttemptKey, LogicalNodeId, NodeAttemptId, NodeGroupId, OperationId, ProviderKind,
};
use myelin_state::{
    ErrorClass, LeaseMode, NodeEvent, NodeManagerCommand, NodeObservation, OperationKind,
    OperationOutcome,
};

use crate::{
    Admission, Ledger, Options, Provider, ProviderSetup, Snapshot, Submission, SubmitError,
    backend::{Backend, Call, Past, time_left},
    digest::Digests,
    limits::LaneId,
    outcome::{caught, failed, is_ambiguous, log},
    spared::Spared,
};

/// Carries out effects. Object-safe, so that a test or an embedder can bring its own.
///
/// No method blocks or waits. Outcomes arrive as [`NodeObservation`]s, also those of an expiry.
pub trait EffectExecutor: fmt::Debug + Send + Sync {
    /// Takes an effect. A repeated submission reports the recorded outcome again, or changes nothing while it runs.
    ///
    /// # Errors
    ///
    /// Returns why it was refused; then no outcome will be reported, and the driver folds the refusal as a failure.
    fn submit(&self, submission: Submission) -> Result<(), SubmitError>;

    /// Gives an effect up and reports what that means: ambiguous, repeatable, or the outcome it has had already.
    fn expire(&self, node: &LogicalNodeId, operation: OperationId);

    /// Drops everything about an attempt that is gone from its slot.
    fn forget(&self, node: &LogicalNodeId, attempt: NodeAttemptId);
}

/// The executor of one run. Cheap to clone; all clones are one.
///
/// Dropping it lets what runs go on; [`shutdown`](Self::shutdown) stops it.
#[derive(Clone, Debug)]
pub struct Executor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    backends: BTreeMap<ProviderKind, Arc<Backend>>,
    digests: Digests,
    results: mpsc::UnboundedSender<NodeObservation>,
    state: Mutex<State>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    runtime: Handle,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    /// The tasks of operations whose calls have not ended.
    live: HashMap<OperationId, Live>,
}

/// How to reach an operation's task.
#[derive(Clone, Debug)]
struct Live {
    stop: CancellationToken,
    turn: Arc<Notify>,
    /// Whether a provider was asked for something that may make something.
    asked: Arc<AtomicBool>,
}

impl Executor {
    /// Starts an executor on the current runtime. Outcomes go to `results`; when its receiver is gone they are lost.
    ///
    /// Of two setups of one kind, the later is used.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn new(
        options: Options,
        providers: impl IntoIterator<Item = ProviderSetup>,
        results: mpsc::UnboundedSender<NodeObservation>,
    ) -> Self {
        let backends = providers.into_iter().map(|setup| {
            let kind = setup.provider.kind();
            (kind, Arc::new(Backend::new(setup, options.clock.clone())))
        });
        let state =
            State { ledger: Ledger::beginning_at(options.clock.now()), live: HashMap::new() };
        let inner = Inner {
            backends: backends.collect(),
            options,
            digests: Digests::default(),
            results,
            state: Mutex::new(state),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            runtime: Handle::current(),
        };
        for backend in inner.backends.values() {
            let serve = Arc::clone(&backend.gate).serve(inner.shutdown.clone());
            inner.tasks.spawn_on(serve, &inner.runtime);
        }
        Self(Arc::new(inner))
    }

    /// Returns how the executor is doing.
    pub fn snapshot(&self) -> Snapshot {
        let backends = self.0.backends.iter();
        Snapshot {
            n_attempts: self.0.state().ledger.len(),
            providers: backends.map(|(kind, backend)| backend.snapshot(kind)).collect(),
        }
    }

    /// Returns the providers for others than the driver, such as the inventory: their calls keep to the limits that
    /// operations keep to, and heed and report what the provider asks to be spared. While it wants to be left alone for
    /// long, a call fails at once.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        let backends = self.0.backends.values();
        let spared = backends.map(|backend| Spared {
            backend: Arc::clone(backend),
            shutdown: self.0.shutdown.clone(),
        });
        spared.map(|it| Arc::new(it) as Arc<dyn Provider>).collect()
    }

    /// Takes nothing more, stops every call, and waits for their end, at most `patience`. Returns whether all ended.
    ///
    /// Calls that were stopped report nothing: their outcome is unknown to the driver, as after a crash.
    pub async fn shutdown(&self, patience: Duration) -> bool {
        self.0.tasks.close();
        self.0.shutdown.cancel();
        timeout(patience, self.0.tasks.wait()).await.is_ok()
    }
}

impl EffectExecutor for Executor {
    fn submit(&self, submission: Submission) -> Result<(), SubmitError> {
        self.0.submit(submission)
    }

    fn expire(&self, node: &LogicalNodeId, operation: OperationId) {
        if !self.0.give_up(node, operation) {
            // Its kind is not known here, and "ambiguous" is safe for every kind.
            let why = "the executor does not know this operation: was it restarted?";
            let outcome = failed(ErrorClass::Ambiguous, why);
            self.0.report(node, operation, outcome);
        }
    }

    fn forget(&self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        self.0.forget(node, attempt);
    }
}

impl Drop for Inner {
    /// Ends what hands out turns. No operation is left by then: each holds the executor.
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Inner {
    fn submit(self: &Arc<Self>, submission: Submission) -> Result<(), SubmitError> {
        if self.shutdown.is_cancelled() {
            return Err(SubmitError::Closed);
        }
        let submission = Arc::new(submission);
        let operation = submission.operation;
        let mut state = self.state();
        let admission = state.ledger.submit(&submission).inspect_err(|error| {
            tracing::error!(code = "operation.refused", %operation, %error, "refused");
        })?;
        match admission {
            Admission::Run => self.spawn(&mut state, submission, false),
            Admission::Wait { behind } => {
                if let Some(live) = state.live.get(&behind) {
                    live.stop.cancel();
                }
                self.spawn(&mut state, submission, true);
            }
            Admission::UnderWay => {}
            Admission::Recorded(outcome) => self.report(&submission.node, operation, outcome),
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, state: &mut State, submission: Arc<Submission>, waits: bool) {
        let live = Live {
            stop: self.shutdown.child_token(),
            turn: Arc::new(Notify::new()),
            asked: Arc::default(),
        };
        if !waits {
            live.turn.notify_one();
        }
        state.live.insert(submission.operation, live.clone());
        let span = tracing::info_span!(
            "operation",
            node = %submission.node,
            attempt = %submission.operation.attempt,
            operation = %submission.operation,
            kind = %submission.kind(),
            provider = tracing::field::Empty,
        );
        let task = Arc::clone(self).run(submission, live).instrument(span);
        self.tasks.spawn_on(task, &self.runtime);
    }

    async fn run(self: Arc<Self>, submission: Arc<Submission>, live: Live) {
        let (node, operation) = (&submission.node, submission.operation);
        let left = time_left(self.options.clock.now(), submission.deadline);
        let answer = tokio::select! {
            // First, so that an answer that is there when the call is stopped is kept and not dropped.
            biased;
            answer = self.answer(&submission, &live) => Some(answer),
            () = live.stop.cancelled() => None,
            () = sleep(left) => {
                self.give_up(node, operation);
                None
            }
        };
        if live.asked.load(Ordering::Relaxed) && answer.as_ref().is_none_or(is_ambiguous) {
            let now = self.options.clock.now();
            self.state().ledger.note_maybe_made(operation.attempt, now);
        }
        self.end(node, operation, answer);
    }

    /// Waits for the turn of the operation and carries it out.
    async fn answer(&self, submission: &Submission, live: &Live) -> OperationOutcome {
        live.turn.notified().await;
        let backend = match self.backend(submission) {
            Ok(backend) => backend,
            Err(unknown) => return unknown,
        };
        let kind = backend.provider.kind();
        tracing::Span::current().record("provider", kind.as_str());
        let digest = self.digest(submission);
        if let Some(refusal) = remembered(&backend, submission, digest.as_deref()) {
            return refusal;
        }
        let lane = LaneId::of(submission.kind());
        let Some(turn) = backend.gate.turn(lane, group_of(&submission.node)).await else {
            // Shut down: the task is being stopped.
            return std::future::pending().await;
        };
        let operation = submission.operation;
        let Some(past) = self.depart(operation, submission.kind()) else {
            // Given up in the meantime: the task is being stopped.
            return std::future::pending().await;
        };
        tracing::debug!(code = "operation.sent", "calling the provider");
        let call = Call {
            submission,
            key: self.key(&submission.node, operation.attempt),
            digest,
            past,
            asked: &live.asked,
            stop: &live.stop,
            turn,
        };
        caught(submission.kind(), backend.perform(&call)).await
    }

    /// Marks an operation as sent, and returns what is known of its attempt. `None`: it was given up.
    fn depart(&self, operation: OperationId, kind: OperationKind) -> Option<Past> {
        let mut state = self.state();
        let ledger = &mut state.ledger;
        ledger.sent(operation).then(|| Past {
            late: ledger.late(operation.attempt, kind).cloned(),
            maybe_made_at: ledger.maybe_made_at(operation.attempt),
        })
    }

    fn backend(&self, submission: &Submission) -> Result<Arc<Backend>, OperationOutcome> {
        let kind = submission.command.provider();
        self.backends.get(kind).cloned().ok_or_else(|| {
            // Who cannot be asked cannot settle what is unknown.
            let class = if submission.is_unsettled() {
                ErrorClass::Ambiguous
            } else {
                ErrorClass::Permanent
            };
            failed(class, &self.unknown_provider(kind))
        })
    }

    fn unknown_provider(&self, kind: &ProviderKind) -> String {
        let known: Vec<_> = self.backends.keys().map(ProviderKind::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("there is no provider {:?}; known: {known}", kind.as_str())
    }

    fn digest(&self, submission: &Submission) -> Option<Arc<str>> {
        match &submission.command {
            NodeManagerCommand::CreateLease { spec, .. } => Some(self.digests.of(&spec.template)),
            NodeManagerCommand::LookupEndpoint { .. }
            | NodeManagerCommand::StartBootstrap { .. }
            | NodeManagerCommand::BootstrapConvergenceObserved { .. }
            | NodeManagerCommand::CancelBootstrap { .. }
            | NodeManagerCommand::DestroyLease { .. } => None,
        }
    }

    fn key(&self, node: &LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
        AttemptKey {
            cluster: self.options.cluster,
            run: self.options.run,
            node: node.clone(),
            attempt,
        }
    }

    /// Gives an operation up, reports that, and stops its task. Returns whether it is known.
    fn give_up(&self, node: &LogicalNodeId, operation: OperationId) -> bool {
        let mut state = self.state();
        let Some(expiry) = state.ledger.expire(node, operation) else {
            return false;
        };
        if expiry.stop {
            tracing::warn!(code = "operation.expired", %node, %operation, "given up");
            if let Some(live) = state.live.get(&operation) {
                live.stop.cancel();
            }
        }
        self.report(node, operation, expiry.outcome);
        true
    }

    /// Notes that nothing of an operation's call runs any more.
    fn end(&self, node: &LogicalNodeId, operation: OperationId, answer: Option<OperationOutcome>) {
        let mut state = self.state();
        state.live.remove(&operation);
        if answer.is_none() && self.shutdown.is_cancelled() {
            return;
        }
        let ended = state.ledger.ended(operation, answer);
        if let Some(next) = ended.next
            && let Some(live) = state.live.get(&next.operation)
        {
            live.turn.notify_one();
        }
        if let Some(outcome) = ended.report {
            self.report(node, operation, outcome);
        }
    }

    fn forget(&self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        let mut state = self.state();
        let Some(operation) = state.ledger.forget(node, attempt) else {
            return;
        };
        if let Some(live) = state.live.get(&operation) {
            live.stop.cancel();
        }
        drop(state);
        let key = self.key(node, attempt);
        for backend in self.backends.values() {
            backend.tally().surplus.remove(&key);
        }
    }

    fn report(&self, node: &LogicalNodeId, operation: OperationId, outcome: OperationOutcome) {
        log(node, operation, &outcome);
        let observation = NodeObservation {
            node: node.clone(),
            attempt: operation.attempt,
            event: NodeEvent::OperationFinished { operation, outcome },
        };
        if self.results.send(observation).is_err() {
            tracing::debug!(code = "operation.unheard", %operation, "nobody takes outcomes");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the state")
    }
}

/// Returns the refusal of a fresh create whose offer is known to have no capacity.
fn remembered(
    backend: &Backend,
    submission: &Submission,
    digest: Option<&str>,
) -> Option<OperationOutcome> {
    let fresh = matches!(
        submission.command,
        NodeManagerCommand::CreateLease {
            mode: LeaseMode::CreateOrAdopt,
            unsettled_since: None,
            ..
        }
    );
    backend.remembered_refusal(digest.filter(|_| fresh)?)
}

/// Returns the group of a slot by the `{group}-{index}` convention; an index holds no `-`.
fn group_of(node: &LogicalNodeId) -> NodeGroupId {
    let text = node.as_str();
    NodeGroupId::from(text.rsplit_once('-').map_or(text, |(group, _)| group))
}
