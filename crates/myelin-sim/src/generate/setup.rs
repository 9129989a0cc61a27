//! How the world behaves, and what is wanted of it.

use std::time::Duration;

use rand::{Rng, RngExt};

use myelin_executor::Limits;
use myelin_membership::Timing;
use myelin_shape::{FirstNode, Limit, OnFailure, RunId, RunNodeGroupSpec};
use myelin_state::RetryPolicy;

use super::Draw;
use crate::{Config, world::PROVIDER};

impl Draw {
    pub(super) fn config(&mut self) -> Config {
        let retry = self.retry();
        let calls_per_second = self.one_of(&[None, None, Some(1), Some(10)]);
        let limits =
            Limits { concurrency: self.one_of(&[1, 2, 16]), calls_per_second, ..Limits::default() };
        // Who is silent is so for some time before it is lost.
        let heartbeats: &[u64] =
            if retry.lost_after.as_secs() > 40 { &[2, 2, 5, 10] } else { &[1, 2, 2, 3] };
        let agent = Timing::heartbeat_every(self.seconds(heartbeats));
        Config {
            settle_window: self.seconds(&[0, 0, 2, 10, 30]),
            endpoint_after: self.one_of(&[0, 0, 1, 3]),
            latency: Duration::from_millis(self.one_of(&[0, 100, 1000, 5000])),
            jitter: self.rng.next_u64(),
            boot: self.seconds(&[1, 5, 30]),
            retry,
            limits,
            agent,
            sweep_interval: self.seconds(&[60, 60, 20, 300]),
            tick: self.seconds(&[0, 30]),
            down_for: self.seconds(&[3, 3, 1, 120]),
        }
    }

    fn retry(&mut self) -> RetryPolicy {
        let default = RetryPolicy::default();
        if self.rng.random_ratio(1, 3) {
            return default;
        }
        RetryPolicy {
            initial_delay: self.seconds(&[1, 5]),
            max_delay: self.seconds(&[60, 60, 5, 300]),
            jitter_percent: self.one_of(&[20, 20, 0, 100]),
            operation_timeout: self.seconds(&[10, 30, 120]),
            answer_timeout: self.seconds(&[2, 5]),
            ready_timeout: self.seconds(&[60, 300, 900]),
            bootstrap_timeout: self.seconds(&[45, 120, 600]),
            stable_after: self.seconds(&[20, 60, 600]),
            lost_after: self.seconds(&[10, 20, 45]),
            max_consecutive_failures: self.one_of(&[0, 2, 3, 10]),
            ..default
        }
    }

    pub(super) fn groups(&mut self) -> Vec<RunNodeGroupSpec> {
        let ids = self.one_of(&[&["a"][..], &["a"], &["a", "b"], &["b"], &[]]);
        ids.iter().map(|id| self.group(id)).collect()
    }

    fn group(&mut self, id: &str) -> RunNodeGroupSpec {
        let count = self.one_of(&[0, 1, 1, 2, 3, 3, 5, 6]);
        let mut group = RunNodeGroupSpec::new(RunId(1), id, count, PROVIDER);
        group.shape.image = self.one_of(&["v1", "v1", "v2"]).into();
        let limits = [None, None, Some(Limit::Count(1)), Some(Limit::Percent(50))];
        group.policy.max_unavailable = self.one_of(&limits);
        let limits = [Limit::Count(1), Limit::Percent(0), Limit::Percent(100)];
        if self.rng.random_ratio(1, 3) {
            group.policy.max_unhealthy = self.one_of(&limits);
        }
        group.policy.first_node =
            self.one_of(&[None, None, Some(FirstNode::All), Some(FirstNode::Canary)]);
        group.policy.max_in_flight_creates = self.one_of(&[1, 2, 50]);
        group.policy.on_failure =
            self.one_of(&[OnFailure::Replace, OnFailure::Replace, OnFailure::Keep]);
        if group.policy.on_failure == OnFailure::Keep {
            group.policy.keep_for = Duration::from_mins(20);
            group.policy.keep_limit = self.one_of(&[1, 1, 0, 3]);
        }
        group
    }
}
