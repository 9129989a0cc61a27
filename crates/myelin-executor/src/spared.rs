//! A provider as others than the executor call it: within the limits that its operations keep to.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use myelin_shape::{AttemptKey, ClusterUid, NodeGroupId, ProviderKind};
use myelin_state::{Connection, ErrorClass, LeaseFacts};

use crate::{
    CreateRequest, FoundLease, NewLease, Presence, Provider, ProviderError, ProviderIdentity,
    backend::Backend, gate::Turn, limits::LaneId,
};

/// A provider that asked to be left alone for longer is not waited for: whoever asks is told so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls a provider in turn with the operations on it.
#[derive(Debug)]
pub(crate) struct Spared {
    pub(crate) backend: Arc<Backend>,
    pub(crate) shutdown: CancellationToken,
}

impl Spared {
    async fn turn(&self, lane: LaneId) -> Result<Turn, ProviderError> {
        let (_, _, pause) = self.backend.gate.load();
        if let Some(left) = pause.filter(|left| *left > PATIENCE) {
            let message = format!("it asked to be left alone for {} s more", left.as_secs());
            return Err(ProviderError::new(ErrorClass::RateLimited(left), message));
        }
        // No group can be called so, and takes turns with all of them.
        let turn = self.backend.gate.turn(lane, NodeGroupId::from(""));
        let turn = self.shutdown.run_until_cancelled(turn).await.flatten();
        turn.ok_or_else(|| ProviderError::new(ErrorClass::Transient, "the executor is shut down"))
    }

    async fn call<T>(
        &self,
        lane: LaneId,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        let _turn = self.turn(lane).await?;
        self.backend.noted(call.await)
    }
}

#[async_trait]
impl Provider for Spared {
    fn kind(&self) -> ProviderKind {
        self.backend.provider.kind()
    }

    fn settle_window(&self) -> Duration {
        self.backend.provider.settle_window()
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        self.call(LaneId::Look, self.backend.provider.identity()).await
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        self.call(LaneId::Build, self.backend.provider.create(request)).await
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        self.call(LaneId::Look, self.backend.provider.find(key)).await
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        self.call(LaneId::Look, self.backend.provider.endpoint(lease)).await
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        self.call(LaneId::Look, self.backend.provider.presence(lease)).await
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        self.call(LaneId::Clean, self.backend.provider.destroy(lease)).await
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        self.call(LaneId::Look, self.backend.provider.list(cluster)).await
    }
}
