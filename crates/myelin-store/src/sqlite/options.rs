//! How a store behaves.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Told the number of every durable write of a process, right after it: the database's commits and the mark's.
pub type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// Options of a [`SqliteStore`](crate::SqliteStore).
#[derive(Clone)]
pub struct Options {
    /// How many events are kept.
    pub max_events: u64,
    /// How long events are kept.
    pub max_age: Duration,
    /// How long another connection may hold the database.
    pub busy_timeout: Duration,
    /// How long any call may take.
    pub call_timeout: Duration,
    /// For crash tests.
    pub after_commit: Option<Hook>,
    /// For tests of a full disk: the most pages the database may have. Read whenever it is opened, also after a failure.
    pub page_limit: Option<Arc<AtomicU32>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_events: 100_000,
            max_age: Duration::from_hours(30 * 24),
            busy_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            after_commit: None,
            page_limit: None,
        }
    }
}

impl Options {
    pub(crate) fn max_pages(&self) -> Option<u32> {
        self.page_limit.as_ref().map(|limit| limit.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_events, max_age, busy_timeout, call_timeout, after_commit: _, page_limit } =
            self;
        f.debug_struct("Options")
            .field("max_events", max_events)
            .field("max_age", max_age)
            .field("busy_timeout", busy_timeout)
            .field("call_timeout", call_timeout)
            .field("page_limit", page_limit)
            .finish_non_exhaustive()
    }
}
