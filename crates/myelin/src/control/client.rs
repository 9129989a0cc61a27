//! The asking side of the control socket.

use std::{io, path::Path, time::Duration};

use myelin_api::{LineError, LineReader, ReadError, decode, encode};
use tokio::{io::AsyncWriteExt as _, net::UnixStream, time::timeout};

use super::{Answer, CONTROL_VERSION, Failure, Reply, Request, RequestLine};

/// How long a server may take to answer, beyond what it was asked to wait: its own deadline, and some.
const ANSWER_DEADLINE: Duration = Duration::from_secs(90);

/// How long giving back what is nobody's may take: one machine after the other, each with its own deadline.
const COLLECT_DEADLINE: Duration = Duration::from_hours(1);

/// A large cluster's nodes fit: 10⁵ of them are below 60 MB.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens.
    #[error("nobody answers at the control socket")]
    NotRunning(#[source] io::Error),
    /// The connection broke: the loop has ended.
    #[error("the loop ended before it answered")]
    Ended,
    /// Nothing came in time.
    #[error("the loop did not answer in time")]
    Late,
    /// What came is no answer.
    #[error("what the loop answered is not understood: {0}")]
    Malformed(LineError),
    /// The loop refused.
    #[error("{}", .0.message)]
    Failure(Failure),
}

/// A connection to a loop.
#[derive(Debug)]
pub struct Client {
    lines: LineReader<UnixStream>,
}

impl Client {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub async fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).await.map_err(Error::NotRunning)?;
        Ok(Self { lines: LineReader::new(stream, MAX_ANSWER) })
    }

    /// Asks one thing.
    ///
    /// # Errors
    ///
    /// The loop refused, or did not answer.
    pub async fn ask(&mut self, request: Request) -> Result<Reply, Error> {
        let collects = matches!(request, Request::Census { collect: Some(_), .. });
        self.ask_within(request, if collects { COLLECT_DEADLINE } else { ANSWER_DEADLINE }).await
    }

    /// As [`ask`](Self::ask), with another deadline. After [`Late`](Error::Late) nothing more can be asked.
    ///
    /// # Errors
    ///
    /// As for `ask`.
    pub async fn ask_within(
        &mut self,
        request: Request,
        patience: Duration,
    ) -> Result<Reply, Error> {
        let version = CONTROL_VERSION;
        let line = encode(&RequestLine { version, request });
        let conversation = async {
            // A server that refuses the connection answers and closes without reading.
            let _ = self.lines.stream().write_all(&line).await;
            self.line().await
        };
        let answer = timeout(patience, conversation).await;
        let answer = answer.map_err(|_| Error::Late)??;
        match decode(&answer).map_err(Error::Malformed)? {
            Answer::Ok(reply) => Ok(reply),
            Answer::Error(failure) => Err(Error::Failure(failure)),
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Error> {
        match self.lines.next_line().await {
            Ok(Some(line)) => Ok(line),
            Err(ReadError::Line(error)) => Err(Error::Malformed(error)),
            Ok(None) | Err(ReadError::Broken(_)) => Err(Error::Ended),
        }
    }
}
