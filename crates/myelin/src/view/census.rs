//! What exists beside what is recorded, for people and programs.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use myelin_executor::FoundLease;
use myelin_inventory::{Account, Census, Collected, Entry, Fate, Missing, Snapshot, Taking};
use myelin_shape::{ClusterUid, ProviderKind};
use myelin_state::Price;
use serde::{Deserialize, Serialize};

use super::stamp;

/// A machine that a provider lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Who lists it.
    pub provider: String,
    /// Its name.
    pub lease: String,
    /// The slot it was made for.
    pub node: String,
    /// The attempt it was made for.
    pub attempt: u64,
    /// What it is to us: `owned`, `pending`, `surplus`, `orphan`, `young`, `foreign`; `unknown` where no state tells.
    pub class: String,
    /// What becomes of it: `stays`, `waits`, `goes`, `asks`.
    pub fate: String,
    /// How old it is.
    pub age_seconds: u64,
    /// What it costs in millionths of a dollar, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd_per_hour: Option<u64>,
}

/// A machine that is recorded and that its provider does not list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingView {
    /// Whose it is.
    pub node: String,
    /// The attempt.
    pub attempt: u64,
    /// Who should list it.
    pub provider: String,
    /// Its name.
    pub lease: String,
    /// Since which listing, while its provider is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A provider of which nothing is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    /// Which.
    pub provider: String,
    /// A stable name: `unlisted`, `too_many_missing`, `other_identity`.
    pub code: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// A machine that was nobody's, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedView {
    /// Who has or had it.
    pub provider: String,
    /// Its name.
    pub lease: String,
    /// The slot it was made for.
    pub node: String,
    /// The attempt it was made for.
    pub attempt: u64,
    /// Why it could not be given back, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusView {
    /// The cluster whose machines are listed.
    pub cluster: String,
    /// When it was looked; none if it was not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The machines, by provider, oldest first.
    pub leases: Vec<LeaseView>,
    /// How many there are of each class that has any.
    pub counts: BTreeMap<String, usize>,
    /// What all of them cost in millionths of a dollar, as far as it is known.
    pub micro_usd_per_hour: u64,
    /// Recorded machines that are not listed.
    pub missing: Vec<MissingView>,
    /// The providers that are not believed.
    pub held: Vec<HoldView>,
    /// Why machines that are nobody's are left alone, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Why the state is doubted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// A stable name for that: `empty`, `restored`, `behind`, `incomplete`, `not_durable`, `unreadable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_code: Option<String>,
    /// What was given back, or could not be, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<CollectedView>,
    /// Whether only a person can decide.
    pub needs_person: bool,
}

/// The inventory in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryView {
    /// When it was last looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How many machines there are of each class that has any.
    pub counts: BTreeMap<String, usize>,
    /// How many recorded machines are not listed.
    pub n_missing: usize,
    /// How many machines that are nobody's wait for a person's word.
    pub n_asking: usize,
    /// The providers that are not believed.
    pub held: Vec<HoldView>,
    /// Why machines that are nobody's are left alone, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Why the state is doubted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl From<&Census> for InventoryView {
    fn from(census: &Census) -> Self {
        let snapshot = Snapshot::from(census);
        let n_asking = census.entries.iter().filter(|entry| entry.fate == Fate::Asks).count();
        let counts = snapshot.counts.iter();
        let held = snapshot.held.iter();
        Self {
            at: snapshot.at.map(stamp),
            counts: counts.map(|(class, n)| (class.code().to_owned(), *n)).collect(),
            n_missing: snapshot.n_missing,
            n_asking,
            held: held.map(|(provider, hold)| hold_view(provider, hold)).collect(),
            stop: snapshot.stop.as_ref().map(ToString::to_string),
            doubt: snapshot.doubt.as_ref().map(ToString::to_string),
        }
    }
}

impl CensusView {
    /// Returns a census of what the state of the run knows.
    pub(crate) fn of(cluster: ClusterUid, census: &Census) -> Self {
        let leases = census.entries.iter().map(entry).collect();
        let view = Self {
            at: census.at.map(stamp),
            missing: census.missing.iter().map(missing).collect(),
            held: census.accounts.iter().filter_map(held).collect(),
            stop: census.stop.as_ref().map(ToString::to_string),
            doubt: census.doubt.as_ref().map(ToString::to_string),
            doubt_code: census.doubt.as_ref().map(|doubt| doubt.code().to_owned()),
            needs_person: census.needs_attention(),
            cluster: cluster.to_string(),
            ..Self::default()
        };
        view.with(leases)
    }

    /// Returns a census after a collection.
    pub(crate) fn after(cluster: ClusterUid, collected: &Collected) -> Self {
        let taken = collected.taken.iter().map(|taking| outcome(taking, None));
        let failed = collected.failed.iter().map(|(taking, why)| outcome(taking, Some(why)));
        let view = Self::of(cluster, &collected.census);
        let needs_person = view.needs_person || !collected.failed.is_empty();
        Self { collected: taken.chain(failed).collect(), needs_person, ..view }
    }

    /// Returns a census where no state can be read: everything stays.
    pub(crate) fn unread(
        cluster: ClusterUid,
        at: std::time::SystemTime,
        found: &[(ProviderKind, FoundLease)],
        doubt: String,
    ) -> Self {
        let lease = |(provider, found): &(ProviderKind, FoundLease)| {
            let age = at.duration_since(found.created_at).unwrap_or_default();
            lease_view(provider, found, "unknown", Fate::Stays, age, None)
        };
        let view = Self {
            at: Some(stamp(at)),
            doubt: Some(doubt),
            doubt_code: Some("unreadable".to_owned()),
            needs_person: true,
            cluster: cluster.to_string(),
            ..Self::default()
        };
        view.with(found.iter().map(lease).collect())
    }

    fn with(mut self, leases: Vec<LeaseView>) -> Self {
        for lease in &leases {
            *self.counts.entry(lease.class.clone()).or_default() += 1;
            let price = lease.micro_usd_per_hour.unwrap_or(0);
            self.micro_usd_per_hour = self.micro_usd_per_hour.saturating_add(price);
        }
        self.leases = leases;
        self
    }
}

fn entry(entry: &Entry) -> LeaseView {
    let Entry { provider, found, class, fate, age, price } = entry;
    lease_view(provider, found, class.code(), *fate, *age, *price)
}

fn lease_view(
    provider: &ProviderKind,
    found: &FoundLease,
    class: &str,
    fate: Fate,
    age: Duration,
    price: Option<Price>,
) -> LeaseView {
    LeaseView {
        provider: provider.to_string(),
        lease: found.lease.lease_id.to_string(),
        node: found.key.node.to_string(),
        attempt: found.key.attempt.0,
        class: class.to_owned(),
        fate: fate.code().to_owned(),
        age_seconds: age.as_secs(),
        micro_usd_per_hour: price.map(|price| price.micro_usd_per_hour),
    }
}

fn missing(missing: &Missing) -> MissingView {
    MissingView {
        node: missing.node.to_string(),
        attempt: missing.attempt.0,
        provider: missing.lease.provider.to_string(),
        lease: missing.lease.lease_id.to_string(),
        since: missing.since.map(stamp),
    }
}

fn held((provider, account): (&ProviderKind, &Account)) -> Option<HoldView> {
    account.hold.as_ref().map(|hold| hold_view(provider, hold))
}

fn hold_view(provider: &ProviderKind, hold: &myelin_inventory::Hold) -> HoldView {
    HoldView {
        provider: provider.to_string(),
        code: hold.reason.code().to_owned(),
        reason: hold.reason.to_string(),
        since: stamp(hold.since),
    }
}

fn outcome(taking: &Taking, error: Option<&String>) -> CollectedView {
    CollectedView {
        provider: taking.provider.to_string(),
        lease: taking.found.lease.lease_id.to_string(),
        node: taking.found.key.node.to_string(),
        attempt: taking.found.key.attempt.0,
        error: error.cloned(),
    }
}
