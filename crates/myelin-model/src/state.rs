//! A state of the model: a real driver, the world around it, and what may still go wrong.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::SystemTime,
};

use myelin_decider::{Explanation, HeldReason};
use myelin_driver::ClusterDriver;
use myelin_state::{ManagedNode, NodeEvent};

use crate::{
    Action, Scenario, Slot,
    face::Face,
    world::{Agent, Progress, SlotWorld, World},
};

/// Everything there is at one moment. Two states are the same if they look the same (`face.rs`).
#[derive(Clone)]
pub struct State {
    /// The driver itself, index and all: what it remembers beyond its records is followed, too.
    pub(crate) driver: Arc<ClusterDriver>,
    pub(crate) world: Arc<World>,
    pub(crate) now: SystemTime,
    pub(crate) wake_at: Option<SystemTime>,
    /// How many of the scenario's shapes were applied.
    pub(crate) applied: usize,
    /// How many faults there may still be.
    pub(crate) faults: u8,
    /// Which rule is broken. Nothing follows then.
    pub(crate) broken: Option<Arc<str>>,
    /// The digest of the face.
    pub(crate) digest: u64,
}

impl State {
    /// Digests the face anew.
    pub(crate) fn seal(&mut self, scenario: &Scenario) {
        let mut hasher = DefaultHasher::new();
        Face::of(self, scenario).hash(&mut hasher);
        self.digest = hasher.finish();
    }

    /// Returns whether the cluster is as wanted: the driver says so, and it is true.
    ///
    /// Each slot that is wanted has a living machine of its node's attempt whose agent is heard; no other machine lives,
    /// and nothing is under way.
    pub(crate) fn is_converged(&self) -> bool {
        self.driver.convergence().converged
            && self.world.slots().all(|(slot, world)| self.is_as_wanted(slot, world))
    }

    fn is_as_wanted(&self, slot: Slot, world: &SlotWorld) -> bool {
        let machine = world.machine.as_ref().filter(|machine| machine.lives);
        let groups = self.driver.desired().map_or(&[][..], |shape| &shape.groups);
        let is_wanted = groups.iter().any(|group| u32::from(slot.0) < group.count);
        let node = self.driver.state().nodes.get(&slot.id());
        let attempt = node.filter(|_| is_wanted).map(|node| node.attempt);
        world.call.is_none()
            && is_wanted == attempt.is_some()
            && machine.map(|machine| machine.attempt) == attempt
            && machine.is_none_or(|machine| machine.agent == Agent::Heard)
    }

    /// Returns whether an agent that was cut off is heard again by this. It may, but nothing may rest on it.
    pub(crate) fn is_healed_by(&self, action: Action) -> bool {
        let (Action::IsHeard(slot) | Action::IsHeardTwice(slot)) = action else {
            return false;
        };
        let machine =
            self.world.slots().find(|(it, _)| *it == slot).and_then(|(_, it)| it.machine.as_ref());
        machine.is_some_and(|machine| machine.agent == Agent::CutOff)
    }

    /// Returns whether it tells the driver once more that an agent is silent. Until that is heard again, it is in doubt.
    pub(crate) fn is_doubted_by(&self, action: Action) -> bool {
        let Action::Late(n) = action else { return false };
        let late = self.world.late.get(usize::from(n));
        late.is_some_and(|late| matches!(late.event, NodeEvent::Silent { .. }))
    }

    /// Returns whether a person has to say something before it goes on.
    pub(crate) fn needs_a_person(&self) -> bool {
        let held = ["paused", "quarantined", "refused", "canary failed"];
        self.waits().any(|reason| held.contains(&reason))
    }

    /// Returns whether something on its way would arrive later than its time is over if time passed now.
    ///
    /// A fault then, as a lost reply is one: how long things take without one is anything below their deadlines.
    pub(crate) fn would_be_slow(&self) -> bool {
        let nodes = &self.driver.state().nodes;
        self.world
            .slots()
            .any(|(slot, world)| nodes.get(&slot.id()).is_some_and(|node| self.slow(node, world)))
    }

    /// Lists what each slot that is not acted on waits for, by name.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &'static str> {
        self.world.slots().filter_map(|(slot, _)| match self.driver.explain(&slot.id()) {
            Explanation::Held(held) => Some(name(&held.reason)),
            Explanation::Unknown
            | Explanation::Steady
            | Explanation::Missing
            | Explanation::Next(_) => None,
        })
    }

    fn slow(&self, node: &ManagedNode, world: &SlotWorld) -> bool {
        let due = |time: Option<SystemTime>| time.is_some_and(|time| Some(time) <= self.wake_at);
        let record = &node.record;
        let call = world.call.as_ref();
        let answers =
            call.is_some_and(|call| call.stopping || !matches!(call.progress, Progress::Lost));
        let agent = world.machine.as_ref().filter(|machine| machine.lives).map(|it| it.agent);
        let boots = due(record.ready_by) || due(record.bootstrap_by);
        let silence = record.silence.as_deref().map(|silence| silence.deadline);
        answers && (boots || due(node.pending.as_deref().map(|pending| pending.deadline)))
            || agent == Some(Agent::Starting) && boots
            // One that is cut off may stay so for good.
            || agent == Some(Agent::Heard) && due(silence)
    }
}

fn name(reason: &HeldReason) -> &'static str {
    match reason {
        HeldReason::Pending { expired: false, .. } => "pending",
        HeldReason::Pending { expired: true, .. } => "expired",
        HeldReason::Backoff { .. } => "backoff",
        HeldReason::AwaitingEndpoint => "endpoint",
        HeldReason::AwaitingJoin => "join",
        HeldReason::Silent { .. } => "silent",
        HeldReason::RestartBackoff { .. } => "restart",
        HeldReason::Quarantined { .. } => "quarantined",
        HeldReason::Refused { .. } => "refused",
        HeldReason::Kept => "kept",
        HeldReason::Budget { .. } => "budget",
        HeldReason::Canary { .. } => "canary",
        HeldReason::CanaryFailed { .. } => "canary failed",
        HeldReason::CreateLimit { .. } => "create limit",
        HeldReason::Brake { .. } => "brake",
        HeldReason::AwaitingRepair { .. } => "repair",
        HeldReason::Paused => "paused",
        HeldReason::AllocatorExhausted => "allocator",
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For people: what is known of each slot, and what is true of it where that differs.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        write!(f, "@{}", since.as_secs())?;
        let nodes = &self.driver.state().nodes;
        for (slot, world) in self.world.slots() {
            match nodes.get(&slot.id()) {
                Some(node) => write!(f, "  {slot}#{} {}", node.attempt, node.record.stage)?,
                None => write!(f, "  {slot} unknown")?,
            }
            let node = nodes.get(&slot.id());
            let facts = node.map(|node| {
                [
                    (node.intent == myelin_state::NodeIntent::Deleting, " deleting"),
                    (node.record.lease.is_some(), " leased"),
                    (node.retry.ambiguous_operation.is_some(), " unsettled"),
                    (node.record.silence.is_some(), " silent"),
                    (node.quarantine.is_some(), " quarantined"),
                    (node.refused.is_some(), " refused"),
                ]
            });
            for (_, fact) in facts.iter().flatten().filter(|(holds, _)| *holds) {
                f.write_str(fact)?;
            }
            world.fmt(f)?;
        }
        if let Some(broken) = &self.broken {
            write!(f, "\n   BROKEN {}", broken.replace('\n', "\n   BROKEN "))?;
        }
        Ok(())
    }
}

impl fmt::Display for SlotWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(machine) = &self.machine {
            let lives = if machine.lives { "lives" } else { "is gone" };
            write!(f, " [machine #{} {lives}", machine.attempt)?;
            if machine.agent != Agent::Absent {
                write!(f, ", agent {:?}", machine.agent)?;
            }
            f.write_str("]")?;
        }
        if let Some(call) = &self.call {
            let progress = match call.progress {
                Progress::Asked => "asked",
                Progress::Done(_) => "done",
                Progress::Lost => "lost",
            };
            let stopping = if call.stopping { ", to stop" } else { "" };
            write!(f, " <{} {progress}{stopping}>", call.kind())?;
        }
        Ok(())
    }
}
