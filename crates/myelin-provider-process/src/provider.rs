//! Leases: directories that are made, found, listed and destroyed.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use tokio_util::sync::{CancellationToken, DropGuard};

use myelin_executor::{
    BootstrapSink, CreateRequest, FoundLease, GENERATION_LABEL, NewLease, OutputLine, OutputStream,
    Presence, Provider, ProviderError, ProviderIdentity,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid, ProviderKind, ProviderLeaseId};
use myelin_state::{Connection, ErrorClass, ExecEndpoint, LeaseFacts};

use crate::{
    Error, Options,
    blocking::{Asker, unblock, within},
    image::Content,
    proc::Family,
    scan::Scanner,
    session::{Session, SessionRecord, marks_of, output_path, tail},
    store::{LeaseRecord, Place, Store, lease_name},
    supervise::Context,
};

/// The name groups refer to this provider by.
pub const KIND: &str = "process";

/// Leases directories on this host, and bootstraps agents in them as processes.
///
/// Dropping it stops the work on its sessions; what runs on the leases goes on and is adopted by the next provider on
/// the same root.
#[derive(Debug)]
pub struct ProcessProvider {
    pub(crate) store: Arc<Store>,
    pub(crate) context: Arc<Context>,
    pub(crate) sink: Arc<dyn BootstrapSink>,
    pub(crate) sessions: Mutex<BTreeMap<BootstrapSessionId, Arc<Session>>>,
    locks: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    n_foreign: AtomicU64,
    pub(crate) closing: CancellationToken,
    _close: DropGuard,
}

impl ProcessProvider {
    /// Opens or makes the directory of the leases, and removes what crashes left half made or half destroyed there.
    ///
    /// Blocks on file work.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or no agent was given.
    pub fn new(options: Options, sink: Arc<dyn BootstrapSink>) -> Result<Self, Error> {
        if options.agent_command.is_empty() {
            return Err(Error::NoAgent);
        }
        let store = Store::open(&options.root)?;
        let closing = CancellationToken::new();
        let boot_id = store.boot_id.clone();
        Ok(Self {
            store: Arc::new(store),
            context: Arc::new(Context { options, boot_id, scanner: Scanner::default() }),
            sink,
            sessions: Mutex::default(),
            locks: Mutex::default(),
            n_foreign: AtomicU64::new(0),
            _close: closing.clone().drop_guard(),
            closing,
        })
    }

    /// Returns how many entries of the root the last listing skipped, since they are no leases.
    pub fn n_foreign(&self) -> u64 {
        self.n_foreign.load(Ordering::Relaxed)
    }

    /// Returns the last lines of an attempt's latest session; see [`read_log`].
    ///
    /// # Errors
    ///
    /// As for [`read_log`].
    pub async fn read_log(
        &self,
        key: &AttemptKey,
        n_lines: usize,
    ) -> Result<Vec<OutputLine>, ProviderError> {
        let read = read_log(&self.store.root, key, n_lines);
        let log = within(self.context.options.call_deadline, ErrorClass::Transient, read).await?;
        Ok(log.lines)
    }

    /// Waits for the turn to change a lease: calls about one lease follow each other.
    pub(crate) async fn turn(&self, name: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = guard(&self.locks);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(name.into(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    pub(crate) fn facts(&self, name: &str) -> LeaseFacts {
        LeaseFacts {
            provider: self.kind(),
            lease_id: ProviderLeaseId::from(name),
            provider_contract_id: name.into(),
            offer_id: None,
            destroy_handle: name.into(),
            provider_metadata: None,
            price: None,
        }
    }

    fn connection(&self, name: &str) -> Connection {
        let target = self.store.path(name).to_string_lossy().into_owned();
        Connection::Exec(ExecEndpoint { target: target.into() })
    }

    fn found(&self, record: LeaseRecord) -> FoundLease {
        let name = record.key.to_string();
        FoundLease {
            lease: self.facts(&name),
            connection: Some(self.connection(&name)),
            key: record.key,
            template_digest: record.template_digest,
            generation: record.labels.get(GENERATION_LABEL).and_then(|it| it.parse().ok()),
            created_at: record.created_at,
        }
    }

    pub(crate) async fn look(&self, name: &str) -> Result<Place, ProviderError> {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        unblock(move || store.look(&name)).await
    }

    async fn create_lease(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        let name = lease_name(&request.key)?;
        let template = Arc::clone(&request.spec.template);
        let mut labels = template.shape.provider_labels.clone();
        labels.insert(GENERATION_LABEL.to_owned(), request.generation.to_string());
        let record = LeaseRecord {
            key: request.key.clone(),
            template_digest: request.template_digest.to_string(),
            created_at: SystemTime::now(),
            image: template.shape.image.clone(),
            labels,
        };
        let turn = self.turn(&name).await;
        let asker = Asker::new();
        let (store, wanted) = (Arc::clone(&self.store), asker.wanted());
        unblock(move || {
            let _turn = turn;
            let content = Content::check(&store.root, &template.shape, &template.boot)?;
            store.create(&wanted, record, &content)
        })
        .await?;
        Ok(NewLease { lease: self.facts(&name), connection: Some(self.connection(&name)) })
    }

    async fn destroy_lease(&self, name: &str) -> Result<(), ProviderError> {
        let turn = self.turn(name).await;
        let place = self.look(name).await?;
        if let Place::Foreign(why) = place {
            // What carries the attempt's name is ours, whatever became of its directory.
            self.end_processes(name).await?;
            let message = format!("{name} is no lease of ours, and is left alone: {why}");
            return Err(ProviderError::new(ErrorClass::Permanent, message));
        }
        let sessions = self.sessions_on(name);
        for session in &sessions {
            session.halt().await;
        }
        self.end_processes(name).await?;
        for session in &sessions {
            session.read_out().await;
        }
        let (store, retired) = (Arc::clone(&self.store), name.to_owned());
        let (_turn, gone) = unblock(move || (turn, store.retire(&retired))).await;
        gone?;
        // Between the last look and the rename, somebody else may have started something.
        self.end_processes(name).await?;
        guard(&self.sessions).retain(|_, session| session.name != name);
        // The lease is gone whatever becomes of its files; what stays is swept at the next start.
        let (store, retired) = (Arc::clone(&self.store), name.to_owned());
        if let Err(error) = unblock(move || store.bury(&retired)).await {
            tracing::warn!(lease = name, %error, "cannot remove the files of a destroyed lease");
        }
        Ok(())
    }

    fn sessions_on(&self, name: &str) -> Vec<Arc<Session>> {
        let sessions = guard(&self.sessions);
        sessions.values().filter(|session| session.name == name).cloned().collect()
    }

    async fn end_processes(&self, name: &str) -> Result<(), ProviderError> {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        let family = unblock(move || family(&store, &name)).await;
        self.context.end(family).await
    }

    fn check_handle(lease: &LeaseFacts) -> Result<&str, ProviderError> {
        let handle = lease.destroy_handle.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        if lease.provider.as_str() != KIND {
            let message = format!("a lease of {} is none of ours", lease.provider);
            return Err(ProviderError::new(ErrorClass::Permanent, message));
        }
        if handle.is_empty() || handle.starts_with('.') || !handle.chars().all(plain) {
            let message = format!("{handle:?} is no handle of ours");
            return Err(ProviderError::new(ErrorClass::Permanent, message));
        }
        Ok(handle)
    }

    fn deadlines(&self) -> (Duration, Duration) {
        let short = self.context.options.call_deadline;
        (short, short.saturating_mul(10))
    }
}

/// What the latest session of an attempt has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The last lines of standard output, then those of standard error.
    pub lines: Vec<OutputLine>,
    /// When something was printed last, if that is known.
    pub written_at: Option<SystemTime>,
}

/// Returns the last lines of each stream of an attempt's latest session, from its files below the root of the leases. It
/// works whoever works on the session, and changes nothing.
///
/// # Errors
///
/// [`ErrorClass::AlreadyAbsent`] when there is no lease or no session.
pub async fn read_log(root: &Path, key: &AttemptKey, n_lines: usize) -> Result<Log, ProviderError> {
    let lease = root.join(lease_name(key)?);
    let absent = format!("attempt {key} has no session");
    unblock(move || {
        let record = SessionRecord::read(&lease)?;
        let record = record.ok_or(ProviderError::new(ErrorClass::AlreadyAbsent, absent))?;
        let mut tail = tail(&lease, &record);
        let mut lines = tail.catch_up(n_lines);
        lines.extend(tail.finish());
        let written = |stream| {
            let path = output_path(&lease, record.number, stream);
            path.metadata().and_then(|file| file.modified()).ok()
        };
        let written_at = written(OutputStream::Stdout).max(written(OutputStream::Stderr));
        Ok(Log { lines, written_at })
    })
    .await
}

/// Locks bookkeeping that is whole at every await, and so also after a panic.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the processes of a lease: those that carry its mark, and its leader's group.
fn family(store: &Store, name: &str) -> Family {
    let record = SessionRecord::read(&store.path(name)).ok().flatten();
    let leader = record.and_then(|record| record.leader?.find(&store.boot_id));
    Family::new(marks_of(name, &store.path(name)), leader)
}

#[async_trait]
impl Provider for ProcessProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::from(KIND)
    }

    fn settle_window(&self) -> Duration {
        Duration::ZERO
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        let Store { host_id, root, .. } = &*self.store;
        Ok(ProviderIdentity(format!("{host_id}:{}", root.display())))
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        let (_, long) = self.deadlines();
        within(long, ErrorClass::Ambiguous, self.create_lease(request)).await
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        let name = lease_name(key)?;
        let (short, _) = self.deadlines();
        let look = async {
            // A create whose caller has gone away may still be under way, and then "not there" proves nothing.
            let _turn = self.turn(&name).await;
            self.look(&name).await
        };
        Ok(match within(short, ErrorClass::Transient, look).await? {
            Place::Lease(record) => vec![self.found(*record)],
            Place::Empty | Place::Foreign(_) => Vec::new(),
        })
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        let name = Self::check_handle(lease)?;
        let (short, _) = self.deadlines();
        match within(short, ErrorClass::Transient, self.look(name)).await? {
            Place::Lease(_) => Ok(Some(self.connection(name))),
            Place::Empty | Place::Foreign(_) => {
                let message = format!("there is no lease {name}");
                Err(ProviderError::new(ErrorClass::AlreadyAbsent, message))
            }
        }
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        let name = Self::check_handle(lease)?;
        let (short, _) = self.deadlines();
        let place = within(short, ErrorClass::Transient, self.look(name)).await?;
        Ok(match place {
            Place::Lease(_) => Presence::Present,
            Place::Empty | Place::Foreign(_) => Presence::Absent,
        })
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        let name = Self::check_handle(lease)?;
        let (_, long) = self.deadlines();
        within(long, ErrorClass::Transient, self.destroy_lease(name)).await
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        let (short, _) = self.deadlines();
        let store = Arc::clone(&self.store);
        let listed = within(short, ErrorClass::Transient, unblock(move || store.all())).await?;
        let (records, n_foreign) = listed;
        self.n_foreign.store(n_foreign, Ordering::Relaxed);
        let ours = records.into_iter().filter(|record| record.key.cluster == cluster);
        Ok(ours.map(|record| self.found(record)).collect())
    }
}
