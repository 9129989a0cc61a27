//! The memory across sweeps, and what follows from it.
//!
//! Reading order: [`Sweeper`], [`absence`], [`strays`], [`brake`].

mod absence;
mod brake;
mod strays;

use std::{collections::BTreeMap, time::SystemTime};

use myelin_executor::{FoundLease, Presence, ProviderIdentity};
use myelin_shape::{LogicalNodeId, NodeAttemptId, ProviderKind, ProviderLeaseId};
use myelin_state::{NodeEvent, NodeObservation};

use crate::{
    Account, Answer, Census, Duties, Entry, Event, Fate, Finding, Hold, HoldReason, Life, Listing,
    ListingFailure, LookUp, Question, Rules, Stop, StoreDoubt, Sweep, Taking, Unasked, View,
    census::{Sight, classify},
    store_is_behind,
    sweeper::{
        absence::{Absences, Weighed},
        brake::Brake,
        strays::Strays,
    },
};

/// How many of so many may be missing, or be taken, at once: a tenth, at least one (`spec 4.3`).
pub(crate) fn tenth_of(n: usize) -> usize {
    (n / 10).max(1)
}

/// Returns what a lease is remembered by.
pub(crate) fn key_of(
    provider: &ProviderKind,
    found: &FoundLease,
) -> (ProviderKind, ProviderLeaseId) {
    (provider.clone(), found.lease.lease_id.clone())
}

/// Finds lost leases and strays by comparing listings with records over time.
///
/// Its memory holds what was recorded at the last look, what was missing since when, and what was nobody's how often. It
/// is bounded by what is listed and recorded. Losing it costs two sweeps.
#[derive(Clone, Debug)]
pub struct Sweeper {
    rules: Rules,
    identities: BTreeMap<ProviderKind, ProviderIdentity>,
    absences: Absences,
    strays: Strays,
    brake: Brake,
    /// The attempts that were current when the records were last read.
    current: BTreeMap<LogicalNodeId, NodeAttemptId>,
    census: Census,
}

impl Sweeper {
    /// Returns a sweeper that knows who answered for each provider before the restart.
    pub fn new(rules: Rules, identities: BTreeMap<ProviderKind, ProviderIdentity>) -> Self {
        Self {
            rules,
            identities,
            absences: Absences::default(),
            strays: Strays::default(),
            brake: Brake::default(),
            current: BTreeMap::new(),
            census: Census::default(),
        }
    }

    /// Returns a sweeper that knows what was taken unasked before the restart.
    #[must_use]
    pub fn remembering(self, unasked: Unasked) -> Self {
        Self { brake: Brake::new(unasked), ..self }
    }

    /// Returns what was taken unasked lately, to be recorded before more is.
    pub fn unasked(&self) -> &Unasked {
        self.brake.unasked()
    }

    /// Returns what was found last.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// Takes one event and returns what is to be done about it.
    pub fn handle(&mut self, now: SystemTime, event: Event) -> Duties {
        match event {
            Event::Primed(view) => {
                self.learn_patience(&view);
                self.look_at(&view, now);
                Duties::default()
            }
            Event::Swept(sweep) => self.swept(now, sweep),
            Event::Unread(why) => self.unread(now, why),
            Event::LookedUp { answers, view } => self.looked_up(now, answers, &view),
            Event::Taken { taking, outcome } => self.taken(taking, outcome),
            Event::IdentityAccepted(provider) => self.accept_identity(&provider),
        }
    }

    fn learn_patience(&mut self, view: &View) {
        self.rules.longest_create = self.rules.longest_create.max(view.longest_create);
    }

    fn look_at(&mut self, view: &View, now: SystemTime) {
        let slots = view.slots.iter();
        let current = slots.filter(|(_, slot)| slot.life != Life::Over);
        self.current = current.map(|(id, slot)| (id.clone(), slot.attempt)).collect();
        self.absences.look_at(view, now);
    }

    fn swept(&mut self, now: SystemTime, sweep: Sweep) -> Duties {
        let mut duties = Duties::default();
        self.learn_patience(&sweep.view);
        let behind = store_is_behind(&sweep.listings, &sweep.view).map(StoreDoubt::Behind);
        let doubt = behind.or_else(|| sweep.view.doubt.clone());
        let accounts = self.census.accounts.clone();
        let mut census = Census { at: Some(now), doubt, accounts, ..Census::default() };
        for ListingFailure { provider, error } in sweep.failures {
            let account = census.accounts.entry(provider).or_default();
            hold(account, HoldReason::Unlisted { error }, now);
        }
        // What records that lost something say is missing, or nobody's, is neither.
        let trusted = census.doubt.as_ref().is_none_or(StoreDoubt::leaves_the_rest);
        if !trusted {
            self.absences.forget_misses();
            self.strays.forget_sightings();
        }
        for listing in &sweep.listings {
            self.fold(listing, &sweep.view, trusted, now, &mut census, &mut duties);
        }
        let too_many = self.brake.stop(&census, &sweep.view, now);
        self.strays.judge(&mut census, &sweep.view, too_many, sweep.authority, &mut duties);
        census.entries.sort_by(|a, b| (&a.provider, b.age).cmp(&(&b.provider, a.age)));
        self.look_at(&sweep.view, now);
        self.publish(census, &mut duties);
        duties
    }

    /// Folds one listing: who answers, what is missing, what is nobody's.
    fn fold(
        &mut self,
        listing: &Listing,
        view: &View,
        trusted: bool,
        now: SystemTime,
        census: &mut Census,
        duties: &mut Duties,
    ) {
        let weighed = self.absences.weigh(listing, view);
        let account = census.accounts.entry(listing.provider.clone()).or_default();
        account.n_listed = listing.leases.iter().filter(|it| view.is_ours(&it.key)).count();
        let reason = self.why_not(listing, &weighed, account);
        let held = reason.is_some();
        if let Some(reason) = reason {
            hold(account, reason, now);
        } else {
            account.hold = None;
            account.listed_at = Some(listing.listed_at);
            account.identity = Some(listing.identity.clone());
        }
        if held {
            self.absences.forget_misses_of(&listing.provider);
        } else if trusted {
            self.learn_identity(listing, duties);
            duties.look_up.extend(self.absences.fold(listing, view, &weighed, self.rules));
        }
        census.missing.extend(self.absences.described(&weighed));
        self.count(listing, view, trusted && !held, census);
    }

    fn why_not(
        &self,
        listing: &Listing,
        weighed: &Weighed,
        account: &Account,
    ) -> Option<HoldReason> {
        let known = self.identities.get(&listing.provider);
        if let Some(known) = known.filter(|known| **known != listing.identity) {
            let (known, found) = (known.clone(), listing.identity.clone());
            return Some(HoldReason::OtherIdentity { known, found });
        }
        if account.listed_at.is_some_and(|last| listing.listed_at < last) {
            let error = "a later listing was folded before".to_owned();
            return Some(HoldReason::Unlisted { error });
        }
        let (n_missing, n_known) = (weighed.missing.len(), weighed.n_known);
        // Nothing at all is what a wrong socket answers, also for a run with a single lease.
        let nothing_listed = account.n_listed == 0 && n_missing > 0;
        (nothing_listed || n_missing > tenth_of(n_known)).then_some(HoldReason::TooManyMissing {
            n_missing,
            n_known,
            n_listed: account.n_listed,
        })
    }

    fn learn_identity(&mut self, listing: &Listing, duties: &mut Duties) {
        if !self.identities.contains_key(&listing.provider) {
            let (provider, identity) = (listing.provider.clone(), listing.identity.clone());
            self.identities.insert(provider.clone(), identity.clone());
            duties.remember.push((provider, identity));
        }
    }

    /// Classifies what is listed, and counts how often what is nobody's was seen.
    fn count(&mut self, listing: &Listing, view: &View, counts: bool, census: &mut Census) {
        let longest_create = self.rules.longest_create.saturating_add(listing.settle_window);
        let protected = view.protected();
        let was_current =
            |found: &FoundLease| self.current.get(&found.key.node) == Some(&found.key.attempt);
        let mut seen = Vec::with_capacity(listing.leases.len());
        for found in &listing.leases {
            let age = self.strays.age(listing, found);
            let sight = Sight { age, was_current: was_current(found), longest_create };
            let class = classify(&listing.provider, found, view, &protected, sight);
            seen.push(strays::Seen { found, class, age, may_be_new: age < longest_create });
        }
        census.entries.extend(self.strays.sight(listing, view, counts, &seen));
    }

    fn unread(&mut self, now: SystemTime, why: String) -> Duties {
        self.absences.forget_misses();
        self.strays.forget_sightings();
        let mut census = self.census.clone();
        census.at = Some(now);
        census.missing.clear();
        let doubt = StoreDoubt::Unreadable(why);
        census.stop = Some(Stop::Store(doubt.clone()));
        census.doubt = Some(doubt);
        for entry in census.entries.iter_mut().filter(|entry| entry.class.is_stray()) {
            entry.fate = Fate::Asks;
        }
        let mut duties = Duties::default();
        self.publish(census, &mut duties);
        duties
    }

    fn looked_up(
        &mut self,
        now: SystemTime,
        answers: Vec<(LookUp, Answer)>,
        view: &View,
    ) -> Duties {
        let mut duties = Duties::default();
        // All of them first: what the wrong one says about a lease is worth nothing.
        for (look_up, answer) in &answers {
            if let Ok((identity, _)) = answer {
                self.check_identity(&look_up.provider, identity, now, &mut duties);
            }
        }
        for (look_up, answer) in answers {
            if self.is_held(&look_up.provider) {
                continue;
            }
            match answer {
                Ok((_, presence)) => self.settle(now, look_up, presence, view, &mut duties),
                Err(error) => duties.say.push(Finding::LookUpFailed {
                    provider: look_up.provider,
                    lease: look_up.lease.lease_id,
                    error,
                }),
            }
        }
        duties
    }

    fn settle(
        &mut self,
        now: SystemTime,
        look_up: LookUp,
        presence: Presence,
        view: &View,
        duties: &mut Duties,
    ) {
        let LookUp { provider, lease, question } = look_up;
        match question {
            Question::Gone { node, attempt } => {
                if !self.absences.conclude(&node, attempt, &lease, presence, view) {
                    if presence == Presence::Present {
                        let lease = lease.lease_id;
                        duties.say.push(Finding::StillThere { provider, node, lease });
                    }
                    return;
                }
                let lease = lease.lease_id;
                duties.say.push(Finding::Gone { provider, node: node.clone(), attempt, lease });
                duties.observe.push(NodeObservation { node, attempt, event: NodeEvent::LeaseGone });
            }
            Question::Stray { found, class, authority } => {
                let taking = Taking { provider, found: *found, class, authority };
                if presence == Presence::Absent {
                    self.forget(&taking);
                } else if self.strays.may_go(&taking, view) && self.brake.lets(&taking, view, now) {
                    self.brake.note(&taking, now);
                    duties.destroy.push(taking);
                }
            }
        }
    }

    /// Holds a provider for which another one answers now.
    fn check_identity(
        &mut self,
        provider: &ProviderKind,
        found: &ProviderIdentity,
        now: SystemTime,
        duties: &mut Duties,
    ) {
        let Some(known) = self.identities.get(provider).filter(|known| *known != found) else {
            return;
        };
        let reason = HoldReason::OtherIdentity { known: known.clone(), found: found.clone() };
        let mut census = self.census.clone();
        hold(census.accounts.entry(provider.clone()).or_default(), reason, now);
        self.absences.forget_misses_of(provider);
        self.strays.forget_sightings_of(provider);
        self.publish(census, duties);
    }

    fn is_held(&self, provider: &ProviderKind) -> bool {
        self.census.accounts.get(provider).is_none_or(|account| account.hold.is_some())
    }

    fn taken(&mut self, taking: Taking, outcome: Result<(), String>) -> Duties {
        let mut duties = Duties::default();
        match outcome {
            Ok(()) => {
                self.forget(&taking);
                duties.say.push(Finding::Taken(taking));
            }
            Err(error) => duties.say.push(Finding::NotTaken { taking, error }),
        }
        duties
    }

    fn forget(&mut self, taking: &Taking) {
        self.strays.forget(taking);
        let same = |entry: &Entry| {
            entry.provider == taking.provider
                && entry.found.lease.lease_id == taking.found.lease.lease_id
        };
        self.census.entries.retain(|entry| !same(entry));
    }

    fn accept_identity(&mut self, provider: &ProviderKind) -> Duties {
        let mut duties = Duties::default();
        let account = self.census.accounts.get(provider);
        let reason = account.and_then(|it| it.hold.as_ref()).map(|hold| &hold.reason);
        if let Some(HoldReason::OtherIdentity { found, .. }) = reason {
            self.identities.insert(provider.clone(), found.clone());
            duties.remember.push((provider.clone(), found.clone()));
        }
        duties
    }

    /// Makes a census the latest, and says what is new about it.
    fn publish(&mut self, census: Census, duties: &mut Duties) {
        let before = std::mem::replace(&mut self.census, census);
        let reason_of = |census: &Census, provider: &ProviderKind| {
            let account = census.accounts.get(provider);
            account.and_then(|it| it.hold.as_ref()).map(|hold| hold.reason.clone())
        };
        for provider in self.census.accounts.keys() {
            let old = reason_of(&before, provider);
            match reason_of(&self.census, provider) {
                Some(reason) if old.as_ref().map(HoldReason::code) != Some(reason.code()) => {
                    duties.say.push(Finding::Held { provider: provider.clone(), reason });
                }
                None if old.is_some() => {
                    duties.say.push(Finding::Released { provider: provider.clone() });
                }
                Some(_) | None => {}
            }
        }
        // A stop for the store's sake says so already.
        let new_stop = self.census.stop.clone().filter(|_| self.census.stop != before.stop);
        duties.say.extend(new_stop.map(Finding::Stopped));
        let unsaid = self.census.stop.is_none() && self.census.doubt != before.doubt;
        let doubt = self.census.doubt.clone().filter(|_| unsaid);
        duties.say.extend(doubt.map(Finding::Doubted));
    }
}

/// Holds a provider, since the first time for this kind of reason.
fn hold(account: &mut Account, reason: HoldReason, now: SystemTime) {
    let same = account.hold.as_ref().filter(|hold| hold.reason.code() == reason.code());
    let since = same.map_or(now, |hold| hold.since);
    account.hold = Some(Hold { reason, since });
}
