//! The control socket.

use myelin::control::{Answer, Request, RequestLine};
use myelin_api::{decode, encode};

use crate::messages::check_message;

/// Reads a line as a request, with the cluster file in it, and as an answer.
///
/// # Panics
///
/// What is read does not read back as it is written, or an error is no short text.
pub fn control_requests(line: &[u8]) {
    if let Some(answer) = check_message::<Answer>(line) {
        assert_eq!(decode::<Answer>(&encode(&answer)), Ok(answer));
    }
    if let Some(line) = check_message::<RequestLine>(line) {
        check_source(&line.request);
        assert_eq!(decode::<RequestLine>(&encode(&line)), Ok(line));
    }
}

/// A file in a request is read, or what is wrong with it can be printed.
fn check_source(request: &Request) {
    if let Request::Plan { source } | Request::Apply { source, .. } = request
        && let Err(Some(errors)) = source.parse()
    {
        let shown = errors.to_string();
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }
}
