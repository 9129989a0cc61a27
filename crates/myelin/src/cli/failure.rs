//! What a command that failed says.

use std::{fmt, io};

use myelin_membership::ListenerError;
use myelin_store::StoreError;

use crate::{control, file::FileErrors, host, printable::printable, runtime, state_dir};

/// A failed command: what went wrong, what to do about it, and the exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    /// Whether the message is complete, its hint included.
    whole: bool,
}

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into(), hint: None, whole: false }
    }

    /// Returns the exit status.
    pub(super) fn status(&self) -> u8 {
        self.code
    }

    pub(super) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.whole {
            return f.write_str(&self.message);
        }
        let message: Vec<_> = self.message.trim_end().lines().map(printable).collect();
        writeln!(f, "error: {}", message.join("\n"))?;
        match &self.hint {
            Some(hint) => writeln!(f, "hint: {hint}"),
            None => writeln!(f, "hint: `myelin --help` lists the commands; -v logs more"),
        }
    }
}

impl From<FileErrors> for Failure {
    fn from(errors: FileErrors) -> Self {
        Self { whole: true, ..Self::new(errors.to_string()) }
    }
}

impl From<state_dir::Error> for Failure {
    fn from(error: state_dir::Error) -> Self {
        let hint = match &error {
            state_dir::Error::NoHome => "say where with --state-dir",
            state_dir::Error::Held { .. } => {
                "`myelin apply FILE` changes what it wants, `myelin down` ends it; another `run:` number in the file makes another cluster"
            }
            state_dir::Error::Io { source, .. } => io_hint(source),
            state_dir::Error::InUse(_) => "choose a new one, or an empty one, with --state-dir",
            state_dir::Error::Foreign(_) => "choose a directory of your own with --state-dir",
            state_dir::Error::Damaged { .. } => {
                "if no `myelin` runs there, move the file away; machines may be left behind"
            }
            state_dir::Error::Random(_) => "try again",
        };
        Self::new(error.to_string()).hint(hint)
    }
}

impl From<host::Error> for Failure {
    fn from(error: host::Error) -> Self {
        let hint = match error {
            host::Error::State(error) => return error.into(),
            host::Error::Listener(ListenerError::NotLoopback(_)) => {
                "--listen 127.0.0.1:0 takes any free port"
            }
            host::Error::Listener(ListenerError::Bind { .. }) => {
                "agents dial the address of the run: end what holds it; before there are nodes, --listen 127.0.0.1:0 takes any free port"
            }
            host::Error::Store(ref error) => store_hint(error),
            host::Error::OtherRun { .. } => {
                "--state-dir chooses another directory; without it every run has its own"
            }
            host::Error::Lost { .. } => {
                "nothing was done to them; put state.db and state.mark back, or a backup with `myelin restore FILE`; without one, `myelin down --without-state` removes them"
            }
            host::Error::Behind { .. } => {
                "nothing is done: put the latest state back, or say `myelin restore --accept` to go on with this one"
            }
            host::Error::OtherAddress { .. } => "leave --listen away, or take the nodes down first",
            host::Error::Listing { .. } => {
                "nothing is done before it is known what there is; try again when the provider answers"
            }
            host::Error::OtherIdentity { .. } => {
                "nothing is done: there every machine would look absent. Put the right one back, or say `myelin census --accept-identity PROVIDER` if it is right"
            }
            host::Error::Desired(_) => "use the `myelin` that wrote it",
            host::Error::Provider(_) => {
                "nothing is done before it is known what there is; mend that and try again"
            }
            host::Error::Socket { ref source, .. } => io_hint(source),
            host::Error::Program(_) => "run `myelin` from a path that still exists",
            host::Error::Random(_) => "try again",
        };
        Self::new(error.to_string()).hint(hint)
    }
}

/// Another directory would be another run, so it is never the answer to a disk that is full.
fn io_hint(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    let kind = error.kind();
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        "nothing was done to any machine; make room and try again"
    } else if matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
        "nothing was done to any machine; be the user whose run it is, and see that its directory can be written"
    } else {
        "nothing was done to any machine; mend that and try again; a new run may have another directory with --state-dir"
    }
}

fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::NotFound(_) => "start a run with `myelin up FILE`",
        StoreError::Exists(_) => "name another file",
        StoreError::Damaged { .. } => {
            "nothing was done to any machine; `myelin restore FILE` puts a backup in place; without one, `myelin down --without-state` removes what `myelin census` lists"
        }
        StoreError::Behind { .. } | StoreError::MarkLost(_) => {
            "nothing was done to any machine; `myelin restore --accept` shows what would be taken as true, and asks"
        }
        StoreError::OtherCluster { .. } => {
            "a backup goes into the directory of its own run; --state-dir chooses another one"
        }
        StoreError::Newer { .. } | StoreError::Older { .. } => {
            "nothing was done to any machine; use the `myelin` that fits"
        }
        StoreError::OtherWriter { .. } | StoreError::Locked(_) => {
            "nothing was done to any machine; end the other program"
        }
        StoreError::Full(_)
        | StoreError::ReadOnly(_)
        | StoreError::Io { .. }
        | StoreError::Database { .. }
        | StoreError::TimedOut { .. }
        | StoreError::Unstorable { .. } => {
            "nothing was done to any machine; mend that and try again"
        }
    }
}

impl From<runtime::Error> for Failure {
    fn from(error: runtime::Error) -> Self {
        control::Failure::from(error).into()
    }
}

impl From<control::Failure> for Failure {
    fn from(failure: control::Failure) -> Self {
        let error = Self::new(failure.message);
        match failure.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl From<control::Error> for Failure {
    fn from(error: control::Error) -> Self {
        let hint = match error {
            control::Error::Failure(failure) => return failure.into(),
            control::Error::NotRunning(_) => "start one with `myelin up`",
            control::Error::Ended => "`myelin status` says whether it still runs",
            control::Error::Late => {
                "the process of `myelin up` is there: is it stopped, or very busy? `kill -CONT` or `kill` it by its pid in run.json"
            }
            control::Error::Malformed(_) => "use the `myelin` that runs the loop",
        };
        Self::new(error.to_string()).hint(hint)
    }
}
