//! Leases as directories. All of this blocks.
//!
//! A lease appears whole, by a rename, and disappears whole, by a rename: names that begin with a dot are on their way.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use myelin_executor::ProviderError;
use myelin_shape::AttemptKey;
use myelin_state::ErrorClass;

use crate::{
    Error,
    blocking::Wanted,
    image::Content,
    proc::{ProcessId, boot_id, host_id},
    tail::flags,
};

/// Our records are far smaller; more is something else.
const MAX_RECORD: u64 = 4 * 1024 * 1024;

/// The longest slot: a group's id and an index. With the rest of a key it stays far below the 255 bytes of a file name.
const MAX_NODE: usize = 63 + 1 + 10;

/// Distinguishes what this process has in the making, whichever provider of it.
static N_MADE: AtomicU64 = AtomicU64::new(0);

/// What a lease says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRecord {
    pub(crate) key: AttemptKey,
    pub(crate) template_digest: String,
    pub(crate) created_at: SystemTime,
    pub(crate) image: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// What is at a lease's place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    Empty,
    Lease(Box<LeaseRecord>),
    /// Something that is not ours.
    Foreign(String),
}

/// The directory of all leases.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) root: PathBuf,
    pub(crate) boot_id: String,
    pub(crate) host_id: String,
}

/// Returns the error of a file operation, classified.
pub(crate) fn failed(what: &str, path: &Path, error: &io::Error) -> ProviderError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let kind = error.kind();
    let class = if matches!(kind, StorageFull | QuotaExceeded) {
        ErrorClass::NoCapacity
    } else if kind == FileTooLarge {
        ErrorClass::Permanent
    } else {
        ErrorClass::Transient
    };
    ProviderError::new(class, format!("{what} {}: {error}", path.display()))
}

/// Returns the name of an attempt's lease: its directory, its handle, and the mark on its processes.
pub(crate) fn lease_name(key: &AttemptKey) -> Result<String, ProviderError> {
    let node = key.node.as_str();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !(1..=MAX_NODE).contains(&node.len()) || !node.chars().all(plain) {
        let message = format!("node {node:?} cannot name a directory");
        return Err(ProviderError::new(ErrorClass::Permanent, message));
    }
    Ok(key.to_string())
}

impl Store {
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        let at = |source| Error::Root { path: root.to_path_buf(), source };
        let mut directory = DirBuilder::new();
        directory.recursive(true).mode(0o700).create(root).map_err(at)?;
        let store = Self {
            root: root.canonicalize().map_err(at)?,
            boot_id: boot_id().map_err(Error::Host)?,
            host_id: host_id().map_err(Error::Host)?,
        };
        store.sweep().map_err(at)?;
        Ok(store)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns a path for a lease in the making, which tells whose it is.
    fn in_the_making(&self, name: &str) -> PathBuf {
        let pid = std::process::id();
        let myself = i32::try_from(pid).ok();
        let start = myself.and_then(|pid| ProcessId::of(&self.boot_id, pid));
        let start = start.map_or(0, |myself| myself.start_time);
        let number = N_MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!(".new-{pid}-{start}-{number}-{name}");
        self.root.join(name)
    }

    /// Returns where a destroyed lease waits for its removal. The same for every try, so that the next try ends what a
    /// dropped one left.
    fn tombstone(&self, name: &str) -> PathBuf {
        self.root.join(format!(".gone-{name}"))
    }

    /// Removes what was half made by processes that are gone, and what was half destroyed.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| self.is_stale(name)) {
                // It is tried again at the next start.
                let _ = remove(&entry.path());
            }
        }
        Ok(())
    }

    fn is_stale(&self, name: &str) -> bool {
        if name.starts_with(".gone-") {
            return true;
        }
        let Some(parts) = name.strip_prefix(".new-") else {
            return false;
        };
        let mut parts = parts.split('-');
        let pid = parts.next().and_then(|pid| pid.parse().ok());
        let start_time = parts.next().and_then(|start| start.parse().ok());
        let (Some(pid), Some(start_time)) = (pid, start_time) else {
            return false;
        };
        let boot_id = self.boot_id.clone();
        let owner = ProcessId { boot_id, pid, start_time };
        owner.find(&self.boot_id).is_none()
    }

    /// Returns what is at a lease's place. A name alone proves nothing: the record must say the same.
    pub(crate) fn look(&self, name: &str) -> Result<Place, ProviderError> {
        let path = self.path(name);
        match fs::symlink_metadata(&path) {
            Err(error) if is_absent(&error) => return Ok(Place::Empty),
            Err(error) => return Err(failed("cannot look at", &path, &error)),
            Ok(_) => {}
        }
        let record = path.join("lease.json");
        match read_record::<LeaseRecord>(&record) {
            Ok(record) if record.key.to_string() == name => Ok(Place::Lease(Box::new(record))),
            Ok(record) => Ok(Place::Foreign(format!("it says it is {}", record.key))),
            // It may have been destroyed between the two looks.
            Err(_) if fs::symlink_metadata(&path).is_err_and(|error| is_absent(&error)) => {
                Ok(Place::Empty)
            }
            Err(error) if is_no_record(&error) => Ok(Place::Foreign(error.to_string())),
            // What cannot be read may well be a lease.
            Err(error) => Err(failed("cannot read", &record, &error)),
        }
    }

    /// Returns every lease, oldest first, and how many entries are none.
    pub(crate) fn all(&self) -> Result<(Vec<LeaseRecord>, u64), ProviderError> {
        let at = |error: io::Error| failed("cannot list", &self.root, &error);
        let (mut leases, mut n_foreign) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.root).map_err(at)? {
            let name = entry.map_err(at)?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            match self.look(&name)? {
                Place::Lease(record) => leases.push(*record),
                Place::Foreign(_) => n_foreign += 1,
                Place::Empty => {}
            }
        }
        leases.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        Ok((leases, n_foreign))
    }

    /// Makes a lease, or returns the one that is there.
    pub(crate) fn create(
        &self,
        wanted: &Wanted,
        record: LeaseRecord,
        content: &Content,
    ) -> Result<LeaseRecord, ProviderError> {
        let name = lease_name(&record.key)?;
        if let Some(existing) = self.existing(&name, &record)? {
            return Ok(existing);
        }
        let new = self.in_the_making(&name);
        let made = make(&new, &record, content, wanted);
        let made = made.and_then(|()| self.publish(&new, &name));
        if made != Ok(true) {
            // What stays is swept at a later start.
            let _ = remove(&new);
        }
        if made? {
            return Ok(record);
        }
        self.existing(&name, &record)?.ok_or_else(|| {
            let message = format!("lease {name} was destroyed while it was created");
            ProviderError::new(ErrorClass::Transient, message)
        })
    }

    fn existing(
        &self,
        name: &str,
        wanted: &LeaseRecord,
    ) -> Result<Option<LeaseRecord>, ProviderError> {
        let permanent = |message| Err(ProviderError::new(ErrorClass::Permanent, message));
        match self.look(name)? {
            Place::Empty => Ok(None),
            Place::Foreign(why) => permanent(format!("{name} is taken by no lease of ours: {why}")),
            Place::Lease(record) if record.template_digest != wanted.template_digest => {
                let other = &record.template_digest;
                permanent(format!("lease {name} was made from another template, {other}"))
            }
            Place::Lease(record) => Ok(Some(*record)),
        }
    }

    /// Puts a whole lease in its place. Returns whether the place was free.
    fn publish(&self, new: &Path, name: &str) -> Result<bool, ProviderError> {
        let path = self.path(name);
        match fs::rename(new, &path) {
            Ok(()) => {
                let unsure = |error: io::Error| ProviderError {
                    class: ErrorClass::Ambiguous,
                    ..failed("cannot sync", &self.root, &error)
                };
                sync(&self.root).map_err(unsure)?;
                Ok(true)
            }
            Err(error) if is_taken(&error) => Ok(false),
            Err(error) => Err(failed("cannot make", &path, &error)),
        }
    }

    /// Takes a lease from its place, where there is one. Its files wait for [`Self::bury`].
    pub(crate) fn retire(&self, name: &str) -> Result<(), ProviderError> {
        let (path, tombstone) = (self.path(name), self.tombstone(name));
        let at = |error: io::Error| failed("cannot retire", &path, &error);
        // A lease of that name may have been destroyed before.
        remove(&tombstone).map_err(at)?;
        match fs::rename(&path, &tombstone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(at),
        }
    }

    /// Removes the files of a retired lease.
    pub(crate) fn bury(&self, name: &str) -> io::Result<()> {
        remove(&self.tombstone(name))
    }
}

fn make(
    new: &Path,
    record: &LeaseRecord,
    content: &Content,
    wanted: &Wanted,
) -> Result<(), ProviderError> {
    let at = |error: io::Error| failed("cannot make", new, &error);
    DirBuilder::new().mode(0o700).create(new).map_err(at)?;
    content.fill(new, wanted)?;
    write_record(&new.join("lease.json"), record).map_err(at)?;
    sync(new).map_err(at)?;
    if wanted.still() { Ok(()) } else { Err(ProviderError::new(ErrorClass::Transient, "given up")) }
}

/// Makes the names in a directory outlive a crash of the host.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Returns whether a failure to read a record means that there is none of ours, rather than that reading failed.
fn is_no_record(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidData | UnexpectedEof)
}

fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

/// Removes a directory, also one whose owner took its permissions away.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            permit(path)?;
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn permit(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            permit(&entry.path())?;
        }
    }
    Ok(())
}

/// Reads a record of ours.
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    serde_json::from_slice(&read_at_most(path, MAX_RECORD)?).map_err(Into::into)
}

/// Reads a file of bounded size, and waits for nothing. What is longer is cut.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags(OFlags::empty())).open(path)?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a record of ours.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(record)?;
    if bytes.len() as u64 > MAX_RECORD {
        // It could not be read again.
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    write_private(path, &bytes)
}

/// Replaces a file, so that a crash leaves the one before or this one. Only its owner can read it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Another process on the same root may be writing the same file.
    let number = N_MADE.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    let written = written.and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // On a full disk even little counts.
        let _ = fs::remove_file(&beside);
    }
    written
}
