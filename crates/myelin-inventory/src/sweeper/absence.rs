//! When a lease that is recorded is gone.
//!
//! A listing was made before the records were read, so what both say has to be compared with care:
//!
//! - *Recorded after the listing was asked for.* The lease was in no earlier reading of the records: not missing.
//! - *Made within the settle window before it.* Not missing yet. Should the record not tell when the lease was made, a first
//!   miss proves nothing, and the second is at least a window later.
//! - *Being cleaned up by the time the records are read.* Absence is what is wanted, and the driver sees to it: not
//!   missing.
//! - *Replaced meanwhile.* Another attempt, another lease: the memory of the old one is dropped.
//! - *Gone while its agent is heard.* Then it is the listing that is wrong, and counting starts anew.

use std::{collections::BTreeMap, time::SystemTime};

use myelin_executor::Presence;
use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind, ProviderLeaseId};
use myelin_state::{LeaseFacts, after};

use crate::{Life, Listing, LookUp, Missing, Question, Rules, Slot, View, view::names};

type Key = (LogicalNodeId, NodeAttemptId, ProviderLeaseId);

#[derive(Clone, Debug, Default)]
pub(super) struct Absences {
    /// The recorded leases of live attempts at the last look, with a time at which each existed.
    known: BTreeMap<Key, SystemTime>,
    missed: BTreeMap<Key, Miss>,
}

#[derive(Clone, Debug)]
struct Miss {
    provider: ProviderKind,
    /// When the first listing that missed it was asked for.
    first: SystemTime,
}

/// One listing against the records.
#[derive(Debug)]
pub(super) struct Weighed {
    /// How many leases it should show.
    pub(super) n_known: usize,
    /// Those it does not.
    pub(super) missing: Vec<(Key, LeaseFacts)>,
}

impl Absences {
    /// Looks at the records after all of an event was folded: what is new counts from the next listing on.
    pub(super) fn look_at(&mut self, view: &View, now: SystemTime) {
        let mut before = std::mem::take(&mut self.known);
        for (node, slot) in &view.slots {
            let Some((key, _)) = live_lease(node, slot) else {
                continue;
            };
            let since = before.remove(&key).unwrap_or(now);
            self.known.insert(key, slot.existed_at.map_or(since, |time| time.min(since)));
        }
        let known = &self.known;
        self.missed.retain(|key, _| known.contains_key(key));
    }

    pub(super) fn weigh(&self, listing: &Listing, view: &View) -> Weighed {
        let mut listed: Vec<_> = listing.leases.iter().flat_map(|it| names(&it.lease)).collect();
        listed.sort_unstable();
        let mut weighed = Weighed { n_known: 0, missing: Vec::new() };
        for (node, slot) in &view.slots {
            let Some((key, lease)) = live_lease(node, slot) else {
                continue;
            };
            if lease.provider != listing.provider || !self.should_be_listed(&key, slot, listing) {
                continue;
            }
            weighed.n_known += 1;
            if !names(lease).any(|name| listed.binary_search(&name).is_ok()) {
                weighed.missing.push((key, lease.clone()));
            }
        }
        weighed
    }

    /// Whether the lease was recorded before the listing was asked for, and made a settle window before.
    fn should_be_listed(&self, key: &Key, slot: &Slot, listing: &Listing) -> bool {
        self.known.get(key).is_some_and(|&since| {
            let existed_at = slot.existed_at.map_or(since, |time| time.min(since));
            after(existed_at, listing.settle_window).is_some_and(|time| time <= listing.listed_at)
        })
    }

    /// Folds a listing that is believed. Returns what is to be looked up.
    pub(super) fn fold(
        &mut self,
        listing: &Listing,
        view: &View,
        weighed: &Weighed,
        rules: Rules,
    ) -> Vec<LookUp> {
        let mut before = std::mem::take(&mut self.missed);
        let mut look_up = Vec::new();
        for (key, lease) in &weighed.missing {
            let first = before.remove(key).map_or(listing.listed_at, |miss| miss.first);
            let heard = view.slots.get(&key.0).and_then(|slot| slot.last_contact);
            let first = if heard >= Some(first) { listing.listed_at } else { first };
            self.missed.insert(key.clone(), Miss { provider: listing.provider.clone(), first });
            let wait = listing.settle_window.max(rules.quiet_for);
            if first < listing.listed_at
                && after(first, wait).is_some_and(|time| time <= listing.listed_at)
            {
                look_up.push(LookUp {
                    provider: listing.provider.clone(),
                    lease: lease.clone(),
                    question: Question::Gone { node: key.0.clone(), attempt: key.1 },
                });
            }
        }
        // What this provider did not miss now is there, or no longer recorded.
        let others = before.into_iter().filter(|(_, miss)| miss.provider != listing.provider);
        self.missed.extend(others);
        look_up
    }

    /// Returns whether a lease that was looked up is gone, as far as the records of now go too.
    pub(super) fn conclude(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        lease: &LeaseFacts,
        presence: Presence,
        view: &View,
    ) -> bool {
        let key = (node.clone(), attempt, lease.lease_id.clone());
        let Some(miss) = self.missed.remove(&key) else {
            return false;
        };
        let slot = view.slots.get(node);
        let still = slot.filter(|slot| live_lease(node, slot).is_some_and(|(now, _)| now == key));
        presence == Presence::Absent
            && still.is_some_and(|slot| slot.last_contact < Some(miss.first))
    }

    pub(super) fn described(&self, weighed: &Weighed) -> Vec<Missing> {
        let describe = |(key, lease): &(Key, LeaseFacts)| Missing {
            node: key.0.clone(),
            attempt: key.1,
            lease: lease.clone(),
            since: self.missed.get(key).map(|miss| miss.first),
        };
        weighed.missing.iter().map(describe).collect()
    }

    pub(super) fn forget_misses(&mut self) {
        self.missed.clear();
    }

    pub(super) fn forget_misses_of(&mut self, provider: &ProviderKind) {
        self.missed.retain(|_, miss| miss.provider != *provider);
    }
}

/// Returns the recorded lease of an attempt that is to live.
fn live_lease<'a>(node: &LogicalNodeId, slot: &'a Slot) -> Option<(Key, &'a LeaseFacts)> {
    let lease = slot.lease.as_deref().filter(|_| slot.life == Life::Live)?;
    Some(((node.clone(), slot.attempt, lease.lease_id.clone()), lease))
}
