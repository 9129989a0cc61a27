//! What bootstraps print, and the way their stages take to the driver.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use myelin_executor::{BootstrapSink, BootstrapUpdate, Clock, OutputLine, OutputStream};
use myelin_shape::{AttemptKey, BootstrapSessionId, LogicalNodeId};
use myelin_state::{NodeEvent, NodeObservation};
use tokio::sync::{mpsc::UnboundedSender, watch};

use crate::view::{OutputView, stamp};

/// How many lines of each node are kept: a failed verify command with its context, many times over.
pub(crate) const LINES_PER_NODE: usize = 200;

/// The last lines of every node's bootstraps, and the sink they come in by. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Outputs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    observations: UnboundedSender<NodeObservation>,
    nodes: Mutex<BTreeMap<LogicalNodeId, Lines>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<OutputView>,
    last: u64,
}

impl Outputs {
    /// Returns an empty store. Stages of bootstraps go to `observations`.
    pub fn new(clock: Clock, observations: UnboundedSender<NodeObservation>) -> Self {
        Self(Arc::new(Inner {
            clock,
            observations,
            nodes: Mutex::default(),
            changed: watch::Sender::new(0),
        }))
    }

    /// Returns at most `limit` of the last lines of a node after one, oldest first.
    pub fn after(&self, node: &LogicalNodeId, after: u64, limit: usize) -> Vec<OutputView> {
        let nodes = self.nodes();
        let lines = nodes.get(node).into_iter().flat_map(|lines| &lines.lines);
        let later: Vec<_> = lines.filter(|line| line.sequence > after).collect();
        let skipped = later.len().saturating_sub(limit);
        later.into_iter().skip(skipped).cloned().collect()
    }

    /// Returns what changes with every line of any node.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Drops the lines of a slot that is gone.
    pub(super) fn forget(&self, node: &LogicalNodeId) {
        self.nodes().remove(node);
    }

    fn print(&self, key: &AttemptKey, line: OutputLine) {
        let at = stamp(self.0.clock.now());
        let mut nodes = self.nodes();
        let kept = nodes.entry(key.node.clone()).or_default();
        if kept.lines.len() == LINES_PER_NODE {
            kept.lines.pop_front();
        }
        kept.last += 1;
        kept.lines.push_back(OutputView {
            sequence: kept.last,
            at,
            attempt: key.attempt.0,
            stream: stream(line.stream).to_owned(),
            text: line.text,
        });
        drop(nodes);
        self.0.changed.send_modify(|n| *n += 1);
    }

    /// A panic elsewhere leaves the lines whole.
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<LogicalNodeId, Lines>> {
        self.0.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns lines that were read at once, of which only is known when the last of them was printed.
pub(crate) fn outputs_of(
    key: &AttemptKey,
    lines: Vec<OutputLine>,
    at: SystemTime,
) -> Vec<OutputView> {
    let numbered = (1..).zip(lines);
    let view = |(sequence, line): (u64, OutputLine)| OutputView {
        sequence,
        at: stamp(at),
        attempt: key.attempt.0,
        stream: stream(line.stream).to_owned(),
        text: line.text,
    };
    numbered.map(view).collect()
}

fn stream(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}

impl BootstrapSink for Outputs {
    fn report(&self, key: &AttemptKey, session: BootstrapSessionId, update: BootstrapUpdate) {
        let (sequence, stage, message) = match update {
            BootstrapUpdate::Output(line) => return self.print(key, line),
            BootstrapUpdate::Stage { sequence, stage, message } => {
                (sequence, stage, message.map(Into::into))
            }
        };
        let observation = NodeObservation {
            node: key.node.clone(),
            attempt: key.attempt,
            event: NodeEvent::Bootstrap { session, sequence, stage, message },
        };
        if self.0.observations.send(observation).is_err() {
            tracing::debug!(node = %key.node, "nobody drives the nodes any more");
        }
    }
}
