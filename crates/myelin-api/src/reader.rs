//! Lines from a stream of bytes, whatever carries them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{LineBuffer, LineError};

/// Asks for at least this much at once: several heartbeats, one join.
const CHUNK: usize = 1024;

/// Why there is no next line.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What came is no line.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The connection broke.
    #[error("connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// How a line comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is here, without its end.
    Line(Vec<u8>),
    /// It is not whole yet, and longer already than was asked for.
    Longer,
    /// The stream ended after a whole one.
    End,
}

/// Reads lines of a limited length. Has no deadline: the caller brings one for a whole line.
#[derive(Debug)]
pub struct LineReader<R> {
    stream: R,
    lines: LineBuffer,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Wraps a stream with lines of at most `limit` bytes, their ends not counted.
    pub fn new(stream: R, limit: usize) -> Self {
        Self { stream, lines: LineBuffer::new(limit) }
    }

    /// Returns the stream, to write to it.
    pub fn stream(&mut self) -> &mut R {
        &mut self.stream
    }

    /// Returns the next line without its end; `None` when the stream ended after a whole one.
    ///
    /// A call that is dropped before it answers loses nothing.
    ///
    /// # Errors
    ///
    /// The line is too long or incomplete, or the stream broke. The reader is of no use from then on.
    pub async fn next_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        match self.next_line_within(usize::MAX).await? {
            Arrival::Line(line) => Ok(Some(line)),
            // No line is longer than that.
            Arrival::End | Arrival::Longer => Ok(None),
        }
    }

    /// As [`next_line`](Self::next_line), but stops at a line that is longer than `most`, so that the caller can see to
    /// the memory it takes. Nothing of it is lost.
    ///
    /// # Errors
    ///
    /// As for `next_line`.
    pub async fn next_line_within(&mut self, most: usize) -> Result<Arrival, ReadError> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(Arrival::Line(line));
            }
            if self.lines.len() > most {
                return Ok(Arrival::Longer);
            }
            let free = self.lines.free(CHUNK);
            if self.stream.read_buf(free).await? == 0 {
                self.lines.finish()?;
                return Ok(Arrival::End);
            }
        }
    }
}
