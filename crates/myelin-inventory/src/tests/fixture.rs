//! A sweeper with the records and the listing in short.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use myelin_executor::{FoundLease, Presence, ProviderIdentity};
use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};
use myelin_state::LeaseFacts;

use crate::{
    Answer, Authority, Class, Duties, Event, Life, Listing, ListingFailure, LookUp, Question,
    Rules, Slot, Sweep, Sweeper, View,
};

pub(super) const CLUSTER: ClusterUid = ClusterUid([7; 16]);

/// Between two sweeps of a rig.
pub(super) const INTERVAL: Duration = Duration::from_mins(1);

pub(super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).expect("tests begin at 0").as_secs()
}

pub(super) fn lease(id: &str) -> LeaseFacts {
    LeaseFacts {
        provider: "fake".into(),
        lease_id: id.into(),
        provider_contract_id: id.into(),
        offer_id: None,
        destroy_handle: id.into(),
        provider_metadata: None,
        price: None,
    }
}

/// A lease made long ago.
pub(super) fn found(node: &str, attempt: u64, id: &str) -> FoundLease {
    FoundLease {
        key: AttemptKey {
            cluster: CLUSTER,
            run: RunId(1),
            node: node.into(),
            attempt: NodeAttemptId(attempt),
        },
        template_digest: "digest".to_owned(),
        generation: Some(1),
        lease: lease(id),
        connection: None,
        created_at: at(0),
    }
}

/// A live attempt for which nothing was asked yet.
pub(super) fn bare(attempt: u64) -> Slot {
    Slot {
        attempt: NodeAttemptId(attempt),
        life: Life::Live,
        may_be_creating: false,
        lease: None,
        digest: Some("digest".into()),
        existed_at: None,
        last_contact: None,
    }
}

pub(super) fn creating(attempt: u64) -> Slot {
    Slot { may_be_creating: true, ..bare(attempt) }
}

pub(super) fn leased(attempt: u64, id: &str) -> Slot {
    Slot { lease: Some(Box::new(lease(id))), digest: None, ..bare(attempt) }
}

pub(super) fn ending(slot: Slot) -> Slot {
    Slot { life: Life::Ending, ..slot }
}

pub(super) fn over(attempt: u64) -> Slot {
    Slot { life: Life::Over, digest: None, ..bare(attempt) }
}

pub(super) fn view<'a>(slots: impl IntoIterator<Item = (&'a str, Slot)>) -> View {
    View {
        cluster: CLUSTER,
        run: RunId(1),
        next_attempt_id: 1000,
        generation: 9,
        longest_create: Duration::ZERO,
        paused: false,
        doubt: None,
        slots: slots.into_iter().map(|(node, slot)| (node.into(), slot)).collect(),
    }
}

pub(super) fn listing(leases: &[FoundLease], now: SystemTime) -> Listing {
    Listing {
        provider: "fake".into(),
        identity: ProviderIdentity("account 1".to_owned()),
        settle_window: Duration::ZERO,
        listed_at: now,
        leases: leases.to_vec(),
    }
}

pub(super) struct Rig {
    pub(super) sweeper: Sweeper,
    pub(super) view: View,
    pub(super) leases: Vec<FoundLease>,
    pub(super) now: SystemTime,
    pub(super) settle_window: Duration,
    pub(super) identity: &'static str,
    pub(super) unlisted: Option<&'static str>,
    pub(super) authority: Authority,
    pub(super) duties: Duties,
}

impl Rig {
    /// Returns a rig whose sweeper has looked at the records an interval ago.
    pub(super) fn new<'a>(
        slots: impl IntoIterator<Item = (&'a str, Slot)>,
        leases: impl IntoIterator<Item = FoundLease>,
    ) -> Self {
        let mut rig = Self {
            sweeper: Sweeper::new(Rules::default(), BTreeMap::new()),
            view: view(slots),
            leases: leases.into_iter().collect(),
            now: at(1000),
            settle_window: Duration::ZERO,
            identity: "account 1",
            unlisted: None,
            authority: Authority::Rules,
            duties: Duties::default(),
        };
        rig.sweeper.handle(rig.now, Event::Primed(rig.view.clone()));
        rig
    }

    /// Returns a rig of so many nodes, each with its lease, and extra leases beside them.
    pub(super) fn of_nodes(n: u64, extra: impl IntoIterator<Item = FoundLease>) -> Self {
        let names: Vec<_> = (0..n).map(|i| (format!("worker-{i}"), format!("lease-{i}"))).collect();
        let slots = names.iter().zip(0..);
        let slots = slots.map(|((node, id), attempt)| (node.as_str(), leased(attempt, id)));
        let own = names.iter().zip(0..).map(|((node, id), attempt)| found(node, attempt, id));
        Self::new(slots, own.chain(extra).collect::<Vec<_>>())
    }

    pub(super) fn set(&mut self, node: &str, slot: Slot) {
        self.view.slots.insert(node.into(), slot);
    }

    pub(super) fn lose(&mut self, id: &str) {
        self.leases.retain(|found| found.lease.lease_id.as_str() != id);
    }

    pub(super) fn listing(&self) -> Listing {
        Listing {
            identity: ProviderIdentity(self.identity.to_owned()),
            settle_window: self.settle_window,
            ..listing(&self.leases, self.now)
        }
    }

    /// Sweeps an interval later. Returns everything but what stays.
    pub(super) fn sweep(&mut self) -> String {
        self.now += INTERVAL;
        let listing = self.listing();
        self.fold(listing)
    }

    /// Folds a listing made earlier against the records of now.
    pub(super) fn fold(&mut self, listing: Listing) -> String {
        let failure = self
            .unlisted
            .map(|error| ListingFailure { provider: "fake".into(), error: error.to_owned() });
        let sweep = Sweep {
            listings: if failure.is_some() { Vec::new() } else { vec![listing] },
            failures: failure.into_iter().collect(),
            view: self.view.clone(),
            authority: self.authority,
        };
        self.duties = self.sweeper.handle(self.now, Event::Swept(sweep));
        self.show()
    }

    /// Answers every look-up of the last duties the same.
    pub(super) fn answer(&mut self, presence: Presence) -> String {
        self.answer_as(&Ok((ProviderIdentity(self.identity.to_owned()), presence)))
    }

    pub(super) fn answer_as(&mut self, answer: &Answer) -> String {
        let look_ups: Vec<LookUp> = std::mem::take(&mut self.duties.look_up);
        let answers = look_ups.into_iter().map(|it| (it, answer.clone())).collect();
        let event = Event::LookedUp { answers, view: self.view.clone() };
        self.duties = self.sweeper.handle(self.now, event);
        show_duties(&self.duties)
    }

    pub(super) fn classes(&self) -> Vec<(&str, Class)> {
        let entries = self.sweeper.census().entries.iter();
        entries.map(|entry| (entry.found.lease.lease_id.as_str(), entry.class)).collect()
    }

    fn show(&self) -> String {
        let mut text = String::new();
        let census = self.sweeper.census();
        for entry in census.entries.iter().filter(|it| it.class != Class::Owned) {
            let (id, class, fate) = (&entry.found.lease.lease_id, entry.class, entry.fate);
            writeln!(text, "{id} is {class} and {fate}").expect("a string");
        }
        for missing in &census.missing {
            write!(text, "{} of {} is missing", missing.lease.lease_id, missing.node)
                .expect("a string");
            match missing.since {
                Some(time) => writeln!(text, " since {}", seconds(time)).expect("a string"),
                None => text.push('\n'),
            }
        }
        text + &show_duties(&self.duties)
    }
}

pub(super) fn show_duties(duties: &Duties) -> String {
    let mut lines: Vec<_> = duties.say.iter().map(|finding| format!("say: {finding}")).collect();
    for observation in &duties.observe {
        let (node, attempt) = (&observation.node, observation.attempt);
        lines.push(format!("observe: {:?} of {node}, attempt {attempt}", observation.event));
    }
    for it in &duties.look_up {
        let why = match &it.question {
            Question::Gone { node, .. } => format!("gone from {node}?"),
            Question::Stray { class, .. } => format!("to take as {class}"),
        };
        lines.push(format!("look up: {}, {why}", it.lease.lease_id));
    }
    lines.extend(duties.destroy.iter().map(|taking| format!("destroy: {taking}")));
    if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n") }
}
