//! The mark: a second, small file that tells how far the database was when something was last acted on.
//!
//! It has two slots that are written in turn, so that a torn write costs the slot that was being written and the other
//! one stands. A slot is a line of text, with a checksum, on a page of its own. [`MarkFile::write`] returns when the
//! line is on disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use myelin_shape::ClusterUid;

use crate::{Behind, StoreError, checksum::Sum};

/// A slot has a page to itself: no write of one can tear the other.
pub(crate) const SLOT: usize = 4096;

const FORMAT: &str = "myelin-mark 1";

/// How far a database was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    pub(crate) next_attempt_id: u64,
    pub(crate) generation: u64,
    pub(crate) cluster: ClusterUid,
}

impl Mark {
    /// Returns by how much `self`, which a database says of itself, is behind a mark.
    pub(crate) fn behind(&self, mark: &Self) -> Option<Behind> {
        let is_behind = self.sequence < mark.sequence
            || self.next_attempt_id < mark.next_attempt_id
            || self.generation < mark.generation;
        is_behind.then_some(Behind {
            sequence: self.sequence,
            marked_sequence: mark.sequence,
            next_attempt_id: self.next_attempt_id,
            marked_next_attempt_id: mark.next_attempt_id,
            generation: self.generation,
            marked_generation: mark.generation,
        })
    }

    fn line(&self) -> String {
        let Self { sequence, next_attempt_id, generation, cluster } = self;
        let text = format!(
            "{FORMAT} sequence={sequence} next_attempt={next_attempt_id} generation={generation} cluster={cluster}"
        );
        let sum = Sum::of(&[&text]);
        format!("{text} checksum={sum}")
    }

    pub(crate) fn slot(&self) -> Vec<u8> {
        let mut slot = self.line().into_bytes();
        slot.resize(SLOT - 1, b' ');
        slot.push(b'\n');
        slot
    }

    /// Reads a slot, which must be exactly what would be written.
    pub(crate) fn parse(slot: &[u8]) -> Option<Self> {
        let text = str::from_utf8(slot).ok()?;
        let field = |name: &str| {
            text.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let mark = Self {
            sequence: field("sequence")?.parse().ok()?,
            next_attempt_id: field("next_attempt")?.parse().ok()?,
            generation: field("generation")?.parse().ok()?,
            cluster: field("cluster")?.parse().ok()?,
        };
        (mark.slot() == slot).then_some(mark)
    }
}

/// The mark's file.
#[derive(Clone, Debug)]
pub(crate) struct MarkFile {
    file: Arc<File>,
    next_slot: u64,
}

impl MarkFile {
    /// Returns the latest mark; `None` if there is no file, or no slot of it can be read.
    pub(crate) fn read(path: &Path) -> Result<Option<Mark>, StoreError> {
        Ok(read_slots(path)?.into_iter().flatten().max_by_key(|mark| mark.sequence))
    }

    /// Opens the file to write it.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let slots = read_slots(path)?;
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(|source| failed("open", path, source))?;
        let sequence = |slot: Option<Mark>| slot.map(|mark| mark.sequence);
        let next_slot = u64::from(sequence(slots[0]) > sequence(slots[1]));
        Ok(Self { file: Arc::new(file), next_slot })
    }

    /// Makes the file anew, with one mark. A crash leaves the file before or this one.
    pub(crate) fn create(path: &Path, mark: &Mark) -> Result<(), StoreError> {
        let beside = path.with_extension("mark.new");
        let mut bytes = mark.slot();
        bytes.extend([b' '; SLOT - 1]);
        bytes.push(b'\n');
        let write = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            sync_directory(path)
        };
        write().map_err(|source| failed("write", path, source))
    }

    /// Writes a mark over the older of the two; returns when it is on disk.
    pub(crate) fn write(&mut self, mark: &Mark, path: &Path) -> Result<(), StoreError> {
        let failed = |source| failed("write", path, source);
        // What nobody will find is no mark.
        if fs::metadata(path).ok().map(|found| found.ino())
            != Some(self.file.metadata().map_err(failed)?.ino())
        {
            return Err(StoreError::MarkLost(path.to_owned()));
        }
        self.file.write_all_at(&mark.slot(), self.next_slot * SLOT as u64).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }
}

fn read_slots(path: &Path) -> Result<[Option<Mark>; 2], StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok([None, None]),
        Err(error) => return Err(failed("read", path, error)),
    };
    let mut bytes = Vec::new();
    let limit = 2 * SLOT as u64;
    file.take(limit).read_to_end(&mut bytes).map_err(|source| failed("read", path, source))?;
    let slot = |n: usize| bytes.get(n * SLOT..(n + 1) * SLOT).and_then(Mark::parse);
    Ok([slot(0), slot(1)])
}

/// Makes a rename or removal of a file durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the kinds of failure are not closed")]
pub(crate) fn failed(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(path),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if what != "read" => {
            StoreError::ReadOnly(path)
        }
        _ => StoreError::Io { what, path, source },
    }
}
