//! A directory with a cluster file and a state directory, and what was started there.

use std::{
    fs::{self, File},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread::{panicking, sleep},
    time::{Duration, Instant},
};

use myelin::{
    runtime::{BROKEN_RULE, BROKEN_RULE_STATUS},
    view::{EventView, ExplainView, NodeView, StatusView},
};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

/// Long enough for a busy machine, short enough to fail a hanging test.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Timings under which a test need not wait long, and a busy machine is not taken for a dead one.
pub(super) const QUICK: &str = "
agent: {heartbeat: 200ms, silent_after: 1s}
retry: {lost_after: 4s, initial_delay: 100ms, max_delay: 1s}
";

/// A cluster of its own, with nothing left when it is dropped.
pub(super) struct Site {
    directory: TempDir,
    state: PathBuf,
}

/// A running `up`.
pub(super) struct Up {
    child: Child,
    log: PathBuf,
}

/// Returns a cluster file with one group, under quick timings.
pub(super) fn workers(count: u32, more: &str) -> String {
    format!("run: 1\ngroups:\n  - {{id: worker, count: {count}{more}}}\n{QUICK}")
}

/// Waits until something is there.
pub(super) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// Checks that the linter, which looks on in every build for tests, has not ended the process.
pub(super) fn keeps_every_rule(status: Option<i32>, stderr: &str) {
    assert!(status != Some(BROKEN_RULE_STATUS) && !stderr.contains(BROKEN_RULE), "{stderr}");
}

pub(super) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(super) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

impl Site {
    pub(super) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("myelin-test-").tempdir().unwrap();
        let state = directory.path().join("state");
        Self { directory, state }
    }

    /// Moves the state directory, as a person may.
    pub(super) fn move_state(&mut self) {
        let moved = self.directory.path().join("moved");
        fs::rename(&self.state, &moved).unwrap();
        self.state = moved;
    }

    /// Returns a site whose state directory has a path too long for a socket.
    pub(super) fn with_long_path() -> Self {
        let mut site = Self::new();
        site.state = site.directory.path().join("d".repeat(100)).join("state");
        site
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Writes a cluster file and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myelin"));
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("MYELIN_STATE_DIR", &self.state).env_remove("MYELIN_LOG");
        command
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, args: &[&str]) -> Output {
        let out = self.directory.path().join(format!("out-{}", nonce()));
        let err = out.with_extension("err");
        let mut command = self.command();
        command.args(args).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let status = wait(&mut child, &format!("{args:?}"));
        let (stdout, stderr) = (fs::read(out).unwrap(), fs::read(err).unwrap());
        keeps_every_rule(status.code(), &String::from_utf8_lossy(&stderr));
        Output { status, stdout, stderr }
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub(super) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{args:?} fails: {out}{err}");
        out
    }

    /// Runs a command that must fail with a status, and returns what it says.
    pub(super) fn fails(&self, status: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(status), "{args:?}: {out}{err}");
        let hint = err.lines().last().unwrap_or_default();
        assert!(hint.starts_with("hint: ") || status == 2, "{args:?} gives no hint: {err}");
        err
    }

    pub(super) fn json<T: DeserializeOwned>(&self, args: &[&str]) -> T {
        let args = [args, &["-o", "json"]].concat();
        serde_json::from_str(&self.ok(&args)).unwrap()
    }

    pub(super) fn nodes(&self) -> Vec<NodeView> {
        self.json(&["nodes"])
    }

    pub(super) fn status(&self) -> StatusView {
        self.json(&["status"])
    }

    pub(super) fn explain(&self, node: &str) -> ExplainView {
        self.json(&["explain", node])
    }

    pub(super) fn events(&self, code: &str) -> Vec<EventView> {
        let events: Vec<EventView> = self.json(&["events", "-n", "10000"]);
        events.into_iter().filter(|event| event.code == code).collect()
    }

    /// Returns the names and attempts of all nodes.
    pub(super) fn attempts(&self) -> Vec<(String, u64)> {
        self.nodes().into_iter().filter_map(|node| Some((node.node, node.attempt?))).collect()
    }

    /// Starts an `up` that keeps reconciling, and waits until it can be asked.
    pub(super) fn up(&self, file: &str) -> Up {
        self.up_by(self.command(), file)
    }

    /// Starts an `up` with at most so many files open.
    pub(super) fn up_with_files(&self, n_files: u32, file: &str) -> Up {
        let myelin = self.command();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("ulimit -n {n_files}; exec \"$0\" \"$@\""));
        command.arg(myelin.get_program()).current_dir(self.directory.path());
        command.env("MYELIN_STATE_DIR", &self.state).stdin(Stdio::null());
        self.up_by(command, file)
    }

    fn up_by(&self, mut command: Command, file: &str) -> Up {
        let path = self.write("cluster.yaml", file);
        let log = self.directory.path().join(format!("up-{}.log", nonce()));
        let out = File::create(&log).unwrap();
        command.arg("up").arg(path).stdout(out.try_clone().unwrap()).stderr(out);
        let mut up = Up { child: command.spawn().unwrap(), log };
        until("the loop can be asked", || {
            assert_eq!(up.child.try_wait().unwrap(), None, "{}", up.log());
            let run = self.run_file()?;
            (run["pid"] == up.child.id()).then_some(())
        });
        up
    }

    /// Returns what the last loop said of itself.
    pub(super) fn run_file(&self) -> Option<serde_json::Value> {
        let bytes = fs::read(self.state.join("run.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Lets an `up` leave, whose machines stay, and returns what it has printed.
    pub(super) fn leave(up: Up) -> String {
        up.signal(Signal::TERM);
        let (code, log) = up.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("\nasked to end: ") || log.starts_with("asked to end: "), "{log}");
        log
    }

    /// Ends an `up` and then the run, and checks that nothing is left.
    pub(super) fn take_down(&self, up: Up) {
        Self::leave(up);
        self.ok(&["down", "--yes"]);
        self.nothing_is_left();
    }

    pub(super) fn until_converged(&self) {
        until("it has converged", || {
            let status = self.status();
            (status.converged && status.generation == status.observed_generation).then_some(())
        });
    }

    /// Returns the agent processes of a node.
    pub(super) fn agents(&self, node: &str) -> Vec<Pid> {
        self.agents_with(&format!(".1.{node}."))
    }

    fn agents_with(&self, of_node: &str) -> Vec<Pid> {
        let is_agent = |command: &str| {
            let has = |word: &str| command.contains(word);
            has("--join-file") && has(of_node) && !command.starts_with("/bin/sh")
        };
        self.processes().into_iter().filter(|(_, it)| is_agent(it)).map(|(pid, _)| pid).collect()
    }

    /// Returns the agent processes of all nodes.
    pub(super) fn all_agents(&self) -> Vec<Pid> {
        self.agents_with(".1.")
    }

    pub(super) fn signal_agent(&self, node: &str, signal: Signal) {
        for pid in self.agents(node) {
            kill_process(pid, signal).unwrap();
        }
    }

    /// Returns every process that has to do with this directory, with its command line.
    pub(super) fn processes(&self) -> Vec<(Pid, String)> {
        processes_with(self.directory.path().as_os_str().as_bytes())
    }

    /// Returns the directories of all leases, in order.
    pub(super) fn leases(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state.join("leases")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// Checks that nothing runs and nothing is leased.
    pub(super) fn nothing_is_left(&self) {
        assert_eq!(self.leases(), Vec::<String>::new());
        until("no process is left", || self.processes().is_empty().then_some(()));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Only reached with something left when a test fails. A loop would go on making machines, so it ends first.
        for (pid, command) in self.processes() {
            if !command.contains("--join-file") {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        if self.state.join("state.db").exists() && !self.processes().is_empty() {
            let mut down = self.command();
            let down = down.args(["down", "--yes", "--timeout", "20s"]);
            down.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
        }
        // Its state may be what the test has broken; what it started is marked by its directory.
        for (pid, _) in self.processes() {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

impl Up {
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Returns what it has printed so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for its end, and returns the status and all it printed.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child, "up");
        let log = self.log();
        keeps_every_rule(status.code(), &log);
        (status.code(), log)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().ok();
        }
        let status = self.child.wait().ok().and_then(|status| status.code());
        if !panicking() {
            keeps_every_rule(status, &self.log());
        }
    }
}

/// Returns every process with these bytes in its command line or its environment, with its command line.
pub(super) fn processes_with(mark: &[u8]) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let (command, environment) = (read("cmdline"), read("environ"));
        let marked = |text: &[u8]| text.windows(mark.len()).any(|part| part == mark);
        if !command.is_empty() && (marked(&command) || marked(&environment)) {
            found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

pub(super) fn wait(child: &mut Child, what: &str) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= deadline {
            child.kill().ok();
            panic!("{what} does not end");
        }
        sleep(Duration::from_millis(5));
    }
}

fn nonce() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
