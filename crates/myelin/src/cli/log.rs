//! Logs, on standard error.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::args::{Globals, LogFormat};

/// The live view, which log lines must not tear.
static LIVE: std::sync::OnceLock<MultiProgress> = std::sync::OnceLock::new();

/// Returns the one live view of the process.
pub(super) fn live() -> &'static MultiProgress {
    LIVE.get_or_init(MultiProgress::new)
}

/// Does something that writes to the terminal, without tearing the live view.
pub(super) fn above_live<T>(write: impl FnOnce() -> T) -> T {
    match LIVE.get() {
        Some(live) => live.suspend(write),
        None => write(),
    }
}

/// Starts logging: warnings, more with `-v`, or what `MYELIN_LOG` says.
pub(super) fn init(globals: &Globals) {
    let level = match globals.verbose {
        // Failed operations are told as they happen, in fewer words.
        0 => "warn,myelin_executor::outcome=error",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let wanted = std::env::var("MYELIN_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = wanted.map_or_else(
        || EnvFilter::new(level),
        |wanted| {
            EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
                super::output::note(format_args!("warning: MYELIN_LOG is no filter: {error}"));
                EnvFilter::new(level)
            })
        },
    );
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Stderr);
    let started = match globals.log_format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_ansi(super::output::colours_stderr()).try_init(),
    };
    // A second start in one process, as in tests, keeps the first.
    drop(started);
}

/// Standard error, above the live view if there is one.
struct Stderr;

struct Line(Vec<u8>);

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::new())
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A closed terminal reads no logs.
        let _ = above_live(|| io::stderr().write_all(&self.0));
    }
}
