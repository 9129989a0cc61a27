//! The store in a directory: `state.db`, a SQLite database, and `state.mark` beside it.
//!
//! Reading order: [`SqliteStore`], `writer` (how a commit goes), `encode` and `rows` (what it writes), `load` (how it is
//! read and checked), `backup`, `restore`.

mod backup;
mod connection;
mod encode;
mod head;
mod load;
mod meta;
mod options;
mod queries;
#[cfg(feature = "raw")]
pub mod raw;
mod restore;
mod rows;
mod schema;
mod writer;

use std::{fs, io, path::Path};

use async_trait::async_trait;
use myelin_shape::ClusterUid;
use sqlx::{Connection as _, SqliteConnection};
use tokio::{sync::Mutex, time::timeout};

pub use self::{
    backup::Accepted,
    options::{Hook, Options},
    restore::Restore,
};

use self::{
    connection::{Place, beside, connect, connect_new, connect_read_only, run},
    head::Head,
    load::{Access, Check},
    rows::{Held, Table},
    writer::Writer,
};
use crate::{
    Batch, Doubt, EventQuery, Identity, Loaded, OperationQuery, Setting, Store, StoreError,
    StoredEvent, StoredOperation,
    mark::{Mark, MarkFile, failed, sync_directory},
};

/// Durable state of one run in a directory.
///
/// Whoever writes holds the run's lock on the directory; this one only notices when somebody does not. Deadlines are of
/// real time, and the database is on a thread that tokio does not know: do not use it on paused time.
#[derive(Debug)]
pub struct SqliteStore {
    place: Place,
    options: Options,
    access: Access,
    writer: Mutex<Writer>,
}

impl SqliteStore {
    /// Makes a store in an existing directory. The identity is durable when this returns.
    ///
    /// # Errors
    ///
    /// There is one already, or the files cannot be written. A store that was begun is completed or made anew by
    /// the next call or by [`open`](Self::open).
    pub async fn create(
        dir: &Path,
        identity: &Identity,
        options: Options,
    ) -> Result<Self, StoreError> {
        let place = Place::new(dir)?;
        match place.check_present() {
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
            Ok(()) => return Err(StoreError::Exists(place.database())),
        }
        let mut writer = Writer::new();
        within(&place, &options, make(&place, identity, &options)).await?;
        writer.written(&options);
        MarkFile::create(&place.mark(), &first_mark(identity))?;
        writer.written(&options);
        Ok(Self { place, options, access: Access::Write, writer: Mutex::new(writer) })
    }

    /// Opens a store to write it. An older format is migrated.
    ///
    /// # Errors
    ///
    /// There is none, or it must not be used. Nothing was changed then.
    pub async fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let place = Place::new(dir)?;
        place.check_present()?;
        within(&place, &options, prepare(&place, &options, schema::STEPS)).await?;
        let writer = Mutex::new(Writer::new());
        Ok(Self { place, options, access: Access::Write, writer })
    }

    /// Opens a store to read it, beside a process that writes or without one, also where nothing can be written.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub async fn open_read_only(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let place = Place::new(dir)?;
        place.check_present()?;
        within(&place, &options, check_format(&place, &options)).await?;
        let writer = Mutex::new(Writer::new());
        Ok(Self { place, options, access: Access::Read, writer })
    }

    /// Returns the cluster that the mark of a directory names, also where the database cannot be read.
    ///
    /// # Errors
    ///
    /// The mark's file cannot be read; one that says nothing is no error.
    pub fn marked_cluster(dir: &Path) -> Result<Option<ClusterUid>, StoreError> {
        let place = Place::new(dir)?;
        Ok(MarkFile::read(&place.mark())?.map(|mark| mark.cluster))
    }

    /// Ends the use of a store, which puts everything into `state.db`. Without it the log stays, and is as good.
    ///
    /// # Errors
    ///
    /// The log stays.
    pub async fn close(self) -> Result<(), StoreError> {
        let mut writer = self.writer.into_inner();
        within(&self.place, &self.options, writer.close(&self.place)).await
    }

    /// Returns what is there with the doubts about it.
    async fn look(&self) -> Result<Loaded, StoreError> {
        let mut connection = connect_read_only(&self.place.database(), &self.options).await?;
        // The mark first: a commit in between makes the database newer, never the mark.
        let mark = MarkFile::read(&self.place.mark())?;
        let contents = load::read(&mut connection, &self.place, Access::Read, Check::Pages).await?;
        let found = contents.mark();
        let doubt = match mark {
            None if found.sequence == 1 => None,
            None => Some(Doubt::MarkLost),
            Some(mark) if mark.cluster != found.cluster => {
                let (expected, found) = (found.cluster, mark.cluster);
                return Err(StoreError::OtherCluster { path: self.place.mark(), expected, found });
            }
            Some(mark) => found.behind(&mark).map(Doubt::Behind),
        };
        close(connection, &self.place).await?;
        Ok(Loaded { doubt, ..contents.into_loaded() })
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(StoreError::ReadOnly(self.place.database())),
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self) -> Result<Loaded, StoreError> {
        match self.access {
            Access::Read => within(&self.place, &self.options, self.look()).await,
            Access::Write => {
                let mut writer = self.writer.lock().await;
                within(&self.place, &self.options, writer.load(&self.place, &self.options)).await
            }
        }
    }

    async fn commit(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut writer = self.writer.lock().await;
        within(&self.place, &self.options, writer.commit(&self.place, &self.options, batch)).await
    }

    async fn set(&self, setting: Setting) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut writer = self.writer.lock().await;
        within(&self.place, &self.options, writer.set(&self.place, &self.options, setting)).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        within(&self.place, &self.options, queries::events(&self.place, &self.options, query)).await
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<StoredOperation>, StoreError> {
        within(&self.place, &self.options, queries::operations(&self.place, &self.options, query))
            .await
    }

    async fn backup(&self, path: &Path) -> Result<(), StoreError> {
        within(&self.place, &self.options, backup::backup(&self.place, &self.options, path)).await
    }
}

/// Gives a call its deadline.
async fn within<T>(
    place: &Place,
    options: &Options,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let limit = options.call_timeout;
    let answer = timeout(limit, call).await;
    answer.unwrap_or_else(|_| Err(StoreError::TimedOut { path: place.database(), limit }))
}

fn first_mark(identity: &Identity) -> Mark {
    Mark { sequence: 1, next_attempt_id: 0, generation: 0, cluster: identity.cluster }
}

/// Makes the database beside its place and moves it there when it is whole, so that a store has an identity or is none.
async fn make(place: &Place, identity: &Identity, options: &Options) -> Result<(), StoreError> {
    let draft = place.draft();
    remove_database(&draft)?;
    create_file(&draft)?;
    let mut connection = connect_new(&draft, options).await?;
    let application = format!("PRAGMA application_id = {}", schema::APPLICATION_ID);
    let set = sqlx::raw_sql(sqlx::AssertSqlSafe(application)).execute(&mut connection).await;
    set.map_err(|error| place.failed(error))?;
    schema::migrate(&mut connection, place, 0, schema::STEPS).await?;
    run(&mut connection, place, "BEGIN IMMEDIATE").await?;
    let mut held = Held::default();
    let rows = meta::identity_rows(identity, place)?;
    for row in &rows {
        held.put(Table::Meta, row.id.clone(), row.sum);
    }
    rows::write(&mut connection, Table::Meta, rows).await.map_err(|error| place.failed(error))?;
    Head::first(identity.begun_at).insert(&mut connection, place, held.digest).await?;
    run(&mut connection, place, "COMMIT").await?;
    close(connection, place).await?;
    put_in_place(place)
}

/// Makes the draft the database, durably.
fn put_in_place(place: &Place) -> Result<(), StoreError> {
    let database = place.database();
    let rename = || {
        fs::File::open(place.draft())?.sync_all()?;
        fs::rename(place.draft(), &database)?;
        sync_directory(&database)
    };
    rename().map_err(|source| failed("write", &database, source))
}

/// Makes an empty file for its owner only; there must be none.
fn create_file(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(StoreError::Exists(path.to_owned()))
        }
        Err(source) => Err(failed("make", path, source)),
    }
}

/// Removes a database with what belongs to it, the database last.
fn remove_database(path: &Path) -> Result<(), StoreError> {
    for path in
        [beside(path, "-journal"), beside(path, "-wal"), beside(path, "-shm"), path.to_owned()]
    {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Checks the format before anything is written, and migrates an older one.
async fn prepare(place: &Place, options: &Options, steps: &[&str]) -> Result<(), StoreError> {
    let mut connection = connect_read_only(&place.database(), options).await?;
    let format = schema::format(&mut connection, place, steps).await?;
    close(connection, place).await?;
    if format < schema::latest(steps) {
        let mut connection = connect(&place.database(), options).await?;
        schema::migrate(&mut connection, place, format, steps).await?;
        close(connection, place).await?;
    }
    Ok(())
}

async fn check_format(place: &Place, options: &Options) -> Result<(), StoreError> {
    let mut connection = connect_read_only(&place.database(), options).await?;
    let found = schema::format(&mut connection, place, schema::STEPS).await?;
    close(connection, place).await?;
    if found < schema::latest(schema::STEPS) {
        return Err(StoreError::Older { path: place.database(), found });
    }
    Ok(())
}

async fn close(connection: SqliteConnection, place: &Place) -> Result<(), StoreError> {
    connection.close().await.map_err(|error| place.failed(error))
}
