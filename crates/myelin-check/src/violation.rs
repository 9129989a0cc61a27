//! Rules, and how they were broken.

use std::fmt;

use myelin_shape::LogicalNodeId;

/// A rule the linter checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Seed 1 §14.2: effects follow from desired and observed state.
    LevelBased,
    /// Seed 1 §14.3: what starts is what is desired now.
    LatestWins,
    /// Seed 1 §14.4: nothing changes unless the driver has changed it, and says so.
    SingleOwner,
    /// Seed 1 §14.6.
    OneAction,
    /// Seed 1 §14.7.
    RecordBeforeDispatch,
    /// Seed 1 §14.8.
    AttemptCorrelation,
    /// Seed 1 §14.9: a pass is asked for later, never for now.
    Coalesced,
    /// Seed 1 §14.10.
    CleanupBeforeReuse,
    /// Seed 1 §14.11: attempts and operations are never named twice.
    DistinctIdentities,
    /// Seed 1 §14.12: every node is acted on, as desired, or held for a reason.
    Isolation,
    /// Seed 1 §14.13: what is waited for has a time or an event that ends it.
    NoWaiting,
    /// Seed 1 §14.14.
    Acknowledgment,
    /// The facts of a record fit together (seed 1 §5.2, `spec 1.1`).
    Record,
    /// Facts and deadlines respect the clock (`spec 1.3`).
    Time,
    /// Group policy, counted from scratch (`spec 1.6`).
    Policy,
    /// An attempt's lease is known to be gone before there is another one; no two nodes have the same (seed 1 §10).
    OneLease,
    /// Within an attempt a deadline is set and cleared, and moved only where that is said (seed 1 §4.8).
    StoredOnce,
    /// Every stored deadline, and every time a node is held until, is waited for, and has its effect (seed 1 §6, §9).
    Requeue,
    /// What policy counts about a slot follows from what happened to it (`spec 1.6`).
    Flags,
    /// Nothing is left undone, and who waits for counts waits for somebody who moves (`spec 1.2`, `spec 1.6`).
    Progress,
    /// Under the brake, the end of a silent machine is answered by a repair before there is another (`spec 1.6`).
    OneHealthyMachine,
}

impl Rule {
    /// Returns the number of the invariant in seed 1 §14, if it is one of those.
    pub fn number(self) -> Option<u8> {
        Some(match self {
            Self::LevelBased => 2,
            Self::LatestWins => 3,
            Self::SingleOwner => 4,
            Self::OneAction => 6,
            Self::RecordBeforeDispatch => 7,
            Self::AttemptCorrelation => 8,
            Self::Coalesced => 9,
            Self::CleanupBeforeReuse => 10,
            Self::DistinctIdentities => 11,
            Self::Isolation => 12,
            Self::NoWaiting => 13,
            Self::Acknowledgment => 14,
            Self::Record
            | Self::Time
            | Self::Policy
            | Self::OneLease
            | Self::StoredOnce
            | Self::Requeue
            | Self::Flags
            | Self::Progress
            | Self::OneHealthyMachine => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::LevelBased => "level-based decisions",
            Self::LatestWins => "latest desired wins",
            Self::SingleOwner => "single owner of observed state",
            Self::OneAction => "one action per node per pass",
            Self::RecordBeforeDispatch => "record before dispatch",
            Self::AttemptCorrelation => "attempt correlation",
            Self::Coalesced => "coalesced driving",
            Self::CleanupBeforeReuse => "cleanup before reuse",
            Self::DistinctIdentities => "distinct identities",
            Self::Isolation => "per-node isolation",
            Self::NoWaiting => "no waiting",
            Self::Acknowledgment => "generation is acknowledgment",
            Self::Record => "record structure",
            Self::Time => "time",
            Self::Policy => "group policy",
            Self::OneLease => "one lease",
            Self::StoredOnce => "deadlines are stored once",
            Self::Requeue => "every deadline is waited for",
            Self::Flags => "flags follow from history",
            Self::Progress => "progress",
            Self::OneHealthyMachine => "one healthy machine",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "invariant {number} ({})", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The node; absent for the cluster as a whole.
    pub node: Option<LogicalNodeId>,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.rule)?;
        if let Some(node) = &self.node {
            write!(f, "{node}: ")?;
        }
        f.write_str(&self.seen)
    }
}

/// Every rule broken at one step; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, violation) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Violation>);

impl Findings {
    /// Notes a violation unless the rule holds. `seen` is only made for a violation.
    pub(crate) fn require(
        &mut self,
        holds: bool,
        rule: Rule,
        node: Option<&LogicalNodeId>,
        seen: impl FnOnce() -> String,
    ) {
        if !holds {
            self.0.push(Violation { rule, node: node.cloned(), seen: seen() });
        }
    }

    pub(crate) fn into_result(mut self) -> Result<(), Violations> {
        self.0.sort();
        self.0.dedup();
        if self.0.is_empty() { Ok(()) } else { Err(Violations(self.0)) }
    }
}
