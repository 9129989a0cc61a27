//! The delay after a failure.

use std::time::Duration;

use myelin_shape::NodeAttemptId;
use myelin_state::RetryPolicy;

/// Returns the delay after the `failures`-th failure in a row, counted from 1.
///
/// Grows by [`RetryPolicy::factor`] up to [`RetryPolicy::max_delay`]; then up to [`RetryPolicy::jitter_percent`] are
/// added. The jitter depends on the attempt and the count alone, so equal histories give equal deadlines.
pub fn backoff(policy: &RetryPolicy, attempt: NodeAttemptId, failures: u32) -> Duration {
    let growth = policy.factor.max(1).checked_pow(failures.saturating_sub(1));
    let delay = growth.and_then(|growth| policy.initial_delay.checked_mul(growth));
    jittered(policy, attempt, failures, delay.map_or(policy.max_delay, |d| d.min(policy.max_delay)))
}

/// Returns the longest delay, for what will not get better soon.
pub(crate) fn longest(policy: &RetryPolicy, attempt: NodeAttemptId, failures: u32) -> Duration {
    jittered(policy, attempt, failures, policy.max_delay)
}

fn jittered(
    policy: &RetryPolicy,
    attempt: NodeAttemptId,
    failures: u32,
    delay: Duration,
) -> Duration {
    let draw = mix(attempt.0 ^ (u64::from(failures) << 48)) % 1024;
    let permille = draw * u64::from(policy.jitter_percent.min(100)) * 10 / 1024;
    let permille = u32::try_from(permille).unwrap_or(0);
    delay.checked_mul(permille).map_or(delay, |share| delay.saturating_add(share / 1000))
}

/// Spreads neighbouring inputs over all outputs (the finaliser of `SplitMix64`).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
