//! The loop's side of the control socket.

use std::{
    fs, io, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc,
    time::Duration,
};

use myelin_api::{Arrival, LineError, LineReader, MAX_CONTROL_LINE, ReadError, decode, encode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{hangup::hung_up, runtime::Handle};

use super::{
    Answer, CONTROL_VERSION, Failure, FailureKind, Request, RequestLine,
    answer::{answer, failure},
};

/// A longer request is one of few at once: only a file is longer, and few files are. So is the answer with all nodes.
const SMALL_LINE: usize = 64 * 1024;

/// What a server grants its clients.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many connections may be open.
    pub max_connections: usize,
    /// How many of them may be in the middle of a long request, or of an answer to one or with all nodes. Others wait.
    pub max_long: usize,
    /// How long a whole request may take to arrive.
    pub read_deadline: Duration,
    /// How long an answer may take to leave.
    pub write_deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 64,
            max_long: 2,
            read_deadline: Duration::from_secs(10),
            write_deadline: Duration::from_secs(10),
        }
    }
}

/// A control socket, bound and not yet served.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    handle: Handle,
    inventory: Option<myelin_inventory::Handle>,
    options: Options,
    connections: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Server {
    /// Listens at a path, for our own user only. The path's directory must keep others out, too: for a moment the
    /// socket has the permissions that the process gives by default.
    ///
    /// # Errors
    ///
    /// The path cannot be had.
    pub fn bind(path: &Path, handle: Handle, options: Options) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let shared = Shared {
            handle,
            inventory: None,
            options,
            connections: Arc::new(Semaphore::new(options.max_connections)),
            long: Arc::new(Semaphore::new(options.max_long)),
        };
        let shared = Arc::new(shared);
        Ok(Self { listener, shared })
    }

    /// Answers what exists, too.
    #[must_use]
    pub fn with_inventory(self, inventory: myelin_inventory::Handle) -> Self {
        let Shared { ref handle, options, ref connections, ref long, .. } = *self.shared;
        let (handle, connections) = (handle.clone(), Arc::clone(connections));
        let long = Arc::clone(long);
        let shared = Shared { handle, inventory: Some(inventory), options, connections, long };
        Self { shared: Arc::new(shared), ..self }
    }

    /// Serves until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    // Here and not in the task: many more could be accepted before that is run.
                    let Ok(place) = Arc::clone(&self.shared.connections).try_acquire_owned() else {
                        hang_up(stream);
                        continue;
                    };
                    let served = serve(Arc::clone(&self.shared), stream, place);
                    let ended = shutdown.clone().cancelled_owned();
                    tasks.spawn(async move {
                        tokio::select! {
                            () = ended => {}
                            () = served => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// Why a connection ends.
enum End {
    Closed,
    Refused(Failure),
}

impl From<LineError> for End {
    fn from(error: LineError) -> Self {
        let hint =
            "one JSON object a line, for example {\"version\":1,\"request\":{\"status\":{}}}";
        Self::Refused(failure(FailureKind::Malformed, error.to_string(), Some(hint)))
    }
}

impl From<ReadError> for End {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Line(error) => error.into(),
            ReadError::Broken(_) => Self::Closed,
        }
    }
}

/// Says that there is no place, if that is possible at once, and closes: a flood must not be answered patiently.
fn hang_up(stream: UnixStream) {
    let busy = Answer::Error(failure(FailureKind::Busy, "too many connections", Some("try again")));
    // A socket that the runtime has not looked at yet would not be tried.
    let sent = stream.into_std().and_then(|mut stream| stream.write_all(&encode(&busy)));
    drop(sent);
}

async fn serve(shared: Arc<Shared>, stream: UnixStream, _place: OwnedSemaphorePermit) {
    let mut peer = Peer {
        lines: LineReader::new(stream, MAX_CONTROL_LINE),
        options: shared.options,
        long: Arc::clone(&shared.long),
    };
    loop {
        let end = match peer.request().await {
            // A long request keeps its place until it is answered.
            Ok((request, _place)) => {
                let answer = tokio::select! {
                    answer = answer(&shared.handle, shared.inventory.as_ref(), request) => answer,
                    // Who waits for news and leaves must not keep its place until there are some.
                    () = hung_up(peer.lines.stream()) => return,
                };
                let answer = answer.map_or_else(Answer::Error, Answer::Ok);
                peer.send(&answer).await
            }
            Err(end) => Err(end),
        };
        match end {
            Ok(()) => {}
            Err(End::Closed) => return,
            Err(End::Refused(failure)) => return peer.refuse(failure).await,
        }
    }
}

struct Peer {
    lines: LineReader<UnixStream>,
    options: Options,
    long: Arc<Semaphore>,
}

/// A place among those who send something long, if that was needed.
type LongPlace = Option<OwnedSemaphorePermit>;

impl Peer {
    async fn request(&mut self) -> Result<(Request, LongPlace), End> {
        let Ok(line) = timeout(self.options.read_deadline, self.line()).await else {
            let late = failure(FailureKind::Late, "no request came in time", None);
            return Err(End::Refused(late));
        };
        let (line, place) = line?;
        let line: RequestLine = decode(&line)?;
        if line.version == CONTROL_VERSION {
            let place = self.place_for_answer(&line.request, place).await?;
            return Ok((line.request, place));
        }
        let message = format!("only version {CONTROL_VERSION} of the protocol is spoken here");
        let hint = "use the `myelin` that runs the loop";
        Err(End::Refused(failure(FailureKind::Malformed, message, Some(hint))))
    }

    /// The answer with all nodes is the one that is long with a large cluster.
    async fn place_for_answer(
        &self,
        request: &Request,
        place: LongPlace,
    ) -> Result<LongPlace, End> {
        if place.is_some() || !matches!(request, Request::Nodes {}) {
            return Ok(place);
        }
        let free = Arc::clone(&self.long).acquire_owned();
        let Ok(place) = timeout(self.options.read_deadline, free).await else {
            let busy = "others are being told everything";
            return Err(End::Refused(failure(FailureKind::Busy, busy, Some("try again"))));
        };
        Ok(place.ok())
    }

    /// Reads a line. Memory for a long one is given to few at once, whoever connects.
    async fn line(&mut self) -> Result<(Vec<u8>, LongPlace), End> {
        match self.lines.next_line_within(SMALL_LINE).await? {
            Arrival::Line(line) => return Ok((line, None)),
            Arrival::End => return Err(End::Closed),
            Arrival::Longer => {}
        }
        let place = Arc::clone(&self.long).acquire_owned().await.ok();
        let line = self.lines.next_line().await?.ok_or(End::Closed)?;
        Ok((line, place))
    }

    async fn send(&mut self, answer: &Answer) -> Result<(), End> {
        let line = encode(answer);
        let sent = timeout(self.options.write_deadline, self.lines.stream().write_all(&line)).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Closed),
        }
    }

    /// Says why and closes. What still comes is read for a moment: closing with unread input may lose the answer.
    async fn refuse(&mut self, failure: Failure) {
        if self.send(&Answer::Error(failure)).await.is_err() {
            return;
        }
        if self.lines.stream().shutdown().await.is_err() {
            return;
        }
        let mut chunk = [0; 1024];
        let drained =
            async { while matches!(self.lines.stream().read(&mut chunk).await, Ok(1..)) {} };
        let _ = timeout(Duration::from_secs(1), drained).await;
    }
}
