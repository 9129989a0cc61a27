//! What is recorded, as far as leases are concerned.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use myelin_executor::FoundLease;
use myelin_shape::{
    AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId, NodeTemplate, ProviderKind, RunId,
};
use myelin_state::{
    ClusterState, LeaseFacts, ManagedNode, NodeIntent, NodeRecord, NodeStage, OperationKind,
    RetryPolicy,
};

use crate::{Behind, Rules};

/// Why the records are not to be trusted with a collection (`spec 4.3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreDoubt {
    /// Nothing was ever recorded.
    Empty,
    /// They come from a backup, and nobody has confirmed since that all of it holds.
    Restored,
    /// They are older than what exists. Nothing at all is acted on.
    Behind(Behind),
    /// They miss something that was acted on, or may: why, in the store's words. Nothing at all is acted on.
    Incomplete(String),
    /// What is recorded is not kept durably at present, in the store's words.
    NotDurable(String),
    /// They could not be read, in the store's words. Nothing at all is acted on.
    Unreadable(String),
}

impl StoreDoubt {
    /// Returns whether what is recorded is right, and only what is not may be wrong.
    pub(crate) fn leaves_the_rest(&self) -> bool {
        match self {
            Self::Empty | Self::Restored | Self::NotDurable(_) => true,
            Self::Behind(_) | Self::Incomplete(_) | Self::Unreadable(_) => false,
        }
    }

    /// Returns a stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Restored => "restored",
            Self::Behind(_) => "behind",
            Self::Incomplete(_) => "incomplete",
            Self::NotDurable(_) => "not_durable",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// Returns whether a person may collect all the same.
    pub(crate) fn yields_to_person(&self) -> bool {
        match self {
            Self::Empty | Self::Restored => true,
            Self::Behind(_) | Self::Incomplete(_) | Self::NotDurable(_) | Self::Unreadable(_) => {
                false
            }
        }
    }
}

impl fmt::Display for StoreDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the store is empty"),
            Self::Restored => f.write_str("the store was restored from a backup"),
            Self::Behind(behind) => behind.fmt(f),
            Self::Incomplete(why) => f.write_str(why),
            Self::NotDurable(why) => write!(f, "the store does not keep what is written: {why}"),
            Self::Unreadable(why) => write!(f, "the store cannot be read: {why}"),
        }
    }
}

/// How much of its life an attempt has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is to be or become ready.
    Live,
    /// It failed or is being cleaned up: its lease may go at any time.
    Ending,
    /// Nothing of it is left.
    Over,
}

/// One slot's current attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which.
    pub attempt: NodeAttemptId,
    /// How much is before it.
    pub life: Life,
    /// Whether a create is under way, or its outcome unknown.
    pub may_be_creating: bool,
    /// The recorded lease.
    pub lease: Option<Box<LeaseFacts>>,
    /// Digest of the attempt's template, while there is no lease.
    pub digest: Option<Arc<str>>,
    /// A time at which the recorded lease is known to have existed, where the record tells.
    pub existed_at: Option<SystemTime>,
    /// When the attempt's agent was last heard by this process.
    pub last_contact: Option<SystemTime>,
}

/// The records at one moment.
///
/// A view is as good as the moment it was read: whoever compares it with a listing reads it *after* the listing came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Whose leases are ours.
    pub cluster: ClusterUid,
    /// Which of them are this run's.
    pub run: RunId,
    /// No attempt at or above this was ever given out.
    pub next_attempt_id: u64,
    /// No desired generation above this was ever acted on.
    pub generation: u64,
    /// The longest that a create may be under way by the policy of now; zero if the records do not tell.
    pub longest_create: Duration,
    /// Whether an operator stopped all effects.
    pub paused: bool,
    /// Why the records are not to be trusted with a collection, if they are not.
    pub doubt: Option<StoreDoubt>,
    /// The slots.
    pub slots: BTreeMap<LogicalNodeId, Slot>,
}

impl View {
    /// Returns the view of a state that was acted on up to a desired generation, with no doubt about it and nobody heard.
    pub fn of(cluster: ClusterUid, run: RunId, state: &ClusterState, generation: u64) -> Self {
        let mut digests = Digests::default();
        let slots = state.nodes.iter();
        Self {
            cluster,
            run,
            next_attempt_id: state.next_attempt_id,
            generation,
            longest_create: Duration::ZERO,
            paused: state.paused,
            doubt: None,
            slots: slots.map(|(id, node)| (id.clone(), Slot::of(node, &mut digests))).collect(),
        }
    }

    /// Returns the view with a doubt, if there is one.
    #[must_use]
    pub fn doubted(mut self, doubt: Option<StoreDoubt>) -> Self {
        self.doubt = doubt;
        self
    }

    /// Returns the view with the policy that creates are under now.
    #[must_use]
    pub fn under(self, retry: &RetryPolicy) -> Self {
        Self { longest_create: Rules::of(retry).longest_create, ..self }
    }

    /// Returns the view with the last contact of each attempt's agent.
    #[must_use]
    pub fn heard(
        mut self,
        mut last_contact: impl FnMut(&AttemptKey) -> Option<SystemTime>,
    ) -> Self {
        let (cluster, run) = (self.cluster, self.run);
        for (node, slot) in &mut self.slots {
            let attempt = slot.attempt;
            let key = AttemptKey { cluster, run, node: node.clone(), attempt };
            slot.last_contact = last_contact(&key);
        }
        self
    }

    /// Returns how many leases are recorded.
    pub fn n_leases(&self) -> usize {
        self.slots.values().filter(|slot| slot.lease.is_some()).count()
    }

    /// Returns the slot whose current attempt the key names and which is not over.
    pub(crate) fn live_slot(&self, key: &AttemptKey) -> Option<&Slot> {
        let slot = self.slots.get(&key.node)?;
        (slot.attempt == key.attempt && slot.life != Life::Over).then_some(slot)
    }

    /// Returns whether a lease was made for something that was never recorded, as far as the records know.
    pub(crate) fn is_behind(&self, found: &FoundLease) -> bool {
        self.is_ours(&found.key)
            && (found.key.attempt.0 >= self.next_attempt_id
                || found.generation.is_some_and(|it| it > self.generation))
    }

    pub(crate) fn is_ours(&self, key: &AttemptKey) -> bool {
        key.cluster == self.cluster && key.run == self.run
    }

    /// Returns what must never be taken, whatever its labels say.
    pub(crate) fn protected(&self) -> Protected<'_> {
        let leases = self.slots.values().filter_map(|slot| slot.lease.as_deref());
        Protected(leases.flat_map(|it| names(it).map(|name| (&it.provider, name))).collect())
    }
}

/// The recorded leases, by each name they go by.
#[derive(Debug)]
pub(crate) struct Protected<'a>(BTreeSet<(&'a ProviderKind, &'a str)>);

impl Protected<'_> {
    pub(crate) fn covers(&self, provider: &ProviderKind, found: &FoundLease) -> bool {
        names(&found.lease).any(|name| self.0.contains(&(provider, name)))
    }
}

/// Returns what a lease goes by. Providers may answer a shorter name to a create than they list.
pub(crate) fn names(lease: &LeaseFacts) -> impl Iterator<Item = &str> {
    [lease.lease_id.as_str(), lease.destroy_handle.as_str()].into_iter()
}

/// Returns whether two descriptions are of one lease of a provider.
pub(crate) fn same_lease(a: &LeaseFacts, b: &LeaseFacts) -> bool {
    names(a).any(|name| names(b).any(|other| name == other))
}

impl Slot {
    fn of(node: &ManagedNode, digests: &mut Digests) -> Self {
        let creates = |kind| kind == OperationKind::CreateLease;
        let pending = node.pending.as_deref().is_some_and(|it| creates(it.kind));
        let ambiguous = node.retry.ambiguous_operation.is_some_and(creates);
        let record = &node.record;
        let life = life_of(node);
        let unleased = record.lease.is_none() && life != Life::Over;
        Self {
            attempt: node.attempt,
            life,
            may_be_creating: pending || ambiguous,
            lease: record.lease.clone(),
            digest: unleased.then(|| digests.of(&record.desired.template)),
            existed_at: existed_at(record),
            last_contact: None,
        }
    }
}

fn life_of(node: &ManagedNode) -> Life {
    if node.is_destroyed() {
        Life::Over
    } else if node.intent == NodeIntent::Deleting || node.record.stage == NodeStage::Failed {
        Life::Ending
    } else {
        Life::Live
    }
}

/// Whatever ran on the lease says that it existed then.
fn existed_at(record: &NodeRecord) -> Option<SystemTime> {
    let bootstrap = record.bootstrap.as_deref().map(|it| it.started_at);
    let joined = record.swactor.as_deref().map(|it| it.joined_at);
    let times = [bootstrap, joined, record.ready_since];
    record.lease.as_ref().and(times.into_iter().flatten().min())
}

/// Digests of templates, computed once each: nodes of a group share theirs.
#[derive(Default)]
struct Digests(BTreeMap<usize, Arc<str>>);

impl Digests {
    /// The address names the template as long as the state is borrowed, which outlives this.
    fn of(&mut self, template: &Arc<NodeTemplate>) -> Arc<str> {
        let address = Arc::as_ptr(template).addr();
        let digest = self.0.entry(address).or_insert_with(|| template.digest().into());
        Arc::clone(digest)
    }
}
