//! The linter: whether a cluster is as desired, and whether every rule was kept on the way there.
//!
//! [`converged`] is written from the definition alone (seed 1 §9). [`Linter`] follows a driver step by step and compares
//! state, plan and history with the invariants of seed 1 §14, named by number in [`Rule`], and with the group policy,
//! counted from scratch. What a state only claims is followed through the history: which machine an attempt has, who is
//! under repair, who was taken while ready, and what the brakes remember. Of a driver that waits ([`Settled`]) it asks
//! that nothing is left undone, no deadline slept through, and nobody waits for somebody who does not move. [`check`] does the same for a whole history at once. Nothing here is shared with the code that
//! decides: two independent readings of the rules must agree.
//!
//! Purity, the separation of folding from deciding, and determinism (invariants 1, 5, 15) show in no snapshot; types
//! and property tests are for those.
//!
//! Reading order: [`converged`], [`Snapshot`], [`Settled`], [`check`], [`Linter`], [`Rule`].
//!
//! ```
//! use std::time::SystemTime;
//! use myelin_check::{Snapshot, check, converged};
//! use myelin_decider::reconcile;
//! use myelin_shape::{ClusterShape, RunId, RunNodeGroupSpec};
//! use myelin_state::ClusterState;
//!
//! let shape = ClusterShape::new(RunId(1), 1, [RunNodeGroupSpec::new(RunId(1), "worker", 1, "process")]);
//! let state = ClusterState::default();
//! let now = SystemTime::UNIX_EPOCH;
//! let plan = reconcile(&state, &shape, now)?;
//! let snapshot = Snapshot { desired: Some(&shape), plan: Some(&plan), ..Snapshot::new(&state, now) };
//! assert!(check(&snapshot).is_ok());
//! let missing = converged(&state, &shape).unwrap_err();
//! assert_eq!(missing[1].to_string(), "worker-0 is missing");
//! # Ok::<(), myelin_shape::ShapeErrors>(())
//! ```

mod converged;
mod deadline;
mod desired;
mod explained;
mod history;
mod linter;
mod outage;
mod plan;
mod policy;
mod record;
mod slot;
mod violation;
mod waiting;

use std::time::SystemTime;

use myelin_decider::ReconcilePlan;
use myelin_shape::ClusterShape;
use myelin_state::{ClusterState, DriverEvent};

pub use crate::converged::{NotConverged, converged};
pub use crate::explained::is_explained;
pub use crate::linter::Linter;
pub use crate::violation::{Rule, Violation, Violations};

/// What a driver says of itself when it waits for the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// When it wants to be woken, if nothing happens before.
    pub wake_at: Option<SystemTime>,
}

/// What is known of a cluster at one time.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The observed state.
    pub state: &'a ClusterState,
    /// The desired shape, once there is one.
    pub desired: Option<&'a ClusterShape>,
    /// What a pass over the whole of this very state has planned.
    pub plan: Option<&'a ReconcilePlan>,
    /// What happened: since the previous step for a [`Linter`], since the beginning for [`check`].
    pub history: Option<&'a [DriverEvent]>,
    /// That the driver has done all it can without an event, and what it wants then. With a [plan](Self::plan), that has
    /// nothing to do, and who waits for counts waits for somebody who moves.
    pub settled: Option<Settled>,
    /// The time.
    pub now: SystemTime,
}

impl<'a> Snapshot<'a> {
    /// Returns a snapshot of a state of which nothing else is known.
    pub fn new(state: &'a ClusterState, now: SystemTime) -> Self {
        Self { state, desired: None, plan: None, history: None, settled: None, now }
    }
}

/// Compares a state, a plan made from it, and all that happened with every rule.
///
/// # Errors
///
/// Everything that breaks a rule.
pub fn check(snapshot: &Snapshot<'_>) -> Result<(), Violations> {
    Linter::new().step(snapshot)
}

#[cfg(test)]
mod tests;
