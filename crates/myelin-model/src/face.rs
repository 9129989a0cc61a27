//! What two states must have in common to be the same: everything that what follows can depend on.
//!
//! Ids and times are relative, so that a cluster that has been through more is not another one for that. What is left
//! out, and why nothing is hidden by it:
//!
//! - **Attempt ids** are counted back from the slot's current one; only whether two are equal is ever asked, beside
//!   the allocator's own rule that the next is greater, which the linter checks on the ids themselves. Without
//!   jitter no delay depends on them.
//! - **Operation sequences** of what is under way are relative to the next one. An effect that is not pending any more
//!   can only be ignored, so all results of such effects look alike.
//! - **Sessions** are numbered in their order among those that are still named anywhere.
//! - **Deadlines** are what is left of them. One that has passed has passed, however long ago, except that repairs are
//!   granted in the order of their times: that order is kept.
//! - **Facts of the past** (`joined_at`, `started_at`, `failed_at`, `destroyed_at`, `since`, `at`) and texts are shown
//!   to people, and decide nothing under the policy of the scenarios (`on_failure: keep` would read `failed_at`).
//!   `ambiguous_since` is handed to providers, whose settle window is nothing here. Of `ready_since` only whether the
//!   node is steady matters.
//! - **Counters** are cut where they stop to make a difference: failures at the longest back-off, ended attempts at the
//!   quarantine, failed cancels at the limit.
//! - **What the driver remembers beyond its state** (index, queue, counters) is a function of the state, which is
//!   checked in each state: a plan from scratch must leave nothing to do and wait for the same deadlines.
//!
//! The records are taken apart with exhaustive patterns: a new field does not build until somebody has said here what
//! it means. That states which look alike also go on alike is not only argued but tried, see
//! [`explore_twins`](crate::explore_twins).

use std::time::Duration;

use myelin_state::{
    BootstrapStage, ClusterState, DeleteCause, ErrorClass, LeaseMode, NodeIntent, NodeStage,
    OperationKind,
};

use crate::{
    Scenario, Slot, State,
    eye::Eye,
    world::{Agent, SlotWorld},
};

/// The normal form of a [`State`].
#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct Face {
    slots: Vec<(Option<NodeFace>, Option<MachineFace>, Option<CallFace>)>,
    late: Vec<LateFace>,
    groups: Vec<GroupFace>,
    /// The run's brake and pause, and the generation that was evaluated.
    cluster: (bool, bool, u64),
    wake_in: Option<Left>,
    applied: usize,
    faults: u8,
    broken: bool,
}

/// What is left of a deadline, in milliseconds. What has passed is nothing, with its place among what has passed.
pub(crate) type Left = (u64, usize);

#[derive(Debug, Hash, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "as the record has them")]
pub(crate) struct NodeFace {
    pub(crate) intent: NodeIntent,
    pub(crate) template: usize,
    pub(crate) stage: NodeStage,
    pub(crate) lease: bool,
    pub(crate) connection: bool,
    pub(crate) bootstrap: Option<(usize, BootstrapStage, u64)>,
    pub(crate) joined: bool,
    pub(crate) handed_off: bool,
    pub(crate) steady: Option<bool>,
    /// What is left, whether more was given, and the order among the silent.
    pub(crate) silence: Option<(Left, bool, usize)>,
    pub(crate) ready_by: Option<Left>,
    pub(crate) bootstrap_by: Option<Left>,
    pub(crate) session: Option<usize>,
    pub(crate) pending: Option<(OperationKind, Left, bool)>,
    pub(crate) retry: RetryFace,
    pub(crate) delete_cause: Option<DeleteCause>,
    /// Recovering, repairing, spends the budget, is to be replaced, is given up for inspection, is refused.
    pub(crate) flags: [bool; 6],
    pub(crate) quarantine: Option<usize>,
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct RetryFace {
    pub(crate) failures: u32,
    pub(crate) ended_attempts: u32,
    pub(crate) failed_cancels: u32,
    pub(crate) next_effect_at: Option<Left>,
    pub(crate) restart_at: Option<Left>,
    /// When it was cleaned up stands in for a restart time that a person took away.
    pub(crate) destroyed_at: Option<Left>,
    pub(crate) ambiguous: Option<OperationKind>,
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct MachineFace {
    pub(crate) age: u64,
    pub(crate) lives: bool,
    pub(crate) session: Option<(usize, u64)>,
    pub(crate) agent: Agent,
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct CallFace {
    pub(crate) age: u64,
    pub(crate) is_pending: bool,
    pub(crate) kind: OperationKind,
    pub(crate) mode: Option<LeaseMode>,
    pub(crate) unsettled: bool,
    pub(crate) session: Option<usize>,
    pub(crate) progress: ProgressFace,
    pub(crate) stopping: bool,
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) enum ProgressFace {
    Asked,
    Lost,
    Started(usize),
    NothingThere,
    Failed(ErrorClass),
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) enum LateFace {
    /// About an attempt or effect that is over.
    Dead(Slot),
    Joined(Slot),
    Heard(Slot),
    Gone(Slot),
    Boots(Slot, usize, u64, BootstrapStage),
    /// How long ago the last contact was, up to where it ends the attempt at once, and the order among the silent.
    Silent(Slot, Duration, usize),
}

#[derive(Debug, Hash, PartialEq, Eq)]
pub(crate) struct GroupFace {
    pub(crate) proven: Vec<usize>,
    pub(crate) canary: Option<(String, usize)>,
    pub(crate) ended_silent: bool,
}

impl Face {
    pub(crate) fn of(state: &State, scenario: &Scenario) -> Self {
        let eye = Eye::new(state, scenario);
        let ClusterState { observed_generation, next_attempt_id: _, nodes, groups, brake, paused } =
            eye.state;
        let slot = |(slot, world): (Slot, &SlotWorld)| {
            let SlotWorld { machine, call } = world;
            let node = nodes.get(&slot.id());
            let attempt = node.map(|node| node.attempt);
            (
                node.map(|node| eye.node(node)),
                machine.as_ref().map(|machine| eye.machine(machine, attempt)),
                call.as_ref().map(|call| eye.call(call, node)),
            )
        };
        Self {
            slots: state.world.slots().map(slot).collect(),
            late: state.world.late.iter().map(|late| eye.late(late)).collect(),
            groups: groups.values().map(|group| eye.group(group)).collect(),
            cluster: (brake.silent_machine_ended, *paused, *observed_generation),
            wake_in: state.wake_at.map(|time| eye.left(time)),
            applied: state.applied,
            faults: state.faults,
            broken: state.broken.is_some(),
        }
    }
}
