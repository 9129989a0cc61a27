//! How each command is carried out with one provider and its bootstrap.
//!
//! All that is decided here is what an answer proves: whether something may be made, adopted, or called absent.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

use myelin_shape::{AttemptKey, LogicalNodeSpec, ProviderKind};
use myelin_state::{
    ErrorClass, LeaseFacts, LeaseMode, NodeManagerCommand, OperationKind, OperationOutcome,
};

use crate::{
    Bootstrap, Clock, CreateRequest, FoundLease, NewLease, NoCapacity, Presence, Provider,
    ProviderError, ProviderSetup, ProviderSnapshot, StartRequest, Submission,
    gate::{Gate, Turn},
    limits::LONGEST_PAUSE,
    outcome::failed,
};

/// One provider with what belongs to it.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) clock: Clock,
    pub(crate) tally: Mutex<Tally>,
}

/// What was seen of a provider, for display.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How many leases and sessions were found rather than made.
    pub(crate) adopted: u64,
    /// Leases beyond the adopted one, by attempt.
    pub(crate) surplus: BTreeMap<AttemptKey, u32>,
    /// Offers without capacity, by digest of the template.
    pub(crate) no_capacity: BTreeMap<Arc<str>, NoCapacity>,
}

/// One operation being carried out.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) submission: &'a Submission,
    pub(crate) key: AttemptKey,
    pub(crate) digest: Option<Arc<str>>,
    pub(crate) past: Past,
    /// Set before anything is asked for that may make something.
    pub(crate) asked: &'a AtomicBool,
    /// Cancelled once the operation is given up.
    pub(crate) stop: &'a CancellationToken,
    pub(crate) turn: Turn,
}

/// What the ledger knows of earlier calls of the attempt.
#[derive(Debug)]
pub(crate) struct Past {
    /// What a call that was given up made, if nobody knows of it yet.
    pub(crate) late: Option<OperationOutcome>,
    /// When a call ended that may have made something without saying so.
    pub(crate) maybe_made_at: Option<SystemTime>,
}

impl Call<'_> {
    /// Notes that something is about to be made. Never returns once the operation is given up, or is going to be: a look
    /// that came to its end in time does not make the call in time that would follow it.
    async fn about_to_make(&self, now: SystemTime) {
        if self.stop.is_cancelled() || self.submission.deadline <= now {
            std::future::pending::<()>().await;
        }
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether something may exist already. The driver says so; a driver that forgot is not believed.
    fn must_look_first(&self, terms: Terms) -> bool {
        terms.mode == LeaseMode::AdoptOnly
            || terms.unsettled_since.is_some()
            || self.past.maybe_made_at.is_some()
            || self.past.late.is_some()
    }
}

/// Whether the attempt may make something, and since when an earlier outcome is unknown.
#[derive(Clone, Copy, Debug)]
struct Terms {
    mode: LeaseMode,
    unsettled_since: Option<SystemTime>,
}

impl Backend {
    pub(crate) fn new(setup: ProviderSetup, clock: Clock) -> Self {
        Self {
            provider: setup.provider,
            bootstrap: setup.bootstrap,
            gate: Gate::new(setup.limits),
            clock,
            tally: Mutex::default(),
        }
    }

    pub(crate) fn snapshot(&self, kind: &ProviderKind) -> ProviderSnapshot {
        let (n_running, n_waiting, paused_for) = self.gate.load();
        let now = self.clock.now();
        let tally = self.tally();
        let offers = tally.no_capacity.values().filter(|offer| offer.until > now);
        ProviderSnapshot {
            kind: kind.clone(),
            n_running,
            n_waiting,
            paused_for,
            n_adopted: tally.adopted,
            surplus: tally.surplus.clone(),
            no_capacity: offers.cloned().collect(),
        }
    }

    /// Returns the refusal that an offer without capacity is remembered by.
    pub(crate) fn remembered_refusal(&self, digest: &str) -> Option<OperationOutcome> {
        let now = self.clock.now();
        let tally = self.tally();
        let known = tally.no_capacity.get(digest).filter(|it| it.until > now)?;
        let message = format!("{} (remembered, not asked again)", known.message);
        Some(failed(ErrorClass::NoCapacity, &message))
    }

    /// Carries out one command. May be dropped at any await point.
    pub(crate) async fn perform(&self, call: &Call<'_>) -> OperationOutcome {
        normal(call.submission.kind(), self.dispatch(call).await)
    }

    async fn dispatch(&self, call: &Call<'_>) -> OperationOutcome {
        match &call.submission.command {
            NodeManagerCommand::CreateLease { spec, mode, unsettled_since } => {
                let terms = Terms { mode: *mode, unsettled_since: *unsettled_since };
                self.create_lease(call, spec, terms).await
            }
            NodeManagerCommand::LookupEndpoint { lease } => self.look_up_endpoint(lease).await,
            NodeManagerCommand::StartBootstrap {
                spec,
                lease,
                connection,
                mode,
                unsettled_since,
            } => {
                let request = StartRequest {
                    key: call.key.clone(),
                    operation: call.submission.operation,
                    spec: spec.clone(),
                    lease: lease.clone(),
                    connection: connection.clone(),
                };
                let terms = Terms { mode: *mode, unsettled_since: *unsettled_since };
                self.start_bootstrap(call, &request, terms).await
            }
            NodeManagerCommand::BootstrapConvergenceObserved { session, .. } => match session {
                Some(session) => ended(
                    self.noted(self.bootstrap.conclude(*session).await),
                    OperationOutcome::ConvergenceRecorded,
                ),
                None => OperationOutcome::ConvergenceRecorded,
            },
            NodeManagerCommand::CancelBootstrap { session, .. } => ended(
                self.noted(self.bootstrap.cancel(*session).await),
                OperationOutcome::BootstrapCancelled,
            ),
            NodeManagerCommand::DestroyLease { lease } => self.destroy_lease(call, lease).await,
        }
    }

    async fn create_lease(
        &self,
        call: &Call<'_>,
        spec: &LogicalNodeSpec,
        terms: Terms,
    ) -> OperationOutcome {
        let digest = call.digest.as_ref().expect("a create comes with its template's digest");
        if call.must_look_first(terms) {
            if let Some(outcome) = self.find_lease(call, digest, terms).await {
                return outcome;
            }
            if let Some(refusal) = self.remembered_refusal(digest) {
                return refusal;
            }
            call.turn.charge();
        }
        let request = CreateRequest {
            key: call.key.clone(),
            template_digest: Arc::clone(digest),
            generation: call.submission.generation,
            spec: spec.clone(),
        };
        call.about_to_make(self.clock.now()).await;
        match self.noted(self.provider.create(&request).await) {
            Ok(made) => created(made),
            Err(error) => {
                if error.class == ErrorClass::NoCapacity {
                    self.remember_no_capacity(digest, &error.message);
                }
                error.into()
            }
        }
    }

    /// Looks for the attempt's lease. `None`: there is none, and one may be made.
    async fn find_lease(
        &self,
        call: &Call<'_>,
        digest: &str,
        terms: Terms,
    ) -> Option<OperationOutcome> {
        let asked_at = self.clock.now();
        let found = match self.noted(self.provider.find(&call.key).await) {
            Ok(found) => found,
            Err(error) => return Some(still_unknown(&error)),
        };
        if !found.is_empty() {
            return Some(self.adopt(call, digest, &found));
        }
        if let Some(late) = &call.past.late
            && self.still_exists(call, late).await
        {
            self.tally().adopted += 1;
            return Some(late.clone());
        }
        self.absent(call, terms, asked_at, OperationOutcome::LeaseAbsent)
    }

    fn adopt(&self, call: &Call<'_>, digest: &str, found: &[FoundLease]) -> OperationOutcome {
        let n_found = found.len();
        let matching = found.iter().filter(|lease| lease.template_digest == digest);
        // Ties go to the earlier entry: the listing is oldest first, at the provider's own resolution.
        let Some(oldest) = matching.min_by_key(|lease| lease.created_at) else {
            return failed(ErrorClass::Permanent, &foreign(&call.key, digest, &found[0]));
        };
        let mut tally = self.tally();
        tally.adopted += 1;
        if n_found > 1 {
            let surplus = u32::try_from(n_found - 1).unwrap_or(u32::MAX);
            tally.surplus.insert(call.key.clone(), surplus);
            tracing::warn!(
                code = "lease.surplus",
                adopted = oldest.lease.lease_id.as_str(),
                surplus,
                "the attempt has more than one lease; the others are left alone here"
            );
        }
        drop(tally);
        created(NewLease { lease: oldest.lease.clone(), connection: oldest.connection.clone() })
    }

    async fn still_exists(&self, call: &Call<'_>, late: &OperationOutcome) -> bool {
        let OperationOutcome::LeaseCreated { lease, .. } = late else {
            return false;
        };
        call.turn.charge();
        // Only certain absence outweighs the provider's own word that it made the lease.
        !matches!(self.noted(self.provider.presence(lease).await), Ok(Presence::Absent))
    }

    /// Says what "not found" means on these terms, in answer to a question of `asked_at`: an answer that was long on its way
    /// may be as old as the question. `None`: it is absent, and may be made.
    fn absent(
        &self,
        call: &Call<'_>,
        terms: Terms,
        asked_at: SystemTime,
        proven: OperationOutcome,
    ) -> Option<OperationOutcome> {
        let window = self.provider.settle_window();
        let age = |since| asked_at.duration_since(since).unwrap_or_default();
        // The driver keeps the first time an outcome became unknown; a later create may have been lost since.
        if terms
            .unsettled_since
            .max(call.past.maybe_made_at)
            .is_some_and(|since| age(since) < window)
        {
            let message = format!(
                "not found, which proves nothing within {} s of an unknown outcome",
                window.as_secs_f32()
            );
            return Some(failed(ErrorClass::Ambiguous, &message));
        }
        (terms.mode == LeaseMode::AdoptOnly).then_some(proven)
    }

    async fn look_up_endpoint(&self, lease: &LeaseFacts) -> OperationOutcome {
        match self.noted(self.provider.endpoint(lease).await) {
            Ok(Some(connection)) => OperationOutcome::EndpointFound(connection),
            Ok(None) => OperationOutcome::EndpointNotReady,
            Err(error) => error.into(),
        }
    }

    async fn start_bootstrap(
        &self,
        call: &Call<'_>,
        request: &StartRequest,
        terms: Terms,
    ) -> OperationOutcome {
        if call.must_look_first(terms) {
            if let Some(outcome) = self.find_session(call, request, terms).await {
                return outcome;
            }
            call.turn.charge();
        }
        call.about_to_make(self.clock.now()).await;
        match self.noted(self.bootstrap.start(request).await) {
            Ok(session) => OperationOutcome::BootstrapStarted { session },
            Err(error) => error.into(),
        }
    }

    /// Looks for the attempt's session. `None`: there is none, and one may be made.
    async fn find_session(
        &self,
        call: &Call<'_>,
        request: &StartRequest,
        terms: Terms,
    ) -> Option<OperationOutcome> {
        let asked_at = self.clock.now();
        let found = match self.noted(self.bootstrap.find(&request.key, &request.lease).await) {
            Ok(found) => found.map(|found| found.session),
            Err(error) => return Some(still_unknown(&error)),
        };
        let found = found.map(|session| OperationOutcome::BootstrapStarted { session });
        // A late session that ended since is harmless: concluding or cancelling what is unknown succeeds.
        if let Some(session) = found.or_else(|| call.past.late.clone()) {
            self.tally().adopted += 1;
            return Some(session);
        }
        self.absent(call, terms, asked_at, OperationOutcome::BootstrapAbsent)
    }

    async fn destroy_lease(&self, call: &Call<'_>, lease: &LeaseFacts) -> OperationOutcome {
        let Err(error) = self.noted(self.provider.destroy(lease).await) else {
            return OperationOutcome::LeaseDestroyed;
        };
        match error.class {
            ErrorClass::AlreadyAbsent => OperationOutcome::LeaseDestroyed,
            ErrorClass::RateLimited(_) => error.into(),
            ErrorClass::Transient
            | ErrorClass::NoCapacity
            | ErrorClass::Permanent
            | ErrorClass::Ambiguous => {
                call.turn.charge();
                match self.noted(self.provider.presence(lease).await) {
                    Ok(Presence::Absent) => OperationOutcome::LeaseDestroyed,
                    Ok(Presence::Present) | Err(_) => error.into(),
                }
            }
        }
    }

    /// Obeys what a failure says about the provider rather than about the attempt.
    pub(crate) fn noted<T>(&self, answer: Result<T, ProviderError>) -> Result<T, ProviderError> {
        answer.inspect_err(|error| {
            if let ErrorClass::RateLimited(pause) = error.class {
                self.gate.pause(pause);
            }
        })
    }

    fn remember_no_capacity(&self, digest: &Arc<str>, message: &str) {
        let now = self.clock.now();
        let Some(until) = now.checked_add(self.gate.limits().no_capacity_for) else {
            return;
        };
        let mut tally = self.tally();
        tally.no_capacity.retain(|_, it| it.until > now);
        let known =
            NoCapacity { template_digest: Arc::clone(digest), message: message.into(), until };
        tally.no_capacity.insert(Arc::clone(digest), known);
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn created(made: NewLease) -> OperationOutcome {
    OperationOutcome::LeaseCreated { lease: Box::new(made.lease), connection: made.connection }
}

fn ended(answer: Result<(), ProviderError>, done: OperationOutcome) -> OperationOutcome {
    match answer {
        Ok(()) => done,
        Err(error) if error.class == ErrorClass::AlreadyAbsent => done,
        Err(error) => error.into(),
    }
}

/// A look-up that failed leaves an unknown outcome unknown, whatever class the look-up's own failure has.
fn still_unknown(error: &ProviderError) -> OperationOutcome {
    let message = format!("an earlier outcome is still unknown, and looking failed: {error}");
    failed(ErrorClass::Ambiguous, &message)
}

fn foreign(key: &AttemptKey, digest: &str, found: &FoundLease) -> String {
    format!(
        "lease {} carries the name of attempt {key} but was made from template {}, not {digest}; it is not adopted",
        found.lease.lease_id, found.template_digest
    )
}

/// Nothing is ambiguous about an effect that may simply be repeated, and no provider may be silent for ever.
fn normal(kind: OperationKind, mut outcome: OperationOutcome) -> OperationOutcome {
    if let OperationOutcome::Failed(error) = &mut outcome {
        if error.class == ErrorClass::Ambiguous && !kind.creates() {
            error.class = ErrorClass::Transient;
        } else if let ErrorClass::RateLimited(pause) = &mut error.class {
            *pause = (*pause).min(LONGEST_PAUSE);
        }
    }
    outcome
}

/// How long until a time, for timers that must not overflow.
pub(crate) fn time_left(now: SystemTime, deadline: SystemTime) -> Duration {
    const FAR: Duration = Duration::from_hours(24 * 365);
    deadline.duration_since(now).unwrap_or_default().min(FAR)
}
