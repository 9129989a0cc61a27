//! What checks share: fresh attempts, calls with a time limit, waiting for what happens by itself.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use myelin_shape::{
    AttemptKey, BootstrapSessionId, ClusterUid, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    NodeTemplate, OperationId, RunId,
};
use myelin_state::{Connection, LeaseFacts};

use super::ProviderHarness;
use crate::{
    Bootstrap, CreateRequest, FoundLease, Presence, Provider, ProviderError, StartRequest,
};

/// Whether the rule holds (`true`), does not apply (`false`), or is broken.
pub(super) type Verdict = Result<bool, String>;

/// The provider under test with the two clusters of a run.
pub(super) struct Suite<'a> {
    pub(super) harness: &'a dyn ProviderHarness,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) bootstrap: Arc<dyn Bootstrap>,
    /// The cluster most checks work in, and a stranger to it.
    pub(super) clusters: [ClusterUid; 2],
    working: Arc<NodeTemplate>,
    last_attempt: AtomicU64,
}

impl<'a> Suite<'a> {
    pub(super) fn new(harness: &'a dyn ProviderHarness, clusters: [ClusterUid; 2]) -> Self {
        Self {
            provider: harness.provider(),
            bootstrap: harness.bootstrap(),
            working: Arc::new(harness.working()),
            harness,
            clusters,
            last_attempt: AtomicU64::new(0),
        }
    }

    /// Returns a request for an attempt nobody has used yet.
    pub(super) fn request(&self) -> CreateRequest {
        self.request_in(self.clusters[0], &self.working)
    }

    pub(super) fn foreign_request(&self) -> CreateRequest {
        self.request_in(self.clusters[1], &self.working)
    }

    pub(super) fn refused_request(&self) -> Option<CreateRequest> {
        let refused = Arc::new(self.harness.refused()?);
        Some(self.request_in(self.clusters[0], &refused))
    }

    fn request_in(&self, cluster: ClusterUid, template: &Arc<NodeTemplate>) -> CreateRequest {
        let attempt = self.last_attempt.fetch_add(1, Ordering::Relaxed) + 1;
        let node = LogicalNodeId::slot(&template.group_id, 0);
        CreateRequest {
            key: AttemptKey {
                cluster,
                run: RunId(1),
                node: node.clone(),
                attempt: NodeAttemptId(attempt),
            },
            template_digest: template.digest().into(),
            generation: 7,
            spec: LogicalNodeSpec {
                logical_node_id: node,
                index: 0,
                template: Arc::clone(template),
            },
        }
    }

    /// Waits for a call, at most as long as the harness allows.
    pub(super) async fn limited<T>(
        &self,
        what: &str,
        call: impl Future<Output = T>,
    ) -> Result<T, String> {
        let patience = self.harness.patience();
        let late = |_| format!("{what} did not answer within {patience:?}");
        timeout(patience, call).await.map_err(late)
    }

    /// Waits for a call that must succeed.
    pub(super) async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, String> {
        let answer = self.limited(what, call).await?;
        answer.map_err(|error| format!("{what} failed: {error}"))
    }

    pub(super) async fn create(&self, request: &CreateRequest) -> Result<LeaseFacts, String> {
        let made = self.call("create", self.provider.create(request)).await?;
        Ok(made.lease)
    }

    pub(super) async fn destroy(&self, lease: &LeaseFacts) -> Result<(), String> {
        self.call("destroy", self.provider.destroy(lease)).await
    }

    pub(super) async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, String> {
        self.call("presence", self.provider.presence(lease)).await
    }

    /// Finds the leases of a key once the settle window has passed.
    pub(super) async fn find_settled(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, String> {
        self.settle().await;
        self.call("find", self.provider.find(key)).await
    }

    pub(super) async fn settle(&self) {
        sleep(self.provider.settle_window()).await;
    }

    /// Asks again and again until something is there, at most as long as the harness allows.
    pub(super) async fn eventually<T, F>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<Option<T>, String>>,
    {
        const PAUSE: Duration = Duration::from_millis(20);
        let patience = self.harness.patience();
        let start = Instant::now();
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            if start.elapsed() > patience {
                return Err(format!("{what} within {patience:?}"));
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) async fn connection(&self, lease: &LeaseFacts) -> Result<Connection, String> {
        let look_up = || self.call("endpoint", self.provider.endpoint(lease));
        self.eventually("there was no endpoint", look_up).await
    }

    /// Leases a machine, starts a bootstrap on it, and waits until something runs there.
    pub(super) async fn running(&self) -> Result<(StartRequest, BootstrapSessionId), String> {
        let request = self.request();
        let start = self.start_request(&request).await?;
        let session = self.call("start", self.bootstrap.start(&start)).await?;
        self.eventually("nothing ran after the bootstrap started", async || {
            let runs = self.harness.runs_anything_on(&start.lease).await;
            Ok(runs.then_some(()))
        })
        .await?;
        Ok((start, session))
    }

    pub(super) async fn start_request(
        &self,
        request: &CreateRequest,
    ) -> Result<StartRequest, String> {
        let lease = self.create(request).await?;
        let connection = self.connection(&lease).await?;
        Ok(StartRequest {
            key: request.key.clone(),
            operation: OperationId { attempt: request.key.attempt, sequence: 1 },
            spec: request.spec.clone(),
            lease,
            connection,
        })
    }

    /// Destroys what the run left behind. What fails here has failed a check before, or is not ours to report.
    pub(super) async fn clean_up(&self) {
        self.settle().await;
        for cluster in self.clusters {
            let listed = self.call("list", self.provider.list(cluster)).await;
            for found in listed.unwrap_or_default() {
                if found.key.cluster == cluster {
                    self.destroy(&found.lease).await.ok();
                }
            }
        }
    }
}

/// Returns an error unless both are equal.
pub(super) fn same<T: PartialEq + fmt::Debug>(what: &str, found: &T, expected: &T) -> Verdict {
    if found == expected {
        return Ok(true);
    }
    Err(format!("{what}: {found:?}, not {expected:?}"))
}
