//! The asynchronous side of a provider's queue: waiting for a turn, and giving it back.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use myelin_shape::NodeGroupId;

use crate::limits::{LaneId, Limits, Queue, Ticket};

type Turns = Queue<oneshot::Sender<Turn>>;

/// Lets operations through to one provider, within its limits.
#[derive(Debug)]
pub(crate) struct Gate {
    queue: Mutex<Turns>,
    changed: Notify,
}

/// The right to call the provider, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Arc<Gate>,
    lane: LaneId,
}

/// A place in the queue, given up when dropped.
#[derive(Debug)]
struct Place<'a> {
    gate: &'a Gate,
    ticket: Ticket,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::new(Queue::new(limits)), changed: Notify::new() })
    }

    /// Waits for a turn. Cancel-safe. `None`: the gate is no longer served.
    pub(crate) async fn turn(&self, lane: LaneId, group: NodeGroupId) -> Option<Turn> {
        let (sender, turn) = oneshot::channel();
        let ticket = self.queue().push(lane, group, sender);
        let place = Place { gate: self, ticket };
        self.changed.notify_one();
        let turn = turn.await.ok();
        drop(place);
        turn
    }

    /// Hands out turns until the token is cancelled.
    pub(crate) async fn serve(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let next = self.grant_all();
            let timer = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = timer => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn grant_all(self: &Arc<Self>) -> Option<Instant> {
        loop {
            // A turn nobody takes is given back by its drop, which locks: hand out unlocked.
            let granted = self.queue().grant(Instant::now());
            let Some((lane, sender)) = granted else {
                return self.queue().next_grant_at();
            };
            let gate = Arc::clone(self);
            drop(sender.send(Turn { gate, lane }));
        }
    }

    /// Keeps everybody waiting for a time the provider asked for.
    pub(crate) fn pause(&self, pause: Duration) {
        self.queue().pause(Instant::now(), pause);
        self.changed.notify_one();
    }

    /// Returns how many are with the provider, how many wait, and how long a pause still lasts.
    pub(crate) fn load(&self) -> (u32, usize, Option<Duration>) {
        let queue = self.queue();
        let pause = queue.paused_until().map(|at| at.saturating_duration_since(Instant::now()));
        (queue.n_running(), queue.n_waiting(), pause.filter(|left| !left.is_zero()))
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.queue().limits()
    }

    fn queue(&self) -> MutexGuard<'_, Turns> {
        self.queue.lock().expect("no code panics while it holds the queue")
    }
}

impl Turn {
    /// Counts one more call against the provider's rate.
    pub(crate) fn charge(&self) {
        self.gate.queue().charge(Instant::now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.gate.queue().release(self.lane);
        self.gate.changed.notify_one();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gate.queue().remove(&self.ticket);
    }
}
