//! What damage to a store's files may lead to: an error that names the file, or a state that was committed at or after
//! the last barrier. Shared with the example `sweep`, which tries every byte.

use std::{
    fs,
    path::{Path, PathBuf},
};

use myelin_state::{ClusterState, NodeStage, OperationKind};
use myelin_store::{Batch, Options, SqliteStore, Store, StoreError};

use crate::fixture::{
    advance, at, commit, copy_files, create, desired, dispatch, ids, options, state,
};

/// The files of a store that was killed, and what may be loaded from them.
pub(crate) struct Victim {
    /// Where the files are; they are only read.
    pub(crate) dir: PathBuf,
    /// The states committed at and after the last barrier.
    pub(crate) allowed: Vec<ClusterState>,
}

/// Makes the files of a process that was killed, with some commits since the last barrier.
pub(crate) async fn victim(dir: &Path) -> Victim {
    let live = dir.join("live");
    fs::create_dir(&live).unwrap();
    let store = create(&live).await;
    let mut state = state(12);
    let nodes = ids(&state);
    commit(&store, 1, &state, false).await;
    store.close().await.unwrap();
    let store = SqliteStore::open(&live, options()).await.unwrap();
    let mut allowed = Vec::new();
    for (n, barrier) in [true, false, true, false, false].into_iter().enumerate() {
        let id = &nodes[n];
        let event = dispatch(&mut state, id, OperationKind::CreateLease);
        if n == 1 {
            advance(&mut state, &nodes[0], NodeStage::LeaseCreated);
        }
        let (desired, events) = (desired(2), [event]);
        let batch = Batch {
            nodes: &nodes,
            cluster: true,
            desired: (n == 0).then_some(&desired),
            events: &events,
            barrier,
            ..Batch::new(at(n as u64), &state)
        };
        store.commit(batch).await.unwrap();
        if barrier {
            allowed.clear();
        }
        allowed.push(state.clone());
    }
    let killed = dir.join("killed");
    copy_files(&live, &killed);
    Victim { dir: killed, allowed }
}

/// One damage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    /// The file ends here.
    Cut(u64),
    /// The bits of one byte are changed.
    Flip(u64, u8),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Loaded,
    Refused,
}

impl Victim {
    /// The files that hold state.
    pub(crate) const FILES: [&str; 3] = ["state.db", "state.db-wal", "state.mark"];

    pub(crate) fn size(&self, file: &str) -> u64 {
        fs::metadata(self.dir.join(file)).map_or(0, |metadata| metadata.len())
    }

    /// Offsets at which a file is cut or changed: every boundary of pages and of the log's frames with their neighbours,
    /// every byte of the header, and every `step`th byte.
    pub(crate) fn offsets(&self, file: &str, step: u64) -> Vec<u64> {
        let size = self.size(file);
        let (start, unit) = if file.ends_with("-wal") { (32, 4096 + 24) } else { (0, 4096) };
        let mut offsets: Vec<u64> = (0..size).step_by(usize::try_from(step).unwrap()).collect();
        offsets.extend((0..size.min(100)).step_by(usize::try_from(step.min(3)).unwrap()));
        for boundary in (start..=size).step_by(unit) {
            offsets.extend([boundary.saturating_sub(1), boundary, boundary + 3, boundary + 24]);
        }
        offsets.retain(|offset| *offset < size);
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    /// Damages a copy and loads it.
    pub(crate) async fn check(
        &self,
        scratch: &Path,
        file: &str,
        damage: Damage,
    ) -> Result<Verdict, String> {
        // A directory for each, since a connection that was given up ends when it likes.
        let scratch = tempfile::tempdir_in(scratch).unwrap();
        let scratch = scratch.path();
        for name in Self::FILES.iter().filter(|name| self.dir.join(name).exists()) {
            fs::copy(self.dir.join(name), scratch.join(name)).unwrap();
        }
        let path = scratch.join(file);
        let mut bytes = fs::read(&path).unwrap();
        match damage {
            Damage::Cut(offset) => bytes.truncate(usize::try_from(offset).unwrap()),
            Damage::Flip(offset, bits) => bytes[usize::try_from(offset).unwrap()] ^= bits,
        }
        fs::write(&path, bytes).unwrap();
        let loaded = match SqliteStore::open(scratch, Options::default()).await {
            Ok(store) => store.load().await,
            Err(error) => Err(error),
        };
        self.judge(scratch, loaded.map(|loaded| loaded.state))
            .map_err(|what| format!("{file} {damage:?}: {what}"))
    }

    fn judge(
        &self,
        scratch: &Path,
        loaded: Result<ClusterState, StoreError>,
    ) -> Result<Verdict, String> {
        match loaded {
            Ok(state) if self.allowed.contains(&state) => Ok(Verdict::Loaded),
            Ok(_) => Err("another state was loaded".to_owned()),
            Err(error) => {
                let text = error.to_string();
                let named = text.contains(&*scratch.canonicalize().unwrap().to_string_lossy());
                let permanent = !error.is_temporary();
                if named && permanent {
                    Ok(Verdict::Refused)
                } else {
                    Err(format!("the error is {text}"))
                }
            }
        }
    }
}
