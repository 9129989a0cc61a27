//! What an agent needs, and the key it keeps.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use myelin_api::{AgentKey, JoinFile, JoinToken};
use myelin_shape::AttemptKey;

use crate::Error;

/// A join file is below 1 KiB; more is something else.
const MAX_JOIN_FILE: u64 = 64 * 1024;

/// Deadlines and pauses.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long a connection attempt, a write, or the answer to a message may take.
    pub deadline: Duration,
    /// The first pause after a lost connection.
    pub first_pause: Duration,
    /// The longest one before the first join, far below the 45 seconds of silence that end a node by default. From the
    /// join on no pause is longer than the heartbeat interval either, so that `lost_after` may be set low.
    pub longest_pause: Duration,
    /// How often it is looked whether the lease directory is still there.
    pub look_every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(5),
            look_every: Duration::from_secs(1),
        }
    }
}

/// What an agent needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` to dial.
    pub address: String,
    /// The attempt to join as.
    pub key: AttemptKey,
    /// The proof.
    pub token: JoinToken,
    /// Where the agent keeps its key.
    pub state_dir: PathBuf,
    /// The agent ends when this directory is gone.
    pub lease_dir: PathBuf,
    /// Deadlines and pauses.
    pub pace: Pace,
}

impl Options {
    /// Reads a join file. The directory it is in is the lease.
    ///
    /// # Errors
    ///
    /// The file cannot be read, can be read by others, or holds something else.
    pub fn from_join_file(path: &Path) -> Result<Self, Error> {
        let JoinFile { address, key, token, state_dir } = parse(path)?;
        let lease_dir = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Self {
            address,
            key: key.try_into()?,
            token,
            state_dir,
            lease_dir: lease_dir.to_path_buf(),
            pace: Pace::default(),
        })
    }
}

fn parse(path: &Path) -> Result<JoinFile, Error> {
    let failed = |source| Error::ReadJoinFile { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.to_path_buf();
        return Err(Error::OpenJoinFile { path, mode });
    }
    let mut bytes = Vec::new();
    file.take(MAX_JOIN_FILE).read_to_end(&mut bytes).map_err(failed)?;
    serde_json::from_slice(&bytes)
        .map_err(|source| Error::ParseJoinFile { path: path.to_path_buf(), source })
}

/// Returns the agent's key: the one in the directory, or a new one that is stored there first.
pub(crate) fn agent_key(state_dir: &Path) -> Result<AgentKey, Error> {
    let path = state_dir.join("agent-key");
    let failed = |source| Error::AgentKey { path: path.clone(), source };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = mint()?;
            store(state_dir, &path, &key).map_err(failed)?;
            return Ok(key);
        }
        Err(error) => return Err(failed(error)),
    };
    text.trim_end().parse().map_err(|source| Error::ParseAgentKey { path, source })
}

fn mint() -> Result<AgentKey, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(AgentKey::new(bytes))
}

/// Writes the key beside its place and moves it there, so that a crash leaves a whole key or none.
fn store(state_dir: &Path, path: &Path, key: &AgentKey) -> io::Result<()> {
    let mut directory = fs::DirBuilder::new();
    directory.recursive(true).mode(0o700).create(state_dir)?;
    let beside = path.with_extension(std::process::id().to_string());
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    writeln!(file, "{}", key.expose())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
