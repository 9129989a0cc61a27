//! Plays a scenario: one control plane after another in one world, and every rule looked at all the time.

mod asked;
mod control;
mod oracle;
mod turns;

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use tokio::{
    runtime::Builder,
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use myelin_driver::{Event, Target};
use myelin_executor::fake::CallKind;
use myelin_shape::{OnFailure, RunNodeGroupSpec};

use crate::{
    Breach, Happening, PATIENCE, PROMPT, Place, ReportFate, Scenario, Step, WATCH, panics,
    run::{
        asked::Asked,
        control::{Control, Started, start},
        turns::Turns,
    },
    script::call_name,
    store::SimStore,
    story::Trace,
    world::{Crash, Due, Shared},
};

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first rule that was broken, if one was.
    pub breach: Option<Breach>,
    /// How long after everything worked again the cluster was as desired.
    pub converged_after: Option<Duration>,
    /// The machines there are at the end: of which slot, and the digest of the template they were made from.
    pub end: BTreeMap<String, String>,
    /// How many things happened in the world.
    pub n_steps: u64,
    /// How many calls were made, commits tried, reports taken, bootstraps and control planes started.
    pub counts: Counts,
    /// Where something could go wrong before everything worked again, in the order in which it came.
    pub places: Vec<Place>,
    /// Steps that did nothing: what they are about did not come, or was not there.
    pub missed: Vec<Step>,
    /// How often each thing went wrong.
    pub played: BTreeMap<String, u64>,
    /// What happened, line by line, if that was asked for.
    pub trace: Vec<String>,
    /// The part of the trace that [`story`](Self::story) tells.
    pub(crate) told: Vec<String>,
}

/// How much of what there was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of the provider, by kind.
    pub calls: BTreeMap<CallKind, u32>,
    /// Commits.
    pub commits: u32,
    /// Reports to the driver.
    pub reports: u32,
    /// Bootstraps.
    pub boots: u32,
    /// Starts of a control plane.
    pub starts: u64,
}

/// Plays a scenario from its beginning to its end, or to the first broken rule. A panic of what is played breaks one.
///
/// # Panics
///
/// When called from within an asynchronous runtime, because it has one of its own.
pub fn run(scenario: &Scenario) -> Outcome {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system");
    panics::watch();
    let world = runtime.block_on(async { Shared::new(scenario) });
    let played = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let mut stage = Stage::new(scenario, &world);
            stage.play().await;
            stage.converged_at
        })
    }));
    runtime.block_on(async {
        if let Some(panic) = panics::take() {
            world.lock().break_rule(PANICS, panic);
        }
        outcome(&world, scenario, played.ok().flatten())
    })
}

/// The rule that is broken by a panic nobody asked for, also where it is caught.
const PANICS: &str = "nothing panics";

struct Stage<'a> {
    scenario: &'a Scenario,
    world: Shared,
    store: SimStore,
    control: Option<Control>,
    starting: Option<UnboundedReceiver<Option<Started>>>,
    /// What somebody wants in the end.
    wanted: Vec<RunNodeGroupSpec>,
    /// What was asked for and is not acknowledged, in its order.
    waiting: VecDeque<Asked>,
    converged_at: Option<Duration>,
    calls_then: BTreeMap<CallKind, u32>,
}

impl<'a> Stage<'a> {
    fn new(scenario: &'a Scenario, world: &Shared) -> Self {
        Self {
            store: control::new_store(world, scenario.flaw),
            scenario,
            world: world.clone(),
            control: None,
            starting: None,
            wanted: Vec::new(),
            waiting: VecDeque::new(),
            converged_at: None,
            calls_then: BTreeMap::new(),
        }
    }

    async fn play(&mut self) {
        let mut turns = Turns::of(&self.scenario.steps);
        while turns.take(self.world.lock().now()) {
            self.do_what_is_due();
            self.let_control_work();
            let crash = self.world.lock().take_crash();
            if let Some(crash) = crash {
                self.end_control(crash);
                continue;
            }
            if let Some(panic) = panics::take() {
                self.world.lock().break_rule(PANICS, panic);
            }
            if self.is_over() {
                return;
            }
            self.wait().await;
        }
        self.world.lock().break_rule("nothing spins", format!("{turns}, and it is not over"));
    }

    fn do_what_is_due(&mut self) {
        loop {
            let due = self.world.lock().take_due();
            match due {
                Some(due) => self.handle(due),
                None => return,
            }
        }
    }

    fn handle(&mut self, due: Due) {
        match due {
            Due::Happens(happening) => self.happen(happening),
            Due::Effect(flight) => self.world.lock().take_effect(*flight),
            Due::Answer(answering) => self.world.lock().answer(*answering),
            Due::Report(incarnation, report) => {
                if let Some(control) = self.control.as_mut().filter(|it| it.is(incarnation)) {
                    control.fold(Event::Observed(report));
                }
            }
            Due::Stage(session, stage, report) => {
                self.world.lock().reach_stage(session, stage, *report);
            }
            Due::Start => self.starting = Some(start(self.scenario, &self.world, &self.store)),
            Due::Calm => self.world.lock().calm_down(),
            Due::Speak => {
                if let Some(control) = &mut self.control {
                    control.listen();
                }
                self.world.lock().speak_again();
            }
            Due::AgentEnds(key) => {
                let mut world = self.world.lock();
                if !world.is_calm() {
                    world.end_agents_of(&key);
                }
            }
            Due::Care => self.care(),
        }
    }

    fn happen(&mut self, happening: Happening) {
        let mut world = self.world.lock();
        if world.is_calm() {
            return;
        }
        world.note_happening(&happening);
        let mut asked = None;
        match happening {
            Happening::MachineDies(node) => world.lose_machine(&node),
            Happening::AgentDies(node) => world.end_agents(&node),
            Happening::AgentStops(node, lasts) => world.stop_agents(&node, lasts),
            Happening::AgentTwin(node) => world.add_twin(&node),
            Happening::Sever(lasts) => world.sever(lasts),
            Happening::Outage(lasts, class) => world.set_outage(lasts, class),
            Happening::ListsNothing(lasts) => world.list_nothing(lasts),
            Happening::OtherAccount(lasts) => world.switch_account(lasts),
            Happening::Crash(down_for) => world.crash("asked for", Some(down_for), false),
            Happening::PowerLoss(down_for) => world.crash("power is lost", Some(down_for), true),
            Happening::ClockJumps(jump) => world.set_clock(jump),
            Happening::Want(groups) => {
                if groups.iter().any(|group| group.policy.on_failure == OnFailure::Keep) {
                    world.note_person_needed();
                }
                self.wanted.clone_from(&groups);
                asked = Some(Asked::Want(groups));
            }
            Happening::Pause => asked = Some(Asked::Word(Event::Pause)),
            Happening::Resume => asked = Some(Asked::Word(Event::Resume)),
            Happening::Ask(node, request) => asked = Some(Asked::of(Target::Node(node), request)),
            Happening::AskGroup(group, request) => {
                asked = Some(Asked::of(Target::Group(group), request));
            }
        }
        drop(world);
        self.waiting.extend(asked);
        self.deliver();
    }

    fn let_control_work(&mut self) {
        if let Some(starting) = &mut self.starting
            && let Ok(started) = starting.try_recv()
        {
            self.starting = None;
            match started {
                Some(started) => self.control = Some(Control::new(started)),
                None => self.world.lock().start_later(),
            }
        }
        let Some(control) = &mut self.control else { return };
        while let Some(report) = control.next_report() {
            let mut world = self.world.lock();
            let fate = world.next_report(&report);
            if let Some(by) = world.delay_of(&report, fate) {
                world.report_later(by, report);
                continue;
            }
            drop(world);
            match fate {
                Some(ReportFate::Again(after)) => {
                    self.world.lock().report_later(after, report.clone());
                    control.fold(Event::Observed(report));
                }
                Some(ReportFate::Lost) => {}
                Some(ReportFate::Late(_)) | None => control.fold(Event::Observed(report)),
            }
        }
        self.deliver();
        if let Some(control) = &mut self.control {
            control.work();
        }
    }

    fn end_control(&mut self, crash: Crash) {
        if let Some(control) = self.control.take() {
            control.kill();
        }
        self.starting = None;
        if crash.loses_power {
            self.store.lose_power();
        }
        let mut world = self.world.lock();
        let at = world.now() + crash.down_for;
        world.schedule(at, Due::Start);
    }

    /// Does what a person does who looks after a cluster: starts effects, retries what waits for a word, believes the
    /// account that is there, and has strays collected.
    fn care(&mut self) {
        self.world.lock().care_again();
        if self.converged_at.is_some() {
            return;
        }
        if let Some(control) = &mut self.control {
            control.care();
        }
    }

    /// Looks whether the end is reached, or a rule is broken.
    fn is_over(&mut self) -> bool {
        let (now, calm) = {
            let world = self.world.lock();
            if world.breach().is_some() {
                return true;
            }
            (world.now(), world.is_calm())
        };
        if !calm {
            return false;
        }
        let problem = self.problem();
        match (self.converged_at, problem) {
            (None, None) => {
                self.converged_at = Some(now);
                self.calls_then = self.world.lock().calls_of_the_loop();
                self.world.lock().log(|| "as desired".to_owned());
                false
            }
            (None, Some(problem)) => {
                let needs_person = self.world.lock().needs_person();
                let patience = if needs_person { PATIENCE } else { PROMPT };
                let late = now > self.scenario.calm_at + patience;
                if late {
                    self.world.lock().break_rule("it converges", problem);
                }
                late
            }
            (Some(_), Some(problem)) => {
                self.world.lock().break_rule("it stays converged", problem);
                true
            }
            (Some(since), None) => now > since + WATCH && self.check_rest(),
        }
    }

    fn check_rest(&mut self) -> bool {
        let mut world = self.world.lock();
        let calls = world.calls_of_the_loop();
        if let Some((kind, n)) = calls.iter().find(|(kind, n)| self.calls_then.get(kind) != Some(n))
        {
            let before = self.calls_then.get(kind).copied().unwrap_or_default();
            let what = format!("{} calls of {} at rest", n - before, call_name(*kind));
            world.break_rule("nothing is done at rest", what);
        }
        true
    }

    /// Returns in which way the world is not as it is wanted.
    fn problem(&self) -> Option<String> {
        let Some(control) = &self.control else {
            return Some("there is no control plane".to_owned());
        };
        if !self.waiting.is_empty() {
            return Some("what was asked for is not acknowledged".to_owned());
        }
        control.problem(&self.wanted)
    }

    async fn wait(&mut self) {
        let next = self.world.lock().next_at();
        let wake = self.control.as_ref().and_then(Control::wakes_in);
        let now = self.world.lock().now();
        let at = [next, wake.map(|wait| now + wait)].into_iter().flatten().min();
        let at = at.unwrap_or(now + Duration::from_secs(1));
        let sleep = sleep_until(Instant::now() + at.saturating_sub(now));
        let scheduled = self.world.lock().scheduled();
        let report = async {
            match (&mut self.control, &mut self.starting) {
                (Some(control), _) => control.wait_for_report().await,
                (None, Some(starting)) => {
                    if let Some(Some(started)) = starting.recv().await {
                        self.control = Some(Control::new(started));
                    } else {
                        self.world.lock().start_later();
                        self.starting = None;
                    }
                }
                (None, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = report => {}
            () = scheduled.notified() => {}
            () = sleep => {}
        }
    }
}

fn outcome(world: &Shared, scenario: &Scenario, converged_at: Option<Duration>) -> Outcome {
    let mut world = world.lock();
    let Trace { all: trace, told } = world.take_trace();
    Outcome {
        breach: world.breach().cloned(),
        converged_after: converged_at.map(|at| at.saturating_sub(scenario.calm_at)),
        end: world.end(),
        n_steps: world.n_steps(),
        counts: world.counts(),
        places: world.take_places(),
        missed: world.take_missed(),
        played: world.take_played(),
        trace,
        told,
    }
}
