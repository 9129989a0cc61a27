//! Death at a chosen moment, for the crash suite. Only builds with debug assertions have it.
//!
//! `MYELIN_CRASH` names the moment: `write:K` is right after the `K`th durable write of the process (a commit of the database
//! is one, its mark is another), `call:K` right after the `K`th call of a provider or its bootstrap has returned, and
//! `call-before:K` right before the `K`th is made. With `unwritten:K` the `K`th commit of the loop fails, and with
//! `unanswered:K` it seems to; the process dies when it tries again. It sends itself SIGKILL, so that nothing
//! is tidied up; the last line of its standard error says which call it was.
//!
//! Reading order: [`Moment`], [`after_write`], [`Mortal`].

use std::{
    env,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    str::FromStr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use myelin_executor::{
    Bootstrap, CreateRequest, FoundLease, FoundSession, NewLease, Presence, Provider,
    ProviderError, ProviderIdentity, StartRequest,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid, ProviderKind};
use myelin_state::{Connection, LeaseFacts};
use myelin_store::{
    Batch, EventQuery, Hook, Loaded, OperationQuery, Setting, Store, StoreError, StoredEvent,
    StoredOperation,
};
use rustix::process::{Signal, getpid, kill_process};

const VARIABLE: &str = "MYELIN_CRASH";

/// When the process dies. Counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    AfterWrite(u64),
    AfterCall(u64),
    BeforeCall(u64),
    /// As the commit is tried again that failed.
    Unwritten(u64),
    /// As the commit is tried again that took effect, and seemed to fail.
    Unanswered(u64),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{VARIABLE}={text:?} is no moment");
        let (what, number) = text.split_once(':').ok_or_else(error)?;
        let number = number.parse().map_err(|_| error())?;
        match what {
            "write" => Ok(Self::AfterWrite(number)),
            "call" => Ok(Self::AfterCall(number)),
            "call-before" => Ok(Self::BeforeCall(number)),
            "unwritten" => Ok(Self::Unwritten(number)),
            "unanswered" => Ok(Self::Unanswered(number)),
            _ => Err(error()),
        }
    }
}

static MOMENT: LazyLock<Option<Moment>> = LazyLock::new(|| {
    let text = env::var(VARIABLE).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{error}")))
});

static N_WRITES: AtomicU64 = AtomicU64::new(0);
static N_COMMITS: AtomicU64 = AtomicU64::new(0);
static N_BEGUN: AtomicU64 = AtomicU64::new(0);
static N_RETURNED: AtomicU64 = AtomicU64::new(0);

/// Counts, and dies if that was the moment. Where it was is its last word.
fn pass(counter: &AtomicU64, moment: fn(u64) -> Moment, place: impl FnOnce() -> String) {
    let n = counter.fetch_add(1, Ordering::SeqCst) + 1;
    if *MOMENT == Some(moment(n)) {
        die(&place());
    }
}

fn die(place: &str) -> ! {
    let _ = writeln!(io::stderr(), "killed at {place}");
    // It does not return: the signal is taken before this thread goes on.
    let _ = kill_process(getpid(), Signal::KILL);
    process::abort();
}

/// Returns what a store is to call after each durable write, if the process may have to die.
pub(crate) fn after_write() -> Option<Hook> {
    (*MOMENT)?;
    Some(Arc::new(|_| pass(&N_WRITES, Moment::AfterWrite, || "a write".into())))
}

/// A provider, a bootstrap or a store around which the process may die.
#[derive(Debug)]
pub(crate) struct Mortal<T: ?Sized>(pub(crate) Arc<T>);

/// Makes a call that is counted.
async fn counted<T>(name: &str, of: &impl ToString, call: impl Future<Output = T> + Send) -> T {
    let place = || format!("{name} {}", of.to_string());
    pass(&N_BEGUN, Moment::BeforeCall, place);
    let answer = call.await;
    pass(&N_RETURNED, Moment::AfterCall, place);
    answer
}

#[async_trait]
impl Provider for Mortal<dyn Provider> {
    fn kind(&self) -> ProviderKind {
        self.0.kind()
    }

    fn settle_window(&self) -> Duration {
        self.0.settle_window()
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        self.0.identity().await
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        counted("create", &request.key, self.0.create(request)).await
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        counted("find", key, self.0.find(key)).await
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        counted("endpoint", &lease.lease_id, self.0.endpoint(lease)).await
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        counted("presence", &lease.lease_id, self.0.presence(lease)).await
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        counted("destroy", &lease.lease_id, self.0.destroy(lease)).await
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        counted("list", &cluster, self.0.list(cluster)).await
    }
}

#[async_trait]
impl Bootstrap for Mortal<dyn Bootstrap> {
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError> {
        counted("start", &request.key, self.0.start(request)).await
    }

    async fn find(
        &self,
        key: &AttemptKey,
        lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError> {
        counted("find", key, self.0.find(key, lease)).await
    }

    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        counted("conclude", &session, self.0.conclude(session)).await
    }

    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        counted("cancel", &session, self.0.cancel(session)).await
    }
}

#[async_trait]
impl Store for Mortal<dyn Store> {
    async fn load(&self) -> Result<Loaded, StoreError> {
        self.0.load().await
    }

    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        let n = N_COMMITS.fetch_add(1, Ordering::SeqCst) + 1;
        let path = PathBuf::from(VARIABLE);
        match *MOMENT {
            Some(Moment::Unwritten(k)) if k == n => Err(StoreError::Full(path)),
            Some(Moment::Unanswered(k)) if k == n => {
                self.0.commit(batch).await?;
                Err(StoreError::TimedOut { path, limit: Duration::ZERO })
            }
            Some(Moment::Unwritten(k) | Moment::Unanswered(k)) if k < n => die("a second try"),
            _ => self.0.commit(batch).await,
        }
    }

    async fn set(&self, setting: Setting) -> Result<(), StoreError> {
        self.0.set(setting).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.events(query).await
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<StoredOperation>, StoreError> {
        self.0.operations(query).await
    }

    async fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.0.backup(path).await
    }
}
