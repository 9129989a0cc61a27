//! How many strays are taken without a person's word.
//!
//! A tenth of the run at once is not enough of a limit: records that are wrong would lose everything, a tenth a sweep. So
//! what was taken within a day counts too, across restarts as well, until a person has had strays taken.

use std::time::{Duration, SystemTime};

use crate::{
    Authority, Census, Stop, Taking, Unasked, View,
    sweeper::{key_of, tenth_of},
};

/// How long a taking counts: long enough for people to hear of it.
const WINDOW: Duration = Duration::from_hours(24);

#[derive(Clone, Debug, Default)]
pub(super) struct Brake(Unasked);

impl Brake {
    pub(super) fn new(unasked: Unasked) -> Self {
        Self(unasked)
    }

    /// Returns what counts.
    pub(super) fn unasked(&self) -> &Unasked {
        &self.0
    }

    /// Counts what is about to be taken. A lease counts once, however often it is tried.
    pub(super) fn note(&mut self, taking: &Taking, now: SystemTime) {
        match taking.authority {
            Authority::Rules => {
                self.0.retain(|_, at| counts(*at, now));
                self.0.insert(key_of(&taking.provider, &taking.found), now);
            }
            Authority::Person => self.0.clear(),
        }
    }

    /// Returns whether the strays of a census are too many to be taken unasked.
    pub(super) fn stop(&self, census: &Census, view: &View, now: SystemTime) -> Option<Stop> {
        let strays = census.entries.iter().filter(|entry| entry.class.is_stray());
        let strays: Vec<_> = strays.map(|it| key_of(&it.provider, &it.found)).collect();
        let others = self.0.iter().filter(|(key, _)| !strays.contains(key));
        let n_taken = others.filter(|(_, at)| counts(**at, now)).count();
        let (n_strays, limit) = (strays.len(), tenth_of(view.n_leases()));
        (n_strays + n_taken > limit).then_some(Stop::TooMany { n_strays, n_taken, limit })
    }

    /// Returns whether one more may be taken, by the records of now.
    pub(super) fn lets(&self, taking: &Taking, view: &View, now: SystemTime) -> bool {
        let key = key_of(&taking.provider, &taking.found);
        let others = self.0.iter().filter(|(other, at)| **other != key && counts(**at, now));
        taking.authority == Authority::Person || others.count() < tenth_of(view.n_leases())
    }
}

fn counts(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).is_ok_and(|age| age < WINDOW) || at > now
}
