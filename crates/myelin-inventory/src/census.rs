//! Every lease with its class, as people are shown it.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use myelin_executor::{FoundLease, ProviderIdentity};
use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind};
use myelin_state::{LeaseFacts, Price};

use crate::{
    Listing, StoreDoubt, View,
    view::{Protected, same_lease},
};

/// What a listed lease is to us (`spec 4.3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A current attempt's: recorded, or about to be adopted.
    Owned,
    /// A current attempt's that has none recorded: an operation may have made it, or may be making it.
    Pending,
    /// One more of a current attempt that has another one recorded.
    Surplus,
    /// Ours, of no current attempt, and too old to be one that is being born.
    Orphan,
    /// Ours, of no current attempt, but not believed an orphan yet: too young, or let go while the listing was made.
    Young,
    /// Another cluster's or another run's. Never touched.
    Foreign,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 6] =
        [Self::Owned, Self::Pending, Self::Surplus, Self::Orphan, Self::Young, Self::Foreign];

    /// Returns whether leases of the class are nobody's, and may be taken by the rules.
    ///
    /// Both classes are final: an attempt that is no longer current never is again, and one that has a lease recorded
    /// never takes another.
    pub fn is_stray(self) -> bool {
        matches!(self, Self::Surplus | Self::Orphan)
    }

    /// Returns a stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::Pending => "pending",
            Self::Surplus => "surplus",
            Self::Orphan => "orphan",
            Self::Young => "young",
            Self::Foreign => "foreign",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// What becomes of a listed lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is left alone.
    Stays,
    /// It is taken if later sweeps see the same.
    Waits,
    /// It is looked up once more now, and taken.
    Goes,
    /// It is nobody's, but only a person may have it taken.
    Asks,
}

impl Fate {
    /// Returns a stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Stays => "stays",
            Self::Waits => "waits",
            Self::Goes => "goes",
            Self::Asks => "asks",
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// A listed lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Who lists it.
    pub provider: ProviderKind,
    /// The lease.
    pub found: FoundLease,
    /// What it is to us.
    pub class: Class,
    /// What becomes of it.
    pub fate: Fate,
    /// How old it is.
    pub age: Duration,
    /// What it costs, where the listing or the record says.
    pub price: Option<Price>,
}

/// A recorded lease that its provider does not list, though it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Whose it is.
    pub node: LogicalNodeId,
    /// The attempt.
    pub attempt: NodeAttemptId,
    /// The lease.
    pub lease: LeaseFacts,
    /// Since which listing it has been missing from all; `None` while its provider is held.
    pub since: Option<SystemTime>,
}

/// Why nothing that a provider says is acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It cannot be listed.
    Unlisted {
        /// Why, in the provider's words.
        error: String,
    },
    /// It lists far less than is recorded: it looks like the wrong region, socket or credentials.
    TooManyMissing {
        /// How many recorded leases it should list and does not.
        n_missing: usize,
        /// How many it should list.
        n_known: usize,
        /// How many it does list of ours.
        n_listed: usize,
    },
    /// Another account, daemon or host answers than before.
    OtherIdentity {
        /// Who answered before.
        known: ProviderIdentity,
        /// Who answers now.
        found: ProviderIdentity,
    },
}

impl HoldReason {
    /// Returns a stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unlisted { .. } => "unlisted",
            Self::TooManyMissing { .. } => "too_many_missing",
            Self::OtherIdentity { .. } => "other_identity",
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted { error } => write!(f, "cannot be listed: {error}"),
            Self::TooManyMissing { n_missing, n_known, n_listed } => write!(
                f,
                "does not list {n_missing} of the {n_known} leases it should, and lists {n_listed} of ours"
            ),
            Self::OtherIdentity { known, found } => {
                write!(f, "is another one: it was {:?}, and is {:?}", known.0, found.0)
            }
        }
    }
}

/// A provider that is held: none of its leases is missed, none is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Why.
    pub reason: HoldReason,
    /// Since when, for this kind of reason.
    pub since: SystemTime,
}

/// How one provider's last listing went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Who answers, as last accepted.
    pub identity: Option<ProviderIdentity>,
    /// When it was last listed without being held.
    pub listed_at: Option<SystemTime>,
    /// How many leases of ours it listed, if it could be listed.
    pub n_listed: usize,
    /// Why nothing it says is acted on.
    pub hold: Option<Hold>,
}

/// Why strays are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The records are not to be trusted with it.
    Store(StoreDoubt),
    /// An operator stopped all effects.
    Paused,
    /// There are too many at once for a machine to decide.
    TooMany {
        /// How many there are.
        n_strays: usize,
        /// How many others were taken unasked within a day.
        n_taken: usize,
        /// How many may be taken unasked at once, and within a day.
        limit: usize,
    },
}

impl Stop {
    /// Returns whether a person may collect all the same.
    pub(crate) fn yields_to_person(&self) -> bool {
        match self {
            Self::Store(doubt) => doubt.yields_to_person(),
            Self::Paused | Self::TooMany { .. } => true,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(doubt) => doubt.fmt(f),
            Self::Paused => f.write_str("the run is paused"),
            Self::TooMany { n_strays, n_taken: 0, limit } => {
                write!(f, "{n_strays} at once, and no more than {limit} are taken unasked")
            }
            Self::TooMany { n_strays, n_taken, limit } => write!(
                f,
                "{n_strays} more after {n_taken} within a day, and no more than {limit} are taken unasked"
            ),
        }
    }
}

/// What exists beside what is recorded, at one sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// When the sweep was folded; `None` before the first.
    pub at: Option<SystemTime>,
    /// The leases, by provider, oldest first.
    pub entries: Vec<Entry>,
    /// Recorded leases that are not listed.
    pub missing: Vec<Missing>,
    /// The providers that were asked.
    pub accounts: BTreeMap<ProviderKind, Account>,
    /// Why strays are not taken, if there are any and they are not.
    pub stop: Option<Stop>,
    /// Why the records are doubted.
    pub doubt: Option<StoreDoubt>,
}

impl Census {
    /// Returns the leases of a class.
    pub fn of(&self, class: Class) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.class == class)
    }

    /// Returns what the leases of a class cost in total, as far as that is known, in millionths of a dollar per hour.
    pub fn micro_usd_per_hour(&self, class: Class) -> u64 {
        let prices = self.of(class).filter_map(|entry| entry.price);
        prices.fold(0, |sum, price| sum.saturating_add(price.micro_usd_per_hour))
    }

    /// Returns whether a person should look: a provider is held, the records are doubted, or strays wait for a word.
    pub fn needs_attention(&self) -> bool {
        self.doubt.is_some()
            || self.stop.is_some()
            || self.accounts.values().any(|account| account.hold.is_some())
            || self.entries.iter().any(|entry| entry.fate == Fate::Asks)
    }
}

/// What the class of a lease depends on beside the view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// How old the lease is.
    pub(crate) age: Duration,
    /// Whether the attempt was current when the records were last read before the listing.
    pub(crate) was_current: bool,
    /// The longest that a create may be under way.
    pub(crate) longest_create: Duration,
}

/// Returns what a listed lease is to us.
pub(crate) fn classify(
    provider: &ProviderKind,
    found: &FoundLease,
    view: &View,
    protected: &Protected<'_>,
    sight: Sight,
) -> Class {
    if !view.is_ours(&found.key) {
        return Class::Foreign;
    }
    if protected.covers(provider, found) {
        return Class::Owned;
    }
    let Some(slot) = view.live_slot(&found.key) else {
        let young = sight.was_current || sight.age < sight.longest_create;
        return if young { Class::Young } else { Class::Orphan };
    };
    let recorded = slot.lease.as_deref();
    // Two names of providers may stand for one account.
    if recorded.is_some_and(|lease| same_lease(lease, &found.lease)) {
        Class::Owned
    } else if slot.may_be_creating {
        Class::Pending
    } else if recorded.is_some() {
        Class::Surplus
    } else if slot.digest.as_deref() == Some(&found.template_digest) {
        Class::Owned
    } else {
        // Of another template: never adopted, and never taken while its attempt is current.
        Class::Pending
    }
}

/// Returns the age of a lease by the provider's clock; a lease from the future was just made.
pub(crate) fn age_of(found: &FoundLease, listing: &Listing) -> Duration {
    listing.listed_at.duration_since(found.created_at).unwrap_or_default()
}
