//! Results on standard output: as a table, JSON or YAML; colour only where somebody sees it.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    os::fd::AsFd,
};

use serde::Serialize;

use super::{args::Format, failure::Failure, log};

/// Prints to standard output. A reader that has gone, as with `| head`, is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure::new(format!("cannot write the result: {error}")).hint("is the disk full?"))
        }
    }
}

/// Prints a line to standard error, above the live view if there is one. That nobody reads it is no failure.
pub(super) fn note(text: impl Display) {
    log::above_live(|| {
        let _ = writeln!(io::stderr(), "{text}");
    });
}

/// Prints a result in the wanted form.
pub(super) fn result<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    print(&match format {
        Format::Table => table(),
        Format::Json => json(value)?,
        Format::Yaml => yaml(value)?,
    })
}

fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    Ok(text + "\n")
}

fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(value);
    text.map_err(|error| Failure::new(format!("cannot write YAML: {error}")))
}

/// Prints one value of a stream: a line, a line of JSON, or a YAML document.
pub(super) fn item<T: Serialize>(
    format: Format,
    value: &T,
    line: impl FnOnce() -> String,
) -> Result<(), Failure> {
    print(&match format {
        Format::Table => line() + "\n",
        Format::Json => {
            let text = serde_json::to_string(value);
            text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))? + "\n"
        }
        Format::Yaml => format!("---\n{}", yaml(value)?),
    })
}

fn wants_colour() -> bool {
    // https://no-color.org: set and not empty means no.
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    !no_colour && !dumb
}

/// Returns whether standard output shows colours.
pub(super) fn colours() -> bool {
    wants_colour() && io::stdout().is_terminal()
}

/// Returns whether standard error shows colours.
pub(super) fn colours_stderr() -> bool {
    wants_colour() && io::stderr().is_terminal()
}

/// Colours for words that mean something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) on: bool,
}

impl Style {
    pub(super) fn stdout() -> Self {
        Self { on: colours() }
    }

    pub(super) fn stderr() -> Self {
        Self { on: colours_stderr() }
    }

    pub(super) fn paint(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Colours the word for where a node is.
    pub(super) fn state(self, word: &str, padded: &str) -> String {
        match word {
            "ready" => self.good(padded),
            "failed" | "quarantined" | "refused" => self.bad(padded),
            "silent" | "deleting" | "restarting" | "kept" => self.warn(padded),
            _ => self.paint("36", padded),
        }
    }
}

/// Returns the columns and rows of a terminal; what a small one has where it does not say.
pub(super) fn size(terminal: impl AsFd) -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

/// Returns the width of a terminal.
pub(super) fn width(terminal: impl AsFd) -> usize {
    usize::from(size(terminal).0).max(40)
}

/// Cuts a line to a width.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}
