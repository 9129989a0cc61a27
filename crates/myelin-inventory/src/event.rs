//! What happens to a sweeper, and what it asks for.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use myelin_executor::{FoundLease, Presence, ProviderIdentity};
use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind, ProviderLeaseId};
use myelin_state::{LeaseFacts, NodeObservation, RetryPolicy};

use crate::{Class, Finding, Listing, ListingFailure, View};

/// What the sweeper takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The longest that a create may be under way after it was recorded. What is older was not made just now. The
    /// sweeper raises it to what the records say, and never lowers it: a create keeps the deadline it began with.
    pub longest_create: Duration,
    /// How long an agent must have said nothing before its lease may be called gone; several heartbeats.
    pub quiet_for: Duration,
}

impl Rules {
    /// Returns the rules for a retry policy: a create may take its timeout, and the answer to its being stopped.
    pub fn of(retry: &RetryPolicy) -> Self {
        let longest_create = retry.operation_timeout.saturating_add(retry.answer_timeout);
        // Agents are heard every two seconds by default, and silent after six.
        Self { longest_create, quiet_for: Duration::from_secs(10) }
    }

    /// Returns these rules for agents that count as silent after so long: at least twice that without a word is quiet.
    #[must_use]
    pub fn hearing(self, silent_after: Duration) -> Self {
        Self { quiet_for: self.quiet_for.max(silent_after.saturating_mul(2)), ..self }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::of(&RetryPolicy::default())
    }
}

/// On whose word strays are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The rules': with every brake.
    Rules,
    /// A person's, who has seen the census: however many, paused or not, and also from a restored store.
    Person,
}

/// All providers' answers, and the records as they were *after* the last of them came.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What could be listed; one listing a provider.
    pub listings: Vec<Listing>,
    /// What could not.
    pub failures: Vec<ListingFailure>,
    /// The records.
    pub view: View,
    /// On whose word strays are taken.
    pub authority: Authority,
}

/// Why a lease is looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// It is recorded, and has been missing from listings for long enough.
    Gone {
        /// Whose it is.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
    },
    /// It is about to be taken.
    Stray {
        /// As it was listed.
        found: Box<FoundLease>,
        /// Surplus or orphan.
        class: Class,
        /// On whose word.
        authority: Authority,
    },
}

/// A lease to look up by its handle.
#[derive(Clone, Debug, PartialEq)]
pub struct LookUp {
    /// Who is to be asked.
    pub provider: ProviderKind,
    /// The lease.
    pub lease: LeaseFacts,
    /// Why.
    pub question: Question,
}

/// What a look-up found: who answered, and what; or why nobody did.
pub type Answer = Result<(ProviderIdentity, Presence), String>;

/// A lease to destroy, once that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Taking {
    /// Whose it is.
    pub provider: ProviderKind,
    /// The lease.
    pub found: FoundLease,
    /// Surplus or orphan.
    pub class: Class,
    /// On whose word.
    pub authority: Authority,
}

/// The strays that were lately taken without a person's word, each with when.
pub type Unasked = BTreeMap<(ProviderKind, ProviderLeaseId), SystemTime>;

/// Everything that happens to a sweeper.
#[derive(Clone, Debug)]
pub enum Event {
    /// The records were read before anything was listed.
    Primed(View),
    /// Every provider was asked, then the records were read.
    Swept(Sweep),
    /// The records could not be read after the listings came.
    Unread(String),
    /// Look-ups were answered, then the records were read.
    LookedUp {
        /// The answers.
        answers: Vec<(LookUp, Answer)>,
        /// The records.
        view: View,
    },
    /// A lease that was to be taken is gone, or why not.
    Taken {
        /// The lease.
        taking: Taking,
        /// How it went.
        outcome: Result<(), String>,
    },
    /// A person says that the provider's new identity is right.
    IdentityAccepted(ProviderKind),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Duties {
    /// Say these, loudly. Each is said when it begins, not again while it lasts.
    pub say: Vec<Finding>,
    /// Record who answers for a provider, for the next start.
    pub remember: Vec<(ProviderKind, ProviderIdentity)>,
    /// Hand these to the driver.
    pub observe: Vec<NodeObservation>,
    /// Look these up, read the records, and report [`Event::LookedUp`]: strays one by one.
    pub look_up: Vec<LookUp>,
    /// Record that these are destroyed, destroy them, and report [`Event::Taken`].
    pub destroy: Vec<Taking>,
}
