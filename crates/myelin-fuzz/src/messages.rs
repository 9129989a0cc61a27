//! Lines, and the messages of the agent protocol.

use myelin_api::{
    AgentMessage, ControllerMessage, JoinFile, LineBuffer, LineError, MAX_AGENT_LINE, WireKey,
    decode, encode, hello_version,
};
use myelin_shape::AttemptKey;
use serde::{Serialize, de::DeserializeOwned};

/// A limit that short inputs reach.
const SHORT_LINE: usize = 64;

/// The lines of a stream, and what is wrong with the rest of it.
type Cut = (Vec<Vec<u8>>, Option<LineError>);

/// Reads what agents send, and join files. The first byte says in which chunks the rest arrives, and within which limit.
///
/// # Panics
///
/// Chunks matter, more is held than the limit, or a message does not read back as it is written.
pub fn agent_messages(bytes: &[u8]) {
    for line in lines(bytes) {
        if let Some(file) = check_message::<JoinFile>(&line) {
            check_key(&file.key);
        }
        let version = hello_version(&line);
        if let Some(AgentMessage::Join { version: stated, key, .. }) = check_message(&line) {
            assert_eq!(version, Some(stated));
            check_key(&key);
        }
    }
}

/// Reads what the control plane sends, as [`agent_messages`] does.
///
/// # Panics
///
/// As [`agent_messages`].
pub fn controller_messages(bytes: &[u8]) {
    for line in lines(bytes) {
        if let Some(message) = check_message::<ControllerMessage>(&line) {
            assert_eq!(decode::<ControllerMessage>(&encode(&message)), Ok(message));
        }
    }
}

/// A key is that of an attempt, or refused.
fn check_key(key: &WireKey) {
    if let Ok(attempt) = AttemptKey::try_from(key.clone()) {
        assert_eq!(WireKey::from(&attempt), *key);
    }
}

/// Reads a message, and what is written of it again.
pub(crate) fn check_message<T: Serialize + DeserializeOwned>(line: &[u8]) -> Option<T> {
    let message = decode::<T>(line).map_err(|error| check_error(&error)).ok()?;
    let written = encode(&message);
    let (end, text) = written.split_last().expect("a message is not empty");
    assert!(*end == b'\n' && !text.contains(end), "a message is one line");
    let again: T = decode(text).expect("what is written can be read");
    assert_eq!(encode(&again).escape_ascii().to_string(), written.escape_ascii().to_string());
    Some(message)
}

/// An error goes into a log: it is short, and one line.
fn check_error(error: &LineError) {
    let shown = error.to_string();
    assert!(shown.len() < 300 && !shown.contains(char::is_control), "{shown:?}");
}

/// Returns the lines of a stream, which are the same however it arrives.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some((&first, stream)) = bytes.split_first() else { return Vec::new() };
    let limit = if first.is_multiple_of(2) { MAX_AGENT_LINE } else { SHORT_LINE };
    let expected = split(stream, limit);
    for chunk in [1 + usize::from(first / 2), 1, stream.len().max(1)] {
        assert_eq!(receive(stream, chunk, limit), expected, "in chunks of {chunk} bytes");
    }
    expected.0
}

/// Cuts a stream that is there as a whole.
fn split(stream: &[u8], limit: usize) -> Cut {
    let mut lines = Vec::new();
    for piece in stream.split_inclusive(|byte| *byte == b'\n') {
        match piece.strip_suffix(b"\n") {
            Some(line) if line.len() <= limit => {
                lines.push(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
            }
            None if piece.len() <= limit => {
                return (lines, Some(LineError::Truncated { bytes: piece.len() }));
            }
            _ => return (lines, Some(LineError::TooLong { limit })),
        }
    }
    (lines, None)
}

/// Cuts a stream that arrives in chunks.
fn receive(stream: &[u8], chunk: usize, limit: usize) -> Cut {
    let mut buffer = LineBuffer::new(limit);
    let mut lines = Vec::new();
    for chunk in stream.chunks(chunk) {
        buffer.push(chunk);
        loop {
            match buffer.next_line() {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(error) => return (lines, Some(error)),
            }
        }
        assert!(n_held(&buffer) <= limit, "more is held than the limit");
    }
    (lines, buffer.finish().err())
}

fn n_held(buffer: &LineBuffer) -> usize {
    match buffer.finish() {
        Err(LineError::Truncated { bytes }) => bytes,
        _ => 0,
    }
}
