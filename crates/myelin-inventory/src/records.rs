//! What the caller brings: the records, and where to write before something happens.

use std::fmt;

use async_trait::async_trait;

use myelin_executor::ProviderIdentity;
use myelin_shape::ProviderKind;

use crate::{Finding, Taking, Unasked, View};

/// The records, read and written by their owner. Every call may be dropped at any await point.
#[async_trait]
pub trait Records: fmt::Debug + Send + Sync {
    /// Returns the records as they are *when this is called*, never from a cache: the order of listing and reading is
    /// what tells a lost lease from a new one.
    ///
    /// # Errors
    ///
    /// They cannot be read, in the store's words. Then nothing is acted on.
    async fn view(&self) -> Result<View, String>;

    /// Records durably that a lease is about to be destroyed, and what was taken unasked lately, this one included, for
    /// [`Options::unasked`](crate::Options::unasked) of the next start.
    ///
    /// # Errors
    ///
    /// It is not recorded, or not to be destroyed after all. Then it is not.
    async fn record_taking(&self, taking: &Taking, unasked: &Unasked) -> Result<(), String>;

    /// Records durably who answers for a provider, for [`Options::identities`](crate::Options::identities) of the next start.
    ///
    /// # Errors
    ///
    /// It is not recorded. The next sweep tries again.
    async fn record_identity(
        &self,
        provider: &ProviderKind,
        identity: &ProviderIdentity,
    ) -> Result<(), String>;

    /// Notes a finding for people, for instance in the history. Never blocks; it is logged in any case.
    fn note(&self, finding: &Finding);
}
