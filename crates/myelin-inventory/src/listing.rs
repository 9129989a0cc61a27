//! What providers say exists, and whether the records can be older than that.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use myelin_executor::{FoundLease, ProviderIdentity};
use myelin_shape::{AttemptKey, ProviderKind, ProviderLeaseId};

use crate::View;

/// Every lease of our cluster that one provider has.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Who was asked.
    pub provider: ProviderKind,
    /// Who answered.
    pub identity: ProviderIdentity,
    /// For how long after a create the provider may not list a lease.
    pub settle_window: Duration,
    /// When it was asked: what is in the listing may have changed since, what was made since may be missing.
    pub listed_at: SystemTime,
    /// The leases.
    pub leases: Vec<FoundLease>,
}

/// A provider that could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingFailure {
    /// Which.
    pub provider: ProviderKind,
    /// Why, for people.
    pub error: String,
}

/// Evidence that the records are older than what exists (`spec 5`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The lease's provider.
    pub provider: ProviderKind,
    /// The lease.
    pub lease: ProviderLeaseId,
    /// The attempt it was made for.
    pub key: AttemptKey,
    /// The desired generation it was made under, where it says.
    pub lease_generation: Option<u64>,
    /// What the records say is the next attempt.
    pub next_attempt_id: u64,
    /// The last desired generation that the records know was acted on.
    pub generation: u64,
    /// How many leases prove the same.
    pub n_leases: usize,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, lease, key, next_attempt_id, generation, n_leases, .. } = self;
        write!(f, "the store is behind: {lease} of {provider} was made ")?;
        match self.lease_generation.filter(|_| key.attempt.0 < *next_attempt_id) {
            Some(later) => write!(
                f,
                "for {} under generation {later}, and the store's last generation is {generation}",
                key.node
            )?,
            None => write!(
                f,
                "for attempt {} of {}, and the store's next attempt is {next_attempt_id}",
                key.attempt, key.node
            )?,
        }
        if *n_leases > 1 {
            write!(f, " ({n_leases} leases say so)")?;
        }
        Ok(())
    }
}

/// Returns the evidence that the records are older than what exists: the lease of the latest attempt that was never
/// given out, or that was made under a later desired generation, as far as the records know.
///
/// The view is read after the listings came. An attempt and a generation are recorded before anything is made for them, so
/// a label can be ahead of a view that is read later only if something recorded was lost.
pub fn store_is_behind<'a>(
    listings: impl IntoIterator<Item = &'a Listing>,
    view: &View,
) -> Option<Behind> {
    let leases = listings.into_iter().flat_map(|it| it.leases.iter().map(move |found| (it, found)));
    let ahead: Vec<_> = leases.filter(|(_, found)| view.is_behind(found)).collect();
    let (listing, found) = ahead.iter().max_by_key(|(_, found)| found.key.attempt)?;
    Some(Behind {
        provider: listing.provider.clone(),
        lease: found.lease.lease_id.clone(),
        key: found.key.clone(),
        lease_generation: found.generation,
        next_attempt_id: view.next_attempt_id,
        generation: view.generation,
        n_leases: ahead.len(),
    })
}
