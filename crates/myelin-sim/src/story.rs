//! What happened, for people to read.

use std::{fmt::Write as _, time::Duration};

use myelin_executor::fake::CallKind;

use crate::{Outcome, script};

/// What is written down while a scenario is played.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) all: Vec<String>,
    /// What of it a reader wants to know.
    pub(crate) told: Vec<String>,
}

impl Trace {
    pub(crate) fn write(&mut self, at: Duration, line: &str, is_told: bool) {
        self.all.push(format!("{:>10} {line}", clock(at)));
        if is_told {
            self.told.push(format!("{:>8.1} {line}", at.as_secs_f64()));
        }
    }
}

/// Renders a time since the start in seconds.
pub(crate) fn clock(at: Duration) -> String {
    format!("{:.3}", at.as_secs_f64())
}

impl Outcome {
    /// Tells what happened: the trace of a scenario that was traced, without sweeps and what else repeats itself, and how it
    /// ended.
    ///
    /// Lines with `!` are what went wrong or was asked for, those with `>` calls, and those with `=` what they did; what is
    /// indented is what the control plane made of it. Times are in seconds since the start.
    pub fn story(&self) -> String {
        let mut text = String::new();
        for line in &self.told {
            writeln!(text, "{line}").expect("a string takes everything");
        }
        let calls = self.counts.calls.iter().filter(|(kind, _)| !is_of_sweeps(**kind));
        let calls = calls.map(|(kind, n)| format!("{} {n}", script::call_name(*kind)));
        let [calls, machines] = [calls.collect::<Vec<_>>(), self.end.keys().cloned().collect()]
            .map(|items| if items.is_empty() { "none".to_owned() } else { items.join(", ") });
        text + &format!("\nend: {}\ncalls: {calls}\nmachines: {machines}\n", self.ending())
    }

    fn ending(&self) -> String {
        match (&self.breach, self.converged_after) {
            (Some(breach), _) => format!("a rule is broken, {breach}"),
            (None, Some(after)) => {
                format!("as desired {:.1} s after everything worked", after.as_secs_f64())
            }
            (None, None) => "not as desired".to_owned(),
        }
    }
}

/// Returns whether such calls are made by sweeps, which find nothing most of the time.
pub(crate) fn is_of_sweeps(kind: CallKind) -> bool {
    matches!(kind, CallKind::Identity | CallKind::List)
}
