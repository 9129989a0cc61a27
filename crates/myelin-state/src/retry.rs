//! Retry as controller state (seed 1 §4.8): deadlines sampled once, stored, and read by the pure decider.

use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OperationKind;

/// Adds a duration to a time. What cannot be represented is "never" (`spec 1.3`).
pub fn after(time: SystemTime, delay: Duration) -> Option<SystemTime> {
    time.checked_add(delay)
}

/// Returns the end of the year 9999, which stands for "never" where a deadline must be stored.
pub fn never() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}

/// Adds a duration to a time for a deadline that must be stored; [`never()`] if that cannot be represented.
pub fn deadline(time: SystemTime, delay: Duration) -> SystemTime {
    after(time, delay).map_or_else(never, |deadline| deadline.min(never()))
}

/// When the next effect of a node may be dispatched, and why not earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetryState {
    /// Failures of any effect since the slot was last in ready steady state; decides the back-off.
    pub consecutive_failures: u32,
    /// Attempts ended by a failure since the slot was last in ready steady state; decides quarantine.
    pub ended_attempts: u32,
    /// Cancels of the current session that failed; bounded, since a cancel must not block cleanup.
    pub failed_cancels: u32,
    /// Earliest time another external effect may be dispatched.
    pub next_effect_at: Option<SystemTime>,
    /// Earliest time a destroyed failed attempt may be replaced.
    pub restart_at: Option<SystemTime>,
    /// The last error, in the provider's words.
    pub last_error: Option<Box<str>>,
    /// Timed-out create/start operation that must be adopted before cleanup.
    pub ambiguous_operation: Option<OperationKind>,
    /// Since when that outcome is unknown; not restarted by a new dispatch.
    pub ambiguous_since: Option<SystemTime>,
}

/// How failures are retried and how long things may take. Driver configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Delay after the first failure.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub initial_delay: Duration,
    /// By how much each further failure multiplies the delay; at least 1.
    pub factor: u32,
    /// The longest delay, before jitter.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub max_delay: Duration,
    /// Up to so many percent are added to a delay, so that nodes that failed together do not return together.
    pub jitter_percent: u32,
    /// How long an effect may take before the executor is asked to stop it.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub operation_timeout: Duration,
    /// How long the executor has to answer that request before it is asked again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub answer_timeout: Duration,
    /// How long to wait between look-ups of an endpoint that is not there yet.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub endpoint_probe_interval: Duration,
    /// How long a leased machine has to become ready.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub ready_timeout: Duration,
    /// How long a bootstrap has until the agent joins.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub bootstrap_timeout: Duration,
    /// How long a node must be ready until its failures are forgotten.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub stable_after: Duration,
    /// How long an agent may be silent before its attempt ends.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub lost_after: Duration,
    /// After so many attempts in a row that ended in failure, a slot is quarantined; 0: never.
    pub max_consecutive_failures: u32,
    /// How often a cancel may fail before our side is closed and the lease destroyed all the same; at least 1.
    pub max_cancel_failures: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            factor: 2,
            max_delay: Duration::from_mins(1),
            jitter_percent: 20,
            operation_timeout: Duration::from_mins(2),
            answer_timeout: Duration::from_secs(5),
            endpoint_probe_interval: Duration::from_secs(2),
            ready_timeout: Duration::from_mins(15),
            bootstrap_timeout: Duration::from_mins(10),
            stable_after: Duration::from_mins(10),
            lost_after: Duration::from_secs(45),
            max_consecutive_failures: 10,
            max_cancel_failures: 3,
        }
    }
}
