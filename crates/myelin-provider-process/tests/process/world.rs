//! What the tests share: a root with a provider on it, a listener, and a look at `/proc` of their own.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use myelin_api::JoinSecret;
use myelin_executor::{
    Bootstrap, BootstrapSink, BootstrapUpdate, CreateRequest, FoundSession, OutputLine,
    Provider as _, StartRequest,
};
use myelin_membership::{Handle, Listener, Timing};
use myelin_provider_process::{JoinSource, Options, ProcessProvider};
use myelin_shape::{
    AttemptKey, BootSpec, BootstrapSessionId, ClusterUid, LogicalNodeSpec, NodeAttemptId,
    NodeTemplate, OperationId, RunId, RunNodeGroupSpec,
};
use myelin_state::{BootstrapStage, LeaseFacts, NodeEvent, NodeObservation};

/// Long enough for a busy machine, short enough to fail a hanging test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(PATIENCE, future).await else {
        panic!("timed out waiting for {what}");
    };
    value
}

/// The agent of the tests, which cargo builds beside them.
pub(crate) fn agent_command() -> Vec<OsString> {
    vec![built("process-agent").into()]
}

/// Returns an example of this crate.
pub(crate) fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let program = target.join("examples").join(example);
    assert!(program.exists(), "{} is built by `cargo test`", program.display());
    program
}

/// Returns a cluster nobody else has, since leases of all tests are on one host.
pub(crate) fn new_cluster() -> ClusterUid {
    static N_MADE: AtomicU64 = AtomicU64::new(0);
    let number = N_MADE.fetch_add(1, Ordering::Relaxed);
    let seed = format!("{} {number} {:?}", std::process::id(), std::time::SystemTime::now());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&blake3::hash(seed.as_bytes()).as_bytes()[..16]);
    ClusterUid(bytes)
}

/// A session's stage with its number and its message.
type Report = (BootstrapSessionId, u64, BootstrapStage, Option<String>);

/// Keeps all reports of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    stages: Mutex<Vec<Report>>,
    lines: Mutex<Vec<OutputLine>>,
    changed: Notify,
}

impl BootstrapSink for Reports {
    fn report(&self, _: &AttemptKey, session: BootstrapSessionId, update: BootstrapUpdate) {
        match update {
            BootstrapUpdate::Stage { sequence, stage, message } => {
                self.stages.lock().unwrap().push((session, sequence, stage, message));
            }
            BootstrapUpdate::Output(line) => self.lines.lock().unwrap().push(line),
        }
        self.changed.notify_waiters();
    }
}

impl Reports {
    pub(crate) fn stages(&self) -> Vec<BootstrapStage> {
        self.stages.lock().unwrap().iter().map(|report| report.2).collect()
    }

    /// Returns sequence numbers and stages, which must not repeat with another meaning.
    pub(crate) fn numbered(&self) -> BTreeMap<(BootstrapSessionId, u64), BootstrapStage> {
        let stages = self.stages.lock().unwrap();
        let mut numbered = BTreeMap::new();
        for (session, sequence, stage, _) in stages.iter() {
            let before = numbered.insert((*session, *sequence), *stage);
            assert!(before.is_none_or(|before| before == *stage), "{sequence} means one stage");
        }
        numbered
    }

    pub(crate) fn lines(&self) -> Vec<OutputLine> {
        self.lines.lock().unwrap().clone()
    }

    async fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let found = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = look() {
                    return found;
                }
                changed.await;
            }
        };
        soon(what, found).await
    }

    /// Waits for a stage and returns its message.
    pub(crate) async fn stage(&self, wanted: BootstrapStage) -> String {
        let what = format!("{wanted:?} after {:?}", self.stages());
        let look = || {
            let stages = self.stages.lock().unwrap();
            let found = stages.iter().find(|(_, _, stage, _)| *stage == wanted)?;
            Some(found.3.clone().unwrap_or_default())
        };
        self.until(&what, look).await
    }

    pub(crate) async fn line(&self, words: &str) -> OutputLine {
        let look = || self.lines().into_iter().find(|line| line.text.contains(words));
        self.until(words, look).await
    }
}

/// A root with a provider and a listener. Dropping it ends every process of its clusters.
pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) cluster: ClusterUid,
    pub(crate) provider: Arc<ProcessProvider>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) handle: Handle,
    pub(crate) told: UnboundedReceiver<NodeObservation>,
    _running: AbortOnDropHandle<()>,
}

pub(crate) fn secret() -> JoinSecret {
    JoinSecret::new([0xa5; 32])
}

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (sender, told) = unbounded_channel();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = myelin_membership::Options {
            timing: Timing::heartbeat_every(Duration::from_secs(1)),
            ..myelin_membership::Options::new(loopback, secret())
        };
        let (listener, handle) = Listener::bind(options, sender).await.unwrap();
        let running = tokio::spawn(listener.run(CancellationToken::new()));
        let reports = Arc::new(Reports::default());
        let provider = provider(directory.path(), handle.address(), Arc::clone(&reports));
        Self {
            directory,
            cluster: new_cluster(),
            provider: Arc::new(provider),
            reports,
            handle,
            told,
            _running: AbortOnDropHandle::new(running),
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("leases")
    }

    /// Replaces the provider by a new one on the same root, as a restart does; reports start anew.
    pub(crate) fn restart(&mut self) {
        self.reports = Arc::new(Reports::default());
        self.provider = Arc::new(self.another_provider());
    }

    /// Returns another provider on the same root.
    pub(crate) fn another_provider(&self) -> ProcessProvider {
        provider(self.directory.path(), self.handle.address(), Arc::clone(&self.reports))
    }

    pub(crate) fn request(&self, attempt: u64, boot: BootSpec) -> CreateRequest {
        request(self.cluster, attempt, template(boot))
    }

    /// Leases a directory and starts a bootstrap on it.
    pub(crate) async fn start(&self, boot: BootSpec) -> (StartRequest, BootstrapSessionId) {
        let start = self.lease(&self.request(1, boot)).await;
        let session = self.provider.start(&start).await.unwrap();
        (start, session)
    }

    pub(crate) async fn lease(&self, request: &CreateRequest) -> StartRequest {
        let made = self.provider.create(request).await.unwrap();
        StartRequest {
            key: request.key.clone(),
            operation: OperationId { attempt: request.key.attempt, sequence: 1 },
            spec: request.spec.clone(),
            lease: made.lease,
            connection: made.connection.unwrap(),
        }
    }

    /// Returns the live session of an attempt.
    pub(crate) async fn session(&self, start: &StartRequest) -> Option<FoundSession> {
        let found = Bootstrap::find(&*self.provider, &start.key, &start.lease);
        found.await.unwrap()
    }

    pub(crate) async fn event(&mut self) -> NodeEvent {
        soon("an observation", self.told.recv()).await.unwrap().event
    }

    pub(crate) async fn joined(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, NodeEvent::Joined { .. }), "{event:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mark = format!("MYELIN_LEASE={}.", self.cluster);
        // What forks while it is killed is killed in a later round.
        for _ in 0..100 {
            let left = marked(&mark);
            if left.is_empty() {
                return;
            }
            for pid in left {
                signal(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub(crate) fn provider(
    directory: &Path,
    address: SocketAddr,
    reports: Arc<Reports>,
) -> ProcessProvider {
    let join = JoinSource { address: address.to_string(), secret: secret() };
    let options = Options {
        grace: Duration::from_millis(500),
        verify_deadline: Duration::from_secs(10),
        ..Options::new(directory.join("leases"), agent_command(), join)
    };
    ProcessProvider::new(options, reports).unwrap()
}

pub(crate) fn template(boot: BootSpec) -> NodeTemplate {
    let mut group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "process");
    group.boot = boot;
    group.template()
}

pub(crate) fn request(cluster: ClusterUid, attempt: u64, template: NodeTemplate) -> CreateRequest {
    CreateRequest {
        key: AttemptKey {
            cluster,
            run: RunId(1),
            node: "worker-0".into(),
            attempt: NodeAttemptId(attempt),
        },
        template_digest: template.digest().into(),
        generation: 1,
        spec: LogicalNodeSpec {
            logical_node_id: "worker-0".into(),
            index: 0,
            template: Arc::new(template),
        },
    }
}

/// Returns a start command instead of the agent.
pub(crate) fn starting(command: &str) -> BootSpec {
    BootSpec { start_swactor_command: Some(command.into()), ..BootSpec::default() }
}

/// Returns a boot with verify commands, which never gets to its agent.
pub(crate) fn verifying(commands: &[&str]) -> BootSpec {
    BootSpec {
        verify_commands: commands.iter().map(|&command| command.into()).collect(),
        ..starting("sleep 600")
    }
}

/// Returns the processes with an environment entry that begins so. Zombies have none.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|entry| entry.starts_with(mark.as_bytes()))
    };
    pids.filter(is_marked).collect()
}

pub(crate) fn running_on(lease: &LeaseFacts) -> Vec<i32> {
    marked(&format!("MYELIN_LEASE={}", lease.destroy_handle))
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Waits until that many processes run on the lease.
pub(crate) async fn until_running(lease: &LeaseFacts, n_wanted: usize) -> Vec<i32> {
    let looked = async {
        loop {
            let running = running_on(lease);
            if running.len() == n_wanted {
                return running;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("processes", looked).await
}
