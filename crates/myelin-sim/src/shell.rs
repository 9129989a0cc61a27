//! The synchronous half of a simulated control plane: fold, decide, commit, hand out, as the real one does.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use myelin_check::{Linter, Settled, Snapshot};
use myelin_decider::{Explanation, Until, reconcile};
use myelin_driver::{ClusterDriver, Desired, DriverEvent, Effects, Event, Submission as Duty};
use myelin_executor::{Clock, EffectExecutor, Executor, Submission};
use myelin_inventory::{StoreDoubt, View};
use myelin_membership::Membership;
use myelin_shape::{AttemptKey, ClusterShape, LogicalNodeId, NodeAttemptId, RunNodeGroupSpec};
use myelin_state::EventKind;

use crate::{
    Flaw,
    flaw::{self, Handed},
    outbox::{Duties, Outbox},
    store::SimStore,
    world::{CLUSTER, RUN, Shared, secret},
};

/// A shell that its control plane and the inventory share.
#[derive(Clone, Debug)]
pub(crate) struct SharedShell(Arc<Mutex<Shell>>);

impl SharedShell {
    pub(crate) fn new(shell: Shell) -> Self {
        Self(Arc::new(Mutex::new(shell)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) driver: ClusterDriver,
    pub(crate) membership: Membership,
    pub(crate) clock: Clock,
    pub(crate) store: SimStore,
    executor: Executor,
    outbox: Outbox,
    linter: Linter,
    pub(crate) world: Shared,
    held: Vec<Event>,
    acted_generation: u64,
    wake_at: Option<SystemTime>,
    is_stirred: bool,
    flaw: Option<Flaw>,
}

/// What a shell is made of.
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

impl Shell {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            driver,
            membership,
            clock,
            store,
            executor,
            world,
            acted_generation,
            flaw,
            linter,
        } = parts;
        Self {
            linter,
            driver,
            membership,
            clock,
            store,
            executor,
            outbox: Outbox::default(),
            world,
            held: Vec::new(),
            acted_generation,
            wake_at: None,
            is_stirred: true,
            flaw,
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn lives(&self) -> bool {
        self.world.lock().lives(self.store.incarnation)
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn wake_at(&self) -> Option<SystemTime> {
        if self.has(Flaw::DropsWakeUps) {
            return None;
        }
        let trouble = self.outbox.trouble();
        trouble.map_or(self.wake_at, |trouble| Some(trouble.retry_at))
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.outbox.trouble().is_some()
    }

    /// Wants these groups from now on. Returns whether that is durable.
    pub(crate) fn want(&mut self, groups: &[RunNodeGroupSpec]) -> bool {
        if self.is_in_trouble() {
            return false;
        }
        let retry = self.world.lock().config.retry.clone();
        let current = self.driver.desired().map_or(0, |shape| shape.generation);
        let generation = current.max(self.acted_generation) + 1;
        let shape = ClusterShape::new(RUN, generation, groups.to_vec());
        self.fold(Event::Desired(Box::new(Desired { shape, retry })));
        self.settle();
        !self.is_in_trouble() && self.lives()
    }

    /// Takes an event; what follows from it is done by [`settle`](Self::settle).
    pub(crate) fn fold(&mut self, event: Event) {
        let Some(event) = flaw::fold(self.flaw, &self.driver, event) else { return };
        if self.is_in_trouble() {
            if !matches!(event, Event::Wake | Event::Tick) {
                self.held.push(event);
            }
            return;
        }
        self.is_stirred = true;
        self.driver.fold(self.now(), event);
    }

    /// Returns whether anything happened since it last settled.
    pub(crate) fn is_stirred(&self) -> bool {
        self.is_stirred || self.is_in_trouble()
    }

    fn catch_up(&mut self) {
        for event in mem::take(&mut self.held) {
            self.fold(event);
        }
        self.fold(Event::Tick);
    }

    /// Runs the driver, makes durable what it did, and does its duties, until there is none.
    pub(crate) fn settle(&mut self) {
        while self.lives() {
            let now = self.now();
            match self.outbox.trouble() {
                Some(trouble) if trouble.retry_at > now => return,
                Some(_) => {}
                None => self.run(now),
            }
            if !self.commit(now) {
                return;
            }
        }
    }

    /// Returns whether there may be more to do at once.
    fn commit(&mut self, now: SystemTime) -> bool {
        let was_in_trouble = self.is_in_trouble();
        let committed = at_once(self.outbox.commit(&self.store, &self.driver, now));
        let Some((events, duties)) = committed.filter(|_| self.lives()) else {
            return false;
        };
        self.tell(&events);
        if was_in_trouble {
            self.catch_up();
        }
        let all_taken = self.perform(duties);
        !all_taken || was_in_trouble
    }

    fn run(&mut self, now: SystemTime) {
        self.is_stirred = false;
        let mut effects = self.driver.run(now);
        self.wake_at = effects.wake_at;
        self.check(&effects, now);
        for refused in mem::take(&mut effects.refused) {
            let what = format!("{refused}");
            self.world.lock().break_rule("what is asked is accepted", what);
        }
        flaw::effects(self.flaw, &mut effects);
        if self.has(Flaw::SubmitsFirst) {
            for duty in mem::take(&mut effects.submit) {
                self.submit(duty);
            }
        }
        self.outbox.absorb(effects, &self.driver, now);
    }

    /// Looks at a settled state.
    fn check(&mut self, effects: &Effects, now: SystemTime) {
        let state = self.driver.state();
        let plan = self.driver.desired().map(|shape| reconcile(state, shape, now));
        let plan = plan.transpose().expect("the shape was accepted");
        let snapshot = Snapshot {
            state,
            desired: self.driver.desired(),
            plan: plan.as_ref(),
            history: Some(&effects.changed.events),
            settled: Some(Settled { wake_at: effects.wake_at }),
            now,
        };
        if let Err(violations) = self.linter.step(&snapshot) {
            self.world.lock().break_rule("the linter's", violations.to_string());
        }
        for (id, node) in &state.nodes {
            let explained = match self.driver.explain(id) {
                Explanation::Steady => node.is_ready(),
                Explanation::Held(held) => match held.until {
                    Until::At(time) => time > now,
                    Until::On(_) => true,
                },
                Explanation::Next(_) | Explanation::Missing => true,
                Explanation::Unknown => false,
            };
            if !explained {
                let what = format!("{id} is {} without a reason", node.record.stage);
                self.world.lock().break_rule("every node has a reason", what);
            }
        }
    }

    fn tell(&self, events: &[DriverEvent]) {
        let mut world = self.world.lock();
        for event in events {
            world.log(|| {
                let of = event.node.as_ref().zip(event.attempt);
                let of =
                    of.map_or_else(String::new, |(node, attempt)| format!("{node}#{attempt} "));
                format!("  {of}{}", event.kind)
            });
        }
    }

    /// Does the duties of a commit, in their order. Returns whether every effect was taken.
    fn perform(&mut self, duties: Duties) -> bool {
        let mut all_taken = true;
        for duty in duties.submit {
            match flaw::submit(self.flaw, duty) {
                Handed::Over(duty) => all_taken &= self.submit(duty),
                Handed::Instead(event) => {
                    self.fold(event);
                    all_taken = false;
                }
            }
        }
        for (node, operation) in duties.expire {
            self.executor.expire(&node, operation);
        }
        for (node, attempt) in duties.forget {
            self.executor.forget(&node, attempt);
            self.membership.retire(&key(node, attempt));
        }
        all_taken
    }

    fn submit(&mut self, duty: Duty) -> bool {
        let Duty { node, operation, command, deadline } = duty;
        let submission = Submission { node: node.clone(), operation, command, deadline };
        let Err(error) = self.executor.submit(submission) else {
            return true;
        };
        self.fold(Event::SubmitFailed { node, operation, message: error.to_string().into() });
        false
    }

    /// Returns what is recorded of leases now.
    pub(crate) fn view(&mut self) -> View {
        if self.has(Flaw::BelievesListings) {
            let listed = self.world.lock().last_listing.clone();
            for event in flaw::missing(self.driver.state(), &listed) {
                self.fold(event);
            }
        }
        let trouble = self.outbox.trouble();
        let doubt = trouble.map(|trouble| StoreDoubt::NotDurable(trouble.error.to_string()));
        View::of(CLUSTER, RUN, self.driver.state())
            .heard(|key| self.membership.last_contact(key))
            .doubted(doubt)
    }

    /// Makes an event that is not the driver's durable. Returns whether it is.
    pub(crate) fn record(
        &mut self,
        of: Option<(LogicalNodeId, NodeAttemptId)>,
        kind: EventKind,
    ) -> bool {
        if self.is_in_trouble() {
            return false;
        }
        let (node, attempt) = of.unzip();
        self.outbox.note(DriverEvent { at: self.now(), node, attempt, kind }, true);
        self.settle();
        !self.is_in_trouble() && self.lives()
    }

    /// Lets agents speak to it.
    pub(crate) fn listen(&mut self) {
        let now = self.now();
        let mut world = self.world.lock();
        world.speak(&mut self.membership, self.store.incarnation, &secret(), now);
        self.membership.tick(now);
        for observation in self.membership.take_observations() {
            world.tell(observation);
        }
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }
}

pub(crate) fn key(node: LogicalNodeId, attempt: NodeAttemptId) -> AttemptKey {
    AttemptKey { cluster: CLUSTER, run: RUN, node, attempt }
}

/// Returns what a future answers that waits for nothing.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => unreachable!("a store in memory answers at once"),
    }
}
