//! The world outside of the control plane: machines, sessions, agents, and the time.
//!
//! It is the truth that what the control plane believes is compared with. Everything in it happens at a time of the
//! timeline, whether or not anybody waits for it: a call that its caller gave up, or whose caller was killed, goes on.

mod agents;
mod calls;
mod effects;
mod listings;
mod places;
mod provider;
mod rules;
mod sessions;
mod timeline;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc::UnboundedSender},
    time::Instant,
};

use myelin_executor::{FoundLease, fake::CallKind};
use myelin_shape::{AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId, RunId, RunNodeGroupSpec};
use myelin_state::{ErrorClass, NodeObservation};

use crate::{
    BootFate, CallFate, CommitFate, Config, Counts, Happening, Place, ReportFate, Scenario, Step,
    script,
    story::{Trace, clock, is_of_sweeps},
    world::{
        agents::Agent,
        effects::{Machine, Made},
        rules::Memory,
        sessions::Session,
    },
};

pub(crate) use self::{agents::secret, provider::SimProvider, timeline::Due};

/// The cluster whose control plane runs.
pub(crate) const CLUSTER: ClusterUid = ClusterUid([7; 16]);

/// Somebody else's.
pub(crate) const STRANGER: ClusterUid = ClusterUid([13; 16]);

/// The run.
pub(crate) const RUN: RunId = RunId(1);

/// The name of the one provider.
pub(crate) const PROVIDER: &str = "sim";

/// How many machines somebody else has.
pub(crate) const N_FOREIGN: u64 = 2;

/// The world. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl Shared {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self(Arc::new(Mutex::new(World::new(scenario))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        // A planted panic happens outside of the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When.
    pub at: Duration,
    /// A short name of the rule.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.rule, clock(self.at), self.what)
    }
}

/// What is scripted, by what it is the nth of.
#[derive(Debug, Default)]
struct Fates {
    calls: BTreeMap<(CallKind, u32), CallFate>,
    boots: BTreeMap<u32, BootFate>,
    commits: BTreeMap<u32, CommitFate>,
    reports: BTreeMap<u32, ReportFate>,
}

/// What is wrong with the world until when.
#[derive(Debug, Default)]
struct Troubles {
    outage: Option<(Duration, ErrorClass)>,
    lists_nothing: Option<Duration>,
    other_account: Option<Duration>,
    severed: Option<Duration>,
}

/// See the module.
pub(crate) struct World {
    pub(crate) config: Config,
    start: Instant,
    timeline: BTreeMap<(Duration, u64), Due>,
    n_scheduled: u64,
    /// Told when something is scheduled, which may be earlier than anything before.
    scheduled: Arc<Notify>,
    machines: BTreeMap<u64, Machine>,
    sessions: BTreeMap<u64, Session>,
    agents: BTreeMap<(AttemptKey, u64), Agent>,
    /// Connections that have ended, of which control plane.
    closed: Vec<(AttemptKey, u64, u64)>,
    last_number: u64,
    n_flights: u64,
    memory: Memory,
    fates: Fates,
    counts: Counts,
    troubles: Troubles,
    /// Which control plane lives; none while zero.
    incarnation: u64,
    n_incarnations: u64,
    /// A control plane was killed, and is to be started again so much later.
    crashed: Option<Crash>,
    /// By how much the clock of the host is ahead, in milliseconds.
    pub(crate) skew: i64,
    observations: Option<UnboundedSender<NodeObservation>>,
    /// What the last listing held.
    pub(crate) last_listing: Vec<String>,
    calm: bool,
    /// What there was when leases were listed before.
    listed_before: Vec<FoundLease>,
    places: Vec<Place>,
    missed: Vec<Step>,
    /// Until when what membership tells of an attempt is late.
    late: BTreeMap<(LogicalNodeId, NodeAttemptId), Duration>,
    /// Whether anything happened that an operator may have to end.
    needs_person: bool,
    trace: Option<Trace>,
    played: BTreeMap<String, u64>,
    breach: Option<Breach>,
    n_steps: u64,
}

/// How a control plane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crash {
    /// How long until the next one.
    pub(crate) down_for: Duration,
    /// Whether what is not on disk is lost.
    pub(crate) loses_power: bool,
}

/// How long after a control plane refused to start the next one is started.
const RESTART_AFTER: Duration = Duration::from_secs(5);

impl World {
    fn new(scenario: &Scenario) -> Self {
        let mut world = Self {
            config: scenario.config.clone(),
            start: Instant::now(),
            timeline: BTreeMap::new(),
            n_scheduled: 0,
            scheduled: Arc::default(),
            machines: BTreeMap::new(),
            sessions: BTreeMap::new(),
            agents: BTreeMap::new(),
            closed: Vec::new(),
            last_number: 0,
            n_flights: 0,
            memory: Memory::default(),
            fates: Fates::default(),
            counts: Counts::default(),
            troubles: Troubles::default(),
            incarnation: 0,
            n_incarnations: 0,
            crashed: None,
            skew: 0,
            observations: None,
            last_listing: Vec::new(),
            calm: false,
            listed_before: Vec::new(),
            places: Vec::new(),
            missed: Vec::new(),
            late: BTreeMap::new(),
            needs_person: false,
            trace: scenario.traced.then(Trace::default),
            played: BTreeMap::new(),
            breach: None,
            n_steps: 0,
        };
        world.add_strangers();
        for step in &scenario.steps {
            world.plan(step.clone());
        }
        world.schedule(Duration::ZERO, Due::Start);
        world.speak_again();
        world.schedule(scenario.calm_at, Due::Calm);
        world
    }

    fn add_strangers(&mut self) {
        for attempt in 1..=N_FOREIGN {
            let key = AttemptKey {
                cluster: STRANGER,
                run: RUN,
                node: "a-0".into(),
                attempt: NodeAttemptId(attempt),
            };
            let template = Arc::new(RunNodeGroupSpec::new(RUN, "a", 1, PROVIDER).template());
            self.add_machine(
                &key,
                Made { template, digest: "foreign".to_owned(), generation: 1 },
                Duration::ZERO,
            );
        }
    }

    /// Returns the number of a new control plane, to which reports go from now on.
    pub(crate) fn begin_incarnation(&mut self, to: UnboundedSender<NodeObservation>) -> u64 {
        self.n_incarnations += 1;
        self.incarnation = self.n_incarnations;
        self.observations = Some(to);
        // What a dead one would have been told late holds nothing back.
        self.late.clear();
        self.incarnation
    }

    pub(crate) fn lives(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation && incarnation != 0
    }

    /// Kills the control plane, now.
    pub(crate) fn crash(&mut self, why: &str, down_for: Option<Duration>, loses_power: bool) {
        if self.incarnation == 0 {
            return;
        }
        self.log(|| format!("the control plane is killed: {why}"));
        self.incarnation = 0;
        self.observations = None;
        let down_for = down_for.unwrap_or(self.config.down_for);
        self.crashed = Some(Crash { down_for, loses_power });
    }

    pub(crate) fn take_crash(&mut self) -> Option<Crash> {
        self.crashed.take()
    }

    /// Sets something wrong with the world right for good.
    pub(crate) fn calm_down(&mut self) {
        self.log(|| "from now on everything works".to_owned());
        self.calm = true;
        self.drop_fates();
        self.troubles = Troubles::default();
        self.wake_agents();
        self.schedule_in(Duration::from_secs(30), Due::Care);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }

    pub(crate) fn set_outage(&mut self, lasts: Duration, class: ErrorClass) {
        self.troubles.outage = Some((self.now() + lasts, class));
    }

    pub(crate) fn list_nothing(&mut self, lasts: Duration) {
        self.troubles.lists_nothing = Some(self.now() + lasts);
    }

    pub(crate) fn switch_account(&mut self, lasts: Duration) {
        self.troubles.other_account = Some(self.now() + lasts);
    }

    pub(crate) fn report_later(&mut self, delay: Duration, observation: NodeObservation) {
        self.schedule_in(delay, Due::Report(self.incarnation, observation));
    }

    /// Hands a report to the control plane that lives, if one does.
    pub(crate) fn tell(&mut self, observation: NodeObservation) {
        if let Some(observations) = &self.observations {
            observations.send(observation).ok();
        }
    }

    pub(crate) fn note_played(&mut self, step: &Step) {
        *self.played.entry(step.name()).or_default() += 1;
        self.log(|| format!("! {}", script::line(step)));
    }

    pub(crate) fn note_happening(&mut self, happening: &Happening) {
        *self.played.entry(happening.name()).or_default() += 1;
        self.log(|| format!("! {}", script::happening(happening)));
        self.note_if_missed(happening);
    }

    /// Writes down what happened.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        self.write_down(true, line);
    }

    /// Writes down what says little to somebody who reads what happened.
    pub(crate) fn log_detail(&mut self, line: impl FnOnce() -> String) {
        self.write_down(false, line);
    }

    fn write_down(&mut self, is_told: bool, line: impl FnOnce() -> String) {
        let at = self.start.elapsed();
        if let Some(trace) = &mut self.trace {
            trace.write(at, &line(), is_told);
        }
    }

    /// Writes down what a call did.
    fn write_down_effect(&mut self, is_told: bool, call: &str, effect: impl FnOnce() -> String) {
        let at = self.start.elapsed();
        if let Some(trace) = &mut self.trace {
            trace.write_effect(at, call, &effect(), is_told);
        }
    }

    /// Notes that a rule was broken. The first one counts.
    pub(crate) fn break_rule(&mut self, rule: &'static str, what: String) {
        self.log(|| format!("BROKEN {rule}: {what}"));
        let at = self.now();
        self.breach.get_or_insert(Breach { at, rule, what });
    }

    pub(crate) fn breach(&self) -> Option<&Breach> {
        self.breach.as_ref()
    }

    pub(crate) fn take_trace(&mut self) -> Trace {
        self.trace.take().unwrap_or_default()
    }

    pub(crate) fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Returns how many calls there were of each kind that sweeps do not make.
    pub(crate) fn calls_of_the_loop(&self) -> BTreeMap<CallKind, u32> {
        let calls = self.counts.calls.iter().filter(|(kind, _)| !is_of_sweeps(**kind));
        let calls = calls.filter(|(kind, _)| **kind != CallKind::Presence);
        calls.map(|(&kind, &n)| (kind, n)).collect()
    }

    /// Learns of something that an operator may have to end.
    pub(crate) fn note_person_needed(&mut self) {
        self.needs_person = true;
    }

    pub(crate) fn needs_person(&self) -> bool {
        self.needs_person
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { starts: self.n_incarnations, ..self.counts.clone() }
    }

    /// Lets a control plane that did not start be started once more.
    pub(crate) fn start_later(&mut self) {
        self.incarnation = 0;
        self.observations = None;
        self.schedule_in(RESTART_AFTER, Due::Start);
    }

    pub(crate) fn take_played(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.played)
    }
}
