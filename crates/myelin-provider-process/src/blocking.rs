//! File work off the runtime's threads.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{task::spawn_blocking, time::timeout};

use myelin_executor::ProviderError;
use myelin_state::ErrorClass;

/// Runs blocking work; a panic in it goes on here.
pub(crate) async fn unblock<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is going down; nothing polls this again.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Says whether whoever asked for blocking work still wants it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    pub(crate) fn still(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Held by whoever asks; when it is dropped, the work is not wanted any more.
#[derive(Debug)]
pub(crate) struct Asker(Wanted);

impl Asker {
    pub(crate) fn new() -> Self {
        Self(Wanted(Arc::new(AtomicBool::new(true))))
    }

    pub(crate) fn wanted(&self) -> Wanted {
        self.0.clone()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// Bounds a call. Past its deadline the call is dropped, and `class` says what is known then.
pub(crate) async fn within<T>(
    deadline: Duration,
    class: ErrorClass,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let result = timeout(deadline, call).await;
    result.unwrap_or_else(|_| {
        let message = format!("took longer than {deadline:?}");
        Err(ProviderError::new(class, message))
    })
}
