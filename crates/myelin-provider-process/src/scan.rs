//! Looks at all processes of the host, shared by everybody who wants one at the same time.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::sync::OnceCell;

use crate::{blocking::unblock, proc::Snapshot, provider::guard};

/// A look that several wait for.
type Look = Arc<OnceCell<Arc<Snapshot>>>;

/// Takes snapshots. Each caller gets one that began after its call; those who wait while another look is under way share
/// the next, so that ending many leases at once does not cost a walk over `/proc` for each.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The look that has not begun.
    next: Mutex<Option<Look>>,
    under_way: tokio::sync::Mutex<()>,
}

impl Scanner {
    pub(crate) async fn look(&self) -> io::Result<Arc<Snapshot>> {
        let look = Arc::clone(guard(&self.next).get_or_insert_default());
        let snapshot = look.get_or_try_init(|| async {
            let _alone = self.under_way.lock().await;
            // Whoever calls from here on might have started a process that this look misses.
            guard(&self.next).take();
            unblock(Snapshot::take).await.map(Arc::new)
        });
        snapshot.await.cloned()
    }
}
