//! A cluster that is killed and goes on.

use std::{
    fmt,
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    process::Child,
    str::FromStr,
    thread::sleep,
    time::{Duration, Instant},
};

use myelin::view::StatusView;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    super::site::{Site, keeps_every_rule, wait},
    Tally, truth,
};

/// How long a cluster may take to be as it is wanted once nothing kills anything any more.
const CONVERGES_WITHIN: Duration = Duration::from_mins(1);

/// What was asked to end is gone within this; what is being started says by then whose it is.
const DIES_WITHIN: Duration = Duration::from_secs(3);

/// A moment to be killed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Write(u64),
    Call(u64),
    CallBefore(u64),
    /// As a commit is tried again that failed.
    Unwritten(u64),
    /// As a commit is tried again that only seemed to fail.
    Unanswered(u64),
    /// So long after the start.
    After(Duration),
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(k) => write!(f, "write:{k}"),
            Self::Call(k) => write!(f, "call:{k}"),
            Self::CallBefore(k) => write!(f, "call-before:{k}"),
            Self::Unwritten(k) => write!(f, "unwritten:{k}"),
            Self::Unanswered(k) => write!(f, "unanswered:{k}"),
            Self::After(time) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

impl FromStr for Moment {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (what, number) = text.split_once(':').ok_or(())?;
        let number = number.parse().map_err(drop)?;
        match what {
            "write" => Ok(Self::Write(number)),
            "call" => Ok(Self::Call(number)),
            "call-before" => Ok(Self::CallBefore(number)),
            "unwritten" => Ok(Self::Unwritten(number)),
            "unanswered" => Ok(Self::Unanswered(number)),
            _ => Err(()),
        }
    }
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub(super) count: u32,
    pub(super) image: char,
    /// After how many milliseconds of silence an agent is lost.
    pub(super) lost_after: u32,
    /// What else the group says.
    pub(super) more: &'static str,
}

impl Desired {
    /// Returns a group with timings short enough that a life takes seconds.
    pub(super) const fn new(count: u32, image: char) -> Self {
        Self { count, image, lost_after: 2500, more: "" }
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        (0..self.count).map(|n| format!("worker-{n}")).collect()
    }

    fn file(&self) -> String {
        let Self { count, image, lost_after, more } = self;
        format!(
            "run: 1\n\
             groups: [{{id: worker, count: {count}, image: {image}{more}}}]\n\
             agent: {{heartbeat: 100ms, silent_after: 1s}}\n\
             retry: {{lost_after: {lost_after}ms, initial_delay: 20ms, max_delay: 200ms, max_consecutive_failures: 0}}\n"
        )
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Killed,
    Done,
}

/// One cluster in a directory of its own, from its first `up` to its `down`.
pub(super) struct Life<'a> {
    pub(super) site: Site,
    tally: &'a Tally,
    /// What was done, for whoever reads of a failure.
    story: Vec<String>,
    n_runs: u32,
}

impl<'a> Life<'a> {
    pub(super) fn new(tally: &'a Tally) -> Self {
        Self { site: Site::new(), tally, story: Vec::new(), n_runs: 0 }
    }

    /// Runs `up` until it has converged, or is killed before.
    pub(super) fn up(&mut self, desired: &Desired, moment: Option<Moment>) -> Ended {
        let path = self.site.write("cluster.yaml", &desired.file());
        let args = ["up", path.to_str().unwrap(), "--yes", "--until-converged", "--timeout", "60s"];
        self.tell(format!("up {} {}{}", desired.count, desired.image, told(moment)));
        self.run(&args, moment)
    }

    /// Runs `down`, which is killed before its end if the moment comes.
    pub(super) fn down(&mut self, moment: Option<Moment>) -> Ended {
        self.tell(format!("down{}", told(moment)));
        self.run(&["down", "--yes", "--timeout", "60s"], moment)
    }

    fn run(&mut self, args: &[&str], moment: Option<Moment>) -> Ended {
        let (mut child, log) = self.start(args, moment);
        if let Some(Moment::After(time)) = moment {
            let deadline = Instant::now() + time;
            while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
                sleep(Duration::from_millis(1));
            }
            // It may have ended by itself.
            child.kill().unwrap();
        }
        let status = wait(&mut child, args[0]);
        let said = fs::read_to_string(log).unwrap();
        keeps_every_rule(status.code(), &said);
        match (status.code(), status.signal()) {
            (Some(0), _) => Ended::Done,
            (None, Some(9)) if moment.is_some() => self.killed(&said),
            // Where what it was started for cannot be recorded, it ends by itself.
            (Some(1), _) if said.contains("error: nothing is done: MYELIN_CRASH ") => {
                self.killed(&said)
            }
            _ => self.fail(&format!("{} ends with {status}: {said}", args[0])),
        }
    }

    fn killed(&self, said: &str) -> Ended {
        Tally::add(&self.tally.kills);
        self.soon(truth::check_dead);
        self.expect(truth::check_recorded(&self.site, said));
        Ended::Killed
    }

    /// Begins to run `up`.
    pub(super) fn begin_up(&mut self, desired: &Desired) -> Child {
        let path = self.site.write("cluster.yaml", &desired.file());
        self.tell(format!("up {} {}", desired.count, desired.image));
        self.start(&["up", path.to_str().unwrap(), "--yes"], None).0
    }

    /// Begins to run `down`, and kills an `up` that it may be waiting for.
    pub(super) fn down_beside(&mut self, mut up: Child, killed_after: Duration) {
        self.tell(format!("down, and up is killed after {killed_after:?}"));
        let (mut down, log) = self.start(&["down", "--yes", "--timeout", "60s"], None);
        sleep(killed_after);
        up.kill().unwrap();
        wait(&mut up, "up");
        Tally::add(&self.tally.kills);
        let status = wait(&mut down, "down");
        let said = fs::read_to_string(log).unwrap();
        keeps_every_rule(status.code(), &said);
        if status.code() != Some(0) {
            self.fail(&format!("down ends with {status}: {said}"));
        }
        self.soon(truth::check_gone);
    }

    fn start(&mut self, args: &[&str], moment: Option<Moment>) -> (Child, String) {
        if self.n_runs > 0 {
            Tally::add(&self.tally.restarts);
        }
        self.n_runs += 1;
        let log = self.site.state().with_file_name(format!("run-{}.log", self.n_runs));
        let out = File::create(&log).unwrap();
        let mut command = self.site.command();
        command.args(args).stdout(out.try_clone().unwrap()).stderr(out);
        match moment {
            None | Some(Moment::After(_)) => command.env_remove("MYELIN_CRASH"),
            Some(moment) => command.env("MYELIN_CRASH", moment.to_string()),
        };
        (command.spawn().unwrap(), log.to_str().unwrap().to_owned())
    }

    /// Runs `up` until everything is as wanted, seen from outside; then lets it detach.
    pub(super) fn settle(&mut self, desired: &Desired) {
        let path = self.site.write("cluster.yaml", &desired.file());
        self.tell(format!("up {} {} until it is so", desired.count, desired.image));
        let (mut child, log) = self.start(&["up", path.to_str().unwrap(), "--yes"], None);
        let deadline = Instant::now() + CONVERGES_WITHIN;
        let said = || fs::read_to_string(&log).unwrap();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                self.fail(&format!("up has ended with {status}: {}", said()));
            }
            let whole =
                truth::check_whole_beside(&self.site, desired, Some(Pid::from_child(&child)));
            if whole.is_ok() && self.is_converged() {
                break;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                wait(&mut child, "up");
                self.fail(&format!("it does not converge: {whole:?}: {}", said()));
            }
            sleep(Duration::from_millis(50));
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = wait(&mut child, "up");
        keeps_every_rule(status.code(), &said());
        if status.code() != Some(0) {
            self.fail(&format!("up has ended with {status}: {}", said()));
        }
        self.check_whole(desired);
    }

    /// Waits until everything is as wanted, seen from outside.
    pub(super) fn until_whole(&self, desired: &Desired, up: &Child) {
        let ours = Some(Pid::from_child(up));
        let whole = |site: &Site| truth::check_whole_beside(site, desired, ours);
        let deadline = Instant::now() + CONVERGES_WITHIN;
        while let Err(why) = whole(&self.site) {
            if Instant::now() > deadline {
                self.fail(&why);
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn is_converged(&self) -> bool {
        let output = self.site.run(&["status", "-o", "json"]);
        let status: Option<StatusView> = serde_json::from_slice(&output.stdout).ok();
        // What was recorded last says nothing of a loop that only begins.
        let running = status.filter(|it| it.as_of.is_none());
        running.is_some_and(|it| it.converged && it.generation == it.observed_generation)
    }

    /// Kills an agent, if there is one.
    pub(super) fn kill_agent(&mut self, node: &str) {
        self.tell(format!("the agent of {node} is killed"));
        for pid in self.site.agents(node) {
            // It may just have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Checks that everything is as wanted, and the history is whole.
    pub(super) fn check_whole(&self, desired: &Desired) {
        self.soon(|site| truth::check_whole(site, desired));
        self.soon(truth::check_dead);
    }

    /// Removes everything, and checks that nothing is left.
    pub(super) fn end(mut self) {
        if self.down(None) != Ended::Done {
            self.fail("down was killed");
        }
        self.soon(truth::check_gone);
        let history = truth::history(&self.site);
        self.expect(history.map(drop));
    }

    /// Expects something once what is about to end has ended.
    fn soon(&self, check: impl Fn(&Site) -> Result<(), String>) {
        let deadline = Instant::now() + DIES_WITHIN;
        loop {
            match check(&self.site) {
                Ok(()) => return,
                Err(why) if Instant::now() > deadline => self.fail(&why),
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
    }

    fn expect(&self, found: Result<(), String>) {
        if let Err(why) = found {
            self.fail(&why);
        }
    }

    fn tell(&mut self, what: String) {
        self.story.push(what);
    }

    /// Fails with everything that helps to see why.
    pub(super) fn fail(&self, why: &str) -> ! {
        let story = self.story.join("\n  ");
        let last = truth::history(&self.site).map(|history| history.last(60)).unwrap_or_default();
        panic!("{why}\n\nstory:\n  {story}\n\nlast events:\n{last}")
    }
}

fn told(moment: Option<Moment>) -> String {
    moment.map(|moment| format!(", killed at {moment}")).unwrap_or_default()
}
