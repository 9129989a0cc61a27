//! Real agent processes against the real listener.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use myelin_api::{JoinFile, JoinSecret, WireKey};
use myelin_membership::{Handle, Listener, Options, Timing};
use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};
use myelin_state::{NodeEvent, NodeObservation};

const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(PATIENCE, future).await else {
        panic!("timed out waiting for {what}");
    };
    value
}

fn secret() -> JoinSecret {
    JoinSecret::new([9; 32])
}

fn key() -> AttemptKey {
    AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: "worker-0".into(),
        attempt: NodeAttemptId(1),
    }
}

/// A listener that runs until this is dropped.
struct World {
    handle: Handle,
    told: UnboundedReceiver<NodeObservation>,
    running: AbortOnDropHandle<()>,
    shutdown: CancellationToken,
}

impl World {
    async fn at(address: SocketAddr, heartbeat_every: Duration) -> Self {
        let (sender, told) = unbounded_channel();
        let options = Options {
            timing: Timing::heartbeat_every(heartbeat_every),
            ..Options::new(address, secret())
        };
        let (listener, handle) = Listener::bind(options, sender).await.unwrap();
        let shutdown = CancellationToken::new();
        let running = AbortOnDropHandle::new(tokio::spawn(listener.run(shutdown.clone())));
        Self { handle, told, running, shutdown }
    }

    async fn new() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::at(loopback, Duration::from_millis(500)).await
    }

    async fn event(&mut self) -> NodeEvent {
        soon("an observation", self.told.recv()).await.unwrap().event
    }

    async fn stop(self) {
        self.shutdown.cancel();
        soon("the listener's end", self.running).await.unwrap();
    }
}

/// An agent process with its lease directory. Dropping it ends the process.
struct Agent {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    lease: TempDir,
}

fn write_join_file(lease: &Path, address: SocketAddr, secret: &JoinSecret) {
    let file = JoinFile {
        address: address.to_string(),
        key: WireKey::from(&key()),
        token: secret.token(&key()),
        state_dir: lease.join("agent"),
    };
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = opened.open(lease.join("join.json")).unwrap();
    opened.write_all(&serde_json::to_vec(&file).unwrap()).unwrap();
}

fn spawn(lease: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_myelin-agent"))
        .arg("--join-file")
        .arg(lease.join("join.json"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    (process, lines)
}

impl Agent {
    fn new(address: SocketAddr) -> Self {
        Self::with_secret(address, &secret())
    }

    fn with_secret(address: SocketAddr, secret: &JoinSecret) -> Self {
        let lease = tempfile::tempdir().unwrap();
        write_join_file(lease.path(), address, secret);
        let (process, lines) = spawn(lease.path());
        Self { process, lines, lease }
    }

    fn restart(&mut self) {
        (self.process, self.lines) = spawn(self.lease.path());
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Returns the first line from now on that holds the words.
    async fn says(&mut self, words: &str) -> String {
        loop {
            let line = soon(words, self.lines.next_line()).await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended without saying {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    async fn code(&mut self) -> Option<i32> {
        soon("the agent's end", self.process.wait()).await.unwrap().code()
    }
}

fn swactor(event: NodeEvent) -> String {
    let NodeEvent::Joined { swactor } = event else {
        panic!("expected a join, not {event:?}");
    };
    swactor.to_string()
}

#[tokio::test]
async fn an_agent_joins_and_stops_when_it_is_told_to() {
    let mut world = World::new().await;
    let mut agent = Agent::new(world.handle.address());
    let swactor = swactor(world.event().await);
    let line = agent.says("joined").await;
    assert_eq!(line, format!("agent: joined as worker-0 ({swactor})"));
    agent.signal(Signal::TERM);
    assert_eq!(agent.code().await, Some(0));
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
}

#[tokio::test]
async fn a_killed_agent_is_missed_and_comes_back_as_the_same_one() {
    let mut world = World::new().await;
    let mut agent = Agent::new(world.handle.address());
    let before = swactor(world.event().await);
    agent.signal(Signal::KILL);
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    agent.code().await;
    agent.restart();
    assert_eq!(swactor(world.event().await), before);
    assert!(matches!(world.event().await, NodeEvent::Contact { .. }));
}

#[tokio::test]
async fn an_agent_stopped_for_less_than_the_silence_loses_nothing() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut world = World::at(loopback, Duration::from_secs(1)).await;
    let agent = Agent::new(world.handle.address());
    swactor(world.event().await);
    agent.signal(Signal::STOP);
    let stopped_at = world.handle.last_contact(&key()).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    agent.signal(Signal::CONT);
    let heard = async {
        while world.handle.last_contact(&key()).unwrap() <= stopped_at {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the next heartbeat", heard).await;
    assert!(world.told.try_recv().is_err(), "nothing was lost");
}

#[tokio::test]
async fn an_agent_dials_until_the_listener_is_back() {
    let mut world = World::new().await;
    let address = world.handle.address();
    let mut agent = Agent::new(address);
    let before = swactor(world.event().await);
    agent.says("joined").await;
    world.stop().await;
    agent.says("dialling again").await;
    let mut world = World::at(address, Duration::from_millis(500)).await;
    assert_eq!(swactor(world.event().await), before);
}

#[tokio::test]
async fn an_agent_told_to_heartbeat_often_dials_as_often() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut world = World::at(loopback, Duration::from_millis(100)).await;
    let mut agent = Agent::new(world.handle.address());
    swactor(world.event().await);
    agent.says("joined").await;
    world.stop().await;
    // What repeats is said the first, second, fourth and eighth time. Without a join to go by, the eighth pause is
    // between 2.5 and 5 seconds.
    for _ in 0..4 {
        let line = agent.says("no connection: ").await;
        let pause = line.rsplit(' ').next().unwrap();
        assert!(pause.ends_with("ms"), "{line}");
    }
}

#[tokio::test]
async fn an_agent_with_a_wrong_token_gives_up() {
    let world = World::new().await;
    let mut agent = Agent::with_secret(world.handle.address(), &JoinSecret::new([8; 32]));
    agent.says("refused for good: the token is not this attempt's").await;
    assert_eq!(agent.code().await, Some(10));
}

#[tokio::test]
async fn an_agent_of_a_retired_attempt_gives_up() {
    let mut world = World::new().await;
    let mut agent = Agent::new(world.handle.address());
    swactor(world.event().await);
    world.handle.retire(&key());
    agent.says("refused for good: the attempt is over").await;
    assert_eq!(agent.code().await, Some(10));
}

#[tokio::test]
async fn an_agent_whose_lease_is_removed_ends() {
    let mut world = World::new().await;
    let mut agent = Agent::new(world.handle.address());
    swactor(world.event().await);
    fs::remove_dir_all(agent.lease.path()).unwrap();
    agent.says("the lease is gone").await;
    assert_eq!(agent.code().await, Some(11));
}

#[tokio::test]
async fn an_agent_outlives_a_control_plane_that_talks_nonsense() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut agent = Agent::new(socket.local_addr().unwrap());
    let huge = vec![b'x'; 20_000];
    let answers: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\n", "line is not JSON"),
        (&huge, "line is longer than 16384 bytes"),
        (b"{\"ack\":{}}\n", "answer does not fit"),
        (b"", "connection was closed"),
    ];
    for (answer, words) in answers {
        let (mut stream, _) = soon("the agent", socket.accept()).await.unwrap();
        let mut join = String::new();
        BufReader::new(&mut stream).read_line(&mut join).await.unwrap();
        assert!(join.starts_with("{\"join\":"), "{join}");
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        drop(stream);
        agent.says(words).await;
    }
}

#[tokio::test]
async fn a_missing_join_file_is_an_error_of_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_myelin-agent"))
        .args(["--join-file", "/nonexistent/join.json"])
        .output();
    let output = soon("the agent's end", output).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "agent: cannot read join file /nonexistent/join.json: No such file or directory (os error 2)\n"
    );
}
