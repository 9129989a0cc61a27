//! A simulated control plane: the durable driver of the real one, with its duties carried out in the simulated world.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use myelin_check::{Linter, Settled as AtRest, Snapshot, is_explained};
use myelin_decider::reconcile;
use myelin_driver::{ClusterDriver, Desired, DriverEvent, Effects, Event, Submission as Duty};
use myelin_durable::{DurableDriver, Settled, Shell};
use myelin_executor::{Clock, EffectExecutor, Executor, Submission};
use myelin_inventory::{StoreDoubt, View};
use myelin_membership::Membership;
use myelin_shape::{
    AttemptKey, ClusterShape, LogicalNodeId, NodeAttemptId, OperationId, RunNodeGroupSpec,
};
use myelin_state::{EventKind, NodeStage};
use myelin_store::Source;

use crate::{
    Flaw,
    flaw::{self, Handed},
    store::SimStore,
    world::{CLUSTER, RUN, Shared, secret},
};

/// A control plane that its loop and its inventory share.
#[derive(Clone, Debug)]
pub(crate) struct SharedPlane(Arc<Mutex<Plane>>);

impl SharedPlane {
    pub(crate) fn new(plane: Plane) -> Self {
        Self(Arc::new(Mutex::new(plane)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Plane> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver, what is recorded of it, and its surroundings.
#[derive(Debug)]
pub(crate) struct Plane {
    durable: DurableDriver,
    pub(crate) shell: SimShell,
    acted_generation: u64,
    is_stirred: bool,
}

/// The surroundings.
#[derive(Debug)]
pub(crate) struct SimShell {
    pub(crate) membership: Membership,
    pub(crate) clock: Clock,
    pub(crate) store: SimStore,
    pub(crate) executor: Executor,
    pub(crate) world: Shared,
    linter: Linter,
    flaw: Option<Flaw>,
    /// What a flaw reports in the place of what is done.
    made_up: Vec<Event>,
}

/// What a control plane is made of.
pub(crate) struct Parts {
    pub(crate) driver: ClusterDriver,
    pub(crate) membership: Membership,
    pub(crate) clock: Clock,
    pub(crate) store: SimStore,
    pub(crate) executor: Executor,
    pub(crate) world: Shared,
    pub(crate) acted_generation: u64,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) linter: Linter,
}

impl SimShell {
    fn lives(&self) -> bool {
        self.world.lock().lives(self.store.incarnation)
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn hand_over(&self, duty: Duty) -> Result<(), Box<str>> {
        let Duty { node, operation, command, generation, deadline } = duty;
        let submission = Submission { node, operation, command, generation, deadline };
        self.executor.submit(submission).map_err(|error| error.to_string().into())
    }

    /// Looks at a settled state.
    fn check(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime) {
        let state = driver.state();
        let plan = driver.desired().map(|shape| reconcile(state, shape, now));
        let plan = plan.transpose().expect("the shape was accepted");
        let snapshot = Snapshot {
            state,
            desired: driver.desired(),
            plan: plan.as_ref(),
            history: Some(&effects.changed.events),
            settled: Some(AtRest { wake_at: effects.wake_at }),
            now,
        };
        if let Err(violations) = self.linter.step(&snapshot) {
            self.world.lock().break_rule("the linter's", violations.to_string());
        }
        for (id, node) in &state.nodes {
            if !is_explained(node, &driver.explain(id), now) {
                let what = format!("{id} is {} without a reason", node.record.stage);
                self.world.lock().break_rule("every node has a reason", what);
            }
        }
        for refused in &effects.refused {
            self.world.lock().break_rule("what is asked is accepted", refused.to_string());
        }
    }
}

/// Renders what the control plane made of something.
fn told(event: &DriverEvent) -> String {
    let of = event.node.as_ref().zip(event.attempt);
    let of = of.map_or_else(String::new, |(node, attempt)| format!("{node}#{attempt} "));
    format!("  {of}{}", event.kind)
}

impl Shell for SimShell {
    fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn ran(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime) {
        self.check(driver, effects, now);
        // What is ignored is told nobody else.
        let events = effects.changed.events.iter();
        for event in events.filter(|it| matches!(it.kind, EventKind::Ignored { .. })) {
            self.world.lock().log(|| told(event));
        }
        if self.has(Flaw::SubmitsFirst) {
            for duty in &effects.submit {
                // The second time, it is under way already.
                self.hand_over(duty.clone()).ok();
            }
        }
    }

    fn tell(&mut self, event: DriverEvent) {
        let line = || told(&event);
        // The call that is made says the first, the stage that is reached the second, and that it is ready the third.
        let is_detail = matches!(
            event.kind,
            EventKind::Dispatched { .. }
                | EventKind::Succeeded { .. }
                | EventKind::Advanced { to: NodeStage::Dormant, .. }
        );
        let mut world = self.world.lock();
        if matches!(event.kind, EventKind::Quarantined { .. } | EventKind::Refused { .. }) {
            world.note_person_needed();
        }
        if is_detail { world.log_detail(line) } else { world.log(line) }
    }

    fn submit(&mut self, duty: Duty) -> Result<(), Box<str>> {
        if !self.lives() {
            return Ok(());
        }
        match flaw::submit(self.flaw, duty) {
            Handed::Over(duties) => duties.into_iter().try_for_each(|duty| self.hand_over(duty)),
            Handed::Instead(event) => {
                self.made_up.push(event);
                Ok(())
            }
        }
    }

    fn expire(&mut self, node: &LogicalNodeId, operation: OperationId) {
        if self.lives() {
            self.executor.expire(node, operation);
        }
    }

    fn forget(&mut self, _: &ClusterDriver, node: LogicalNodeId, attempt: NodeAttemptId) {
        if self.lives() && !self.has(Flaw::RetiresNobody) {
            self.executor.forget(&node, attempt);
            self.membership.retire(&key(node, attempt));
        }
    }
}

impl Plane {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { driver, membership, clock, store, executor, world, acted_generation, .. } =
            parts;
        Self {
            durable: DurableDriver::new(driver, Arc::new(store.clone()), Source::default()),
            shell: SimShell {
                membership,
                clock,
                store,
                executor,
                world,
                linter: parts.linter,
                flaw: parts.flaw,
                made_up: Vec::new(),
            },
            acted_generation,
            is_stirred: true,
        }
    }

    pub(crate) fn driver(&self) -> &ClusterDriver {
        self.durable.driver()
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.shell.now()
    }

    pub(crate) fn wake_at(&self) -> Option<SystemTime> {
        self.durable.wake_at().filter(|_| !self.shell.has(Flaw::DropsWakeUps))
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.durable.trouble().is_some()
    }

    /// Returns whether there is anything to settle.
    pub(crate) fn is_stirred(&self) -> bool {
        self.is_stirred || self.is_in_trouble()
    }

    /// Wants these groups from now on. Returns whether that is durable.
    pub(crate) fn want(&mut self, groups: &[RunNodeGroupSpec]) -> bool {
        if self.is_in_trouble() {
            return false;
        }
        let retry = self.shell.world.lock().config.retry.clone();
        let generation = self.last_generation() + 1;
        let shape = ClusterShape::new(RUN, generation, groups.to_vec());
        self.fold(Event::Desired(Box::new(Desired { shape, retry })));
        self.settle().is_recorded && self.shell.lives()
    }

    /// Takes a person's word. Returns whether that is durable.
    pub(crate) fn hear(&mut self, word: &Event) -> bool {
        if self.is_in_trouble() || !self.shell.lives() {
            return false;
        }
        self.fold(word.clone());
        self.settle().is_recorded && self.shell.lives()
    }

    fn last_generation(&self) -> u64 {
        self.driver().generation().max(self.acted_generation)
    }

    /// Takes an event; what follows from it is done by [`settle`](Self::settle).
    pub(crate) fn fold(&mut self, event: Event) {
        let now = self.now();
        if event == Event::Wake && self.shell.has(Flaw::CountsWakeUps) && !self.is_in_trouble() {
            self.settle();
            if let Some(driver) = flaw::count_wake_up(self.driver(), now) {
                let store = Arc::new(self.shell.store.clone());
                self.durable = DurableDriver::new(driver, store, Source::default());
            }
        }
        if let Some(event) = flaw::fold(self.shell.flaw, self.durable.driver(), event) {
            self.is_stirred = true;
            self.durable.fold(now, event);
        }
    }

    /// Does all that there is to do, as far as the store lets it.
    pub(crate) fn settle(&mut self) -> Settled {
        if !self.shell.lives() {
            return Settled::default();
        }
        self.is_stirred = false;
        let settled = at_once(self.durable.settle(&mut self.shell));
        for event in mem::take(&mut self.shell.made_up) {
            self.fold(event);
        }
        settled
    }

    /// Returns what is recorded of leases now.
    pub(crate) fn view(&mut self) -> View {
        if self.shell.has(Flaw::BelievesListings) {
            let listed = self.shell.world.lock().last_listing.clone();
            for event in flaw::missing(self.driver().state(), &listed) {
                self.fold(event);
            }
        }
        let trouble = self.durable.trouble();
        let doubt = trouble.map(|trouble| StoreDoubt::NotDurable(trouble.error.to_string()));
        let driver = self.driver();
        let view = View::of(CLUSTER, RUN, driver.state(), self.last_generation());
        let wanted = driver.desired().is_some();
        let view = if wanted { view.under(driver.retry_policy()) } else { view };
        view.heard(|key| self.shell.membership.last_contact(key)).doubted(doubt)
    }

    /// Makes an event that is not the driver's durable. Returns whether it is.
    pub(crate) fn record(&mut self, of: (LogicalNodeId, NodeAttemptId), kind: EventKind) -> bool {
        if self.is_in_trouble() {
            return false;
        }
        let event = self.event(Some(of), kind);
        self.durable.record(event);
        self.settle().is_recorded && self.shell.lives()
    }

    /// Takes an event that is not the driver's, for the next commit.
    pub(crate) fn note(&mut self, of: Option<(LogicalNodeId, NodeAttemptId)>, kind: EventKind) {
        let event = self.event(of, kind);
        self.durable.note(event);
        self.is_stirred = true;
    }

    fn event(&self, of: Option<(LogicalNodeId, NodeAttemptId)>, kind: EventKind) -> DriverEvent {
        let (node, attempt) = of.unzip();
        DriverEvent { at: self.now(), node, attempt, kind }
    }

    /// Lets agents speak to it.
    pub(crate) fn listen(&mut self) {
        let now = self.now();
        let SimShell { world, membership, store, .. } = &mut self.shell;
        let mut world = world.lock();
        world.speak(membership, store.incarnation, &secret(), now);
        membership.tick(now);
        for observation in membership.take_observations() {
            world.tell(observation);
        }
    }
}

pub(crate) fn key(node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
    AttemptKey { cluster: CLUSTER, run: RUN, node, attempt }
}

/// Returns what a future answers that waits for nothing.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    begun(future).expect("a store in memory answers at once")
}

/// Lets a future begin. `None`: it waits for something, and is dropped.
pub(crate) fn begun<T>(future: impl Future<Output = T>) -> Option<T> {
    let future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}
