//! One history from one number.
//!
//! Swarm-style: each seed first draws which kinds of things go wrong at all, and how often. A history in which everything
//! goes wrong a little finds less than one in which three things go wrong all the time.

mod setup;

use std::time::Duration;

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use myelin_executor::fake::CallKind;
use myelin_shape::LogicalNodeId;
use myelin_state::{BootstrapStage, ErrorClass, OperatorRequest};

use crate::{BootFate, CallFate, CommitFate, Happening, Jump, ReportFate, Scenario, Step};

/// The kinds of things that go wrong, each drawn or not.
const KINDS: [fn(&mut Draw) -> Step; 21] = [
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
    Draw::abandon,
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
            let step = kind(&mut draw);
            steps.append(&mut draw.before);
            steps.push(step);
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

struct Draw {
    rng: ChaCha8Rng,
    chaos: Duration,
    settle_window: Duration,
    /// What has to come before the step that is drawn.
    before: Vec<Step>,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let chaos = Duration::from_secs(*[60, 300, 900, 1800].choose(&mut rng).expect("not empty"));
        Self { rng, chaos, settle_window: Duration::ZERO, before: Vec::new() }
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

    fn node(&mut self) -> LogicalNodeId {
        let group = self.one_of(&["a", "a", "b"]);
        let index = self.one_of(&[0, 0, 1, 2, 3, 4, 5]);
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
            ErrorClass::AlreadyAbsent,
        ])
    }

    fn failing_call(&mut self) -> Step {
        let (kind, nth) = self.a_call();
        let class = self.class();
        // That there is nothing to end, while there is, would be a lie.
        let ends = matches!(kind, CallKind::Destroy | CallKind::Cancel);
        let is_lie = ends && class == ErrorClass::AlreadyAbsent;
        if self.rng.random_ratio(1, 2) && !is_lie {
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
            &[CallFate::FindsNothing, CallFate::ListsHalf, CallFate::ListsOld]
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
        let fate =
            self.one_of(&[CommitFate::CrashBefore, CommitFate::CrashAfter, CommitFate::PowerLoss]);
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
            BootFate::Fails(BootstrapStage::StartFailed),
            BootFate::Fails(BootstrapStage::SwactorJoinFailed),
            BootFate::Fails(BootstrapStage::StreamError),
            BootFate::Hangs,
            BootFate::Repeats,
            BootFate::DiesAfter(by),
        ]);
        Step::Boot(nth, fate)
    }

    fn report(&mut self) -> Step {
        let nth = self.nth(60);
        let by = self.seconds(&[0, 1, 10, 100]);
        let fate = self.one_of(&[ReportFate::Late(by), ReportFate::Again(by), ReportFate::Lost]);
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

    /// A machine is gone for good, and an operator says so at once: later there may be another one, and it would not be true.
    fn abandon(&mut self) -> Step {
        let (at, node) = (self.time(), self.node());
        self.before.push(Step::At(at, Happening::MachineDies(node.clone())));
        Step::At(at, Happening::Ask(node, OperatorRequest::Abandon))
    }

    fn trouble(&mut self) -> Step {
        let (at, lasts, class) = (self.time(), self.seconds(&[5, 60, 200, 600]), self.class());
        // An outage in which what is there is said not to be would be a lie.
        let class = if class == ErrorClass::AlreadyAbsent { ErrorClass::Transient } else { class };
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
        let absent = CallFate::Fails(ErrorClass::AlreadyAbsent);
        let fate = self.one_of(&[CallFate::Lies, CallFate::Twice, CallFate::FindsNothing, absent]);
        let step = Step::Call(kind, nth, fate);
        step.is_a_lie().then_some(step)
    }
}
