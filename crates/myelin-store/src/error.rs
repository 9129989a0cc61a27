//! Why a store cannot be used, and whether trying again later may help.

use std::{error::Error, fmt, io, path::PathBuf, time::Duration};

use myelin_shape::ClusterUid;

/// What a library says of a failure; shown as the source, never branched on.
pub type Cause = Box<dyn Error + Send + Sync>;

/// How far a database is behind the mark beside it: some of what was acted on is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Commits the database holds.
    pub sequence: u64,
    /// Commits it held when something was last acted on.
    pub marked_sequence: u64,
    /// The next attempt id of the database.
    pub next_attempt_id: u64,
    /// The next attempt id when something was last acted on.
    pub marked_next_attempt_id: u64,
    /// The highest desired generation of the database.
    pub generation: u64,
    /// The highest desired generation when something was last acted on.
    pub marked_generation: u64,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, found, marked) in [
            ("commit", self.sequence, self.marked_sequence),
            ("next attempt", self.next_attempt_id, self.marked_next_attempt_id),
            ("generation", self.generation, self.marked_generation),
        ] {
            if found < marked {
                write!(f, "{separator}{name} {found} is older than {marked}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// A failed call. Every message names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no store.
    #[error("{} holds no state", .0.display())]
    NotFound(PathBuf),
    /// There is a store already.
    #[error("{} exists already and is left alone", .0.display())]
    Exists(PathBuf),
    /// What is there is not what was written.
    #[error(
        "{} is damaged: {what}; nothing was changed; restore a backup, or keep the file for a repair by hand",
        path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A later program wrote it.
    #[error(
        "{} has format {found}, this program reads up to {supported}; nothing was changed; use the newer program",
        path.display()
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest format this program knows.
        supported: i64,
    },
    /// An earlier program wrote it, and it is open for reading only.
    #[error("{} has the older format {found}; a program that may write migrates it", path.display())]
    Older {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// The database misses commits that were acted on.
    #[error(
        "{} is behind what was acted on: {behind}; nothing is acted on until the restore is accepted, or the newer \
         files are put back",
        path.display()
    )]
    Behind {
        /// Which file.
        path: PathBuf,
        /// By how much.
        behind: Behind,
    },
    /// Whether the database is behind cannot be told.
    #[error(
        "{} is missing or unreadable, so that nothing shows whether the state beside it is the latest; put it back, or \
         accept the state as it is",
        .0.display()
    )]
    MarkLost(PathBuf),
    /// The files are of another cluster.
    #[error("{} is of cluster {found}, not of {expected}; nothing was changed", path.display())]
    OtherCluster {
        /// Which file.
        path: PathBuf,
        /// The cluster of the store.
        expected: ClusterUid,
        /// The cluster of the file.
        found: ClusterUid,
    },
    /// Somebody else committed since.
    #[error(
        "{} was written by another process: commit {found} follows {expected}; end that process",
        path.display()
    )]
    OtherWriter {
        /// Which file.
        path: PathBuf,
        /// The last commit of this process.
        expected: u64,
        /// The last commit of the file.
        found: u64,
    },
    /// Another connection holds the database.
    #[error("{} is locked by another process; end the program that has it open", .0.display())]
    Locked(PathBuf),
    /// No room is left.
    #[error("{} cannot grow: the disk is full; make room", .0.display())]
    Full(PathBuf),
    /// It cannot be written.
    #[error(
        "{} cannot be written; check the permissions of its directory and whether the file system is read-only",
        .0.display()
    )]
    ReadOnly(PathBuf),
    /// The system refuses a file operation.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// SQLite refuses.
    #[error("the database {} refuses", path.display())]
    Database {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: Cause,
    },
    /// It took too long.
    #[error("{} did not answer within {limit:?}; check its disk", path.display())]
    TimedOut {
        /// Which file.
        path: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// A value has no place in the format.
    #[error("{what} cannot be stored in {}", path.display())]
    Unstorable {
        /// Which file.
        path: PathBuf,
        /// Which value.
        what: &'static str,
        /// Why not.
        source: Cause,
    },
}

impl StoreError {
    /// Returns whether the same call may work later, without anybody accepting a loss.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Locked(_)
            | Self::Full(_)
            | Self::ReadOnly(_)
            | Self::Io { .. }
            | Self::Database { .. }
            | Self::TimedOut { .. } => true,
            Self::NotFound(_)
            | Self::Exists(_)
            | Self::Damaged { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Behind { .. }
            | Self::MarkLost(_)
            | Self::OtherCluster { .. }
            | Self::OtherWriter { .. }
            | Self::Unstorable { .. } => false,
        }
    }
}
