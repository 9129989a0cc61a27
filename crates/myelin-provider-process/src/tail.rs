//! Follows files line by line. All of this blocks, briefly.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use myelin_executor::{OutputLine, OutputStream};

/// The longest line that is reported; the rest of a longer one is dropped.
const MAX_LINE: usize = 4 * 1024;

/// Reads at most this much of a file in one turn, so that a flood in one file does not hide the others.
const CHUNK: usize = 64 * 1024;

/// How many lines are reported of what was there before anybody followed.
pub(crate) const CATCH_UP: usize = 200;

/// A file that is followed.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    stream: OutputStream,
    file: Option<File>,
    offset: u64,
    line: Vec<u8>,
    /// Whether the current line is longer than is kept.
    overlong: bool,
}

impl Source {
    fn new(stream: OutputStream, path: PathBuf) -> Self {
        Self { path, stream, file: None, offset: 0, line: Vec::new(), overlong: false }
    }

    /// Opens the file once it is there, and again when another is at its place. Only files are followed.
    fn reopen(&mut self) {
        let Ok(there) = fs::metadata(&self.path) else {
            return;
        };
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        let is_open =
            open.is_some_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()));
        if there.is_file() && !is_open {
            self.file = open_file(&self.path);
            self.offset = 0;
        } else if is_open && there.len() < self.offset {
            self.offset = 0;
        }
    }

    /// Reads on, and hands out whole lines.
    fn poll(&mut self, lines: &mut Vec<(OutputStream, String)>) {
        let mut chunk = vec![0; CHUNK];
        let read = |file: &File| file.read_at(&mut chunk, self.offset).unwrap_or(0);
        let mut n = self.file.as_ref().map_or(0, read);
        if n == 0 {
            self.reopen();
            let read = |file: &File| file.read_at(&mut chunk, self.offset).unwrap_or(0);
            n = self.file.as_ref().map_or(0, read);
        }
        self.offset += n as u64;
        for part in chunk[..n].split_inclusive(|&byte| byte == b'\n') {
            let (text, ended) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            self.append(text);
            if ended {
                lines.push((self.stream, self.take_line()));
            }
        }
    }

    fn append(&mut self, text: &[u8]) {
        let room = MAX_LINE - self.line.len();
        self.overlong |= text.len() > room;
        self.line.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn take_line(&mut self) -> String {
        let mut line = std::mem::take(&mut self.line);
        line.pop_if(|byte| *byte == b'\r');
        let mut text = String::from_utf8_lossy(&line).into_owned();
        // Replacement characters may be longer than what they replace.
        text.truncate(text.floor_char_boundary(MAX_LINE));
        if std::mem::take(&mut self.overlong) {
            text.truncate(text.floor_char_boundary(MAX_LINE - '…'.len_utf8()));
            text.push('…');
        }
        text
    }
}

fn open_file(path: &Path) -> Option<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).open(path).ok()
}

/// The files of a session, followed as two numbered streams.
#[derive(Debug)]
pub(crate) struct Tail {
    sources: Vec<Source>,
    n_stdout: u64,
    n_stderr: u64,
}

impl Tail {
    pub(crate) fn new(files: impl IntoIterator<Item = (OutputStream, PathBuf)>) -> Self {
        let sources = files.into_iter();
        Self {
            sources: sources.map(|(stream, path)| Source::new(stream, path)).collect(),
            n_stdout: 0,
            n_stderr: 0,
        }
    }

    /// Returns the whole lines that have come since the last call. Nothing means that all is read.
    pub(crate) fn poll(&mut self) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        for source in &mut self.sources {
            source.poll(&mut lines);
        }
        self.number(lines)
    }

    /// Returns lines that have no end yet, once nothing more can come.
    pub(crate) fn finish(&mut self) -> Vec<OutputLine> {
        let open = self.sources.iter_mut().filter(|source| !source.line.is_empty());
        let lines = open.map(|source| (source.stream, source.take_line())).collect();
        self.number(lines)
    }

    /// Reads what is there already, and returns its last lines of each stream. Numbers count the others too.
    pub(crate) fn catch_up(&mut self, n_lines: usize) -> Vec<OutputLine> {
        let mut last = [VecDeque::new(), VecDeque::new()];
        // What is written faster than it is read is left to `poll`.
        let mut left: u64 = self
            .sources
            .iter()
            .filter_map(|it| fs::metadata(&it.path).ok())
            .map(|it| it.len())
            .sum();
        loop {
            let before = self.n_read();
            for line in self.poll() {
                let kept = &mut last[usize::from(line.stream == OutputStream::Stderr)];
                if kept.len() == n_lines {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
            let n_read = self.n_read() - before;
            left = left.saturating_sub(n_read);
            if n_read == 0 || left == 0 {
                return last.into_iter().flatten().collect();
            }
        }
    }

    fn n_read(&self) -> u64 {
        self.sources.iter().map(|source| source.offset).sum()
    }

    fn number(&mut self, lines: Vec<(OutputStream, String)>) -> Vec<OutputLine> {
        let number = |(stream, text)| {
            let count = match stream {
                OutputStream::Stdout => &mut self.n_stdout,
                OutputStream::Stderr => &mut self.n_stderr,
            };
            *count += 1;
            OutputLine { sequence: *count, stream, text }
        };
        lines.into_iter().map(number).collect()
    }
}

/// Returns the last line of a file that says something, from an offset on.
pub(crate) fn last_line(path: &Path, since: u64) -> Option<String> {
    let mut file = open_file(path)?;
    let length = file.metadata().ok()?.len();
    let from = since.max(length.saturating_sub(2 * MAX_LINE as u64));
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(2 * MAX_LINE as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line[..line.floor_char_boundary(500)].into())
}
