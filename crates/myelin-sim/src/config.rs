//! What a simulated run is made of.

use std::time::Duration;

use myelin_executor::Limits;
use myelin_membership::Timing;
use myelin_state::RetryPolicy;

use crate::{Flaw, Step};

/// How the world behaves while nothing goes wrong, and how the control plane is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// For how long after a create a lease may be missing from `find` and `list`.
    pub settle_window: Duration,
    /// How many look-ups of a machine find no endpoint.
    pub endpoint_after: u32,
    /// The longest a call takes.
    pub latency: Duration,
    /// Tells the times of one world from those of another.
    pub jitter: u64,
    /// How long a bootstrap takes until the agent dials.
    pub boot: Duration,
    /// How agents report.
    pub agent: Timing,
    /// How failures are retried.
    pub retry: RetryPolicy,
    /// How the provider is called.
    pub limits: Limits,
    /// How often the inventory is swept.
    pub sweep_interval: Duration,
    /// How long after a control plane was killed in the middle of something the next one is started.
    pub down_for: Duration,
    /// How often every node is looked at, whether or not anything happened; never if that is zero.
    pub tick: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settle_window: Duration::ZERO,
            endpoint_after: 0,
            latency: Duration::from_secs(1),
            jitter: 0,
            boot: Duration::from_secs(5),
            agent: Timing::default(),
            retry: RetryPolicy::default(),
            limits: Limits::default(),
            sweep_interval: Duration::from_mins(1),
            down_for: Duration::from_secs(3),
            tick: Duration::from_secs(30),
        }
    }
}

/// A whole history: a world and what happens in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// The world.
    pub config: Config,
    /// What happens.
    pub steps: Vec<Step>,
    /// When everything that is wrong ends. From then on the cluster has [`PATIENCE`] to be as desired.
    pub calm_at: Duration,
    /// A defect to play with, to see whether it is found.
    pub flaw: Option<Flaw>,
    /// Whether to write down what happens.
    pub traced: bool,
}

/// How long after everything works again the cluster may take until it is as desired, whatever happened before. Back-off,
/// a brake that lets one repair through at a time, deadlines of attempts, and sweeps all fit in.
pub const PATIENCE: Duration = Duration::from_hours(4);

/// How long that is at most where no operator is needed: nothing was refused, quarantined, or kept on purpose. The deadline
/// of an attempt that hangs, back-off, and repairs that go one by one fit in.
pub const PROMPT: Duration = Duration::from_hours(1);

/// For how long it is watched after that, whether it stays so.
pub const WATCH: Duration = Duration::from_mins(10);
