//! Putting a backup in the place of a store, which is kept.
//!
//! However it is interrupted, what was there is whole, in its place or in a directory of its own. [`Restore`] is the
//! backup, checked and not yet in place.

use std::{
    fmt, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use crate::{
    Loaded, Options, StoreError,
    mark::{MarkFile, failed, sync_directory},
    sqlite::{
        backup::check_cluster,
        close,
        connection::{Place, beside, connect_new},
        create_file,
        load::{self, Access, Check},
        put_in_place, remove_database, schema,
    },
};

/// A backup that was checked and is about to take the place of a store. Dropped, it changes nothing.
pub struct Restore {
    place: Place,
    options: Options,
    loaded: Loaded,
}

impl fmt::Debug for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Restore {
    /// Returns what the backup holds.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Puts it in place. The mark stays, so that the next load says what is missing. Returns the directory in which what
    /// was there is kept; none if nothing was. `note` is called once it is kept, before anything of it is touched.
    ///
    /// # Errors
    ///
    /// A file cannot be written. What was there is in its place or kept, and the same can be tried again.
    pub fn put_in_place<E: From<StoreError>>(
        self,
        note: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<PathBuf>, E> {
        let (place, mut n_writes) = (&self.place, 0);
        let mut written = || {
            n_writes += 1;
            if let Some(hook) = &self.options.after_commit {
                hook(n_writes);
            }
        };
        let kept = keep(place)?;
        written();
        note()?;
        remove_log(place)?;
        written();
        put_in_place(place)?;
        written();
        Ok(kept)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // It is a copy. In place, it has another name.
        let _ = remove_database(&self.place.draft());
    }
}

/// Makes the copy and checks it.
pub(crate) async fn draft(
    place: &Place,
    backup: &Path,
    options: &Options,
) -> Result<Restore, StoreError> {
    remove_database(&place.draft())?;
    let checked = copy_and_check(place, backup, options).await;
    if checked.is_err() {
        let _ = remove_database(&place.draft());
    }
    Ok(Restore { place: place.clone(), options: options.clone(), loaded: checked? })
}

async fn copy_and_check(
    place: &Place,
    backup: &Path,
    options: &Options,
) -> Result<Loaded, StoreError> {
    let draft = place.draft();
    copy(backup, &draft)?;
    let log = beside(backup, "-wal");
    if log.exists() {
        copy(&log, &beside(&draft, "-wal"))?;
    }
    // What is wrong with the copy is wrong with the backup.
    let of_backup = place.of_file(backup);
    let mut connection = match connect_new(&draft, options).await {
        Err(StoreError::Damaged { what, .. }) => return Err(of_backup.damaged(what)),
        opened => opened?,
    };
    let format = schema::format(&mut connection, &of_backup, schema::STEPS).await?;
    schema::migrate(&mut connection, &of_backup, format, schema::STEPS).await?;
    let contents = load::read(&mut connection, &of_backup, Access::Read, Check::Pages).await?;
    close(connection, &of_backup).await?;
    if let Some(mark) = MarkFile::read(&place.mark())? {
        check_cluster(place, contents.identity.cluster, mark.cluster)?;
    }
    Ok(contents.into_loaded())
}

/// Copies a file to one that only its owner may read. A pipe or a device has no end that can be waited for.
fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    let unread = |source| failed("read", from, source);
    if !fs::metadata(from).map_err(unread)?.is_file() {
        return Err(unread(io::Error::other("it is no file")));
    }
    create_file(to)?;
    let mut source = fs::File::open(from).map_err(unread)?;
    let mut target = fs::File::options().write(true).open(to).map_err(unwritten(to))?;
    io::copy(&mut source, &mut target).map_err(|error| {
        let is_full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if is_full { failed("write", to, error) } else { failed("copy", from, error) }
    })?;
    target.sync_all().map_err(unwritten(to))
}

fn unwritten(path: &Path) -> impl Fn(io::Error) -> StoreError + use<'_> {
    move |source| failed("write", path, source)
}

/// Removes the log, first of all: beside another database it would be damage, and without it what was there is behind.
fn remove_log(place: &Place) -> Result<(), StoreError> {
    let database = place.database();
    remove(&beside(&database, "-wal"))?;
    remove(&beside(&database, "-shm"))?;
    sync_directory(&database).map_err(unwritten(&database))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Copies what is there to a new directory, byte by byte: it may be damaged. Without a mark beside it, nothing acts on
/// the copy.
fn keep(place: &Place) -> Result<Option<PathBuf>, StoreError> {
    let database = place.database();
    let files = [database.clone(), beside(&database, "-wal")];
    let files: Vec<_> = files.into_iter().filter(|path| path.exists()).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let (half, kept) = (place.half_kept(), place.free_kept());
    match fs::remove_dir_all(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove", &half, error));
        }
        Ok(()) | Err(_) => {}
    }
    fs::DirBuilder::new().mode(0o700).create(&half).map_err(unwritten(&half))?;
    for path in files {
        copy(&path, &half.join(path.file_name().expect("it is a file of ours")))?;
    }
    let rename = || {
        fs::File::open(&half)?.sync_all()?;
        fs::rename(&half, &kept)?;
        sync_directory(&kept)
    };
    rename().map_err(unwritten(&kept))?;
    Ok(Some(kept))
}
