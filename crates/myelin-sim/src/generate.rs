//! One history from one number.
//!
//! Swarm-style: each seed first draws which kinds of things go wrong at all, and how often. A history in which everything
//! goes wrong a little finds less than one in which three things go wrong all the time.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use myelin_executor::{Limits, fake::CallKind};
use myelin_shape::{FirstNode, Limit, LogicalNodeId, OnFailure, RunId, RunNodeGroupSpec};
use myelin_state::{BootstrapStage, ErrorClass, OperatorRequest, RetryPolicy};

use crate::{
    BootFate, CallFate, CommitFate, Config, Happening, Jump, ReportFate, Scenario, Step,
    world::PROVIDER,
};

/// The kinds of things that go wrong, each drawn or not.
const KINDS: [fn(&mut Draw) -> Step; 20] = [
    Draw::slow_call,
    Draw::lost_reply,
    Draw::failing_call,
    Draw::failing_create,
    Draw::missing_find,
    Draw::throttling,
    Draw::panic,
    Draw::crash_at_call,
    Draw::crash_at_commit,
    Draw::failing_commit,
    Draw::crash,
    Draw::power_loss,
    Draw::clock_jump,
    Draw::boot,
    Draw::report,
    Draw::agent,
    Draw::machine,
    Draw::trouble,
    Draw::operator,
    Draw::change,
];

const SECOND: Duration = Duration::from_secs(1);

/// Returns the history of a seed: always the same one.
pub fn scenario(seed: u64) -> Scenario {
    let mut draw = Draw::new(seed);
    let config = draw.config();
    draw.settle_window = config.settle_window;
    let mut steps = vec![Step::At(Duration::ZERO, Happening::Want(draw.groups()))];
    let kinds: Vec<_> = KINDS.into_iter().filter(|_| draw.rng.random_ratio(1, 3)).collect();
    let n_steps = draw.rng.random_range(1..40);
    for _ in 0..n_steps {
        if let Some(kind) = kinds.choose(&mut draw.rng) {
            steps.extend(Some(kind(&mut draw)).filter(is_fair));
        }
    }
    if draw.rng.random_ratio(1, 8) {
        for _ in 0..draw.rng.random_range(1..4) {
            steps.extend(draw.lie());
        }
    }
    // Whatever was asked for before, in the end it is something that can be had.
    let last = draw.groups();
    steps.push(Step::At(draw.chaos.saturating_sub(SECOND), Happening::Want(last)));
    Scenario { config, steps, calm_at: draw.chaos, ..Scenario::default() }
}

/// Returns whether somebody promises to survive it. What lists leases does not promise to survive a panic of its provider.
fn is_fair(step: &Step) -> bool {
    !matches!(
        step,
        Step::Call(CallKind::List | CallKind::Identity | CallKind::Presence, _, CallFate::Panics)
    )
}

struct Draw {
    rng: ChaCha8Rng,
    chaos: Duration,
    settle_window: Duration,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let chaos = Duration::from_secs(*[60, 300, 900, 1800].choose(&mut rng).expect("not empty"));
        Self { rng, chaos, settle_window: Duration::ZERO }
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices.choose(&mut self.rng).expect("there are choices").clone()
    }

    fn seconds(&mut self, choices: &[u64]) -> Duration {
        Duration::from_secs(self.one_of(choices))
    }

    fn time(&mut self) -> Duration {
        let chaos = self.chaos.saturating_sub(SECOND * 2);
        let chaos = u64::try_from(chaos.as_millis()).unwrap_or(u64::MAX);
        // Most of it early, when everything is on its way.
        let end = if self.rng.random_ratio(1, 2) { chaos.min(60_000) } else { chaos };
        Duration::from_millis(self.rng.random_range(0..end))
    }

    fn nth(&mut self, most: u32) -> u32 {
        self.rng.random_range(1..=most)
    }

    fn config(&mut self) -> Config {
        let retry = self.retry();
        let calls_per_second = self.one_of(&[None, None, Some(1), Some(10)]);
        let limits =
            Limits { concurrency: self.one_of(&[1, 2, 16]), calls_per_second, ..Limits::default() };
        Config {
            settle_window: self.seconds(&[0, 0, 2, 10, 30]),
            endpoint_after: self.one_of(&[0, 0, 1, 3]),
            latency: Duration::from_millis(self.one_of(&[0, 100, 1000, 5000])),
            jitter: self.rng.next_u64(),
            boot: self.seconds(&[1, 5, 30]),
            retry,
            limits,
            ..Config::default()
        }
    }

    fn retry(&mut self) -> RetryPolicy {
        let default = RetryPolicy::default();
        if self.rng.random_ratio(1, 3) {
            return default;
        }
        RetryPolicy {
            initial_delay: self.seconds(&[1, 5]),
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

    fn groups(&mut self) -> Vec<RunNodeGroupSpec> {
        let ids = self.one_of(&[&["a"][..], &["a"], &["a", "b"], &["b"], &[]]);
        ids.iter().map(|id| self.group(id)).collect()
    }

    fn group(&mut self, id: &str) -> RunNodeGroupSpec {
        let count = self.one_of(&[0, 1, 1, 2, 3, 3, 5, 6]);
        let mut group = RunNodeGroupSpec::new(RunId(1), id, count, PROVIDER);
        group.shape.image = self.one_of(&["v1", "v1", "v2"]).into();
        let limits = [None, None, Some(Limit::Count(1)), Some(Limit::Percent(50))];
        group.policy.max_unavailable = self.one_of(&limits);
        group.policy.first_node =
            self.one_of(&[None, None, Some(FirstNode::All), Some(FirstNode::Canary)]);
        group.policy.max_in_flight_creates = self.one_of(&[1, 2, 50]);
        group.policy.on_failure =
            self.one_of(&[OnFailure::Replace, OnFailure::Replace, OnFailure::Keep]);
        if group.policy.on_failure == OnFailure::Keep {
            group.policy.keep_for = Duration::from_mins(20);
        }
        group
    }

    fn node(&mut self) -> LogicalNodeId {
        let group = self.one_of(&["a", "a", "b"]);
        let index = self.one_of(&[0, 0, 1, 2, 4]);
        LogicalNodeId::from(format!("{group}-{index}"))
    }

    fn a_call(&mut self) -> (CallKind, u32) {
        let kind = self.one_of(&[
            CallKind::Create,
            CallKind::Create,
            CallKind::Create,
            CallKind::Destroy,
            CallKind::Destroy,
            CallKind::Start,
            CallKind::Start,
            CallKind::Find,
            CallKind::FindSession,
            CallKind::Endpoint,
            CallKind::Presence,
            CallKind::List,
            CallKind::Identity,
            CallKind::Conclude,
            CallKind::Cancel,
        ]);
        let most = match kind {
            CallKind::Create | CallKind::Destroy | CallKind::Start | CallKind::Endpoint => 14,
            CallKind::List | CallKind::Identity => 20,
            CallKind::Find
            | CallKind::Presence
            | CallKind::FindSession
            | CallKind::Conclude
            | CallKind::Cancel => 5,
        };
        (kind, self.nth(most))
    }

    fn slow_call(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let by = self.seconds(&[3, 20, 60, 300]);
        Step::Call(kind, nth, CallFate::Slow(by))
    }

    fn lost_reply(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let late = self.rng.random_range(0..=self.settle_window.as_secs());
        let fates =
            [CallFate::LosesReply, CallFate::Late(Duration::from_secs(late)), CallFate::Hangs];
        Step::Call(kind, nth, self.one_of(&fates))
    }

    fn class(&mut self) -> ErrorClass {
        self.one_of(&[
            ErrorClass::Transient,
            ErrorClass::Transient,
            ErrorClass::Ambiguous,
            ErrorClass::NoCapacity,
            ErrorClass::Permanent,
        ])
    }

    fn failing_call(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let class = self.class();
        if self.rng.random_ratio(1, 2) {
            return Step::Call(kind, nth, CallFate::Fails(class));
        }
        let makes = matches!(kind, CallKind::Create | CallKind::Start);
        let class = if makes { ErrorClass::Ambiguous } else { class };
        Step::Call(kind, nth, CallFate::FailsAfter(class))
    }

    fn failing_create(&mut self) -> Step {
        let fates = [
            CallFate::Fails(ErrorClass::Ambiguous),
            CallFate::FailsAfter(ErrorClass::Ambiguous),
            CallFate::Fails(ErrorClass::NoCapacity),
            CallFate::Fails(ErrorClass::Permanent),
            CallFate::LosesReply,
        ];
        let nth = self.nth(20);
        Step::Call(CallKind::Create, nth, self.one_of(&fates))
    }

    fn missing_find(&mut self) -> Step {
        let kind = self.one_of(&[CallKind::List, CallKind::List, CallKind::Endpoint]);
        let nth = self.nth(20);
        let fates: &[_] = if kind == CallKind::List {
            &[CallFate::FindsNothing, CallFate::ListsHalf]
        } else {
            &[CallFate::FindsNothing]
        };
        Step::Call(kind, nth, self.one_of(fates))
    }

    fn throttling(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let pause = self.seconds(&[1, 10, 120]);
        Step::Call(kind, nth, CallFate::Fails(ErrorClass::RateLimited(pause)))
    }

    fn panic(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        Step::Call(kind, nth, CallFate::Panics)
    }

    fn crash_at_call(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let fate = self.one_of(&[CallFate::CrashBefore, CallFate::CrashAfter]);
        Step::Call(kind, nth, fate)
    }

    fn crash_at_commit(&mut self) -> Step {
        let nth = self.nth(80);
        let fate = self.one_of(&[CommitFate::CrashBefore, CommitFate::CrashAfter]);
        Step::Commit(nth, fate)
    }

    fn failing_commit(&mut self) -> Step {
        let nth = self.nth(80);
        let fate = self.one_of(&[CommitFate::Full, CommitFate::Locked, CommitFate::AnswerLost]);
        Step::Commit(nth, fate)
    }

    fn down_for(&mut self) -> Duration {
        self.seconds(&[1, 5, 30, 120, 600])
    }

    fn crash(&mut self) -> Step {
        let (at, down_for) = (self.time(), self.down_for());
        Step::At(at, Happening::Crash(down_for))
    }

    fn power_loss(&mut self) -> Step {
        let (at, down_for) = (self.time(), self.down_for());
        Step::At(at, Happening::PowerLoss(down_for))
    }

    fn clock_jump(&mut self) -> Step {
        let (at, by) = (self.time(), self.seconds(&[1, 60, 3600, 86_400]));
        let jump = self.one_of(&[Jump::Ahead(by), Jump::Back(by)]);
        Step::At(at, Happening::ClockJumps(jump))
    }

    fn boot(&mut self) -> Step {
        let nth = self.nth(14);
        let by = self.seconds(&[5, 40, 200, 700]);
        let fate = self.one_of(&[
            BootFate::JoinsFirst,
            BootFate::Slow(by),
            BootFate::Fails(BootstrapStage::BootCheckFailed),
            BootFate::Fails(BootstrapStage::SshConnectFailed),
            BootFate::Hangs,
            BootFate::Repeats,
            BootFate::DiesAfter(by),
        ]);
        Step::Boot(nth, fate)
    }

    fn report(&mut self) -> Step {
        let nth = self.nth(60);
        let by = self.seconds(&[0, 1, 10, 100]);
        let fate = self.one_of(&[ReportFate::Late(by), ReportFate::Again(by)]);
        Step::Report(nth, fate)
    }

    fn agent(&mut self) -> Step {
        let (at, node, lasts) = (self.time(), self.node(), self.seconds(&[3, 15, 60, 600]));
        let happening = self.one_of(&[
            Happening::AgentDies(node.clone()),
            Happening::AgentStops(node.clone(), lasts),
            Happening::AgentTwin(node),
            Happening::Sever(lasts),
        ]);
        Step::At(at, happening)
    }

    fn machine(&mut self) -> Step {
        let (at, node) = (self.time(), self.node());
        Step::At(at, Happening::MachineDies(node))
    }

    fn trouble(&mut self) -> Step {
        let (at, lasts, class) = (self.time(), self.seconds(&[5, 60, 200, 600]), self.class());
        let happening = self.one_of(&[
            Happening::Outage(lasts, class),
            Happening::ListsNothing(lasts),
            Happening::OtherAccount(lasts),
        ]);
        Step::At(at, happening)
    }

    fn operator(&mut self) -> Step {
        let (at, node) = (self.time(), self.node());
        let request = self.one_of(&[OperatorRequest::Retry, OperatorRequest::Replace]);
        let group = self.one_of(&["a", "b"]).into();
        let happening = self.one_of(&[
            Happening::Pause,
            Happening::Resume,
            Happening::Ask(node, request),
            Happening::AskGroup(group, request),
        ]);
        Step::At(at, happening)
    }

    fn change(&mut self) -> Step {
        let (at, mut groups) = (self.time(), self.groups());
        if self.rng.random_ratio(1, 10)
            && let Some(group) = groups.first_mut()
        {
            group.shape.image = "refused".into();
        }
        Step::At(at, Happening::Want(groups))
    }

    fn lie(&mut self) -> Option<Step> {
        let (kind, nth) = self.a_call();
        let fate = self.one_of(&[CallFate::Lies, CallFate::Twice, CallFate::FindsNothing]);
        let step = Step::Call(kind, nth, fate);
        step.is_a_lie().then_some(step)
    }
}
