//! One JSON object a line, within a limit.

use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

/// The longest line of the agent protocol: a join is below 600 bytes, and thousands of peers may each hold one line.
pub const MAX_AGENT_LINE: usize = 16 * 1024;

/// The longest line of the control socket: a cluster file with its largest sensible number of groups.
pub const MAX_CONTROL_LINE: usize = 8 * 1024 * 1024;

/// The longest error message: enough for every field name of ours, too little for a peer to fill a log.
const MAX_QUOTED: usize = 200;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No end of line came within the limit.
    #[error("line is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The peer closed in the middle of a line.
    #[error("connection ended within a line, after {bytes} bytes of it")]
    Truncated {
        /// How much of the line came.
        bytes: usize,
    },
    /// The line holds a NUL byte.
    #[error("line holds a NUL byte at {at}")]
    Nul {
        /// Offset of the first one.
        at: usize,
    },
    /// The line is not UTF-8.
    #[error("line is not UTF-8 from byte {at} on")]
    NotUtf8 {
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// The line is not JSON.
    #[error("line is not JSON: {message}")]
    NotJson {
        /// What the parser says, with the column.
        message: String,
    },
    /// The line is JSON, but no message: an unknown or missing field, an unknown variant, a wrong type.
    #[error("line is no message: {message}")]
    NotAMessage {
        /// What the parser says, with the column.
        message: String,
    },
}

/// Cuts a stream of bytes into lines. Holds at most the limit and one chunk; `LineReader` reads with one.
#[derive(Debug)]
pub struct LineBuffer {
    limit: usize,
    bytes: Vec<u8>,
    /// How much of `bytes` is known to hold no end of line, so that a slow peer costs linear time.
    searched: usize,
}

impl LineBuffer {
    /// Returns an empty buffer for lines of at most `limit` bytes, their ends not counted.
    pub fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), searched: 0 }
    }

    /// Takes the next bytes of the stream. Call [`next_line`](Self::next_line) until it answers `None` after each.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Returns how many bytes are held.
    #[cfg(feature = "io")]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the buffer with room for at least so many of the next bytes.
    #[cfg(feature = "io")]
    pub(crate) fn free(&mut self, at_least: usize) -> &mut Vec<u8> {
        self.bytes.reserve(at_least);
        &mut self.bytes
    }

    /// Returns the next whole line without its end (`\n` or `\r\n`).
    ///
    /// # Errors
    ///
    /// [`LineError::TooLong`]; the buffer is of no use from then on, since where the next line begins is not known.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        let limit = self.limit;
        let end = self.bytes[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n')
            .map(|at| at + self.searched);
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return if self.searched > limit {
                Err(LineError::TooLong { limit })
            } else {
                Ok(None)
            };
        };
        if end > limit {
            return Err(LineError::TooLong { limit });
        }
        let rest = self.bytes.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        self.searched = 0;
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
        Ok(Some(line))
    }

    /// Says that the stream ended.
    ///
    /// # Errors
    ///
    /// [`LineError::Truncated`] when it ended within a line.
    pub fn finish(&self) -> Result<(), LineError> {
        match self.bytes.len() {
            0 => Ok(()),
            bytes => Err(LineError::Truncated { bytes }),
        }
    }
}

/// Reads a message from a line.
///
/// # Errors
///
/// Everything of [`LineError`] that concerns the content of a line.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    if let Some(at) = line.iter().position(|&byte| byte == 0) {
        return Err(LineError::Nul { at });
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| LineError::NotUtf8 { at: error.valid_up_to() })?;
    serde_json::from_str(text).map_err(|error| {
        let message = cut(&error.to_string());
        // What the parser calls a syntax error may be JSON where a variant's name is expected, such as `{}`.
        let is_json = error.is_data() || serde_json::from_str::<IgnoredAny>(text).is_ok();
        if is_json { LineError::NotAMessage { message } } else { LineError::NotJson { message } }
    })
}

/// Cuts the parser's words, which quote the peer's. Those go into logs and onto terminals, so no control character stays.
fn cut(message: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    let mut message: String = message.chars().map(shown).collect();
    if message.len() > MAX_QUOTED {
        message.truncate(message.floor_char_boundary(MAX_QUOTED));
        message.push('…');
    }
    message
}

/// Writes a message as one line, with its end.
///
/// # Panics
///
/// When the message's keys are not strings, which is a bug of its type.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages have string keys only");
    line.push(b'\n');
    line
}
