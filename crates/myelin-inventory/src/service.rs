//! The loop around a [`Sweeper`]: lists, reads, and carries duties out in their order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use myelin_executor::{Clock, Provider, ProviderIdentity};
use myelin_shape::{ClusterUid, ProviderKind};
use myelin_state::NodeObservation;

use crate::{
    Authority, Census, Collected, Duties, Event, Fate, Finding, Handle, Limits, LookUp, Question,
    Records, Rules, Sweep, Sweeper, Taking, Unasked, View,
    handle::Request,
    probe::{self, list_all},
};

/// How many requests may wait; whoever is beyond waits to hand its own over.
const REQUESTS: usize = 16;

/// Settings of an inventory.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose leases are listed.
    pub cluster: ClusterUid,
    /// The driver's clock.
    pub clock: Clock,
    /// How long after a sweep the next one begins.
    pub sweep_interval: Duration,
    /// How long reading or writing the records may take.
    pub records_timeout: Duration,
    /// How providers are called.
    pub limits: Limits,
    /// What is taken for granted.
    pub rules: Rules,
    /// Who answered for each provider before the restart, as recorded.
    pub identities: BTreeMap<ProviderKind, ProviderIdentity>,
    /// What was taken unasked before the restart, as recorded.
    pub unasked: Unasked,
}

impl Options {
    /// Returns default options.
    pub fn new(cluster: ClusterUid, clock: Clock) -> Self {
        Self {
            cluster,
            clock,
            sweep_interval: Duration::from_mins(1),
            records_timeout: Duration::from_secs(10),
            limits: Limits::default(),
            rules: Rules::default(),
            identities: BTreeMap::new(),
            unasked: Unasked::new(),
        }
    }
}

/// The inventory sweep of one run.
#[derive(Debug)]
pub struct Inventory {
    options: Options,
    providers: Vec<Arc<dyn Provider>>,
    records: Arc<dyn Records>,
    observations: mpsc::UnboundedSender<NodeObservation>,
    requests: mpsc::Receiver<Request>,
    latest: watch::Sender<Arc<Census>>,
    sweeper: Sweeper,
    /// Identities that could not be recorded yet.
    unrecorded: BTreeMap<ProviderKind, ProviderIdentity>,
}

/// What a sweep took.
#[derive(Debug, Default)]
struct Outcome {
    taken: Vec<Taking>,
    failed: Vec<(Taking, String)>,
}

impl Inventory {
    /// Returns an inventory and the way to ask it. Nothing happens before [`run`](Self::run).
    pub fn new(
        options: Options,
        providers: impl IntoIterator<Item = Arc<dyn Provider>>,
        records: Arc<dyn Records>,
        observations: mpsc::UnboundedSender<NodeObservation>,
    ) -> (Self, Handle) {
        let (sender, requests) = mpsc::channel(REQUESTS);
        let (latest, receiver) = watch::channel(Arc::default());
        let inventory = Self {
            sweeper: Sweeper::new(options.rules, options.identities.clone())
                .remembering(options.unasked.clone()),
            options,
            providers: providers.into_iter().collect(),
            records,
            observations,
            requests,
            latest,
            unrecorded: BTreeMap::new(),
        };
        (inventory, Handle { requests: sender, latest: receiver })
    }

    /// Sweeps at once, then in intervals and when asked, until shut down. What is under way then is dropped.
    pub async fn run(mut self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.sweep_forever()).await;
    }

    async fn sweep_forever(&mut self) {
        // What is recorded before the first listing can be missed by it.
        if let Ok(view) = self.view().await {
            self.handle(Event::Primed(view));
        }
        loop {
            self.sweep(Authority::Rules).await;
            self.answer_until(Instant::now() + self.options.sweep_interval).await;
        }
    }

    async fn answer_until(&mut self, time: Instant) {
        loop {
            tokio::select! {
                () = sleep_until(time) => return,
                Some(request) = self.requests.recv() => self.answer(request).await,
            }
        }
    }

    async fn answer(&mut self, request: Request) {
        // Whoever asked may have left; what was asked for is done all the same.
        match request {
            Request::Sweep(reply) => {
                self.sweep(Authority::Rules).await;
                let _ = reply.send(self.census());
            }
            Request::Collect { yes, reply } => {
                let _ = reply.send(self.collect(yes).await);
            }
            Request::AcceptIdentity { provider, reply } => {
                let duties = self.handle(Event::IdentityAccepted(provider));
                let accepted = !duties.remember.is_empty();
                self.carry_out(duties).await;
                let _ = reply.send(accepted);
            }
        }
    }

    async fn collect(&mut self, yes: bool) -> Collected {
        let authority = if yes { Authority::Person } else { Authority::Rules };
        let mut outcome = self.sweep(authority).await;
        if self.sweeper.census().entries.iter().any(|entry| entry.fate == Fate::Waits) {
            let second = self.sweep(authority).await;
            outcome.taken.extend(second.taken);
            outcome.failed.extend(second.failed);
        }
        Collected { census: self.census(), taken: outcome.taken, failed: outcome.failed }
    }

    fn census(&self) -> Arc<Census> {
        Arc::clone(&self.latest.borrow())
    }

    async fn sweep(&mut self, authority: Authority) -> Outcome {
        let Options { cluster, ref clock, limits, .. } = self.options;
        let (listings, failures) = list_all(&self.providers, cluster, clock, limits).await;
        let event = match self.view().await {
            Ok(view) => Event::Swept(Sweep { listings, failures, view, authority }),
            Err(why) => Event::Unread(why),
        };
        let duties = self.handle(event);
        let outcome = self.carry_out(duties).await;
        self.publish();
        outcome
    }

    fn publish(&self) {
        self.latest.send_replace(Arc::new(self.sweeper.census().clone()));
    }

    fn handle(&mut self, event: Event) -> Duties {
        self.sweeper.handle(self.options.clock.now(), event)
    }

    async fn carry_out(&mut self, duties: Duties) -> Outcome {
        let is_stray = |it: &LookUp| matches!(it.question, Question::Stray { .. });
        let (strays, gone): (Vec<_>, Vec<_>) = duties.look_up.iter().cloned().partition(is_stray);
        self.do_at_once(&duties);
        self.remember(duties.remember).await;
        // People and the loop hear of the listing before the look-ups take their time.
        self.publish();
        if !gone.is_empty()
            && let Some(duties) = self.look_up(gone).await
        {
            self.do_at_once(&duties);
        }
        self.take(strays).await
    }

    /// Carries out the duties that need no wait.
    fn do_at_once(&self, duties: &Duties) {
        for finding in &duties.say {
            self.say(finding);
        }
        for observation in &duties.observe {
            if self.observations.send(observation.clone()).is_err() {
                tracing::debug!(code = "inventory.unheard", "nobody takes observations");
            }
        }
    }

    fn say(&self, finding: &Finding) {
        let code = finding.code();
        match finding {
            Finding::Held { .. } | Finding::Doubted(_) | Finding::Stopped(_) => {
                tracing::error!(code, "{finding}");
            }
            Finding::Gone { .. }
            | Finding::StillThere { .. }
            | Finding::LookUpFailed { .. }
            | Finding::Taken(_)
            | Finding::NotTaken { .. } => tracing::warn!(code, "{finding}"),
            Finding::Released { .. } => tracing::info!(code, "{finding}"),
        }
        self.records.note(finding);
    }

    async fn remember(&mut self, identities: Vec<(ProviderKind, ProviderIdentity)>) {
        self.unrecorded.extend(identities);
        for (provider, identity) in self.unrecorded.clone() {
            let recorded = self.records.record_identity(&provider, &identity);
            match self.in_time(recorded).await {
                Ok(()) => drop(self.unrecorded.remove(&provider)),
                Err(error) => tracing::warn!(
                    code = "inventory.identity_unrecorded", %provider, error,
                    "cannot record who answers for a provider"
                ),
            }
        }
    }

    /// Looks leases up and reads the records after that. `None`: they cannot be read, so nothing follows.
    async fn look_up(&mut self, look_ups: Vec<LookUp>) -> Option<Duties> {
        let answers = probe::look_up_all(&self.providers, look_ups, self.options.limits).await;
        match self.view().await {
            Ok(view) => Some(self.handle(Event::LookedUp { answers, view })),
            Err(error) => {
                tracing::warn!(code = "inventory.unread", error, "cannot read the records");
                None
            }
        }
    }

    /// Takes strays one by one, each judged anew right before. A provider that fails once is left for the next sweep.
    async fn take(&mut self, strays: Vec<LookUp>) -> Outcome {
        let mut outcome = Outcome::default();
        for stray in strays {
            let failed = |(taking, _): &(Taking, String)| taking.provider == stray.provider;
            if outcome.failed.iter().any(failed) {
                continue;
            }
            let Some(duties) = self.look_up(vec![stray]).await else {
                return outcome;
            };
            self.do_at_once(&duties);
            for taking in duties.destroy {
                let destroyed = self.destroy(&taking).await;
                let event = Event::Taken { taking: taking.clone(), outcome: destroyed.clone() };
                let duties = self.handle(event);
                self.do_at_once(&duties);
                match destroyed {
                    Ok(()) => outcome.taken.push(taking),
                    Err(error) => outcome.failed.push((taking, error)),
                }
            }
        }
        outcome
    }

    async fn destroy(&self, taking: &Taking) -> Result<(), String> {
        let recorded = self.records.record_taking(taking, self.sweeper.unasked());
        let recorded = self.in_time(recorded).await;
        recorded.map_err(|error| format!("it cannot be recorded first: {error}"))?;
        let Taking { provider, found, .. } = taking;
        probe::destroy(&self.providers, provider, &found.lease, self.options.limits).await
    }

    async fn view(&self) -> Result<View, String> {
        self.in_time(self.records.view()).await
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let patience = self.options.records_timeout;
        let late = |_| Err(format!("no answer within {} s", patience.as_secs_f32()));
        timeout(patience, call).await.unwrap_or_else(late)
    }
}
