//! Where a store's files are, how they are opened, and what SQLite's failures mean.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sqlx::{
    ConnectOptions as _, Row as _, SqliteConnection, query,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::{Options, StoreError};

/// The directory of a store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    database: PathBuf,
}

impl Place {
    pub(crate) fn new(dir: &Path) -> Result<Self, StoreError> {
        match dir.canonicalize() {
            Ok(dir) => Ok(Self { database: dir.join("state.db"), dir }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::NotFound(dir.to_owned()))
            }
            Err(source) => Err(StoreError::Io { what: "open", path: dir.to_owned(), source }),
        }
    }

    /// Returns a place of no files, to name in errors.
    #[cfg(feature = "raw")]
    pub(crate) fn nowhere() -> Self {
        Self { dir: PathBuf::new(), database: "state.db".into() }
    }

    /// Returns the place with another file as its database.
    pub(crate) fn of_file(&self, database: &Path) -> Self {
        Self { dir: self.dir.clone(), database: database.to_owned() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.database.clone()
    }

    /// Where a database is made before it takes the place of another.
    pub(crate) fn draft(&self) -> PathBuf {
        self.dir.join("state.db.new")
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.dir.join("state.mark")
    }

    /// Where a store that is replaced is being copied to.
    pub(crate) fn half_kept(&self) -> PathBuf {
        self.dir.join("replaced.new")
    }

    /// Where a store that is replaced is kept: the first name of its kind that is free.
    pub(crate) fn free_kept(&self) -> PathBuf {
        let names = (1_u64..).map(|n| self.dir.join(format!("replaced-{n}")));
        let free = names.into_iter().find(|path| path.symlink_metadata().is_err());
        free.expect("there are fewer directories than numbers")
    }

    /// Checks that there is a database; one that is missing or empty beside other files of a store is damaged.
    pub(crate) fn check_present(&self) -> Result<(), StoreError> {
        let database = self.database();
        match fs::metadata(&database) {
            Ok(metadata) if metadata.len() > 0 => Ok(()),
            Ok(_) => Err(self.damaged("it is empty".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let others = [self.mark(), beside(&database, "-wal")];
                match others.iter().find(|path| path.exists()) {
                    Some(other) => {
                        Err(self.damaged(format!("it is missing beside {}", other.display())))
                    }
                    None => Err(StoreError::NotFound(self.dir.clone())),
                }
            }
            Err(source) => Err(StoreError::Io { what: "open", path: database, source }),
        }
    }

    pub(crate) fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { path: self.database(), what }
    }

    pub(crate) fn failed(&self, error: sqlx::Error) -> StoreError {
        failed(&self.database(), error)
    }
}

/// Returns a file's companion: its log or its log's index.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a database to write it.
pub(crate) async fn connect(
    path: &Path,
    options: &Options,
) -> Result<SqliteConnection, StoreError> {
    let connect = base(path, options)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        // A log that was large once does not stay so.
        .pragma("journal_size_limit", "16777216");
    let connect = match options.max_pages() {
        Some(pages) => connect.pragma("max_page_count", pages.to_string()),
        None => connect,
    };
    connect.connect().await.map_err(|error| failed(path, error))
}

/// Opens a database to read it, also where nothing can be written.
pub(crate) async fn connect_read_only(
    path: &Path,
    options: &Options,
) -> Result<SqliteConnection, StoreError> {
    let connect = base(path, options).read_only(true);
    let opened = try_read(&connect).await;
    match opened {
        // Without a log there is nothing a writer could be about to change, and no log may be made here.
        Err(_) if !beside(path, "-wal").exists() => try_read(&connect.immutable(true)).await,
        opened => opened,
    }
    .map_err(|error| failed(path, error))
}

async fn try_read(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = options.connect().await?;
    query("SELECT count(*) FROM sqlite_schema").fetch_one(&mut connection).await?;
    Ok(connection)
}

/// Makes a database, or opens one that nobody else has open. It is written with a rollback journal, so that it is one file
/// when it is closed.
pub(crate) async fn connect_new(
    path: &Path,
    options: &Options,
) -> Result<SqliteConnection, StoreError> {
    let connect = base(path, options)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Delete)
        .synchronous(SqliteSynchronous::Full);
    connect.connect().await.map_err(|error| failed(path, error))
}

fn base(path: &Path, options: &Options) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(options.busy_timeout)
        .foreign_keys(false)
        // What a page holds is checked when it is read, not believed.
        .pragma("cell_size_check", "ON")
        // In KiB: ten thousand nodes stay in memory.
        .pragma("cache_size", "-65536")
        .pragma("trusted_schema", "OFF")
        .disable_statement_logging()
}

/// Runs a statement without arguments or result.
pub(crate) async fn run(
    connection: &mut SqliteConnection,
    place: &Place,
    sql: &'static str,
) -> Result<(), StoreError> {
    query(sql).execute(connection).await.map(drop).map_err(|error| place.failed(error))
}

/// Runs a query of one number.
pub(crate) async fn number(
    connection: &mut SqliteConnection,
    place: &Place,
    sql: &'static str,
) -> Result<i64, StoreError> {
    let row = query(sql).fetch_one(connection).await.map_err(|error| place.failed(error))?;
    row.try_get(0).map_err(|error| place.failed(error))
}

/// Says what a failure of SQLite means.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest has one meaning")]
pub(crate) fn failed(path: &Path, error: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    match &error {
        sqlx::Error::Database(database) => match primary_code(database.as_ref()) {
            Some(BUSY | LOCKED) => StoreError::Locked(path),
            Some(FULL) => StoreError::Full(path),
            Some(READONLY | CANTOPEN | PERM) => StoreError::ReadOnly(path),
            // A computed column met what is no JSON; a table or column is gone.
            Some(CORRUPT | NOTADB | ERROR) => {
                StoreError::Damaged { path, what: database.message().to_owned() }
            }
            _ => StoreError::Database { path, source: error.into() },
        },
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => {
            StoreError::Database { path, source: error.into() }
        }
        // What was read is not what the statement returns of a sound database.
        _ => StoreError::Damaged { path, what: error.to_string() },
    }
}

const ERROR: i32 = 1;
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;

fn primary_code(error: &dyn sqlx::error::DatabaseError) -> Option<i32> {
    let code: i32 = error.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Returns a time as the database keeps it.
pub(crate) fn to_nanos(time: SystemTime, place: &Place) -> Result<i64, StoreError> {
    let unstorable =
        |source| StoreError::Unstorable { path: place.database(), what: "a time", source };
    let since = time.duration_since(UNIX_EPOCH).map_err(|error| unstorable(error.into()))?;
    i64::try_from(since.as_nanos()).map_err(|error| unstorable(error.into()))
}

/// Returns a time that the database kept.
pub(crate) fn from_nanos(nanos: i64, place: &Place) -> Result<SystemTime, StoreError> {
    let nanos = u64::try_from(nanos).map_err(|_| place.damaged(format!("{nanos} is no time")))?;
    Ok(UNIX_EPOCH + Duration::from_nanos(nanos))
}
