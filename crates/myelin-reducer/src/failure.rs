//! What failures leave behind: counts, delays, and the ends of attempts (seed 1 §11).

use std::{sync::Arc, time::SystemTime};

use myelin_state::{ManagedNode, NodeIntent, NodeStage, Quarantine, RetryPolicy, after, deadline};

use crate::{
    Folded, NOT_APPLICABLE,
    backoff::{backoff, longest},
};

/// How long a failed effect is delayed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delay {
    /// By the back-off.
    Backoff,
    /// By the back-off, but not before this time.
    NotBefore(SystemTime),
    /// By the longest delay: it will not get better soon.
    Longest,
}

/// Counts a failed effect and delays the next one.
pub(crate) fn delay_effect(
    node: &mut ManagedNode,
    message: &str,
    delay: Delay,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    let failures = count(node, message);
    let wait = match delay {
        Delay::Backoff | Delay::NotBefore(_) => backoff(policy, node.attempt, failures),
        Delay::Longest => longest(policy, node.attempt, failures),
    };
    let time = deadline(now, wait);
    node.retry.next_effect_at = Some(match delay {
        Delay::NotBefore(earliest) => time.max(earliest),
        Delay::Backoff | Delay::Longest => time,
    });
}

/// Counts a failure, and returns how many there were in a row.
pub(crate) fn count(node: &mut ManagedNode, message: &str) -> u32 {
    node.retry.consecutive_failures = node.retry.consecutive_failures.saturating_add(1);
    node.retry.last_error = Some(message.into());
    node.retry.consecutive_failures
}

/// Ends the current attempt: cleanup begins with the next pass, and only the restart is delayed.
///
/// An attempt that is over, or being cleaned up, is not ended again.
pub(crate) fn end_attempt(
    node: &mut ManagedNode,
    reason: &str,
    now: SystemTime,
    policy: &RetryPolicy,
) -> Folded {
    if node.intent == NodeIntent::Deleting || node.record.stage >= NodeStage::Failed {
        return NOT_APPLICABLE;
    }
    forget_failures_if_stable(node, now, policy);
    let failures = count(node, reason);
    node.retry.ended_attempts = node.retry.ended_attempts.saturating_add(1);
    node.retry.restart_at = Some(deadline(now, backoff(policy, node.attempt, failures)));
    node.recovering = true;
    node.repairing = false;
    let record = &mut node.record;
    record.stage = NodeStage::Failed;
    record.failed_reason = Some(reason.into());
    record.failed_at = Some(now);
    record.ready_since = None;
    record.silence = None;
    let limit = policy.max_consecutive_failures;
    if limit > 0 && node.retry.ended_attempts >= limit {
        node.quarantine = Some(Box::new(Quarantine {
            template: Arc::clone(&record.desired.template),
            failures: node.retry.ended_attempts,
            since: now,
        }));
    }
    Folded::Applied
}

/// Forgets the failures of a node that leaves a ready state that was steady (`spec 1.4`).
///
/// Whether it was steady only matters when the next failure is counted or the attempt is replaced, so no wake-up is
/// spent on the moment itself.
pub(crate) fn forget_failures_if_stable(
    node: &mut ManagedNode,
    now: SystemTime,
    policy: &RetryPolicy,
) {
    let stable_at = node.record.ready_since.and_then(|since| after(since, policy.stable_after));
    if stable_at.is_some_and(|time| time <= now) {
        node.retry.consecutive_failures = 0;
        node.retry.ended_attempts = 0;
        node.retry.last_error = None;
    }
}
