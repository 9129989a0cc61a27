//! The cluster file: YAML, JSON or TOML in one schema, and errors that point at their place (`spec 6.1`).
//!
//! A file is read in three steps: its format's parser makes a tree of values with their places (`yaml`, `toml`,
//! `node`), a visitor takes the known keys from the tree (`section`, `keys`, `field`), and the rules of a shape are
//! checked on the result (`rules`). All problems are collected and shown together. The lists of keys also make
//! the [`schema`] and write a file with its defaults, so a key is described once.
//!
//! Bounded whatever it is given: [`MAX_BYTES`] are read, lists and maps nest 32 deep, aliases count at every use.
//! `${NAME}` is not expanded.
//!
//! Reading order: [`load`], [`ClusterFile`], [`FileErrors`], [`changes()`], [`schema()`].
//!
//! ```
//! use myelin::file::{Format, parse};
//!
//! let file = parse(b"run: 1\ngroups: [{id: worker, count: 3}]", Format::Yaml, "cluster.yaml")?;
//! assert_eq!(file.shape(1).expand().unwrap().len(), 3);
//!
//! let errors = parse(b"run: 1\ngroups: [{id: worker, cuont: 3}]", Format::Yaml, "cluster.yaml").unwrap_err();
//! assert!(errors.to_string().contains(r#"cluster.yaml:2:23: unknown key "cuont" in a group"#));
//! assert!(errors.to_string().ends_with("hint: did you mean \"count\"?\n"));
//! # Ok::<(), myelin::file::FileErrors>(())
//! ```

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use myelin_shape::{ClusterShape, RunId, RunNodeGroupSpec, RunPolicy};
use myelin_state::RetryPolicy;
use rustix::fs::OFlags;

mod changes;
mod field;
mod keys;
mod node;
mod report;
mod rules;
mod schema;
mod section;
mod suggest;
mod toml;
mod yaml;

use self::report::{Problem, Problems};
pub use self::{
    changes::{FieldChange, changes},
    report::{FileError, FileErrors},
    schema::schema,
};

/// The largest file that is read: a thousand times what a cluster of many groups needs.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Everything a cluster file says, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterFile {
    /// The run.
    pub run: RunId,
    /// The groups, in the order they were declared.
    pub groups: Vec<RunNodeGroupSpec>,
    /// Policy over all groups.
    pub policy: RunPolicy,
    /// How failures are retried and how long things may take.
    pub retry: RetryPolicy,
    /// How agents report.
    pub agent: AgentSettings,
    /// The most nodes all groups may want together.
    pub max_nodes: u64,
}

/// How agents report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// How often an agent reports.
    pub heartbeat: Duration,
    /// How long an agent may report nothing before it counts as silent.
    pub silent_after: Duration,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(2), silent_after: Duration::from_secs(6) }
    }
}

impl ClusterFile {
    /// Returns the desired shape the file declares, as revision `generation`.
    pub fn shape(&self, generation: u64) -> ClusterShape {
        ClusterShape {
            run_id: self.run,
            generation,
            groups: self.groups.clone(),
            policy: self.policy.clone(),
        }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2, one document.
    Yaml,
    /// JSON.
    Json,
    /// TOML 1.0.
    Toml,
}

impl Format {
    /// Returns the format the extension of a file name stands for.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}

/// Reads a cluster file. At most [`MAX_BYTES`] and one byte are read, and only of a regular file.
///
/// # Errors
///
/// Everything that is wrong with the file, with its places.
pub fn load(path: impl AsRef<Path>) -> Result<ClusterFile, FileErrors> {
    let path = path.as_ref();
    let (bytes, format) = read_bounded(path)?;
    parse(&bytes, format, &path.display().to_string())
}

/// Reads what a cluster file holds, and how it is written.
pub(crate) fn read_bounded(path: &Path) -> Result<(Vec<u8>, Format), FileErrors> {
    let origin = path.display().to_string();
    let Some(format) = Format::of(path) else {
        let hint = "name it *.yaml, *.yml, *.json or *.toml";
        return Err(FileErrors::whole(&origin, "the extension names no known format", hint));
    };
    let bytes = read(path).map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::NotFound {
            "give the path of a cluster file"
        } else {
            "a cluster file is a regular file of at most 4 MiB"
        };
        FileErrors::whole(&origin, format!("cannot be read: {error}"), hint)
    })?;
    Ok((bytes, format))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe nobody writes to would wait for ever.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(io::Error::other(format!("it has {} bytes", metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a cluster file from memory. `origin` names it in errors.
///
/// # Errors
///
/// Everything that is wrong with the file, with its places.
pub fn parse(bytes: &[u8], format: Format, origin: &str) -> Result<ClusterFile, FileErrors> {
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("has {} bytes, at most {MAX_BYTES} are read", bytes.len());
        return Err(FileErrors::whole(origin, message, "a cluster file is written by people"));
    }
    let (text, invalid) = valid_utf8(bytes);
    let mut problems = Problems::new(text);
    if let Some(problem) = invalid.or_else(|| control_character(text)) {
        problems.push(problem.hint("a cluster file is plain text in UTF-8"));
        return Err(problems.into_errors(origin));
    }
    let root = match format {
        Format::Yaml => yaml::parse_yaml(&mut problems),
        Format::Json => yaml::parse_json(&mut problems),
        Format::Toml => toml::parse_toml(&mut problems),
    };
    let file = root.map(|root| read_tree(&root, &mut problems));
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(problems.into_errors(origin)),
    }
}

fn read_tree(root: &node::Node, problems: &mut Problems<'_>) -> ClusterFile {
    let mut file: ClusterFile = section::read(root, problems);
    for group in &mut file.groups {
        group.run_id = file.run;
    }
    rules::check(&file, root, problems);
    file
}

/// Returns the text up to the first byte that is no UTF-8, and what is wrong with that.
fn valid_utf8(bytes: &[u8]) -> (&str, Option<Problem>) {
    match str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            let text = str::from_utf8(valid).expect("the error says that this much is valid");
            let message = format!("the byte 0x{:02x} is not UTF-8", rest[0]);
            (text, Some(Problem::new(valid.len()..valid.len(), message)))
        }
    }
}

fn control_character(text: &str) -> Option<Problem> {
    let text_like = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    let (at, found) = text.char_indices().find(|(_, c)| !text_like(*c))?;
    let message =
        format!("the control character U+{:04X} must be written as an escape", u32::from(found));
    Some(Problem::new(at..at, message))
}

/// Returns the file as YAML with every default filled in. It reads back as an equal [`ClusterFile`].
///
/// Keys without a value (such as `gpu_name` when any will do) are left out.
#[expect(clippy::missing_panics_doc, reason = "no cluster file makes it panic")]
pub fn defaults_shown(file: &ClusterFile) -> String {
    serde_saphyr::to_string(&section::write(file)).expect("a written section has text keys only")
}

#[cfg(test)]
mod tests;
