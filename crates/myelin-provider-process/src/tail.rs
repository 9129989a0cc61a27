//! Follows files line by line. All of this blocks, briefly.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use myelin_executor::{OutputLine, OutputStream};

/// The longest line that is reported; the rest of a longer one is dropped.
const MAX_LINE: usize = 4 * 1024;

/// Reads at most this much of a file in one turn, so that a flood in one file does not hide the others.
const CHUNK: usize = 64 * 1024;

/// How many turns are taken at once while something comes.
const MAX_TURNS: usize = 4;

/// How many lines are reported of what was there before anybody followed.
pub(crate) const CATCH_UP: usize = 200;

/// How much of a file is kept behind the reader, at least: enough for [`CATCH_UP`] lines of full length.
const KEPT: u64 = 1024 * 1024;

/// Of a file that is longer ahead of the reader than this, only the last [`KEPT`] bytes are read: whoever writes faster
/// than we read must not fill the disk.
const MAX_BACKLOG: u64 = 4 * 1024 * 1024;

/// A place in a file where a line begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    pub(crate) offset: u64,
    /// How many lines come before, dropped ones counted as one.
    pub(crate) n_lines: u64,
}

/// A file that is followed.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    stream: OutputStream,
    file: Option<File>,
    /// How far the file is read.
    offset: u64,
    /// Where the current line begins.
    here: Position,
    /// Where a line began [`KEPT`] bytes ago or less.
    mark: Position,
    /// What comes before is needed no more.
    base: Position,
    line: Vec<u8>,
    /// Whether the current line is longer than is kept.
    overlong: bool,
    /// Whether the beginning of the current line was skipped.
    torn: bool,
}

/// What one turn has read.
#[derive(Debug, Default)]
struct Turn {
    lines: Vec<OutputLine>,
    n_bytes: u64,
}

impl Source {
    fn new(stream: OutputStream, path: PathBuf, base: Position) -> Self {
        Self {
            path,
            stream,
            file: None,
            offset: base.offset,
            here: base,
            mark: base,
            base,
            line: Vec::new(),
            overlong: false,
            torn: false,
        }
    }

    /// Goes on elsewhere in the file.
    fn go_to(&mut self, offset: u64, n_lines: u64) {
        self.offset = offset;
        self.here = Position { offset, n_lines };
        (self.mark, self.base) = (self.here, self.here);
        self.line.clear();
        (self.overlong, self.torn) = (false, false);
    }

    /// Opens the file once it is there, and again when another is at its place. Only files are followed.
    fn reopen(&mut self) {
        let Ok(there) = fs::metadata(&self.path) else {
            return;
        };
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        let is_open = open
            .as_ref()
            .is_some_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()));
        let is_other = open.is_some() && !is_open;
        if there.is_file() && !is_open {
            self.file = open_file(&self.path);
        }
        if there.is_file() && (is_other || there.len() < self.offset) {
            self.go_to(0, self.here.n_lines);
        }
    }

    /// Leaves out what is too much to be read. Returns whether there was such.
    fn skip(&mut self) -> bool {
        let length = self.file.as_ref().and_then(|file| file.metadata().ok());
        let length = length.map_or(0, |file| file.len());
        let is_behind = length.saturating_sub(self.offset) > MAX_BACKLOG;
        if is_behind {
            self.go_to(length - KEPT, self.here.n_lines + 1);
            self.torn = true;
        }
        is_behind
    }

    /// Reads on, and hands out whole lines. Returns how many bytes it has read.
    fn read(&mut self, lines: &mut Vec<(OutputStream, String)>) -> usize {
        let mut chunk = vec![0; CHUNK];
        let mut n = self.read_at(&mut chunk);
        if n == 0 {
            self.reopen();
            n = self.read_at(&mut chunk);
        }
        for part in chunk[..n].split_inclusive(|&byte| byte == b'\n') {
            self.offset += part.len() as u64;
            let (text, ended) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            self.append(text);
            if ended {
                self.end_line(lines);
            }
        }
        n
    }

    fn read_at(&self, chunk: &mut [u8]) -> usize {
        let read = |file: &File| file.read_at(chunk, self.offset).unwrap_or(0);
        self.file.as_ref().map_or(0, read)
    }

    fn append(&mut self, text: &[u8]) {
        let room = MAX_LINE - self.line.len();
        self.overlong |= text.len() > room;
        self.line.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn end_line(&mut self, lines: &mut Vec<(OutputStream, String)>) {
        let line = self.take_line();
        self.here.offset = self.offset;
        // The line whose beginning was skipped is counted with what was skipped.
        if !std::mem::take(&mut self.torn) {
            self.here.n_lines += 1;
            lines.push((self.stream, line));
        }
        if self.here.offset - self.mark.offset >= KEPT {
            (self.base, self.mark) = (self.mark, self.here);
        }
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

/// Opening something else than a file must not wait for it.
pub(crate) fn flags(flags: OFlags) -> i32 {
    i32::try_from((flags | OFlags::NONBLOCK).bits()).unwrap_or_default()
}

fn open_file(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags(OFlags::empty())).open(path).ok()
}

/// The files of a session, followed as two numbered streams.
#[derive(Debug)]
pub(crate) struct Tail {
    sources: Vec<Source>,
    n_stdout: u64,
    n_stderr: u64,
}

impl Tail {
    /// Follows files, each from a position on.
    pub(crate) fn new(files: impl IntoIterator<Item = (OutputStream, PathBuf, Position)>) -> Self {
        let sources = files.into_iter();
        let sources = sources.map(|(stream, path, base)| Source::new(stream, path, base));
        let mut tail = Self { sources: sources.collect(), n_stdout: 0, n_stderr: 0 };
        for at in 0..tail.sources.len() {
            let Source { stream, base, .. } = tail.sources[at];
            *tail.count(stream) += base.n_lines;
        }
        tail
    }

    fn count(&mut self, stream: OutputStream) -> &mut u64 {
        match stream {
            OutputStream::Stdout => &mut self.n_stdout,
            OutputStream::Stderr => &mut self.n_stderr,
        }
    }

    fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        for at in 0..self.sources.len() {
            let source = &mut self.sources[at];
            let stream = source.stream;
            let skipped = source.skip();
            let mut lines = Vec::new();
            turn.n_bytes += source.read(&mut lines) as u64;
            *self.count(stream) += u64::from(skipped);
            turn.lines.extend(self.number(lines));
        }
        turn
    }

    /// Returns whole lines that have come since the last call. A flood is left to later calls.
    pub(crate) fn poll(&mut self) -> Vec<OutputLine> {
        let mut lines = Vec::new();
        for _ in 0..MAX_TURNS {
            let turn = self.turn();
            lines.extend(turn.lines);
            if turn.n_bytes == 0 {
                break;
            }
        }
        lines
    }

    /// Returns where the files are needed from.
    pub(crate) fn bases(&self) -> impl Iterator<Item = Position> {
        self.sources.iter().map(|source| source.base)
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
        let there = self.sources.iter().filter_map(|it| fs::metadata(&it.path).ok());
        let mut left: u64 = there.map(|it| it.len()).sum();
        loop {
            let Turn { lines, n_bytes } = self.turn();
            for line in lines {
                let kept = &mut last[usize::from(line.stream == OutputStream::Stderr)];
                if kept.len() == n_lines {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
            left = left.saturating_sub(n_bytes);
            if n_bytes == 0 || left == 0 {
                return last.into_iter().flatten().collect();
            }
        }
    }

    /// Reads what is left, now that nothing more comes, and returns the last lines of each stream.
    pub(crate) fn read_out(&mut self) -> Vec<OutputLine> {
        let mut lines = self.catch_up(CATCH_UP);
        lines.extend(self.finish());
        lines
    }

    fn number(&mut self, lines: Vec<(OutputStream, String)>) -> Vec<OutputLine> {
        let number = |(stream, text)| {
            let count = self.count(stream);
            *count += 1;
            OutputLine { sequence: *count, stream, text }
        };
        lines.into_iter().map(number).collect()
    }
}

/// Frees the beginning of a file that others may be appending to: their places in it do not move.
pub(crate) fn trim(path: &Path, base: Position) -> io::Result<()> {
    use rustix::{fs::FallocateFlags, io::Errno};
    if base.offset == 0 {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(flags(OFlags::NOFOLLOW)).open(path)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file, hole, 0, base.offset) {
        // All of it goes, then; whoever appends goes on at the start.
        Err(Errno::OPNOTSUPP) => file.set_len(0),
        other => other.map_err(Into::into),
    }
}

/// Returns the last line of a file that says something, from an offset on.
pub(crate) fn last_line(path: &Path, since: u64) -> Option<String> {
    let mut file = open_file(path)?;
    let length = file.metadata().ok()?.len();
    let from = since.max(length.saturating_sub(2 * MAX_LINE as u64));
    io::Seek::seek(&mut file, io::SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(2 * MAX_LINE as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line[..line.floor_char_boundary(500)].into())
}
