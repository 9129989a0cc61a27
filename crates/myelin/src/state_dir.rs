//! The directory a run keeps its state in, and who holds it.
//!
//! It holds a lock, so that one loop drives a run; what is durable of it (`state.db` and `state.mark`, see
//! [`myelin_store`]); `run.json`, where the control socket of a running loop is; and `restored`, while that came from a
//! backup. The process provider's leases are
//! below it too. It is readable by its owner only: the secret that join tokens derive from is in it.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use myelin_shape::{ClusterUid, RunId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The longest path of a Unix socket, its end included, on every Linux.
const MAX_SOCKET_PATH: usize = 107;

/// Our own files are far smaller; more is something else.
const MAX_FILE: u64 = 1024 * 1024;

/// There while what is durable came from a backup.
const RESTORED: &str = "restored";

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither `XDG_STATE_HOME` nor `HOME` says where state is kept.
    #[error("neither XDG_STATE_HOME nor HOME is set")]
    NoHome,
    /// A file of it cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process drives the run.
    #[error("the run is driven by another process{}", of_pid(*pid))]
    Held {
        /// Which, if it says so.
        pid: Option<u32>,
    },
    /// The directory belongs to somebody else.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// The directory is open to others and holds what is not ours.
    #[error("{} is no state directory: it is open to other users, and in use for something else", .0.display())]
    InUse(PathBuf),
    /// A file of it holds something else.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

fn of_pid(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// What a running loop tells other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The run.
    pub run: RunId,
    /// The cluster's uid.
    pub cluster: ClusterUid,
    /// The loop's process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot, which tells it from a later one with its pid.
    pub start_time: u64,
    /// Where it can be asked.
    pub socket: PathBuf,
    /// Where agents dial.
    pub listen: SocketAddr,
}

/// The state directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

/// Held by the one process that drives the run. Ends with it, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Returns where the state of all runs is kept by default.
///
/// # Errors
///
/// The environment does not say.
pub fn home() -> Result<PathBuf, Error> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("myelin"));
    }
    let home = absolute("HOME").ok_or(Error::NoHome)?;
    Ok(home.join(".local/state/myelin"))
}

impl RunFile {
    /// Returns whether the process that wrote it still runs, and is not a later one with its pid.
    pub fn is_alive(&self) -> bool {
        let now = start_time_of(&self.pid.to_string());
        now != 0 && now == self.start_time
    }
}

impl StateDir {
    /// Returns the directory at a path, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the default directory of a run.
    ///
    /// # Errors
    ///
    /// The environment does not say where state is kept.
    pub fn of_run(run: RunId) -> Result<Self, Error> {
        Ok(Self::at(home()?.join(run.to_string())))
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the process provider keeps its leases.
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// Makes the directory, for its owner only.
    ///
    /// # Errors
    ///
    /// It cannot be made, belongs to somebody else, or is in use for something else.
    pub fn create(&mut self) -> Result<(), Error> {
        let failed = |source| self.failed("make", "", source);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
        let path = self.path.canonicalize().map_err(failed)?;
        let metadata = fs::metadata(&path).map_err(failed)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(Error::Foreign(path));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            // Somebody's home, or /tmp: to close it would be the smallest damage.
            let is_empty = fs::read_dir(&path).map_err(failed)?.next().is_none();
            if !is_empty && !self.is_begun()? {
                return Err(Error::InUse(path));
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        }
        self.path = path;
        Ok(())
    }

    /// Returns whether a run was ever begun here.
    ///
    /// # Errors
    ///
    /// Nobody may look: that is no sign that there is nothing.
    pub fn is_begun(&self) -> Result<bool, Error> {
        for name in ["state.db", "state.mark"] {
            let exists = self.path.join(name).try_exists();
            if exists.map_err(|source| self.failed("look for", name, source))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the state came from a backup and nobody has confirmed since that what it says is all there is.
    pub fn is_restored(&self) -> bool {
        // What cannot be looked for counts as there.
        self.path.join(RESTORED).try_exists().unwrap_or(true)
    }

    /// Notes that the state comes from a backup.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn mark_restored(&self) -> Result<(), Error> {
        self.write(RESTORED, b"A backup was put back here. Machines that are nobody's are given back by `myelin census --collect --yes` only.\n")
    }

    /// Takes the note back: a person has seen what there is.
    ///
    /// # Errors
    ///
    /// It cannot be removed.
    pub fn confirm_restored(&self) -> Result<(), Error> {
        match fs::remove_file(self.path.join(RESTORED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", RESTORED, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Takes the run for this process.
    ///
    /// # Errors
    ///
    /// Another process has it.
    pub fn lock(&self) -> Result<Lock, Error> {
        let failed = |source| self.failed("lock", "lock", source);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.path.join("lock")).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Who holds it is only for people; the lock itself is what counts.
                let _ = (&mut file).take(32).read_to_string(&mut text);
                let pid = text.trim().parse().ok();
                return Err(Error::Held { pid });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The number is for people: a full disk must not keep a run from being taken up or taken down.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { _file: file })
    }

    /// Returns what the last loop said of itself.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn run_file(&self) -> Result<Option<RunFile>, Error> {
        let Some(text) = self.read("run.json")? else {
            return Ok(None);
        };
        let damaged = |error: serde_json::Error| self.damaged("run.json", &error);
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    /// Tells other processes where the loop is.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write_run_file(&self, run: &RunFile) -> Result<(), Error> {
        let bytes = serde_json::to_vec(run).map_err(|error| self.damaged("run.json", &error))?;
        self.write("run.json", &bytes)
    }

    /// Removes what the loop told other processes.
    pub fn remove_run_file(&self) {
        // Nobody is there to answer any more; a file that stays says so at the first try.
        let _ = fs::remove_file(self.path.join("run.json"));
    }

    fn read(&self, name: &str) -> Result<Option<String>, Error> {
        let failed = |source| self.failed("read", name, source);
        let file = match File::open(self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            // Half of it would be taken for all of it.
            let why = format!("it is larger than {MAX_FILE} bytes");
            return Err(Error::Damaged { path: self.path.join(name), why });
        }
        Ok(Some(text))
    }

    /// Writes a file so that a crash leaves the one before or this one.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let failed = |source| self.failed("write", name, source);
        let (path, beside) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&beside, &path).map_err(failed)?;
        let directory = File::open(&self.path);
        directory.and_then(|directory| directory.sync_all()).map_err(failed)
    }

    fn failed(&self, what: &'static str, name: &str, source: io::Error) -> Error {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        Error::Io { what, path, source }
    }

    fn damaged(&self, name: &str, error: &serde_json::Error) -> Error {
        Error::Damaged { path: self.path.join(name), why: error.to_string() }
    }
}

/// A place for a control socket. Removed when it is dropped.
#[derive(Debug)]
pub struct SocketPlace {
    path: PathBuf,
    /// A directory of its own, where the state directory's path is too long for a socket.
    directory: Option<PathBuf>,
}

impl SocketPlace {
    /// Finds a place: in the state directory, or, where its path is too long, in a new directory below the temporary
    /// one. What an earlier loop left there is removed; the caller holds the [`Lock`].
    ///
    /// # Errors
    ///
    /// There is no such place.
    pub fn find(state: &StateDir) -> Result<Self, Error> {
        let path = state.path.join("control.sock");
        if path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH {
            let failed = |source| state.failed("remove", "control.sock", source);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                Ok(()) | Err(_) => {}
            }
            let directory = None;
            return Ok(Self { path, directory });
        }
        let directory = temporary_directory()?;
        Ok(Self { path: directory.join("control.sock"), directory: Some(directory) })
    }

    /// Returns the path to listen at.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        // What stays is a file nobody listens at.
        let _ = fs::remove_file(&self.path);
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Makes a directory with a name nobody can guess, for its owner only.
fn temporary_directory() -> Result<PathBuf, Error> {
    let long = MAX_SOCKET_PATH - 40;
    let base = env::temp_dir();
    let is_short = base.as_os_str().as_bytes().len() <= long;
    let base = if is_short { base } else { PathBuf::from("/tmp") };
    let path = base.join(format!("myelin-{:016x}", random()?));
    let failed = |source| Error::Io { what: "make", path: path.clone(), source };
    // Fails where something of that name is there already.
    DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
    Ok(path)
}

fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(Error::Random)
}

/// Returns when this process started, in clock ticks since boot; 0 where `/proc` does not say.
pub fn start_time() -> u64 {
    start_time_of("self")
}

/// Returns when a process started; 0 where there is none.
fn start_time_of(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold anything; the start time is the 20th field after it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_whitespace().nth(19);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}
