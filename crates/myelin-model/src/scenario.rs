//! What is explored: what people want one after the other, and how much may go wrong.

use std::{fmt, time::Duration};

use myelin_shape::{ClusterShape, FirstNode, Limit, RunId, RunNodeGroupSpec};
use myelin_state::{ErrorClass, OperationKind, RetryPolicy};

/// The one group of every scenario.
pub(crate) const GROUP: &str = "worker";

/// The waiting time of a rate limit; longer than the longest back-off, so that it is seen.
const RATE_LIMIT: Duration = Duration::from_secs(3);

/// Makes a scenario with so many faults.
type Make = fn(u8) -> Scenario;

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
    /// How much of what happens to one slot is told apart.
    pub detail: Detail,
    /// Whether it happens that everything that is waited for is long over before anybody looks. Always so in
    /// [`Detail::Finest`].
    pub late: bool,
    /// A defect that is planted, to see that it is found.
    pub flaw: Option<Flaw>,
}

/// How much of what happens to one slot is told apart. Two slots in every detail are more states than can be gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What matters to other slots: that effects fail, take long or end unknown, that nodes are lost, and crashes.
    /// Endpoints are known at once, bootstraps start in one step and say nothing more, nothing is told twice, and there
    /// is one length of back-off.
    Coarse,
    /// Everything that happens by itself, except that bootstraps say how they get on.
    Fine,
    /// Everything, with people who pause and replace, and times that are slept through.
    Finest,
}

/// A defect of the shell around the driver, or of this checker. Only tests plant one.
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
    /// That a lease is gone is not told to the driver.
    IgnoresLostLeases,
    /// A node that is as wanted is replaced after a while.
    TiresOfNodes,
    /// Every failure is passed on as one for good.
    RefusesForGood,
    /// A machine whose agent is not heard is taken for absent when it is to be destroyed.
    ForgetsUnreachable,
    /// A driver that is started again takes its nodes up as if no time had passed.
    ForgetsLostTime,
    /// The checker itself takes states for the same of which only one looks for what a create has made.
    LooksAway,
    /// A machine that is made by a create which has looked for an earlier one never gets an agent, and the checker itself
    /// does not see that: machines look alike until there is an endpoint and a start.
    HidesStillbirths,
}

impl Scenario {
    /// One slot that gets another image, and the first one again.
    pub fn revert(faults: u8) -> Self {
        let images = ["v1", "v2", "v1"];
        Self::new("revert", Detail::Fine, faults, images.map(|image| group(1, image)).into())
    }

    /// One slot that gets another image.
    pub fn one_slot(faults: u8) -> Self {
        Self::new("one-slot", Detail::Fine, faults, vec![group(1, "v1"), group(1, "v2")])
    }

    /// Two slots that get another image.
    pub fn replacement(faults: u8) -> Self {
        Self::new("replacement", Detail::Coarse, faults, vec![group(2, "v1"), group(2, "v2")])
    }

    /// Two slots that get another image, of which one has to prove itself first.
    pub fn canary(faults: u8) -> Self {
        let one_first = |image| {
            let mut group = group(2, image);
            group.policy.first_node = Some(FirstNode::Canary);
            group
        };
        Self::new("canary", Detail::Coarse, faults, vec![one_first("v1"), one_first("v2")])
    }

    /// Two slots that get another image one after the other, and of which one is created after the other.
    pub fn rolling(faults: u8) -> Self {
        let one_by_one = |image| {
            let mut group = group(2, image);
            group.policy.max_unavailable = Some(Limit::Count(1));
            group.policy.max_in_flight_creates = 1;
            group
        };
        Self::new("rolling", Detail::Coarse, faults, vec![one_by_one("v1"), one_by_one("v2")])
    }

    /// Two slots that become one, and two again.
    pub fn scaling(faults: u8) -> Self {
        Self::new(
            "scaling",
            Detail::Coarse,
            faults,
            vec![group(2, "v1"), group(1, "v1"), group(2, "v1")],
        )
    }

    /// Two slots that get another image, while times are slept through, so that several are over at once.
    pub fn overslept(faults: u8) -> Self {
        Self { name: "overslept", late: true, ..Self::replacement(faults) }
    }

    /// Returns a scenario of this name, with every class of failure where that is not too much.
    pub fn named(name: &str, faults: u8) -> Option<Self> {
        let (_, make) = Self::ALL.iter().find(|(known, _)| *known == name)?;
        let scenario = make(faults);
        let small = scenario.shapes.iter().flat_map(|shape| &shape.groups).all(|it| it.count == 1);
        Some(if small { scenario.with_all_classes() } else { scenario })
    }

    /// Lists the names that [`named`](Self::named) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|&(name, _)| name)
    }

    const ALL: [(&'static str, Make); 7] = [
        ("one-slot", Self::one_slot),
        ("revert", Self::revert),
        ("replacement", Self::replacement),
        ("overslept", Self::overslept),
        ("canary", Self::canary),
        ("rolling", Self::rolling),
        ("scaling", Self::scaling),
    ];

    /// The same, with every class of failure.
    #[must_use]
    pub fn with_all_classes(mut self) -> Self {
        self.classes.extend([
            ErrorClass::NoCapacity,
            ErrorClass::Permanent,
            ErrorClass::RateLimited(RATE_LIMIT),
        ]);
        self
    }

    /// The same, told apart so far.
    #[must_use]
    pub fn in_detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// The same with a defect.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Returns whether it happens that everything that is waited for is long over before anybody looks.
    pub(crate) fn is_late(&self) -> bool {
        self.late || self.detail == Detail::Finest
    }

    fn new(name: &'static str, detail: Detail, faults: u8, groups: Vec<RunNodeGroupSpec>) -> Self {
        let shape = |(generation, group)| ClusterShape::new(RunId(1), generation, [group]);
        let shapes = (1..).zip(groups).map(shape).collect();
        Self { name, shapes, faults, classes: Vec::new(), detail, late: false, flaw: None }
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
        let Self { name, detail, faults, .. } = self;
        write!(f, "{name}, {detail}, {faults} faults")
    }
}

fn group(count: u32, image: &str) -> RunNodeGroupSpec {
    let mut group = RunNodeGroupSpec::new(RunId(1), GROUP, count, "model");
    group.shape.image = image.into();
    group
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coarse => "coarse",
            Self::Fine => "fine",
            Self::Finest => "finest",
        })
    }
}

impl Detail {
    pub(crate) fn is_coarse(self) -> bool {
        self == Self::Coarse
    }
}

impl Scenario {
    /// Returns a retry policy with few different delays, all round, and none drawn, so that few states differ in nothing
    /// but a time.
    ///
    /// The longest back-off is reached at the second failure, a slot is quarantined after the second attempt, a cancel
    /// given up after the second try: each rule is met within two faults. A node is steady as soon as any time has
    /// passed, so that steady and not yet steady are the only two cases.
    pub(crate) fn retry(&self) -> RetryPolicy {
        let fine = RetryPolicy {
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
        };
        if !self.detail.is_coarse() {
            return fine;
        }
        RetryPolicy {
            factor: 1,
            max_delay: Duration::from_secs(1),
            operation_timeout: Duration::from_secs(2),
            ready_timeout: Duration::from_secs(4),
            bootstrap_timeout: Duration::from_secs(4),
            lost_after: Duration::from_secs(2),
            ..fine
        }
    }
}
