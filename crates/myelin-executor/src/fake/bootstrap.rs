//! The bootstrap half of a fake world.

use async_trait::async_trait;
use tokio::time::sleep;

use myelin_shape::{AttemptKey, BootstrapSessionId};
use myelin_state::{BootstrapStage, ErrorClass, LeaseFacts};

use super::{CallKind, FakeSession, FakeWorld, Flaw, Inner, Session, number_of, script::Effect};
use crate::{Bootstrap, FoundSession, ProviderError, StartRequest};

#[async_trait]
impl Bootstrap for FakeWorld {
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError> {
        self.play(CallKind::Start, Some(&request.key), |inner, effect| {
            inner.ensure_session(request, effect)
        })
        .await
    }

    async fn find(
        &self,
        key: &AttemptKey,
        _lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError> {
        self.play(CallKind::FindSession, Some(key), |inner, _| {
            let session = inner.open_session(key);
            Ok(session.map(|it| FoundSession { session: it.seen.session, stage: it.stage }))
        })
        .await
    }

    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        self.play(CallKind::Conclude, None, |inner, _| {
            let ends_agent = inner.has(Flaw::ConcludeEndsAgent);
            if let Some(known) = inner.sessions.get_mut(&session.0) {
                known.seen.open = false;
                known.seen.agent_runs &= !ends_agent;
                known.stage = BootstrapStage::Converged;
            }
            Ok(())
        })
        .await
    }

    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        self.play(CallKind::Cancel, None, |inner, _| inner.cancel_session(session)).await
    }
}

impl Inner {
    pub(super) fn open_session(&self, key: &AttemptKey) -> Option<&Session> {
        let numbers = self.sessions_of.get(key)?.iter();
        let mut sessions = numbers.map(|number| &self.sessions[number]);
        sessions.find(|it| it.seen.open)
    }

    fn ensure_session(
        &mut self,
        request: &StartRequest,
        effect: Effect,
    ) -> Result<BootstrapSessionId, ProviderError> {
        let number = number_of(&request.lease.lease_id);
        if !number.is_some_and(|number| self.leases.contains_key(&number)) {
            let message = format!("there is no {}", request.lease.lease_id);
            return Err(ProviderError::new(ErrorClass::Transient, message));
        }
        let may_adopt = effect == Effect::Own && !self.has(Flaw::StartForgetsKey);
        let known = self.open_session(&request.key).map(|it| it.seen.session);
        if let Some(known) = known.filter(|_| may_adopt) {
            return Ok(known);
        }
        Ok(self.add_session(request))
    }

    fn add_session(&mut self, request: &StartRequest) -> BootstrapSessionId {
        let session = BootstrapSessionId(self.next_number());
        let seen = FakeSession {
            session,
            key: request.key.clone(),
            lease: request.lease.lease_id.clone(),
            open: true,
            agent_runs: true,
        };
        let session_state =
            Session { seen, stage: BootstrapStage::WaitingForSwactorJoin, last_sequence: 0 };
        self.sessions.insert(session.0, session_state);
        let of_key = self.sessions_of.entry(request.key.clone()).or_default();
        of_key.insert(session.0);
        self.let_join(&request.key);
        session
    }

    fn let_join(&self, key: &AttemptKey) {
        let Some((results, delay)) = &self.auto_join else {
            return;
        };
        let (results, delay, event) = (results.clone(), *delay, FakeWorld::join_event(key));
        if delay.is_zero() {
            results.send(event).ok();
            return;
        }
        tokio::spawn(async move {
            sleep(delay).await;
            results.send(event).ok();
        });
    }

    fn cancel_session(&mut self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        let refusal = |what| Err(ProviderError::new(ErrorClass::Transient, what));
        let (repeat, unknown) =
            (self.has(Flaw::CancelRefusesRepeat), self.has(Flaw::CancelRefusesUnknown));
        let leaves_agent = self.has(Flaw::CancelLeavesAgent);
        let Some(known) = self.sessions.get_mut(&session.0) else {
            return if unknown { refusal("no such session") } else { Ok(()) };
        };
        if repeat && known.stage == BootstrapStage::Cancelled {
            return refusal("cancelled already");
        }
        known.seen.open = false;
        known.seen.agent_runs &= leaves_agent;
        known.stage = BootstrapStage::Cancelled;
        Ok(())
    }
}
