//! One connection to the control plane. Every step has a deadline.

use std::{io, time::Duration};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use myelin_api::{
    AgentKey, AgentMessage, ControllerMessage, LineError, LineReader, MAX_AGENT_LINE,
    PROTOCOL_VERSION, ReadError, RefusedReason, WireKey, decode, encode,
};
use myelin_shape::SwactorId;

use crate::Options;

/// Bounds of what a control plane may ask for: a faster heartbeat is a flood, a slower one looks like death.
const HEARTBEATS: [Duration; 2] = [Duration::from_millis(10), Duration::from_mins(1)];

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// Nobody listens, and the system gave the connection the very port that it dials. Holding it would keep the
    /// listener from coming back.
    #[error("no connection: nobody listens")]
    Oneself,
    #[error("connection broke: {0}")]
    Broke(io::Error),
    #[error("connection was closed")]
    Closed,
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    #[error("answer is not one: {0}")]
    Nonsense(#[from] LineError),
    #[error("answer does not fit")]
    Unexpected,
    #[error("refused: {0}")]
    Refused(RefusedReason),
}

impl From<ReadError> for Lost {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Line(error) => error.into(),
            ReadError::Broken(error) => Self::Broke(error),
        }
    }
}

/// A joined connection.
#[derive(Debug)]
pub(crate) struct Connection {
    lines: LineReader<TcpStream>,
    deadline: Duration,
    sequence: u64,
    pub(crate) swactor: SwactorId,
    pub(crate) heartbeat_every: Duration,
}

impl Connection {
    /// Dials and joins.
    pub(crate) async fn join(options: &Options, agent_key: &AgentKey) -> Result<Self, Lost> {
        let deadline = options.pace.deadline;
        let dialled = within(deadline, TcpStream::connect(&options.address)).await?;
        let stream = dialled.map_err(Lost::Connect)?;
        if stream.local_addr().ok() == stream.peer_addr().ok() {
            return Err(Lost::Oneself);
        }
        let mut connection = Self {
            lines: LineReader::new(stream, MAX_AGENT_LINE),
            deadline,
            sequence: 0,
            swactor: SwactorId::from(""),
            heartbeat_every: Duration::ZERO,
        };
        let join = AgentMessage::Join {
            version: PROTOCOL_VERSION,
            key: WireKey::from(&options.key),
            token: options.token.clone(),
            agent_key: agent_key.clone(),
            pid: std::process::id(),
        };
        match connection.ask(&join).await? {
            ControllerMessage::Welcome { swactor, heartbeat_every_ms } => {
                let [fastest, slowest] = HEARTBEATS;
                connection.swactor = swactor;
                connection.heartbeat_every =
                    Duration::from_millis(heartbeat_every_ms).clamp(fastest, slowest);
                Ok(connection)
            }
            ControllerMessage::Ack {} | ControllerMessage::Refused { .. } => Err(Lost::Unexpected),
        }
    }

    /// Sends a heartbeat and takes its answer.
    pub(crate) async fn heartbeat(&mut self) -> Result<(), Lost> {
        self.sequence += 1;
        let sequence = self.sequence;
        match self.ask(&AgentMessage::Heartbeat { sequence }).await? {
            ControllerMessage::Ack {} => Ok(()),
            ControllerMessage::Welcome { .. } | ControllerMessage::Refused { .. } => {
                Err(Lost::Unexpected)
            }
        }
    }

    /// Waits until the control plane closes or says something unasked, which is a refusal at best.
    pub(crate) async fn lost(&mut self) -> Lost {
        match self.answer().await {
            Ok(_) => Lost::Unexpected,
            Err(lost) => lost,
        }
    }

    async fn ask(&mut self, message: &AgentMessage) -> Result<ControllerMessage, Lost> {
        let deadline = self.deadline;
        within(deadline, async {
            let sent = self.lines.stream().write_all(&encode(message)).await;
            // A peer that closed may have said why before.
            let answer = self.answer().await;
            sent.map_err(Lost::Broke).or_else(|lost| match answer {
                Err(Lost::Refused(_)) => Ok(()),
                Ok(_) | Err(_) => Err(lost),
            })?;
            answer
        })
        .await?
    }

    async fn answer(&mut self) -> Result<ControllerMessage, Lost> {
        let line = self.lines.next_line().await?.ok_or(Lost::Closed)?;
        match decode(&line)? {
            ControllerMessage::Refused { reason } => Err(Lost::Refused(reason)),
            answer @ (ControllerMessage::Welcome { .. } | ControllerMessage::Ack {}) => Ok(answer),
        }
    }
}

async fn within<T>(deadline: Duration, future: impl Future<Output = T>) -> Result<T, Lost> {
    let result = timeout(deadline, future).await;
    result.map_err(|_| Lost::Deadline(deadline))
}
