//! Copies of a store, and accepting that it is old.

use std::{fs, path::Path};

use sqlx::query;

use crate::{
    Options, SqliteStore, StoreError,
    mark::{MarkFile, failed, sync_directory},
    sqlite::{
        close,
        connection::{Place, connect, connect_read_only, run},
        create_file,
        head::Head,
        load::{self, Access, Check, mark_of},
        restore::{self, Restore},
        schema, within,
    },
};

/// Attempts that were made after a backup, and generations that were acted on, are below this many: most left no label,
/// and the label of one that did must not say that an accepted store is behind.
const AHEAD: u64 = 1_000_000;

/// What [`SqliteStore::accept_behind`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The number of the next attempt.
    pub next_attempt_id: u64,
    /// A new desired generation must be above this.
    pub acted_generation: u64,
}

impl SqliteStore {
    /// Takes a store as it is although commits that were acted on are missing, or may be: attempt ids and generations
    /// are taken far enough ahead that none is used twice. Only a person may ask for it; nobody else has the store open.
    ///
    /// # Errors
    ///
    /// It is damaged, of another cluster, or cannot be written. It may be asked for again.
    pub async fn accept_behind(dir: &Path, options: &Options) -> Result<Accepted, StoreError> {
        let place = Place::new(dir)?;
        place.check_present()?;
        within(&place, options, accept(&place, options)).await
    }

    /// Copies a backup beside a store and checks it there, before it takes the store's place. Nobody else has the store
    /// open. A log beside the backup counts, so that the files of a store are as good as what [`backup`](crate::Store::backup)
    /// makes.
    ///
    /// # Errors
    ///
    /// The backup cannot be used, or is of another cluster than the mark. Nothing was changed then.
    pub async fn restore(
        dir: &Path,
        backup: &Path,
        options: &Options,
    ) -> Result<Restore, StoreError> {
        let place = Place::new(dir)?;
        within(&place, options, restore::draft(&place, backup, options)).await
    }
}

pub(crate) async fn backup(
    place: &Place,
    options: &Options,
    path: &Path,
) -> Result<(), StoreError> {
    create_file(path)?;
    let copied = copy(place, options, path).await;
    if copied.is_err() {
        // The file is ours, and half a backup is worse than none.
        let _ = fs::remove_file(path);
    }
    copied
}

async fn copy(place: &Place, options: &Options, path: &Path) -> Result<(), StoreError> {
    let name = path.to_str().ok_or_else(|| StoreError::Unstorable {
        path: path.to_owned(),
        what: "a path that is not UTF-8",
        source: "SQLite wants UTF-8".into(),
    })?;
    let mut connection = connect_read_only(&place.database(), options).await?;
    let statement = query("VACUUM INTO ?").bind(name.to_owned());
    let copied = statement.execute(&mut connection).await;
    copied.map_err(|error| super::connection::failed(path, error))?;
    close(connection, place).await?;
    let sync = || fs::File::open(path)?.sync_all().and_then(|()| sync_directory(path));
    sync().map_err(|source| failed("write", path, source))
}

async fn accept(place: &Place, options: &Options) -> Result<Accepted, StoreError> {
    super::prepare(place, options, schema::STEPS).await?;
    let mut connection = connect(&place.database(), options).await?;
    run(&mut connection, place, "PRAGMA synchronous = FULL").await?;
    let contents = load::read(&mut connection, place, Access::Write, Check::Pages).await?;
    let found = contents.mark();
    let mark = MarkFile::read(&place.mark())?.unwrap_or(found);
    check_cluster(place, found.cluster, mark.cluster)?;
    let head = Head {
        sequence: found.sequence.max(mark.sequence) + 1,
        acted_generation: found.generation.max(mark.generation).saturating_add(AHEAD),
        next_attempt_id: found.next_attempt_id.max(mark.next_attempt_id).saturating_add(AHEAD),
        ..contents.head
    };
    run(&mut connection, place, "BEGIN IMMEDIATE").await?;
    let updated = head.update(&mut connection, place, contents.held.digest, found.sequence).await?;
    if !updated {
        return Err(StoreError::Locked(place.database()));
    }
    run(&mut connection, place, "COMMIT").await?;
    close(connection, place).await?;
    MarkFile::create(&place.mark(), &mark_of(&head, &contents.identity))?;
    Ok(Accepted { next_attempt_id: head.next_attempt_id, acted_generation: head.acted_generation })
}

pub(crate) fn check_cluster(
    place: &Place,
    expected: myelin_shape::ClusterUid,
    found: myelin_shape::ClusterUid,
) -> Result<(), StoreError> {
    if expected == found {
        return Ok(());
    }
    Err(StoreError::OtherCluster { path: place.mark(), expected, found })
}
