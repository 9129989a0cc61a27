//! What is explored: what people want one after the other, and how much may go wrong.

use std::{fmt, time::Duration};

use myelin_shape::{ClusterShape, Limit, RunId, RunNodeGroupSpec};
use myelin_state::{ErrorClass, OperationKind, RetryPolicy};

/// The one group of every scenario.
pub(crate) const GROUP: &str = "worker";

/// The waiting time of a rate limit; longer than the longest back-off, so that it is seen.
const RATE_LIMIT: Duration = Duration::from_secs(3);

/// A cluster, what it is to become, and what may go wrong meanwhile.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// A stable name.
    pub name: &'static str,
    /// What is wanted, one after the other; a person applies the next one at any moment.
    pub shapes: Vec<ClusterShape>,
    /// How many faults there may be on one path.
    pub faults: u8,
    /// Which classes of failure effects may have, beside the transient one.
    pub classes: Vec<ErrorClass>,
    /// Whether bootstraps report that they get on, and not only how they end.
    pub reports_progress: bool,
    /// A defect that is planted, to see that it is found.
    pub flaw: Option<Flaw>,
}

/// A defect of the shell around the driver. Only tests plant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A create is submitted before it is recorded, so that a crash forgets it.
    SubmitsBeforeRecording,
    /// The result of an effect that is over is passed on as that of the current one.
    FoldsStaleResults,
    /// A create that may only adopt is answered with "there is none", and nobody has looked.
    SkipsAdoption,
    /// A create is carried out without a look at what an earlier one has made.
    CreatesBlindly,
    /// The times the driver wants to be woken at are slept through.
    SleepsThroughDeadlines,
}

impl Scenario {
    /// One slot that gets another image.
    pub fn one_slot(faults: u8) -> Self {
        Self::new("one-slot", faults, vec![group(1, "v1"), group(1, "v2")])
    }

    /// Two slots that get another image.
    pub fn replacement(faults: u8) -> Self {
        Self::new("replacement", faults, vec![group(2, "v1"), group(2, "v2")])
    }

    /// Two slots that get another image one after the other.
    pub fn rolling(faults: u8) -> Self {
        let one_by_one = |image| {
            let mut group = group(2, image);
            group.policy.max_unavailable = Some(Limit::Count(1));
            group
        };
        Self::new("rolling", faults, vec![one_by_one("v1"), one_by_one("v2")])
    }

    /// Two slots that become one, and two again.
    pub fn scaling(faults: u8) -> Self {
        Self::new("scaling", faults, vec![group(2, "v1"), group(1, "v1"), group(2, "v1")])
    }

    /// The same, with every class of failure.
    #[must_use]
    pub fn with_all_classes(mut self) -> Self {
        self.classes.extend([ErrorClass::Permanent, ErrorClass::RateLimited(RATE_LIMIT)]);
        self
    }

    /// The same with bootstraps that report how they get on.
    #[must_use]
    pub fn with_progress(mut self) -> Self {
        self.reports_progress = true;
        self
    }

    /// The same with a defect.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    fn new(name: &'static str, faults: u8, groups: Vec<RunNodeGroupSpec>) -> Self {
        let shape = |(generation, group)| ClusterShape::new(RunId(1), generation, [group]);
        let shapes = (1..).zip(groups).map(shape).collect();
        let (classes, reports_progress, flaw) = (Vec::new(), false, None);
        Self { name, shapes, faults, classes, reports_progress, flaw }
    }

    /// Lists how an effect may fail without having done anything.
    pub(crate) fn failures(&self, kind: OperationKind) -> impl Iterator<Item = ErrorClass> {
        // What is refused for good is held until a person comes, which only a create is.
        let refused = (kind == OperationKind::CreateLease).then_some(ErrorClass::Permanent);
        let more = self.classes.iter().copied().filter(move |&class| Some(class) != refused);
        [ErrorClass::Transient].into_iter().chain(refused).chain(more)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} faults", self.name, self.faults)
    }
}

fn group(count: u32, image: &str) -> RunNodeGroupSpec {
    let mut group = RunNodeGroupSpec::new(RunId(1), GROUP, count, "model");
    group.shape.image = image.into();
    group
}

/// The retry policy of every scenario: few different delays, all round, and none drawn, so that few states differ in
/// nothing but a time.
///
/// The longest back-off is reached at the second failure, a slot is quarantined after the second attempt, a cancel
/// given up after the second try: each rule is met within two faults. A node is steady as soon as any time has
/// passed, so that steady and not yet steady are the only two cases.
pub(crate) fn retry() -> RetryPolicy {
    RetryPolicy {
        initial_delay: Duration::from_secs(1),
        factor: 2,
        max_delay: Duration::from_secs(2),
        jitter_percent: 0,
        operation_timeout: Duration::from_secs(10),
        answer_timeout: Duration::from_secs(1),
        endpoint_probe_interval: Duration::from_secs(1),
        ready_timeout: Duration::from_secs(40),
        bootstrap_timeout: Duration::from_secs(20),
        stable_after: Duration::from_millis(1),
        lost_after: Duration::from_secs(5),
        max_consecutive_failures: 2,
        max_cancel_failures: 2,
    }
}
