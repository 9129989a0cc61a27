//! The provider and the bootstrap that a control plane is given.

use std::{future::pending, panic::resume_unwind, time::Duration};

use async_trait::async_trait;
use tokio::sync::oneshot;

use myelin_executor::{
    Bootstrap, CreateRequest, FoundLease, FoundSession, NewLease, Presence, Provider,
    ProviderError, ProviderIdentity, StartRequest, fake::CallKind,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid, ProviderKind};
use myelin_state::{Connection, LeaseFacts};

use super::{
    PROVIDER, Shared,
    calls::{Answer, Begun, Request},
};

/// The world as one control plane calls it.
#[derive(Clone, Debug)]
pub(crate) struct SimProvider {
    pub(crate) world: Shared,
    pub(crate) incarnation: u64,
}

impl SimProvider {
    async fn call<T>(
        &self,
        request: Request,
        pick: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, ProviderError> {
        let (sender, reply) = oneshot::channel();
        let made = request.made();
        let begun = self.world.lock().begin(self.incarnation, request, sender);
        let Begun::Waits(number) = begun else {
            // As a panic, but without its report: it was asked for.
            resume_unwind(Box::new("a panic was asked for"));
        };
        let mut waits = Waits { world: &self.world, number, made };
        let Ok(reply) = reply.await else {
            // A sender that is dropped is no answer.
            return pending().await;
        };
        waits.number = 0;
        Ok(pick(reply?).expect("each request has its own answer"))
    }
}

/// Whoever waits for an answer. That they wait no more, because they gave up or were killed, is told the world.
struct Waits<'a> {
    world: &'a Shared,
    number: u64,
    made: Option<(CallKind, AttemptKey)>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.world.lock().give_up(self.number, self.made.as_ref());
        }
    }
}

const DONE: fn(Answer) -> Option<()> = |answer| matches!(answer, Answer::Done).then_some(());

fn leases(answer: Answer) -> Option<Vec<FoundLease>> {
    if let Answer::Leases(leases) = answer { Some(leases) } else { None }
}

#[async_trait]
impl Provider for SimProvider {
    fn kind(&self) -> ProviderKind {
        PROVIDER.into()
    }

    fn settle_window(&self) -> Duration {
        self.world.lock().config.settle_window
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        let pick = |answer| if let Answer::Identity(it) = answer { Some(it) } else { None };
        self.call(Request::Identity, pick).await
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        let pick = |answer| if let Answer::Lease(it) = answer { Some(*it) } else { None };
        self.call(Request::Create(Box::new(request.clone())), pick).await
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        self.call(Request::Find(key.clone()), leases).await
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        let pick = |answer| if let Answer::Endpoint(it) = answer { Some(it) } else { None };
        self.call(Request::Endpoint(Box::new(lease.clone())), pick).await
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        let pick = |answer| if let Answer::Presence(it) = answer { Some(it) } else { None };
        self.call(Request::Presence(Box::new(lease.clone())), pick).await
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        self.call(Request::Destroy(Box::new(lease.clone())), DONE).await
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        self.call(Request::List(cluster), leases).await
    }
}

#[async_trait]
impl Bootstrap for SimProvider {
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError> {
        let pick = |answer| if let Answer::Session(it) = answer { Some(it) } else { None };
        self.call(Request::Start(Box::new(request.clone())), pick).await
    }

    async fn find(
        &self,
        key: &AttemptKey,
        _lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError> {
        let pick = |answer| if let Answer::FoundSession(it) = answer { Some(it) } else { None };
        self.call(Request::FindSession(key.clone()), pick).await
    }

    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        self.call(Request::Conclude(session), DONE).await
    }

    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        self.call(Request::Cancel(session), DONE).await
    }
}
