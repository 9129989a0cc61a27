//! When a lease that is nobody's is taken.
//!
//! A lease is nobody's only against records that were read after it was listed, since what is made for an attempt is made
//! after the attempt was recorded. The races that are left:
//!
//! - *Destroyed between listing and reading.* The attempt was current at the reading before: young, not orphan. One that came
//!   and went between two readings is looked up before it is taken.
//! - *Being born.* Its attempt is current, and a create pending, unknown or about to be asked for again: pending. As a second
//!   wall, nothing younger than the longest create is nobody's.
//! - *Adopted after it was seen.* Not possible: both classes are final (see [`Class::is_stray`]).
//! - *The recorded lease under another name.* A surplus is taken only while the recorded one is listed beside it.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use myelin_executor::FoundLease;
use myelin_shape::{ProviderKind, ProviderLeaseId};

use crate::{
    Authority, Census, Class, Duties, Entry, Fate, Listing, LookUp, Question, Stop, Taking, View,
    census::{Sight, age_of, classify},
    sweeper::key_of,
};

/// How many listings in a row must show a lease as nobody's before it is taken.
const SIGHTINGS: u32 = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Strays(BTreeMap<(ProviderKind, ProviderLeaseId), Sighted>);

#[derive(Clone, Copy, Debug)]
struct Sighted {
    /// When it was first listed without a current attempt.
    first: SystemTime,
    /// In how many listings in a row it was nobody's.
    n: u32,
    /// Whether it is old enough to be taken, and beside the recorded one if it is surplus.
    ripe: bool,
}

/// A listed lease with its class.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) found: &'a FoundLease,
    pub(super) class: Class,
    pub(super) age: Duration,
    pub(super) may_be_new: bool,
}

impl Strays {
    /// Returns the age of a lease: by the provider's clock or by how long we have seen it, since clocks may differ.
    pub(super) fn age(&self, listing: &Listing, found: &FoundLease) -> Duration {
        let by_clock = age_of(found, listing);
        let known = self.0.get(&key_of(&listing.provider, found));
        let seen_for = known.and_then(|it| listing.listed_at.duration_since(it.first).ok());
        by_clock.max(seen_for.unwrap_or_default())
    }

    /// Counts one provider's strays. `counts` is whether the listing is believed.
    pub(super) fn sight(
        &mut self,
        listing: &Listing,
        view: &View,
        counts: bool,
        seen: &[Seen<'_>],
    ) -> Vec<Entry> {
        let provider = &listing.provider;
        let mut before = self.take_of(provider);
        let owned = seen.iter().filter(|it| it.class == Class::Owned);
        let owned: Vec<_> = owned.map(|it| &it.found.key).collect();
        let mut entries = Vec::with_capacity(seen.len());
        for Seen { found, class, age, may_be_new } in seen {
            let key = key_of(provider, found);
            let old = before.remove(&key);
            if class.is_stray() || *class == Class::Young {
                let alone = *class == Class::Surplus && !owned.contains(&&found.key);
                let n = old.map_or(0, |it| it.n).saturating_add(1);
                self.0.insert(
                    key,
                    Sighted {
                        first: old.map_or(listing.listed_at, |it| it.first),
                        n: if counts && class.is_stray() { n } else { 0 },
                        ripe: counts && class.is_stray() && !may_be_new && !alone,
                    },
                );
            }
            let recorded = view.live_slot(&found.key).and_then(|slot| slot.lease.as_deref());
            entries.push(Entry {
                provider: provider.clone(),
                found: (*found).clone(),
                class: *class,
                fate: if *class == Class::Young { Fate::Waits } else { Fate::Stays },
                age: *age,
                price: found.lease.price.or_else(|| recorded.and_then(|lease| lease.price)),
            });
        }
        entries
    }

    fn take_of(
        &mut self,
        provider: &ProviderKind,
    ) -> BTreeMap<(ProviderKind, ProviderLeaseId), Sighted> {
        let all = std::mem::take(&mut self.0);
        let (of_provider, others) = all.into_iter().partition(|((kind, _), _)| kind == provider);
        self.0 = others;
        of_provider
    }

    /// Decides what becomes of every stray of a sweep.
    pub(super) fn judge(
        &self,
        census: &mut Census,
        view: &View,
        too_many: Option<Stop>,
        authority: Authority,
        duties: &mut Duties,
    ) {
        if !census.entries.iter().any(|entry| entry.class.is_stray()) {
            return;
        }
        let may_override = |stop: &Stop| authority == Authority::Person && stop.yields_to_person();
        census.stop = why_not(census, view).or(too_many).filter(|stop| !may_override(stop));
        let stopped = census.stop.is_some();
        for entry in census.entries.iter_mut().filter(|entry| entry.class.is_stray()) {
            let held = census.accounts.get(&entry.provider).is_none_or(|it| it.hold.is_some());
            let sighted = self.of(&entry.provider, &entry.found);
            let needs_person = authority == Authority::Rules && is_ahead(view, &entry.found);
            entry.fate = match sighted {
                Some(_) if stopped || held || needs_person => Fate::Asks,
                Some(it) if it.ripe && it.n >= SIGHTINGS => Fate::Goes,
                Some(_) | None => Fate::Waits,
            };
        }
        let going = census.entries.iter().filter(|entry| entry.fate == Fate::Goes);
        duties.look_up.extend(going.map(|entry| look_up(entry, authority)));
    }

    fn of(&self, provider: &ProviderKind, found: &FoundLease) -> Option<Sighted> {
        self.0.get(&key_of(provider, found)).copied()
    }

    /// Judges once more a stray that was looked up and is there, against the records of now.
    pub(super) fn may_go(&self, taking: &Taking, view: &View) -> bool {
        let Taking { provider, found, class, authority } = taking;
        let sighted = self.of(provider, found);
        let sight =
            Sight { age: Duration::MAX, was_current: false, longest_create: Duration::ZERO };
        let stop =
            if view.paused { Some(Stop::Paused) } else { view.doubt.clone().map(Stop::Store) };
        let stopped =
            stop.is_some_and(|it| *authority == Authority::Rules || !it.yields_to_person());
        sighted.is_some_and(|it| it.ripe && it.n >= SIGHTINGS)
            && !stopped
            && !view.is_behind(found)
            && classify(provider, found, view, &view.protected(), sight) == *class
    }

    pub(super) fn forget(&mut self, taking: &Taking) {
        self.0.remove(&key_of(&taking.provider, &taking.found));
    }

    pub(super) fn forget_sightings(&mut self) {
        self.0.values_mut().for_each(Sighted::start_anew);
    }

    pub(super) fn forget_sightings_of(&mut self, provider: &ProviderKind) {
        let of_provider = self.0.iter_mut().filter(|((kind, _), _)| kind == provider);
        of_provider.for_each(|(_, sighted)| sighted.start_anew());
    }
}

impl Sighted {
    fn start_anew(&mut self) {
        (self.n, self.ripe) = (0, false);
    }
}

fn look_up(entry: &Entry, authority: Authority) -> LookUp {
    LookUp {
        provider: entry.provider.clone(),
        lease: entry.found.lease.clone(),
        question: Question::Stray {
            found: Box::new(entry.found.clone()),
            class: entry.class,
            authority,
        },
    }
}

fn why_not(census: &Census, view: &View) -> Option<Stop> {
    let doubt = census.doubt.clone().map(Stop::Store);
    doubt.or_else(|| view.paused.then_some(Stop::Paused))
}

/// Returns whether a lease was made for a later attempt of its slot than the recorded one: a slot's attempts only grow, so
/// the record was lost once, though a restore was accepted since.
fn is_ahead(view: &View, found: &FoundLease) -> bool {
    view.slots.get(&found.key.node).is_some_and(|slot| slot.attempt < found.key.attempt)
}
