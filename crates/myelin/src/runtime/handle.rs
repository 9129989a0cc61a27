//! How the rest of the program talks to the loop.

use std::time::Duration;

use myelin_inventory::View;
use myelin_shape::{LogicalNodeId, NodeAttemptId};
use myelin_state::{EventKind, OperatorRequest};
use myelin_store::Source;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::{
    file::ClusterFile,
    view::{EventView, ExplainView, GroupView, NodeView, OutputView, PlanView, StatusView},
};

use super::{Error, Outputs};

/// How long the loop may take to answer. It answers between two passes, so this is far above any of them.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_mins(1);

/// How the loop stands, whenever that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Whether everything is as desired, and was seen to be.
    pub converged: bool,
    /// The desired revision.
    pub generation: u64,
    /// How many slots are managed.
    pub n_nodes: usize,
    /// How many of them are not as desired.
    pub n_unsettled: usize,
    /// How many events there have been.
    pub n_events: u64,
    /// Whether the cluster is being taken down.
    pub leaving: bool,
}

/// Which nodes an operator means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A node or a group of this name; a node goes first.
    Named(String),
    /// A node.
    Node(LogicalNodeId),
}

/// What is to become the desired state.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What the file says.
    pub file: ClusterFile,
    /// Where it was read, for people.
    pub source: Source,
}

impl From<ClusterFile> for Wanted {
    fn from(file: ClusterFile) -> Self {
        Self { file, source: Source::default() }
    }
}

/// What an apply did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision that is desired now.
    pub generation: u64,
    /// What it does.
    pub plan: PlanView,
}

pub(super) type Reply<T> = oneshot::Sender<T>;

/// Everything that can be asked of the loop.
#[derive(Debug)]
pub(super) enum Request {
    Status(Reply<StatusView>),
    Nodes(Reply<Vec<NodeView>>),
    Progress {
        n_moving: usize,
        reply: Reply<(Vec<GroupView>, Vec<NodeView>, usize)>,
    },
    Explain {
        node: LogicalNodeId,
        reply: Reply<Result<ExplainView, Error>>,
    },
    Events {
        query: EventQuery,
        reply: Reply<Result<Vec<EventView>, Error>>,
    },
    KnowsNode {
        node: LogicalNodeId,
        reply: Reply<Result<(), Error>>,
    },
    Plan {
        file: Box<ClusterFile>,
        reply: Reply<Result<PlanView, Error>>,
    },
    Apply {
        wanted: Box<Wanted>,
        if_generation: Option<u64>,
        may_take_ready: bool,
        reply: Reply<Result<Applied, Error>>,
    },
    Operator {
        target: Target,
        request: OperatorRequest,
        reply: Reply<Result<Vec<String>, Error>>,
    },
    Pause {
        paused: bool,
        reply: Reply<Result<bool, Error>>,
    },
    Down(Reply<Result<(), Error>>),
    Sever {
        severed: bool,
        reply: Reply<()>,
    },
    Stuck(Reply<bool>),
    Records(Reply<View>),
    Record {
        notice: Notice,
        /// Who waits until it is durable.
        reply: Option<Reply<Result<(), Error>>>,
    },
}

/// Something that happened to leases, seen by somebody else than the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The slot and the attempt, if it is about one.
    pub of: Option<(LogicalNodeId, NodeAttemptId)>,
    /// What happened.
    pub kind: EventKind,
}

/// Which events are asked for.
#[derive(Clone, Debug)]
pub(super) struct EventQuery {
    pub(super) node: Option<LogicalNodeId>,
    /// After this one, oldest first; none: the latest.
    pub(super) after: Option<u64>,
    pub(super) limit: usize,
}

/// A cheap handle to a [`Service`](super::Service).
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) pulse: watch::Receiver<Pulse>,
    pub(super) outputs: Outputs,
}

impl Handle {
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let sent = timeout_at(deadline, self.requests.send(request(reply))).await;
        sent.map_err(|_| Error::NoAnswer)?.map_err(|_| Error::Ended)?;
        let answer = timeout_at(deadline, answer).await;
        answer.map_err(|_| Error::NoAnswer)?.map_err(|_| Error::Ended)
    }

    /// Returns how the loop stands, and what changes with it.
    pub fn pulse(&self) -> watch::Receiver<Pulse> {
        self.pulse.clone()
    }

    /// Returns how the run is.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn status(&self) -> Result<StatusView, Error> {
        self.ask(Request::Status).await
    }

    /// Returns every node, by group and index.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, Error> {
        self.ask(Request::Nodes).await
    }

    /// Returns the groups, at most `n_moving` nodes that are not as desired, and how many of those there are.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn progress(
        &self,
        n_moving: usize,
    ) -> Result<(Vec<GroupView>, Vec<NodeView>, usize), Error> {
        self.ask(|reply| Request::Progress { n_moving, reply }).await
    }

    /// Returns everything about a node.
    ///
    /// # Errors
    ///
    /// There is no such node.
    pub async fn explain(&self, node: LogicalNodeId) -> Result<ExplainView, Error> {
        self.ask(|reply| Request::Explain { node, reply }).await?
    }

    /// Returns at most `limit` events after one, oldest first; without one, the latest.
    ///
    /// # Errors
    ///
    /// There is no such node, and nothing is remembered of one.
    pub async fn events(
        &self,
        node: Option<LogicalNodeId>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<EventView>, Error> {
        let query = EventQuery { node, after, limit };
        self.ask(|reply| Request::Events { query, reply }).await?
    }

    /// As [`events`](Self::events), but waits at most `patience` for one to happen.
    ///
    /// # Errors
    ///
    /// As [`events`](Self::events).
    pub async fn events_soon(
        &self,
        node: Option<LogicalNodeId>,
        after: u64,
        limit: usize,
        patience: Duration,
    ) -> Result<Vec<EventView>, Error> {
        let deadline = Instant::now() + patience;
        let mut pulse = self.pulse();
        loop {
            pulse.borrow_and_update();
            let events = self.events(node.clone(), Some(after), limit).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            match timeout_at(deadline, pulse.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Error::Ended),
                Err(_) => return Ok(events),
            }
        }
    }

    /// Returns the last lines of a node's bootstraps after one; waits at most `patience` for one to come.
    ///
    /// # Errors
    ///
    /// There is no such node.
    pub async fn output(
        &self,
        node: LogicalNodeId,
        after: u64,
        limit: usize,
        patience: Duration,
    ) -> Result<Vec<OutputView>, Error> {
        let deadline = Instant::now() + patience;
        let mut changes = self.outputs.changes();
        loop {
            let (wanted, of) = (node.clone(), changes.borrow_and_update());
            drop(of);
            self.ask(|reply| Request::KnowsNode { node: wanted, reply }).await??;
            let lines = self.outputs.after(&node, after, limit);
            if !lines.is_empty() || timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(lines);
            }
        }
    }

    /// Returns what a file would do.
    ///
    /// # Errors
    ///
    /// The file does not fit the run.
    pub async fn plan(&self, file: ClusterFile) -> Result<PlanView, Error> {
        let file = Box::new(file);
        self.ask(|reply| Request::Plan { file, reply }).await?
    }

    /// Makes a file the desired state. Unless `may_take_ready`, it is refused when it would take ready nodes.
    ///
    /// # Errors
    ///
    /// The file does not fit the run, the desired revision is not `if_generation`, or ready nodes would be taken.
    pub async fn apply(
        &self,
        wanted: impl Into<Wanted>,
        if_generation: Option<u64>,
        may_take_ready: bool,
    ) -> Result<Applied, Error> {
        let wanted = Box::new(wanted.into());
        self.ask(|reply| Request::Apply { wanted, if_generation, may_take_ready, reply }).await?
    }

    /// Passes an operator's word on; returns the nodes it applied to.
    ///
    /// # Errors
    ///
    /// There is no such node, or it does not apply to it.
    pub async fn operator(
        &self,
        target: Target,
        request: OperatorRequest,
    ) -> Result<Vec<String>, Error> {
        self.ask(|reply| Request::Operator { target, request, reply }).await?
    }

    /// Stops or starts all effects. Returns whether that changed anything.
    ///
    /// # Errors
    ///
    /// The cluster is being taken down.
    pub async fn pause(&self, paused: bool) -> Result<bool, Error> {
        self.ask(|reply| Request::Pause { paused, reply }).await?
    }

    /// Begins to take the whole cluster down; nothing else is accepted from then on. See [`Pulse::n_nodes`].
    ///
    /// # Errors
    ///
    /// The loop does not answer, or that is not recorded yet: then it begins once it is.
    pub async fn down(&self) -> Result<(), Error> {
        self.ask(Request::Down).await?
    }

    /// Cuts our listener off from all agents, or ends that: a test of what a dead network does.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn sever(&self, severed: bool) -> Result<(), Error> {
        self.ask(|reply| Request::Sever { severed, reply }).await
    }

    /// Returns whether nothing can get further without a person: every node that is not as desired waits for another
    /// spec or an operator, or for such a node.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn is_stuck(&self) -> Result<bool, Error> {
        self.ask(Request::Stuck).await
    }

    /// Returns what is recorded of leases at the moment of the answer, with the last contact of each agent.
    ///
    /// # Errors
    ///
    /// The loop does not answer.
    pub async fn records(&self) -> Result<View, Error> {
        self.ask(Request::Records).await
    }

    /// Puts a notice into the history; it outlives a loss of power when this returns.
    ///
    /// # Errors
    ///
    /// It is not durable. It may become so: what it announces must not be done, and may be announced again.
    pub async fn record(&self, notice: Notice) -> Result<(), Error> {
        self.ask(|reply| Request::Record { notice, reply: Some(reply) }).await?
    }

    /// Puts a notice into the history when there is time, or not at all. Never waits.
    pub fn note(&self, notice: Notice) {
        // People are told by the log in any case.
        let _ = self.requests.try_send(Request::Record { notice, reply: None });
    }
}
