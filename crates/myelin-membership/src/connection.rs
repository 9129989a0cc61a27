//! One agent's connection: a join within the deadline, then a heartbeat and an answer at a time.

use std::{io::Write as _, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use myelin_api::{
    AgentMessage, ControllerMessage, LineError, LineReader, MAX_AGENT_LINE, PROTOCOL_VERSION,
    ReadError, RefusedReason, decode, encode, hello_version,
};
use myelin_shape::AttemptKey;

use crate::listener::{Shared, State, count};

/// How long a refusal may take to leave. The peer learns nothing more after that.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum End {
    /// The peer closed it, or it broke.
    Closed,
    /// We close it, and say why.
    Refused(RefusedReason),
}

impl From<LineError> for End {
    fn from(error: LineError) -> Self {
        Self::Refused(RefusedReason::Malformed { message: error.to_string() })
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

/// The places a connection takes while it is open, and until its join.
#[derive(Debug)]
pub(crate) struct Places {
    connection: OwnedSemaphorePermit,
    unjoined: OwnedSemaphorePermit,
}

impl Places {
    /// Takes both, if both are free.
    pub(crate) fn take(shared: &Shared) -> Option<Self> {
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        Some(Self { connection: take(&shared.connections)?, unjoined: take(&shared.unjoined)? })
    }
}

/// Says that there is no place, if that is possible at once, and closes: a flood must not be answered patiently.
pub(crate) fn hang_up(shared: &Shared, stream: TcpStream) {
    count(&shared.counters.busy);
    let busy = ControllerMessage::Refused { reason: RefusedReason::Busy {} };
    // A socket that the runtime has not looked at yet would not be tried.
    let sent = stream.into_std().and_then(|mut stream| stream.write_all(&encode(&busy)));
    drop(sent);
}

/// Serves one connection until it ends or `closed`.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    closed: CancellationToken,
    places: Places,
) {
    let Places { connection: _connection, unjoined } = places;
    let mut peer = Peer(LineReader::new(stream, MAX_AGENT_LINE));
    let end = tokio::select! {
        () = closed.cancelled() => return,
        end = converse(&shared, &mut peer, &closed, unjoined) => end,
    };
    if let End::Refused(reason) = end {
        count_refusal(&shared, &reason);
        let refusal = ControllerMessage::Refused { reason };
        // Whether the peer hears why it is refused is its own affair.
        let _ = timeout(REFUSAL_DEADLINE, peer.refuse(&refusal)).await;
    }
}

fn count_refusal(shared: &Shared, reason: &RefusedReason) {
    let counters = &shared.counters;
    count(match reason {
        RefusedReason::Malformed { .. } => &counters.malformed,
        RefusedReason::Late {} => &counters.late,
        RefusedReason::Busy {} => &counters.busy,
        RefusedReason::BadToken {}
        | RefusedReason::OtherAgent {}
        | RefusedReason::AttemptGone {}
        | RefusedReason::Version { .. } => &counters.refused,
    });
    tracing::debug!(%reason, "agent refused");
}

/// Takes a join, then heartbeats. The place among those without a join is given back with the join.
async fn converse(
    shared: &Arc<Shared>,
    peer: &mut Peer,
    closed: &CancellationToken,
    unjoined: OwnedSemaphorePermit,
) -> End {
    let joined = timeout(shared.options.join_deadline, join(shared, peer, closed)).await;
    drop(unjoined);
    match joined {
        Ok(Ok(member)) => member.heartbeats(peer).await,
        Ok(Err(end)) => end,
        Err(_) => End::Refused(RefusedReason::Late {}),
    }
}

async fn join(
    shared: &Arc<Shared>,
    peer: &mut Peer,
    closed: &CancellationToken,
) -> Result<Member, End> {
    let line = peer.line().await?;
    let message = decode(&line).map_err(|error| match hello_version(&line) {
        Some(version) if version != PROTOCOL_VERSION => wrong_version(),
        _ => End::from(error),
    })?;
    let AgentMessage::Join { version, key, token, agent_key, pid } = message else {
        return Err(malformed("the first line must be a join"));
    };
    if version != PROTOCOL_VERSION {
        return Err(wrong_version());
    }
    let key = AttemptKey::try_from(key).map_err(|error| malformed(&error.to_string()))?;
    let joined = shared.update(|state, now| {
        let joined = state.membership.join(&key, &token, &agent_key, now)?;
        state.register(&key, joined.connection, closed);
        Ok(joined)
    });
    let joined = joined.map_err(|refusal: crate::Refusal| End::Refused(refusal.into()))?;
    count(&shared.counters.joined);
    tracing::info!(%key, swactor = %joined.swactor, pid, "agent joined");
    let member = Member { shared: Arc::clone(shared), key, connection: joined.connection };
    let heartbeat_every = shared.options.timing.heartbeat_every;
    let welcome = ControllerMessage::Welcome {
        swactor: joined.swactor,
        heartbeat_every_ms: heartbeat_every.as_millis().try_into().unwrap_or(u64::MAX),
    };
    peer.send(&welcome).await?;
    Ok(member)
}

fn wrong_version() -> End {
    End::Refused(RefusedReason::Version { supported: PROTOCOL_VERSION })
}

fn malformed(message: &str) -> End {
    End::Refused(RefusedReason::Malformed { message: message.into() })
}

impl State {
    /// Makes the connection the attempt's, and closes the one before it, which may be half-open for ever.
    fn register(&mut self, key: &AttemptKey, connection: u64, closed: &CancellationToken) {
        let closer = (connection, closed.clone());
        if let Some((_, before)) = self.closers.insert(key.clone(), closer) {
            before.cancel();
        }
    }
}

/// A joined connection. Dropping it records its end, however it ends.
struct Member {
    shared: Arc<Shared>,
    key: AttemptKey,
    connection: u64,
}

impl Member {
    async fn heartbeats(&self, peer: &mut Peer) -> End {
        let deadline = self.shared.options.read_deadline;
        loop {
            match timeout(deadline, self.heartbeat(peer)).await {
                Ok(Ok(())) => {}
                Ok(Err(end)) => return end,
                Err(_) => return End::Refused(RefusedReason::Late {}),
            }
        }
    }

    async fn heartbeat(&self, peer: &mut Peer) -> Result<(), End> {
        match decode(&peer.line().await?)? {
            AgentMessage::Heartbeat { .. } => {}
            AgentMessage::Join { .. } => {
                return Err(malformed("this connection has joined already"));
            }
        }
        let (key, connection) = (&self.key, self.connection);
        let is_current =
            self.shared.update(|state, now| state.membership.contact(key, connection, now));
        if !is_current {
            return Err(End::Closed);
        }
        peer.send(&ControllerMessage::Ack {}).await
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let (key, connection) = (&self.key, self.connection);
        self.shared.update(|state, _| {
            state.membership.disconnect(key, connection);
            if state.closers.get(key).is_some_and(|(current, _)| *current == connection) {
                state.closers.remove(key);
            }
        });
    }
}

struct Peer(LineReader<TcpStream>);

impl Peer {
    /// Returns the next line. The caller brings the deadline, which covers the whole line and not each byte of it.
    async fn line(&mut self) -> Result<Vec<u8>, End> {
        self.0.next_line().await?.ok_or(End::Closed)
    }

    async fn send(&mut self, message: &ControllerMessage) -> Result<(), End> {
        let sent = self.0.stream().write_all(&encode(message)).await;
        sent.map_err(|_| End::Closed)
    }

    /// Sends the refusal and reads on until the peer closes: closing with unread input would reset the connection, and
    /// the peer might never see why.
    async fn refuse(&mut self, refusal: &ControllerMessage) {
        if self.send(refusal).await.is_err() || self.0.stream().shutdown().await.is_err() {
            return;
        }
        let mut chunk = [0; 1024];
        while matches!(self.0.stream().read(&mut chunk).await, Ok(1..)) {}
    }
}
