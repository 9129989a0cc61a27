//! The listener against agents that behave, and against peers that do not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use myelin_api::{
    AgentKey, AgentMessage, ControllerMessage, JoinSecret, MAX_AGENT_LINE, PROTOCOL_VERSION,
    RefusedReason, WireKey, decode, encode,
};
use myelin_membership::{Handle, Listener, ListenerError, Options, Timing};
use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};
use myelin_state::{NodeEvent, NodeObservation};

/// Long enough for a busy machine, short enough to fail a hanging test.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(PATIENCE, future).await else {
        panic!("timed out waiting for {what}");
    };
    value
}

fn secret() -> JoinSecret {
    JoinSecret::new([9; 32])
}

fn key(attempt: u64) -> AttemptKey {
    AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: "worker-0".into(),
        attempt: NodeAttemptId(attempt),
    }
}

fn options() -> Options {
    Options::new(SocketAddr::from(([127, 0, 0, 1], 0)), secret())
}

/// Options under which silence is noticed after 600 ms.
fn quick() -> Options {
    Options { timing: Timing::heartbeat_every(Duration::from_millis(200)), ..options() }
}

struct World {
    handle: Handle,
    told: UnboundedReceiver<NodeObservation>,
    shutdown: CancellationToken,
    running: AbortOnDropHandle<()>,
}

impl World {
    async fn new(options: Options) -> Self {
        let (sender, told) = unbounded_channel();
        let (listener, handle) = Listener::bind(options, sender).await.unwrap();
        let shutdown = CancellationToken::new();
        let running = AbortOnDropHandle::new(tokio::spawn(listener.run(shutdown.clone())));
        Self { handle, told, shutdown, running }
    }

    async fn peer(&self) -> Peer {
        let stream = TcpStream::connect(self.handle.address()).await.unwrap();
        Peer(BufReader::new(stream))
    }

    async fn event(&mut self) -> NodeEvent {
        soon("an observation", self.told.recv()).await.unwrap().event
    }

    async fn joined(&mut self, agent: u8, attempt: u64) -> Peer {
        let mut peer = self.peer().await;
        peer.send(&join(agent, attempt)).await;
        let answer = peer.answer().await;
        assert!(matches!(answer, ControllerMessage::Welcome { .. }), "{answer:?}");
        assert!(matches!(self.event().await, NodeEvent::Joined { .. }));
        peer
    }
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    async fn raw(&mut self, bytes: &[u8]) {
        // The listener may close before it has read everything.
        let _ = self.0.write_all(bytes).await;
    }

    async fn send(&mut self, message: &AgentMessage) {
        self.raw(&encode(message)).await;
    }

    async fn answer(&mut self) -> ControllerMessage {
        let mut line = Vec::new();
        let read = soon("an answer", self.0.read_until(b'\n', &mut line)).await;
        read.unwrap();
        line.pop();
        decode(&line).unwrap()
    }

    async fn refusal(&mut self) -> RefusedReason {
        let answer = self.answer().await;
        let ControllerMessage::Refused { reason } = answer else {
            panic!("expected a refusal, not {answer:?}");
        };
        reason
    }

    async fn heartbeat(&mut self, sequence: u64) {
        self.send(&AgentMessage::Heartbeat { sequence }).await;
        assert_eq!(self.answer().await, ControllerMessage::Ack {});
    }

    async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is as good an end as any.
        let _ = soon("the end", self.0.read_to_end(&mut rest)).await;
    }
}

fn join(agent: u8, attempt: u64) -> AgentMessage {
    AgentMessage::Join {
        version: PROTOCOL_VERSION,
        key: WireKey::from(&key(attempt)),
        token: secret().token(&key(attempt)),
        agent_key: AgentKey::new([agent; 16]),
        pid: 1,
    }
}

#[tokio::test]
async fn an_agent_joins_heartbeats_and_is_missed_when_it_closes() {
    let mut world = World::new(options()).await;
    let mut peer = world.joined(1, 1).await;
    peer.heartbeat(1).await;
    let heard = world.handle.last_contact(&key(1)).unwrap();
    drop(peer);
    let NodeEvent::Silent { last_contact, .. } = world.event().await else {
        panic!("a closed connection is silence");
    };
    assert_eq!(last_contact, heard);
    world.shutdown.cancel();
    soon("shutdown", &mut world.running).await.unwrap();
}

#[tokio::test]
async fn a_frozen_agent_is_silent_and_is_heard_again_on_the_same_connection() {
    let mut world = World::new(quick()).await;
    let mut peer = world.joined(1, 1).await;
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    peer.heartbeat(1).await;
    assert!(matches!(world.event().await, NodeEvent::Contact { .. }));
}

#[tokio::test]
async fn a_second_agent_with_the_same_token_is_refused_and_the_first_may_come_again() {
    let mut world = World::new(options()).await;
    let mut first = world.joined(1, 1).await;
    let mut second = world.peer().await;
    second.send(&join(2, 1)).await;
    assert_eq!(second.refusal().await, RefusedReason::OtherAgent {});
    second.closed().await;
    let mut again = world.joined(1, 1).await;
    first.closed().await;
    again.heartbeat(1).await;
    assert_eq!(world.handle.counters().refused, 1);
}

#[tokio::test]
async fn a_retired_attempt_is_disconnected_and_refused() {
    let mut world = World::new(options()).await;
    let mut peer = world.joined(1, 1).await;
    world.handle.retire(&key(1));
    peer.closed().await;
    let mut again = world.peer().await;
    again.send(&join(1, 1)).await;
    assert_eq!(again.refusal().await, RefusedReason::AttemptGone {});
    assert!(world.told.try_recv().is_err(), "its end is no news");
    assert_eq!(world.handle.last_contact(&key(1)), None);
}

#[tokio::test]
async fn an_expected_agent_that_never_comes_is_silent_since_our_start() {
    let start = SystemTime::now();
    let mut world = World::new(quick()).await;
    assert_eq!(world.handle.n_unheard(), 0);
    world.handle.expect(&key(1), &AgentKey::new([1; 16]).swactor());
    assert_eq!(world.handle.n_unheard(), 1);
    let NodeEvent::Silent { last_contact, .. } = world.event().await else {
        panic!("nobody came");
    };
    assert!(last_contact >= start);
    let mut other = world.peer().await;
    other.send(&join(2, 1)).await;
    assert_eq!(other.refusal().await, RefusedReason::OtherAgent {});
    assert_eq!(world.handle.n_unheard(), 1, "another agent is none");
    let _peer = world.joined(1, 1).await;
    assert_eq!(world.handle.n_unheard(), 0);
}

#[tokio::test]
async fn a_suspended_listener_loses_everybody_and_takes_them_back() {
    let mut world = World::new(options()).await;
    let mut peer = world.joined(1, 1).await;
    world.handle.suspend(true);
    peer.closed().await;
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    let mut refused = world.peer().await;
    refused.send(&join(1, 1)).await;
    refused.closed().await;
    assert!(world.told.try_recv().is_err());
    world.handle.suspend(false);
    let mut peer = world.joined(1, 1).await;
    assert!(matches!(world.event().await, NodeEvent::Contact { .. }));
    world.handle.sever();
    peer.closed().await;
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
}

/// Sends the bytes as a peer's first, and returns the words of the refusal.
async fn malformed(world: &World, bytes: &[u8]) -> String {
    let mut peer = world.peer().await;
    peer.raw(bytes).await;
    let reason = peer.refusal().await;
    peer.closed().await;
    let RefusedReason::Malformed { message } = reason else {
        panic!("expected malformed, not {reason:?}");
    };
    message
}

#[tokio::test]
async fn nonsense_is_answered_closed_and_counted_while_others_go_on() {
    let mut world = World::new(options()).await;
    let mut peer = world.joined(1, 1).await;
    let huge = vec![b'x'; 4 * MAX_AGENT_LINE];
    let cases: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\n\r\n", "line is not JSON"),
        (b"\x16\x03\x01\x02\x00\x01\xff\n", "line holds a NUL byte at 4"),
        (b"\xff\xfe\n", "line is not UTF-8 from byte 0 on"),
        (&huge, "line is longer than 16384 bytes"),
        (b"{\"heartbeat\":{\"sequence\":1}}\n", "the first line must be a join"),
        (b"{\"join\":{\"version\":1,\"root\":true}}\n", "line is no message: unknown field `root`"),
        (b"{}\n", "line is no message: "),
    ];
    for (bytes, words) in cases {
        let message = malformed(&world, bytes).await;
        assert!(message.starts_with(words), "{message:?} does not start with {words:?}");
    }
    assert_eq!(world.handle.counters().malformed, 7);
    peer.heartbeat(1).await;
}

#[tokio::test]
async fn a_slot_that_is_no_id_is_malformed() {
    let world = World::new(options()).await;
    let mut text = String::from_utf8(encode(&join(1, 1))).unwrap();
    text = text.replace("worker-0", "../worker-0");
    let message = malformed(&world, text.as_bytes()).await;
    assert_eq!(message, "node may hold only a-z, 0-9 and inner '-', not '.'");
}

#[tokio::test]
async fn a_wrong_token_and_a_later_version_are_refused() {
    let world = World::new(options()).await;
    let mut peer = world.peer().await;
    let mut text = String::from_utf8(encode(&join(1, 1))).unwrap();
    let (right, wrong) = (secret().token(&key(1)), secret().token(&key(2)));
    text = text.replace(&right.expose(), &wrong.expose());
    peer.raw(text.as_bytes()).await;
    assert_eq!(peer.refusal().await, RefusedReason::BadToken {});
    let mut peer = world.peer().await;
    peer.raw(b"{\"join\":{\"version\":9,\"proof\":\"?\"}}\n").await;
    assert_eq!(peer.refusal().await, RefusedReason::Version { supported: 1 });
    assert_eq!(world.handle.counters().refused, 2);
}

#[tokio::test]
async fn a_peer_that_says_nothing_or_drips_bytes_is_late() {
    let options = Options { join_deadline: Duration::from_millis(300), ..options() };
    let world = World::new(options).await;
    let mut half_open = world.peer().await;
    let mut dripping = world.peer().await;
    let dripped = async {
        for byte in encode(&join(1, 1)) {
            dripping.raw(&[byte]).await;
            if let Ok(ready) = timeout(Duration::from_millis(20), dripping.0.fill_buf()).await {
                ready.unwrap();
                break;
            }
        }
        dripping.refusal().await
    };
    let (silent, dripped) = tokio::join!(half_open.refusal(), dripped);
    assert_eq!((silent, dripped), (RefusedReason::Late {}, RefusedReason::Late {}));
    assert_eq!(world.handle.counters().late, 2);
}

#[tokio::test]
async fn too_many_peers_without_a_join_are_sent_away_and_room_is_made_again() {
    let options = Options { max_unjoined: 2, ..options() };
    let mut world = World::new(options).await;
    let held = [world.peer().await, world.peer().await];
    let settled = async {
        while world.handle.counters().accepted < 2 {
            tokio::task::yield_now().await;
        }
    };
    soon("both to be taken", settled).await;
    let mut third = world.peer().await;
    assert_eq!(third.refusal().await, RefusedReason::Busy {});
    drop(held);
    let mut fourth = loop {
        let mut peer = world.peer().await;
        peer.send(&join(1, 1)).await;
        if matches!(peer.answer().await, ControllerMessage::Welcome { .. }) {
            break peer;
        }
    };
    assert!(matches!(world.event().await, NodeEvent::Joined { .. }));
    fourth.heartbeat(1).await;
}

#[tokio::test]
async fn a_peer_too_many_is_not_waited_for() {
    let mut world = World::new(Options { max_unjoined: 0, ..options() }).await;
    let mut patient = world.peer().await;
    assert_eq!(patient.refusal().await, RefusedReason::Busy {});
    patient.closed().await;
    world.shutdown.cancel();
    // A refusal that waits for the peer to close takes a second.
    let ended = timeout(Duration::from_millis(900), &mut world.running).await;
    ended.expect("no connection is left").unwrap();
}

#[tokio::test]
async fn a_silence_longer_than_time_itself_is_never_reached() {
    let timing = Timing { silent_after: Duration::MAX, ..Timing::default() };
    let mut world = World::new(Options { timing, ..options() }).await;
    let mut peer = world.joined(1, 1).await;
    peer.heartbeat(1).await;
    assert!(!world.running.is_finished());
}

#[tokio::test]
async fn more_connections_than_allowed_are_sent_away() {
    let options = Options { max_connections: 1, ..options() };
    let mut world = World::new(options).await;
    let mut first = world.joined(1, 1).await;
    let mut second = world.peer().await;
    assert_eq!(second.refusal().await, RefusedReason::Busy {});
    first.heartbeat(1).await;
}

#[tokio::test]
async fn a_joined_peer_that_joins_again_or_stalls_is_closed() {
    let options = Options { read_deadline: Duration::from_millis(300), ..options() };
    let mut world = World::new(options).await;
    let mut peer = world.joined(1, 1).await;
    peer.send(&join(1, 1)).await;
    assert!(matches!(peer.refusal().await, RefusedReason::Malformed { .. }));
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    let mut stalled = world.peer().await;
    stalled.send(&join(1, 1)).await;
    assert!(matches!(stalled.answer().await, ControllerMessage::Welcome { .. }));
    assert_eq!(stalled.refusal().await, RefusedReason::Late {});
}

#[tokio::test]
async fn the_address_must_be_loopback_and_free() {
    let world = World::new(options()).await;
    let bind = |address| async move {
        let (sender, _told) = unbounded_channel();
        let options = Options {
            bind_patience: Duration::from_millis(100),
            ..Options::new(address, secret())
        };
        let refused = Listener::bind(options, sender).await;
        refused.unwrap_err()
    };
    let taken = bind(world.handle.address()).await;
    assert!(matches!(taken, ListenerError::Bind { .. }), "{taken}");
    let open = bind(SocketAddr::from(([0, 0, 0, 0], 0))).await;
    assert_eq!(open.to_string(), "0.0.0.0:0 is no loopback address");
}

#[tokio::test]
async fn an_address_that_becomes_free_is_taken() {
    let world = World::new(options()).await;
    let address = world.handle.address();
    let (sender, _told) = unbounded_channel();
    let options = Options { bind_patience: PATIENCE, ..Options::new(address, secret()) };
    let (bound, ()) = tokio::join!(Listener::bind(options, sender), async {
        world.shutdown.cancel();
    });
    assert_eq!(bound.unwrap().1.address(), address);
}
