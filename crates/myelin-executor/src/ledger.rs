//! The operation ledger: what was submitted, what runs, and what came of it (`spec 4.2`, seed 1 §10).
//!
//! [`Ledger`] is synchronous and reads no clock. It holds, per attempt, the newest operation with its outcome, at most one
//! older call that was given up but has not ended yet, and at most one late answer. So its size is bounded by the
//! attempts that were not forgotten, however many operations went through.
//!
//! An operation is *over* once its outcome is recorded, and its call *ended* once nothing of it runs any more. For a
//! call that was stopped, the first comes before the second, and a newer operation of the attempt waits for the second.
//!
//! Reading order: [`Ledger`], [`Admission`], [`Expiry`], [`Ended`].

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use myelin_shape::{LogicalNodeId, NodeAttemptId, OperationId};
use myelin_state::{OperationKind, OperationOutcome};

use crate::{
    Submission, SubmitError,
    outcome::{given_up, never_sent},
};

/// What to do with a submission that was taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// Nothing else of the attempt runs: execute it.
    Run,
    /// A call of the attempt has not ended yet: stop that, and execute this when [`Ended::next`] says so.
    Wait {
        /// The call.
        behind: OperationId,
    },
    /// It was submitted before and is not over: nothing to do.
    UnderWay,
    /// It was submitted before and is over: this came of it.
    Recorded(OperationOutcome),
}

/// The answer to the request to give an operation up.
#[derive(Clone, Debug, PartialEq)]
pub struct Expiry {
    /// The outcome to report.
    pub outcome: OperationOutcome,
    /// Whether something of the operation is to be stopped.
    pub stop: bool,
}

/// What follows from the end of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// The outcome to report. Absent for a call that was given up: its operation is over already.
    pub report: Option<OperationOutcome>,
    /// The operation that waited for the end and is to be executed now.
    pub next: Option<Arc<Submission>>,
}

/// How far the newest operation of an attempt is.
#[derive(Debug)]
enum Progress {
    /// Admitted behind a call that has not ended.
    Waiting,
    /// Admitted; no provider was called yet.
    Admitted,
    /// A provider may have been called.
    Sent,
    /// Over.
    Over(OperationOutcome),
}

#[derive(Debug)]
struct Attempt {
    newest: Arc<Submission>,
    progress: Progress,
    /// Sequence of a call that was given up and has not ended.
    lingering: Option<u64>,
    /// What such a call made, until the attempt knows of it by a later operation.
    late: Option<Box<OperationOutcome>>,
    /// When the last call ended that may have made something without saying so.
    maybe_made_at: Option<SystemTime>,
}

/// Every attempt's newest operation. One per run, since attempt ids are unique within a run; a tree, since
/// ids are given out in order and neighbours are worked on together.
#[derive(Debug)]
pub struct Ledger {
    attempts: BTreeMap<NodeAttemptId, Attempt>,
    begun_at: SystemTime,
}

impl Ledger {
    /// Returns an empty ledger that knows of nothing before `now`.
    ///
    /// An attempt whose first operation here follows one of unknown outcome was begun by an earlier process. The
    /// driver's record says since when something is unknown, not when the last call ended, which may have been just
    /// before `now`; so [`maybe_made_at`](Self::maybe_made_at) answers `now` for it.
    pub fn beginning_at(now: SystemTime) -> Self {
        Self { attempts: BTreeMap::new(), begun_at: now }
    }

    /// Takes a submission. An older operation of the attempt is dropped if it is over, and given up if not: the driver
    /// has one pending operation a node, so a newer one means that the older one was folded or will never be.
    ///
    /// # Errors
    ///
    /// Returns why it is refused; the ledger is unchanged.
    pub fn submit(&mut self, submission: &Arc<Submission>) -> Result<Admission, SubmitError> {
        let Some(attempt) = self.attempts.get_mut(&submission.operation.attempt) else {
            let attempt = Attempt::new(submission, self.begun_at);
            self.attempts.insert(submission.operation.attempt, attempt);
            return Ok(Admission::Run);
        };
        attempt.check_owner(submission)?;
        let newest = attempt.newest.operation.sequence;
        if submission.operation.sequence > newest {
            return Ok(attempt.advance(submission));
        }
        if submission.operation.sequence < newest {
            return Err(SubmitError::Stale {
                node: submission.node.clone(),
                operation: submission.operation,
                newest,
            });
        }
        attempt.repeat(submission)
    }

    /// Notes that a provider is about to be called. Returns false if the operation was given up in the meantime: then
    /// no provider may be called for it.
    pub fn sent(&mut self, operation: OperationId) -> bool {
        let Some(attempt) = self.attempts.get_mut(&operation.attempt) else {
            return false;
        };
        let current = attempt.newest.operation == operation
            && matches!(attempt.progress, Progress::Admitted | Progress::Sent);
        if current {
            attempt.progress = Progress::Sent;
        }
        current
    }

    /// Gives an operation up. The outcome tells the truth about the world: nothing happened if no provider was called
    /// yet; else a create or start is ambiguous and any other effect may be repeated. `None`: the operation is not the
    /// newest of an attempt known here.
    pub fn expire(&mut self, node: &LogicalNodeId, operation: OperationId) -> Option<Expiry> {
        let attempt = self.attempts.get_mut(&operation.attempt)?;
        let newest = &attempt.newest;
        (newest.operation == operation && newest.node == *node).then(|| attempt.expire())
    }

    /// Notes that nothing of an operation's call runs any more, and what it answered, if it did.
    pub fn ended(&mut self, operation: OperationId, answer: Option<OperationOutcome>) -> Ended {
        match self.attempts.get_mut(&operation.attempt) {
            Some(attempt) if attempt.lingering == Some(operation.sequence) => {
                attempt.end_lingering(answer)
            }
            Some(attempt) if attempt.newest.operation == operation => attempt.end_newest(answer),
            _ => Ended::default(),
        }
    }

    /// Returns what a call of the attempt that was given up has made, if it is of the kind and the attempt does not
    /// know of it yet.
    pub fn late(&self, attempt: NodeAttemptId, kind: OperationKind) -> Option<&OperationOutcome> {
        let late = self.attempts.get(&attempt)?.late.as_deref()?;
        (made_by(late) == Some(kind)).then_some(late)
    }

    /// Notes that a call has ended that may have made something without saying so.
    pub fn note_maybe_made(&mut self, attempt: NodeAttemptId, now: SystemTime) {
        if let Some(attempt) = self.attempts.get_mut(&attempt) {
            attempt.maybe_made_at = Some(now);
        }
    }

    /// Returns when the last such call ended at the latest, unless the attempt knows by now what it made. "Not found"
    /// proves nothing within a settle window of it.
    pub fn maybe_made_at(&self, attempt: NodeAttemptId) -> Option<SystemTime> {
        self.attempts.get(&attempt)?.maybe_made_at
    }

    /// Drops everything about an attempt that is gone from its slot. Returns its newest operation, to be stopped.
    pub fn forget(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId) -> Option<OperationId> {
        let newest = &self.attempts.get(&attempt)?.newest;
        if newest.node != *node {
            return None;
        }
        let operation = newest.operation;
        self.attempts.remove(&attempt);
        Some(operation)
    }

    /// Returns how many attempts are remembered.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Returns whether no attempt is remembered.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }
}

impl Attempt {
    fn new(submission: &Arc<Submission>, begun_at: SystemTime) -> Self {
        Self {
            newest: Arc::clone(submission),
            progress: Progress::Admitted,
            lingering: None,
            late: None,
            maybe_made_at: submission.is_unsettled().then_some(begun_at),
        }
    }

    fn check_owner(&self, submission: &Submission) -> Result<(), SubmitError> {
        if self.newest.node == submission.node {
            return Ok(());
        }
        Err(SubmitError::ForeignAttempt {
            node: submission.node.clone(),
            attempt: submission.operation.attempt,
            owner: self.newest.node.clone(),
        })
    }

    fn repeat(&self, submission: &Submission) -> Result<Admission, SubmitError> {
        // The deadline is no input: a driver that asks again may have sampled another one.
        if self.newest.command != submission.command {
            return Err(SubmitError::OtherInput {
                node: submission.node.clone(),
                operation: submission.operation,
            });
        }
        Ok(match &self.progress {
            Progress::Waiting | Progress::Admitted | Progress::Sent => Admission::UnderWay,
            Progress::Over(outcome) => Admission::Recorded(outcome.clone()),
        })
    }

    fn advance(&mut self, submission: &Arc<Submission>) -> Admission {
        if matches!(self.progress, Progress::Admitted | Progress::Sent) {
            self.lingering = Some(self.newest.operation.sequence);
        }
        self.newest = Arc::clone(submission);
        let Some(sequence) = self.lingering else {
            self.progress = Progress::Admitted;
            return Admission::Run;
        };
        self.progress = Progress::Waiting;
        let attempt = submission.operation.attempt;
        Admission::Wait { behind: OperationId { attempt, sequence } }
    }

    fn expire(&mut self) -> Expiry {
        let (outcome, runs) = match &self.progress {
            Progress::Over(outcome) => {
                return Expiry { outcome: outcome.clone(), stop: false };
            }
            Progress::Waiting => (never_sent(&self.newest), false),
            Progress::Admitted => (never_sent(&self.newest), true),
            Progress::Sent => (given_up(self.newest.kind(), "stopped at its deadline"), true),
        };
        if runs {
            self.lingering = Some(self.newest.operation.sequence);
        }
        self.progress = Progress::Over(outcome.clone());
        Expiry { outcome, stop: true }
    }

    fn end_newest(&mut self, answer: Option<OperationOutcome>) -> Ended {
        if matches!(self.progress, Progress::Over(_)) {
            return Ended::default();
        }
        let kind = self.newest.kind();
        let outcome = answer.unwrap_or_else(|| given_up(kind, "stopped"));
        if settles(&outcome) {
            self.late = None;
            self.maybe_made_at = None;
        }
        self.progress = Progress::Over(outcome.clone());
        Ended { report: Some(outcome), next: None }
    }

    fn end_lingering(&mut self, answer: Option<OperationOutcome>) -> Ended {
        self.lingering = None;
        if let Some(answer) = answer.filter(|answer| made_by(answer).is_some()) {
            self.late = Some(Box::new(answer));
        }
        let next = matches!(self.progress, Progress::Waiting).then(|| Arc::clone(&self.newest));
        if next.is_some() {
            self.progress = Progress::Admitted;
        }
        Ended { report: None, next }
    }
}

/// Returns which kind of effect the outcome says has made something.
fn made_by(outcome: &OperationOutcome) -> Option<OperationKind> {
    match outcome {
        OperationOutcome::LeaseCreated { .. } => Some(OperationKind::CreateLease),
        OperationOutcome::BootstrapStarted { .. } => Some(OperationKind::StartBootstrap),
        OperationOutcome::LeaseAbsent
        | OperationOutcome::EndpointFound(_)
        | OperationOutcome::EndpointNotReady
        | OperationOutcome::BootstrapAbsent
        | OperationOutcome::ConvergenceRecorded
        | OperationOutcome::BootstrapCancelled
        | OperationOutcome::LeaseDestroyed
        | OperationOutcome::Failed(_) => None,
    }
}

/// Returns whether the outcome leaves nothing to learn from a late answer.
fn settles(outcome: &OperationOutcome) -> bool {
    match outcome {
        OperationOutcome::LeaseCreated { .. }
        | OperationOutcome::LeaseAbsent
        | OperationOutcome::BootstrapStarted { .. }
        | OperationOutcome::BootstrapAbsent
        | OperationOutcome::ConvergenceRecorded
        | OperationOutcome::BootstrapCancelled
        | OperationOutcome::LeaseDestroyed => true,
        OperationOutcome::EndpointFound(_)
        | OperationOutcome::EndpointNotReady
        | OperationOutcome::Failed(_) => false,
    }
}

#[cfg(test)]
mod tests;
