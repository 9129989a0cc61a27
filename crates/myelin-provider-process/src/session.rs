//! A bootstrap session: its record on disk, and whoever works on it now.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use myelin_executor::{BootstrapSink, BootstrapUpdate, OutputLine, OutputStream, ProviderError};
use myelin_shape::{AttemptKey, BootSpec, BootstrapSessionId};
use myelin_state::BootstrapStage;

use crate::{
    blocking::unblock,
    proc::{Marks, ProcessId},
    store::{failed, read_record, write_record},
    tail::{Position, Tail, trim},
};

/// What a session is, in `session.json` of its lease. Written before anything is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRecord {
    pub(crate) session: BootstrapSessionId,
    /// Position among the sessions of the lease, from 1.
    pub(crate) number: u32,
    pub(crate) key: AttemptKey,
    pub(crate) started_at: SystemTime,
    pub(crate) boot: BootSpec,
    pub(crate) stage: BootstrapStage,
    /// Position of `stage` in the session's stream of stages.
    pub(crate) sequence: u64,
    pub(crate) message: Option<String>,
    /// The process that the start command became.
    pub(crate) leader: Option<ProcessId>,
    /// Where its output begins, to standard output and to standard error: what came before was given up.
    #[serde(default)]
    pub(crate) output_from: [Position; 2],
}

impl SessionRecord {
    pub(crate) fn new(key: AttemptKey, number: u32, boot: BootSpec) -> Self {
        Self {
            session: session_id(&key, number),
            number,
            key,
            started_at: SystemTime::now(),
            boot,
            stage: BootstrapStage::Created,
            sequence: 1,
            message: None,
            leader: None,
            output_from: [Position::default(); 2],
        }
    }

    /// Returns the record of a lease's latest session. A lease without one is none; a damaged record is an error.
    pub(crate) fn read(lease: &Path) -> Result<Option<Self>, ProviderError> {
        let path = lease.join("session.json");
        match read_record(&path) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("cannot read", &path, &error)),
        }
    }

    pub(crate) fn write(&self, lease: &Path) -> Result<(), ProviderError> {
        let path = lease.join("session.json");
        write_record(&path, self).map_err(|error| failed("cannot write", &path, &error))
    }

    /// Returns whether nothing was ever started on the lease.
    pub(crate) fn is_untouched(&self) -> bool {
        self.number == 1 && self.stage == BootstrapStage::Created
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.stage.is_terminal()
    }

    /// Returns what every process of the session carries.
    pub(crate) fn marks(&self, lease: &Path) -> Marks {
        let Self { key, session, .. } = self;
        let entries = vec![format!("MYELIN_LEASE={key}"), format!("MYELIN_SESSION={session}")];
        Marks { entries, lease: lease.into() }
    }
}

/// Returns what every process of a lease carries.
pub(crate) fn marks_of(name: &str, lease: &Path) -> Marks {
    Marks { entries: vec![format!("MYELIN_LEASE={name}")], lease: lease.into() }
}

/// Returns an id that no other session of any attempt has, short enough to be exact as a JSON number everywhere.
fn session_id(key: &AttemptKey, number: u32) -> BootstrapSessionId {
    let digest = blake3::hash(format!("{key} session {number}").as_bytes());
    let bytes: [u8; 8] = digest.as_bytes()[..8].try_into().expect("a digest has 32 bytes");
    BootstrapSessionId(u64::from_be_bytes(bytes) >> 11)
}

/// A session that this provider works on, or worked on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: BootstrapSessionId,
    pub(crate) key: AttemptKey,
    /// The lease's name and directory.
    pub(crate) name: String,
    pub(crate) lease: PathBuf,
    record: Arc<Mutex<SessionRecord>>,
    sink: Arc<dyn BootstrapSink>,
    /// Stops all work of the provider.
    pub(crate) closing: CancellationToken,
    /// Stops the work on the session, except following its output; what runs on the lease goes on.
    pub(crate) stop: CancellationToken,
    /// Says that nobody works on it any more.
    pub(crate) stopped: CancellationToken,
    /// Says that no more output comes.
    pub(crate) silent: CancellationToken,
    /// Says that its output is read.
    pub(crate) followed: CancellationToken,
}

impl Session {
    pub(crate) fn new(
        name: String,
        lease: PathBuf,
        record: SessionRecord,
        sink: Arc<dyn BootstrapSink>,
        closing: &CancellationToken,
    ) -> Self {
        Self {
            id: record.session,
            key: record.key.clone(),
            name,
            lease,
            record: Arc::new(Mutex::new(record)),
            sink,
            closing: closing.clone(),
            stop: closing.child_token(),
            stopped: CancellationToken::new(),
            silent: CancellationToken::new(),
            followed: CancellationToken::new(),
        }
    }

    pub(crate) async fn record(&self) -> OwnedMutexGuard<SessionRecord> {
        Arc::clone(&self.record).lock_owned().await
    }

    /// Reports the stage as it is recorded; whoever knows it already ignores the repeat.
    pub(crate) async fn report_stage(&self) {
        let record = self.record().await;
        self.sink.report(&self.key, self.id, stage_update(&record));
    }

    /// Records a later stage, then reports it. Returns whether the session was not over and this was later.
    pub(crate) async fn advance(
        &self,
        stage: BootstrapStage,
        message: Option<String>,
    ) -> Result<bool, ProviderError> {
        let record = self.record().await;
        if !record.is_live() || stage <= record.stage {
            return Ok(false);
        }
        let next =
            SessionRecord { stage, sequence: record.sequence + 1, message, ..record.clone() };
        let record = self.store(record, next).await?;
        self.sink.report(&self.key, self.id, stage_update(&record));
        Ok(true)
    }

    /// Records the process that the start command became.
    pub(crate) async fn lead(&self, leader: ProcessId) -> Result<(), ProviderError> {
        let record = self.record().await;
        let next = SessionRecord { leader: Some(leader), ..record.clone() };
        self.store(record, next).await.map(drop)
    }

    /// Ends a session that cannot be worked on, whether or not that can be recorded: whoever waits for it must know.
    pub(crate) async fn give_up(&self, why: &ProviderError) {
        let message = Some(why.message.clone());
        let Err(error) = self.advance(BootstrapStage::StreamError, message.clone()).await else {
            return;
        };
        tracing::warn!(key = %self.key, %error, "cannot record the end of a bootstrap");
        let mut record = self.record().await;
        if record.is_live() {
            (record.stage, record.message) = (BootstrapStage::StreamError, message);
            record.sequence += 1;
            self.sink.report(&self.key, self.id, stage_update(&record));
        }
    }

    /// Gives up output before these positions.
    pub(crate) async fn trim(&self, bases: [Position; 2]) {
        let record = self.record().await;
        if record.output_from == bases {
            return;
        }
        let number = record.number;
        let next = SessionRecord { output_from: bases, ..record.clone() };
        // A full disk is no reason not to free some of it.
        if let Err(error) = self.store(record, next).await {
            tracing::warn!(key = %self.key, %error, "cannot record that output is given up");
        }
        let lease = self.lease.clone();
        let trimmed = unblock(move || {
            let paths = STREAMS.map(|stream| output_path(&lease, number, stream));
            paths.iter().zip(bases).try_for_each(|(path, base)| trim(path, base))
        });
        if let Err(error) = trimmed.await {
            tracing::warn!(key = %self.key, %error, "cannot give up output");
        }
    }

    /// Replaces the record. Whoever drops this call leaves the record locked until it is written: a late write must
    /// never replace a newer one.
    async fn store(
        &self,
        mut record: OwnedMutexGuard<SessionRecord>,
        next: SessionRecord,
    ) -> Result<OwnedMutexGuard<SessionRecord>, ProviderError> {
        let lease = self.lease.clone();
        let write = move || {
            next.write(&lease)?;
            *record = next;
            Ok(record)
        };
        unblock(write).await
    }

    pub(crate) fn report_output(&self, lines: Vec<OutputLine>) {
        for line in lines {
            self.sink.report(&self.key, self.id, BootstrapUpdate::Output(line));
        }
    }

    /// Stops the work on the session and waits until it has, to the last write.
    pub(crate) async fn halt(&self) {
        self.stop.cancel();
        self.stopped.cancelled().await;
        drop(self.record().await);
    }

    /// Waits until the output is read and reported, to its end. Nothing may write any more.
    pub(crate) async fn read_out(&self) {
        self.silent.cancel();
        if timeout(READ_OUT, self.followed.cancelled()).await.is_err() {
            tracing::warn!(key = %self.key, "the last output is not read in time");
        }
    }
}

fn stage_update(record: &SessionRecord) -> BootstrapUpdate {
    BootstrapUpdate::Stage {
        sequence: record.sequence,
        stage: record.stage,
        message: record.message.clone(),
    }
}

/// The streams, in the order in which they are kept in a record.
const STREAMS: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];

/// How long reading the last output may take: it is a few megabytes.
const READ_OUT: Duration = Duration::from_secs(5);

/// Returns where the output of a lease's session goes.
pub(crate) fn output_path(lease: &Path, number: u32, stream: OutputStream) -> PathBuf {
    let name = match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    lease.join(format!("{name}.{number}.log"))
}

/// Follows the output of a session from where it is kept, its own two files first.
pub(crate) fn tail(lease: &Path, record: &SessionRecord) -> Tail {
    let own = STREAMS.map(|stream| (stream, output_path(lease, record.number, stream)));
    let own = own.into_iter().zip(record.output_from);
    let mut files: Vec<_> = own.map(|((stream, path), base)| (stream, path, base)).collect();
    for (stream, paths) in
        STREAMS.iter().zip([&record.boot.stdout_sources, &record.boot.stderr_sources])
    {
        files.extend(paths.iter().map(|path| (*stream, lease.join(path), Position::default())));
    }
    Tail::new(files)
}

/// Removes the output of the session before the last one: a lease keeps that of two.
pub(crate) fn drop_old_output(lease: &Path, number: u32) -> io::Result<()> {
    let Some(old) = number.checked_sub(2) else { return Ok(()) };
    for stream in STREAMS {
        match fs::remove_file(output_path(lease, old, stream)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
