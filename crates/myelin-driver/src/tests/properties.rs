//! Histories nobody would think of.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};

use myelin_shape::{FirstNode, Limit, NodeGroupId, OnFailure, RunNodeGroupSpec, SwactorId};
use myelin_state::{
    BootstrapStage, ErrorClass, NodeEvent, OperationKind, OperatorRequest, RetryPolicy,
};

use super::world::{Boot, Reply, Rule, World, calm, group, image, seconds};
use crate::{Event, Target};

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Move {
    Wait(u64),
    Apply(Vec<RunNodeGroupSpec>),
    Retry(RetryPolicy),
    Kill(usize),
    Stop(usize),
    Continue(usize),
    CloseListener,
    OpenListener,
    Pause,
    Resume,
    Tick,
    StandStill,
    Restart(bool),
    Script(OperationKind, Reply, u32),
    Boot(usize, Boot, u32),
    Ask(usize, OperatorRequest),
    AskGroup(&'static str, OperatorRequest),
    LeaseGone(usize),
    Stray(usize, u64, NodeEvent),
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![(0..4_u32).prop_map(Limit::Count), (0..=100_u8).prop_map(Limit::Percent)]
}

fn a_group(id: &'static str) -> impl Strategy<Value = RunNodeGroupSpec> {
    let policy = (
        prop::option::of(limit()),
        limit(),
        prop::option::of(select(vec![FirstNode::All, FirstNode::Canary])),
        1..4_u32,
        select(vec![OnFailure::Replace, OnFailure::Keep]),
        0..3_u32,
    );
    (0..6_u32, select(vec!["a", "b", "never"]), policy).prop_map(move |(count, name, policy)| {
        let mut group = image(group(id, count), name);
        (
            group.policy.max_unavailable,
            group.policy.max_unhealthy,
            group.policy.first_node,
            group.policy.max_in_flight_creates,
            group.policy.on_failure,
            group.policy.keep_limit,
        ) = policy;
        group.policy.keep_for = Duration::from_mins(20);
        group
    })
}

fn groups() -> impl Strategy<Value = Vec<RunNodeGroupSpec>> {
    (prop::option::of(a_group("a")), prop::option::of(a_group("b")))
        .prop_map(|(a, b)| a.into_iter().chain(b).collect())
}

/// Times from none at all to longer than anything takes; what is tried again at once would only be tried very often.
fn retry() -> impl Strategy<Value = RetryPolicy> {
    let time = || select(vec![0_u64, 1, 20, 45, 300, 5000]).prop_map(seconds);
    let pace = || select(vec![1_u64, 20, 300]).prop_map(seconds);
    let times = (pace(), pace(), pace(), time(), time(), time(), time());
    (times, select(vec![0, 2, 3, 10])).prop_map(|(times, max_consecutive_failures)| {
        let mut retry = RetryPolicy { max_consecutive_failures, ..calm() };
        (
            retry.initial_delay,
            retry.operation_timeout,
            retry.answer_timeout,
            retry.ready_timeout,
            retry.bootstrap_timeout,
            retry.stable_after,
            retry.lost_after,
        ) = times;
        retry
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    select(vec![
        Reply::Works,
        Reply::After(seconds(30)),
        Reply::After(seconds(200)),
        Reply::Twice,
        Reply::Lost,
        Reply::Ambiguous,
        Reply::Stuck,
        Reply::Fails(ErrorClass::Transient),
        Reply::Fails(ErrorClass::Permanent),
        Reply::Fails(ErrorClass::NoCapacity),
        Reply::Fails(ErrorClass::AlreadyAbsent),
        Reply::Fails(ErrorClass::RateLimited(seconds(90))),
    ])
}

fn boot() -> impl Strategy<Value = Boot> {
    select(vec![
        Boot::Joins,
        Boot::JoinsFirst,
        Boot::Fails(BootstrapStage::BootCheckFailed),
        Boot::Fails(BootstrapStage::Closed),
        Boot::Hangs,
    ])
}

fn request() -> impl Strategy<Value = OperatorRequest> {
    select(vec![OperatorRequest::Retry, OperatorRequest::Replace, OperatorRequest::Abandon])
}

fn stray() -> impl Strategy<Value = NodeEvent> {
    let agent = || SwactorId::from("stranger");
    prop_oneof![
        Just(NodeEvent::Joined { swactor: agent() }),
        Just(NodeEvent::Contact { swactor: agent() }),
        Just(NodeEvent::DeadlinePassed),
        (0..5_u64, 0..3_u64, select(BootstrapStage::ALL.to_vec())).prop_map(
            |(session, sequence, stage)| {
                NodeEvent::Bootstrap {
                    session: myelin_shape::BootstrapSessionId(session),
                    sequence,
                    stage,
                    message: None,
                }
            }
        ),
    ]
}

fn a_move() -> impl Strategy<Value = Move> {
    let node = || 0..12_usize;
    prop_oneof![
        8 => (1..200_u64).prop_map(Move::Wait),
        2 => (1..5000_u64).prop_map(Move::Wait),
        3 => groups().prop_map(Move::Apply),
        1 => retry().prop_map(Move::Retry),
        3 => node().prop_map(Move::Kill),
        2 => node().prop_map(Move::Stop),
        2 => node().prop_map(Move::Continue),
        1 => Just(Move::CloseListener),
        1 => Just(Move::OpenListener),
        1 => Just(Move::Pause),
        2 => Just(Move::Resume),
        1 => Just(Move::Tick),
        1 => Just(Move::StandStill),
        1 => any::<bool>().prop_map(Move::Restart),
        5 => (select(OperationKind::ALL.to_vec()), reply(), 1..4_u32)
            .prop_map(|(kind, reply, times)| Move::Script(kind, reply, times)),
        3 => (node(), boot(), 1..12_u32).prop_map(|(node, boot, times)| Move::Boot(node, boot, times)),
        2 => (node(), request()).prop_map(|(node, request)| Move::Ask(node, request)),
        1 => (select(vec!["a", "b"]), request()).prop_map(|(group, request)| Move::AskGroup(group, request)),
        1 => node().prop_map(Move::LeaseGone),
        2 => (node(), 0..3_u64, stray()).prop_map(|(node, age, event)| Move::Stray(node, age, event)),
    ]
}

impl World {
    fn nth(&self, n: usize) -> Option<(String, u64)> {
        let nodes = &self.driver.state().nodes;
        let (id, node) = nodes.iter().nth(n % nodes.len().max(1))?;
        Some((id.to_string(), node.attempt.0))
    }

    fn nth_agent(&self, n: usize) -> Option<super::world::AgentKey> {
        let living = self.provider.living();
        living.get(n % living.len().max(1)).cloned()
    }

    fn ask(&mut self, target: Target, request: OperatorRequest) {
        if request == OperatorRequest::Abandon {
            let slots: Vec<_> = self.driver.state().nodes.values().collect();
            let meant = |slot: &&&myelin_state::ManagedNode| match &target {
                Target::Node(id) => slot.record.desired.logical_node_id == *id,
                Target::Group(group) => slot.record.desired.group_id() == group,
            };
            let gone: Vec<_> = slots
                .iter()
                .filter(meant)
                // While a create is under way the driver refuses, and the machine stays.
                .filter(|slot| {
                    let pending = slot.pending.as_deref().map(|pending| pending.kind);
                    pending != Some(OperationKind::CreateLease)
                })
                .map(|node| (node.record.desired.logical_node_id.clone(), node.attempt))
                .collect();
            for key in gone {
                self.provider.destroy(&key);
            }
        }
        self.handle(Event::Operator { target, request });
    }

    fn retry_as(&mut self, retry: RetryPolicy) {
        self.retry = retry;
        self.apply(self.shape.groups.clone());
    }

    fn play(&mut self, a_move: Move) {
        match a_move {
            Move::Wait(time) => self.run_for(seconds(time)),
            Move::Apply(groups) => self.apply(groups),
            Move::Retry(retry) => self.retry_as(retry),
            Move::Kill(n) => {
                if let Some((node, _)) = self.nth_agent(n) {
                    self.kill([node.as_str()]);
                }
            }
            Move::Stop(n) => {
                if let Some(agent) = self.nth_agent(n) {
                    self.falls_silent(agent);
                }
            }
            Move::Continue(n) => {
                if let Some(agent) = self.nth_agent(n) {
                    self.is_heard(agent);
                }
            }
            Move::CloseListener => self.close_listener(),
            Move::OpenListener => self.open_listener(),
            Move::Pause => drop(self.handle(Event::Pause)),
            Move::Resume => drop(self.handle(Event::Resume)),
            Move::Tick => drop(self.handle(Event::Tick)),
            Move::StandStill => drop(self.handle(Event::StoodStill { unsent: Vec::new() })),
            Move::Restart(loses_replies) => self.restart(loses_replies),
            Move::Script(kind, reply, times) => self.script(Rule::effect(kind, reply, times)),
            Move::Boot(n, boot, times) => {
                if let Some((node, _)) = self.nth(n) {
                    self.script(Rule::boot(&node, boot, times));
                }
            }
            Move::Ask(n, request) => {
                if let Some((node, _)) = self.nth(n) {
                    self.ask(Target::Node(node.as_str().into()), request);
                }
            }
            Move::AskGroup(group, request) => {
                self.ask(Target::Group(NodeGroupId::from(group)), request);
            }
            Move::LeaseGone(n) => {
                if let Some((node, attempt)) = self.nth(n) {
                    self.observe(&node, attempt, NodeEvent::LeaseGone);
                }
            }
            Move::Stray(n, age, event) => {
                if let Some((node, attempt)) = self.nth(n) {
                    self.observe(&node, attempt.saturating_sub(age), event);
                }
            }
        }
    }

    /// Ends all trouble, and has operators release what only they can.
    fn heal(&mut self) {
        self.provider.heal();
        self.open_listener();
        self.retry_as(calm());
        self.handle(Event::Resume);
        for _ in 0..4 {
            if self.is_converged() {
                return;
            }
            for group in ["a", "b"] {
                self.ask(Target::Group(group.into()), OperatorRequest::Retry);
            }
            let end = self.now + Duration::from_hours(2);
            while !self.is_converged() && self.step(end) {}
        }
    }
}

/// Returns a world in which machines made from the image `never` fail.
fn world(groups: Vec<RunNodeGroupSpec>) -> World {
    let mut world = World::empty();
    let boot = Boot::Fails(BootstrapStage::StartFailed);
    world.script(Rule::Image { image: "never", boot });
    world.apply(groups);
    world
}

proptest! {
    /// Every check of the world and of the linter holds at every step, and once the trouble is over, the cluster
    /// becomes as desired and no machine is left over.
    #[test]
    fn any_history_keeps_every_rule_and_converges_once_trouble_ends(
        first in groups(),
        moves in vec(a_move(), 0..40),
    ) {
        let mut world = world(first);
        for a_move in moves {
            world.play(a_move);
        }
        world.heal();
        prop_assert!(world.is_converged(), "{}\n{}", world.cluster(), world.story());
        let n_desired = world.driver.state().nodes.len();
        prop_assert_eq!(world.provider.leases.len(), n_desired, "{:?}", world.provider.leases);
    }

    /// Equal histories lead to equal states, and a look at everything in between changes nothing: no delay is skipped,
    /// none is made longer.
    #[test]
    fn wake_ups_change_nothing(first in groups(), moves in vec(a_move(), 0..25)) {
        let play = |wakes: bool| {
            let mut world = world(first.clone());
            for a_move in &moves {
                world.play(a_move.clone());
                if wakes {
                    world.handle(Event::Wake);
                    world.handle(Event::Tick);
                }
            }
            (world.driver.state().clone(), world.story())
        };
        let (plain, again, woken) = (play(false), play(false), play(true));
        prop_assert_eq!(&plain, &again);
        prop_assert_eq!(&plain, &woken);
    }

    /// Without trouble every shape is reached, nothing is left to do then, and no slot was ever leased twice for one
    /// attempt.
    #[test]
    fn ideal_application_reaches_a_fixed_point(shapes in vec(groups(), 1..6), wait in 0..20_u64) {
        let mut world = World::empty();
        let mut slots = 0;
        for groups in shapes {
            slots += groups.iter().map(|group| group.count as usize).sum::<usize>();
            world.apply(groups);
            world.run_for(seconds(wait));
        }
        world.settle(Duration::from_hours(1));
        world.run_for(seconds(60));
        prop_assert_eq!(world.wake_at, None, "something is still to be done");
        prop_assert!(world.provider.n_leases_ever <= slots, "{} leases", world.provider.n_leases_ever);
        prop_assert_eq!(world.provider.leases.len(), world.driver.state().nodes.len());
    }
}
