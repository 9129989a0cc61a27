//! The linter as a witness of the loop: every rule, after every settled step.

use std::{
    fmt,
    io::{self, Write as _},
    time::SystemTime,
};

use myelin_check::{Linter, Settled, Snapshot, is_explained};
use myelin_decider::reconcile;
use myelin_driver::{ClusterDriver, Effects};
use myelin_state::ClusterState;

use super::Witness;

/// What a line about a broken rule begins with, on standard error of a process that has ended for it.
pub const BROKEN_RULE: &str = "broken rule: ";

/// The exit status of a process that has ended for a broken rule: that of a panic, which it is in all but name.
pub const BROKEN_RULE_STATUS: i32 = 101;

/// Looks at every settled state: with the linter, and for nodes without a reason.
///
/// A step costs time in proportion to the cluster, so this is for tests and for builds with debug assertions.
pub struct Oracle {
    linter: Linter,
    tell: Box<dyn FnMut(&str) + Send>,
}

impl Oracle {
    /// Returns an oracle of a loop that is about to start, which tells every finding.
    pub fn new(tell: impl FnMut(&str) + Send + 'static) -> Self {
        Self { linter: Linter::new(), tell: Box::new(tell) }
    }

    /// Returns this oracle for a loop that goes on from a state.
    #[must_use]
    pub fn resumed(self, state: &ClusterState) -> Self {
        Self { linter: Linter::restore(state), ..self }
    }

    /// Returns an oracle that ends the process at the first finding, with [`BROKEN_RULE_STATUS`].
    ///
    /// A state that breaks a rule is no state to go on from, not even to clean up; `myelin down` finds what is left.
    pub fn fatal() -> Self {
        Self::new(|finding| {
            // That nobody reads it is no matter: the status says it too. A worker of the runtime cannot return from `main`.
            let _ = io::stderr().write_all(report(finding).as_bytes());
            std::process::exit(BROKEN_RULE_STATUS);
        })
    }
}

/// Marks every line of a finding.
fn report(finding: &str) -> String {
    let lines: Vec<_> = finding.lines().map(|line| [BROKEN_RULE, line, "\n"].concat()).collect();
    lines.concat()
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Oracle")
    }
}

impl Witness for Oracle {
    fn settled(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime) {
        let state = driver.state();
        let plan = driver.desired().map(|shape| reconcile(state, shape, now));
        let plan = match plan.transpose() {
            Ok(plan) => plan,
            Err(errors) => return (self.tell)(&format!("an invalid shape is desired: {errors}")),
        };
        let snapshot = Snapshot {
            state,
            desired: driver.desired(),
            plan: plan.as_ref(),
            history: Some(&effects.changed.events),
            settled: Some(Settled { wake_at: effects.wake_at }),
            now,
        };
        if let Err(violations) = self.linter.step(&snapshot) {
            (self.tell)(&violations.to_string());
        }
        for (id, node) in &state.nodes {
            let explanation = driver.explain(id);
            if !is_explained(node, &explanation, now) {
                let stage = node.record.stage;
                (self.tell)(&format!("{id} is {stage} without a reason: {explanation:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
