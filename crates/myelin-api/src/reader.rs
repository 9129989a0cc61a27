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
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(Some(line));
            }
            let free = self.lines.free(CHUNK);
            if self.stream.read_buf(free).await? == 0 {
                self.lines.finish()?;
                return Ok(None);
            }
        }
    }
}
