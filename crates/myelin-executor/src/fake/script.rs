//! What calls do, and which rules are broken.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use myelin_shape::AttemptKey;
use myelin_state::ErrorClass;

use super::{FakeWorld, Inner};
use crate::ProviderError;

/// The calls of [`Provider`](crate::Provider) and [`Bootstrap`](crate::Bootstrap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named as the methods")]
pub enum CallKind {
    Identity,
    Create,
    Find,
    Endpoint,
    Presence,
    Destroy,
    List,
    Start,
    FindSession,
    Conclude,
    Cancel,
}

/// One call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Of which kind.
    pub kind: CallKind,
    /// About which attempt, where the call names one.
    pub key: Option<AttemptKey>,
    /// When.
    pub at: SystemTime,
}

/// What one call does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It takes effect and answers.
    Succeed,
    /// It answers an error, and has no effect.
    Fail(ProviderError),
    /// It takes effect, and answers that nobody knows.
    LoseReply,
    /// It takes effect, and never answers.
    Hang,
    /// It has no effect, and never answers.
    Ignore,
    /// It takes effect at once, and answers so much later.
    Late(Duration),
    /// It takes effect and answers so much later; stopped before that, it has no effect.
    Slow(Duration),
    /// It takes effect twice, against the rules, and answers the first. As [`Self::Succeed`] for what makes nothing.
    Twice,
    /// It panics, and has no effect.
    Panic,
}

impl Step {
    /// Returns a step that fails with a class and words.
    pub fn fail(class: ErrorClass, message: &str) -> Self {
        Self::Fail(ProviderError::new(class, message))
    }
}

/// A rule that a broken world breaks. The conformance suite finds each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// A repeated create makes another lease.
    CreateForgetsKey,
    /// Creates for two keys answer one lease.
    CreateSharesLease,
    /// A create dropped at the wrong moment leaves a lease that a repeated create does not know of.
    CreateRecordsLast,
    /// Of two leases of a key, create answers the newer.
    CreateAdoptsNewest,
    /// A refusal for good looks like a passing failure.
    RefusesVaguely,
    /// `find` finds nothing.
    FindMisses,
    /// `find` lists the newest first.
    FindListsNewestFirst,
    /// Leases do not keep the digest.
    LosesDigest,
    /// Leases do not keep the generation.
    LosesGeneration,
    /// There is never an endpoint.
    NeverAnEndpoint,
    /// `list` lists leases of other clusters.
    ListLeaks,
    /// `list` leaves the newest lease out.
    ListMisses,
    /// `destroy` of what is absent fails.
    DestroyRefusesAbsent,
    /// `destroy` succeeds and does nothing.
    DestroyLies,
    /// `destroy` leaves what runs on the lease running.
    DestroyLeavesAgents,
    /// `destroy` takes the leases of other clusters with it.
    DestroyTakesForeign,
    /// A repeated start makes another session.
    StartForgetsKey,
    /// `conclude` ends the agent.
    ConcludeEndsAgent,
    /// `cancel` leaves the agent running.
    CancelLeavesAgent,
    /// A second `cancel` fails.
    CancelRefusesRepeat,
    /// `cancel` of what never was fails.
    CancelRefusesUnknown,
    /// Whoever is asked twice is another one.
    IdentityWanders,
    /// A new process finds nothing of what an earlier one made.
    ForgetsOnRestart,
}

impl Flaw {
    /// Every flaw.
    pub const ALL: [Self; 23] = [
        Self::CreateForgetsKey,
        Self::CreateSharesLease,
        Self::CreateRecordsLast,
        Self::CreateAdoptsNewest,
        Self::RefusesVaguely,
        Self::FindMisses,
        Self::FindListsNewestFirst,
        Self::LosesDigest,
        Self::LosesGeneration,
        Self::NeverAnEndpoint,
        Self::ListLeaks,
        Self::ListMisses,
        Self::DestroyRefusesAbsent,
        Self::DestroyLies,
        Self::DestroyLeavesAgents,
        Self::DestroyTakesForeign,
        Self::StartForgetsKey,
        Self::ConcludeEndsAgent,
        Self::CancelLeavesAgent,
        Self::CancelRefusesRepeat,
        Self::CancelRefusesUnknown,
        Self::IdentityWanders,
        Self::ForgetsOnRestart,
    ];
}

/// Whether an effect is the call's own, or one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Own,
    Extra,
}

impl FakeWorld {
    /// Plays one call by its script. Even without one it can be dropped before and after its effect.
    pub(super) async fn play<T>(
        &self,
        kind: CallKind,
        key: Option<&AttemptKey>,
        mut effect: impl FnMut(&mut Inner, Effect) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError>
    where
        T: Send,
    {
        let step = self.begin(kind, key);
        tokio::task::yield_now().await;
        let mut take_effect = |which| effect(&mut self.inner(), which);
        match step {
            Step::Succeed => {
                let answer = take_effect(Effect::Own);
                tokio::task::yield_now().await;
                answer
            }
            Step::Fail(error) => Err(error),
            Step::LoseReply => {
                take_effect(Effect::Own)?;
                Err(ProviderError::new(ErrorClass::Ambiguous, "reply lost"))
            }
            Step::Hang => {
                take_effect(Effect::Own)?;
                std::future::pending().await
            }
            Step::Ignore => std::future::pending().await,
            Step::Late(delay) => {
                let answer = take_effect(Effect::Own);
                sleep(delay).await;
                answer
            }
            Step::Slow(delay) => {
                sleep(delay).await;
                take_effect(Effect::Own)
            }
            Step::Twice => {
                let answer = take_effect(Effect::Own);
                take_effect(Effect::Extra)?;
                answer
            }
            Step::Panic => panic!("scripted panic"),
        }
    }

    fn begin(&self, kind: CallKind, key: Option<&AttemptKey>) -> Step {
        let at = self.now();
        let mut inner = self.inner();
        let key = key.cloned();
        inner.calls.push(CallRecord { kind, key, at });
        let scripted = inner.scripts.get_mut(&kind);
        let step = scripted.and_then(std::collections::VecDeque::pop_front);
        step.or_else(|| inner.always.get(&kind).cloned()).unwrap_or(Step::Succeed)
    }
}
