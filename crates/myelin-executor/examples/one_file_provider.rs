//! A provider in one file: a machine is a directory, and what runs on it are processes of ours.
//!
//! ```sh
//! cargo run -p myelin-executor --example one_file_provider
//! ```
//!
//! runs the conformance suite against it. The guide walks through this file in "Write a provider in one file".

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use myelin_api::{JoinFile, JoinSecret, WireKey, encode};
use myelin_executor::{
    Bootstrap, BootstrapSink, BootstrapUpdate, CreateRequest, FoundLease, FoundSession, NewLease,
    Presence, Provider, ProviderError, ProviderIdentity, StartRequest, conformance,
};
use myelin_shape::{
    AttemptKey, BootstrapSessionId, ClusterUid, NodeAttemptId, NodeTemplate, ProviderKind,
    ProviderLeaseId, RunId, RunNodeGroupSpec,
};
use myelin_state::{BootstrapStage, Connection, ErrorClass, ExecEndpoint, LeaseFacts};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// The name groups refer to it by: `provider: directory`.
const KIND: &str = "directory";

/// Leases directories below a root.
///
/// Leases outlive this process, sessions do not: their processes end with it, so that after a restart "there is no
/// session" is true.
#[derive(Debug)]
struct DirectoryProvider {
    root: PathBuf,
    join: Join,
    sink: Arc<dyn BootstrapSink>,
    sessions: Mutex<BTreeMap<BootstrapSessionId, Arc<Session>>>,
    last_session: AtomicU64,
}

/// What agents are told so that they join.
#[derive(Debug)]
struct Join {
    /// `host:port` of the listener.
    address: String,
    secret: JoinSecret,
}

/// The processes of one bootstrap. A task owns them; see [`watch`].
#[derive(Debug)]
struct Session {
    key: AttemptKey,
    /// The agent has joined: the end of the processes is no failure of the bootstrap any more.
    concluded: AtomicBool,
    /// Asks for their end.
    stop: CancellationToken,
    /// They have ended.
    ended: CancellationToken,
}

#[async_trait]
impl Provider for DirectoryProvider {
    fn kind(&self) -> ProviderKind {
        KIND.into()
    }

    /// A directory is seen as soon as it is made.
    fn settle_window(&self) -> Duration {
        Duration::ZERO
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        Ok(ProviderIdentity(self.root.display().to_string()))
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        let image = &request.spec.template.shape.image;
        if !image.is_empty() {
            let message = format!("a directory has no image, and {image:?} was asked for");
            return Err(ProviderError::new(ErrorClass::Permanent, message));
        }
        self.make(&request.key, &request.template_digest, request.generation)
            .map_err(|error| transient("cannot make the lease", &error))?;
        Ok(NewLease { lease: facts(&request.key), connection: Some(self.connection(&request.key)) })
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        let found = self.look(key);
        let found = found.map_err(|error| transient("cannot look for a lease", &error))?;
        Ok(found.into_iter().collect())
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        let key = key_of(lease)?;
        match self.presence(lease).await? {
            Presence::Present => Ok(Some(self.connection(&key))),
            Presence::Absent => Err(ProviderError::new(
                ErrorClass::AlreadyAbsent,
                format!("there is no lease {key}"),
            )),
        }
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        // An error is no absence.
        let exists = self.path(&key_of(lease)?).try_exists();
        let exists = exists.map_err(|error| transient("cannot look for a lease", &error))?;
        Ok(if exists { Presence::Present } else { Presence::Absent })
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        let key = key_of(lease)?;
        for (id, session) in self.sessions_of(&key) {
            self.end(id, &session).await;
        }
        let removed = self.remove(&key);
        removed.map_err(|error| transient("cannot remove the lease", &error))
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        let all = self.all();
        let mut found = all.map_err(|error| transient("cannot list the leases", &error))?;
        found.retain(|lease| lease.key.cluster == cluster);
        found.sort_by_key(|lease| lease.created_at);
        Ok(found)
    }
}

#[async_trait]
impl Bootstrap for DirectoryProvider {
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError> {
        if let Some((id, _)) = self.live(&request.key) {
            return Ok(id);
        }
        // There is no await from here on: dropping this call leaves a session that is recorded, or none.
        let child =
            self.spawn(request).map_err(|error| transient("cannot start the agent", &error))?;
        let id = BootstrapSessionId(self.last_session.fetch_add(1, Relaxed) + 1);
        let session = Arc::new(Session {
            key: request.key.clone(),
            concluded: AtomicBool::new(false),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        self.sessions().insert(id, Arc::clone(&session));
        tokio::spawn(watch(child, id, session, Arc::clone(&self.sink)));
        Ok(id)
    }

    async fn find(
        &self,
        key: &AttemptKey,
        _lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError> {
        let stage = BootstrapStage::WaitingForSwactorJoin;
        let live = self.live(key);
        Ok(live.map(|(session, _)| FoundSession { session, stage }))
    }

    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        if let Some(known) = self.sessions().get(&session) {
            known.concluded.store(true, Relaxed);
        }
        Ok(())
    }

    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        let known = self.sessions().get(&session).cloned();
        if let Some(known) = known {
            self.end(session, &known).await;
        }
        Ok(())
    }
}

/// Waits for the end of a session's processes, or brings it about.
async fn watch(
    mut child: Child,
    id: BootstrapSessionId,
    session: Arc<Session>,
    sink: Arc<dyn BootstrapSink>,
) {
    let report = |sequence, stage, message| {
        let update = BootstrapUpdate::Stage { sequence, stage, message };
        sink.report(&session.key, id, update);
    };
    report(1, BootstrapStage::WaitingForSwactorJoin, None);
    tokio::select! {
        status = child.wait() => if !session.concluded.load(Relaxed) {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let message = format!("the agent ended before it joined: {how}");
            report(2, BootstrapStage::SwactorJoinFailed, Some(message));
        },
        () = session.stop.cancelled() => {
            kill(&child);
            child.wait().await.ok();
        }
    }
    session.ended.cancel();
}

/// Kills the process and all of its group.
fn kill(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = id.and_then(Pid::from_raw) {
        // One that has just ended by itself is as wanted.
        kill_process_group(group, Signal::KILL).ok();
    }
}

impl DirectoryProvider {
    fn new(root: &Path, join: Join, sink: Arc<dyn BootstrapSink>) -> Self {
        Self {
            root: root.into(),
            join,
            sink,
            sessions: Mutex::default(),
            last_session: AtomicU64::new(0),
        }
    }

    fn path(&self, key: &AttemptKey) -> PathBuf {
        self.root.join(key.to_string())
    }

    fn connection(&self, key: &AttemptKey) -> Connection {
        let target = self.path(key).to_string_lossy().into();
        Connection::Exec(ExecEndpoint { target })
    }

    /// Makes a lease in one step that either happened or did not: the rename. Its name is the attempt key, so a second
    /// create of the same attempt finds the place taken.
    fn make(&self, key: &AttemptKey, digest: &str, generation: u64) -> io::Result<()> {
        let draft = self.root.join(format!(".draft.{key}"));
        remove_all(&draft)?;
        fs::create_dir(&draft)?;
        fs::write(draft.join("generation"), generation.to_string())?;
        fs::write(draft.join("digest"), digest)?;
        match fs::rename(&draft, self.path(key)) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => remove_all(&draft),
            other => other,
        }
    }

    /// Takes a lease away in one step, then removes its files.
    fn remove(&self, key: &AttemptKey) -> io::Result<()> {
        let tomb = self.root.join(format!(".gone.{key}"));
        remove_all(&tomb)?;
        match fs::rename(self.path(key), &tomb) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => remove_all(&tomb),
        }
    }

    fn look(&self, key: &AttemptKey) -> io::Result<Option<FoundLease>> {
        let mut file = match File::open(self.path(key).join("digest")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let generation = fs::read_to_string(self.path(key).join("generation")).ok();
        Ok(Some(FoundLease {
            key: key.clone(),
            template_digest: io::read_to_string(&mut file)?,
            generation: generation.and_then(|it| it.parse().ok()),
            lease: facts(key),
            connection: Some(self.connection(key)),
            created_at: file.metadata()?.modified()?,
        }))
    }

    fn all(&self) -> io::Result<Vec<FoundLease>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            // What is not named like a lease is none: drafts, tombs, and whatever else somebody put here.
            let name = entry?.file_name();
            if let Some(key) = name.to_str().and_then(parse_key) {
                found.extend(self.look(&key)?);
            }
        }
        Ok(found)
    }

    /// Starts the agent in a process group of its own, with what it joins with in a file only we can read.
    fn spawn(&self, request: &StartRequest) -> io::Result<Child> {
        let directory = self.path(&request.key);
        let boot = &request.spec.template.boot;
        let default = "exec myelin agent --join-file \"$MYELIN_JOIN_FILE\"";
        let command = boot.start_swactor_command.as_deref().unwrap_or(default);
        let join_file = directory.join("join.json");
        write_private(&join_file, &encode(&self.join_file(request, &directory)))?;
        Command::new("/bin/sh")
            .args(["-c", command])
            .envs(&boot.env)
            .env("MYELIN_JOIN_FILE", join_file)
            .current_dir(directory)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    }

    fn join_file(&self, request: &StartRequest, directory: &Path) -> JoinFile {
        let named = request.spec.swarm_join().orch_swactor_addr;
        JoinFile {
            address: named.unwrap_or_else(|| self.join.address.clone()),
            key: WireKey::from(&request.key),
            token: self.join.secret.token(&request.key),
            state_dir: directory.join("agent"),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<BootstrapSessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions_of(&self, key: &AttemptKey) -> Vec<(BootstrapSessionId, Arc<Session>)> {
        let sessions = self.sessions();
        let of_key = sessions.iter().filter(|(_, session)| session.key == *key);
        of_key.map(|(id, session)| (*id, Arc::clone(session))).collect()
    }

    /// Returns the session of an attempt whose processes run, joined or not.
    fn live(&self, key: &AttemptKey) -> Option<(BootstrapSessionId, Arc<Session>)> {
        let mut sessions = self.sessions_of(key).into_iter();
        sessions.find(|(_, session)| !session.ended.is_cancelled())
    }

    /// Ends a session's processes and forgets it. When this is dropped midway, it is still known, and can be ended again.
    async fn end(&self, id: BootstrapSessionId, session: &Session) {
        session.stop.cancel();
        session.ended.cancelled().await;
        self.sessions().remove(&id);
    }
}

fn facts(key: &AttemptKey) -> LeaseFacts {
    let name = key.to_string();
    LeaseFacts {
        provider: KIND.into(),
        lease_id: ProviderLeaseId::from(name.as_str()),
        provider_contract_id: name.as_str().into(),
        offer_id: None,
        destroy_handle: name.as_str().into(),
        provider_metadata: None,
        price: None,
    }
}

/// Reads `{cluster}.{run}.{node}.{attempt}`.
fn parse_key(name: &str) -> Option<AttemptKey> {
    let mut parts = name.split('.');
    let key = AttemptKey {
        cluster: parts.next()?.parse().ok()?,
        run: RunId(parts.next()?.parse().ok()?),
        node: parts.next()?.into(),
        attempt: NodeAttemptId(parts.next()?.parse().ok()?),
    };
    // What does not read back the same is no name of ours.
    (key.to_string() == name).then_some(key)
}

fn key_of(lease: &LeaseFacts) -> Result<AttemptKey, ProviderError> {
    let handle = lease.destroy_handle.as_str();
    let foreign =
        || ProviderError::new(ErrorClass::Permanent, format!("no lease of ours: {handle}"));
    parse_key(handle).ok_or_else(foreign)
}

/// An error of the file system may be over at the next try. What will never work was refused before.
fn transient(what: &str, error: &io::Error) -> ProviderError {
    ProviderError::new(ErrorClass::Transient, format!("{what}: {error}"))
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}

/// What the conformance suite needs to know.
struct Harness(Arc<DirectoryProvider>);

#[async_trait]
impl conformance::ProviderHarness for Harness {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.0) as _
    }

    fn bootstrap(&self) -> Arc<dyn Bootstrap> {
        Arc::clone(&self.0) as _
    }

    fn working(&self) -> NodeTemplate {
        let mut template = RunNodeGroupSpec::new(RunId(1), "worker", 1, KIND).template();
        template.boot.start_swactor_command = Some("exec sleep 600".into());
        template
    }

    fn refused(&self) -> Option<NodeTemplate> {
        let mut template = self.working();
        template.shape.image = "debian".into();
        Some(template)
    }

    /// Looks for processes that work in the directory, without asking the provider.
    async fn runs_anything_on(&self, lease: &LeaseFacts) -> bool {
        let directory = self.0.root.join(lease.lease_id.as_str());
        let processes = fs::read_dir("/proc").expect("this is Linux").flatten();
        let mut places = processes.filter_map(|it| fs::read_link(it.path().join("cwd")).ok());
        // The name of one that was removed has more behind it.
        places.any(|place| place.to_string_lossy().starts_with(&*directory.to_string_lossy()))
    }
}

/// Nobody listens to the suite's bootstraps.
#[derive(Debug)]
struct Nobody;

impl BootstrapSink for Nobody {
    fn report(&self, _: &AttemptKey, _: BootstrapSessionId, _: BootstrapUpdate) {}
}

async fn conform() -> Result<conformance::Report, conformance::Failure> {
    let root = tempfile::tempdir().expect("a temporary directory can be made");
    let root_path = root.path().canonicalize().expect("it exists");
    let join = Join { address: "127.0.0.1:9".into(), secret: JoinSecret::new([7; 32]) };
    let provider = DirectoryProvider::new(&root_path, join, Arc::new(Nobody));
    conformance::run(&Harness(Arc::new(provider))).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), conformance::Failure> {
    let report = conform().await?;
    #[expect(clippy::print_stdout, reason = "an example shows something")]
    {
        println!("{report}");
    }
    Ok(())
}

#[cfg(test)]
#[tokio::test]
async fn the_provider_of_the_guide_conforms() {
    let report = conform().await.unwrap_or_else(|failure| panic!("{failure}"));
    // Two leases of one name cannot be in one directory, and sessions are remembered in memory only.
    let skipped = [
        "oldest_of_two_leases_comes_first",
        "identity_outlives_a_restart",
        "leases_and_sessions_outlive_a_restart",
    ];
    assert_eq!(report.skipped, skipped);
}
