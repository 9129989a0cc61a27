//! The control socket against peers that do not behave.

use std::{path::PathBuf, time::Duration};

use myelin::{
    control::{
        Answer, CONTROL_VERSION, Client, Error, FailureKind, Operator, Options, Reply, Request,
        RequestLine, Server, Source,
    },
    runtime::Handle,
};
use myelin_api::encode;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::runtime::world::World;

const PATIENCE: Duration = Duration::from_secs(30);

struct Socket {
    _directory: TempDir,
    path: PathBuf,
    _server: AbortOnDropHandle<()>,
}

fn serve(handle: &Handle, options: Options) -> Socket {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let server = Server::bind(&path, handle.clone(), options).unwrap();
    let server = tokio::spawn(server.run(CancellationToken::new()));
    Socket { _directory: directory, path, _server: AbortOnDropHandle::new(server) }
}

async fn answer_to(stream: &mut UnixStream) -> Answer {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    serde_json::from_str(&text).unwrap()
}

fn kind(answer: Answer) -> FailureKind {
    match answer {
        Answer::Error(failure) => failure.kind,
        Answer::Ok(reply) => panic!("{reply:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_dawdles_is_told_so() {
    let world = World::new();
    let options = Options { read_deadline: Duration::from_millis(100), ..Options::default() };
    let socket = serve(&world.handle, options);
    let mut silent = UnixStream::connect(&socket.path).await.unwrap();
    assert_eq!(kind(answer_to(&mut silent).await), FailureKind::Late);
    let mut slow = UnixStream::connect(&socket.path).await.unwrap();
    slow.write_all(b"{\"version\":1,").await.unwrap();
    assert_eq!(kind(answer_to(&mut slow).await), FailureKind::Late);
}

#[tokio::test]
async fn a_peer_too_many_is_told_so_and_a_place_is_free_again_later() {
    let world = World::new();
    let options = Options { max_connections: 1, ..Options::default() };
    let socket = serve(&world.handle, options);
    let mut first = Client::connect(&socket.path).await.unwrap();
    first.ask(Request::Status {}).await.unwrap();
    let mut second = Client::connect(&socket.path).await.unwrap();
    let Err(Error::Failure(busy)) = second.ask(Request::Status {}).await else {
        panic!("the second is served");
    };
    assert_eq!(busy.kind, FailureKind::Busy);
    drop(first);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut third = Client::connect(&socket.path).await.unwrap();
        if third.ask(Request::Status {}).await.is_ok() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn long_requests_are_read_one_after_the_other_and_short_ones_beside_them() {
    let world = World::new();
    let options = Options { max_long: 1, ..Options::default() };
    let socket = serve(&world.handle, options);
    let text = format!("run: 1\ngroups: []\n# {}", "x".repeat(1024 * 1024));
    let source = Source { origin: "a file".to_owned(), format: "yaml".to_owned(), text };
    let plan = Request::Plan { source };
    let line = encode(&RequestLine { version: CONTROL_VERSION, request: plan.clone() });
    let mut first = UnixStream::connect(&socket.path).await.unwrap();
    // More than socket buffers hold: it is being read when this is done.
    first.write_all(&line[..line.len() - 1]).await.unwrap();

    let mut second = UnixStream::connect(&socket.path).await.unwrap();
    let unread = timeout(Duration::from_millis(500), second.write_all(&line)).await;
    assert!(unread.is_err(), "two long requests are read at once");
    let mut third = Client::connect(&socket.path).await.unwrap();
    third.ask(Request::Status {}).await.unwrap();
    drop(second);

    let mut fourth = Client::connect(&socket.path).await.unwrap();
    let fourth = tokio::spawn(async move { fourth.ask(plan).await });
    first.write_all(b"\n").await.unwrap();
    first.shutdown().await.unwrap();
    assert!(matches!(answer_to(&mut first).await, Answer::Ok(Reply::Plan(_))));
    let planned = timeout(PATIENCE, fourth).await.unwrap().unwrap();
    assert!(matches!(planned, Ok(Reply::Plan(_))), "{planned:?}");
}

#[tokio::test]
async fn all_nodes_are_told_to_few_at_once() {
    let world = World::new();
    let read_deadline = Duration::from_millis(100);
    let socket = serve(&world.handle, Options { max_long: 0, read_deadline, ..Options::default() });
    let mut client = Client::connect(&socket.path).await.unwrap();
    let Err(Error::Failure(busy)) = client.ask(Request::Nodes {}).await else {
        panic!("there is no place for it");
    };
    assert_eq!(busy.kind, FailureKind::Busy);
}

#[tokio::test]
async fn a_refused_request_leaves_the_connection_open() {
    let world = World::new();
    let socket = serve(&world.handle, Options::default());
    let mut client = Client::connect(&socket.path).await.unwrap();
    let node = "worker-0".to_owned();
    let Err(Error::Failure(unknown)) = client.ask(Request::Explain { node }).await else {
        panic!("there is no such node");
    };
    assert_eq!(unknown.kind, FailureKind::Unknown);
    let source = |format: &str, text: &str| Source {
        origin: "a file".to_owned(),
        format: format.to_owned(),
        text: text.to_owned(),
    };
    let wrong = [
        (source("yaml", "run: [1"), FailureKind::Refused),
        (source("ini", "run = 1"), FailureKind::Malformed),
        (source("yaml", "run: 2\ngroups: []"), FailureKind::Refused),
    ];
    for (source, expected) in wrong {
        let apply = Request::Apply { source, if_generation: None, may_take_ready: true };
        let Err(Error::Failure(failure)) = client.ask(apply).await else {
            panic!("it is refused");
        };
        assert_eq!(failure.kind, expected, "{failure:?}");
    }
    let reply = client.ask(Request::Status {}).await.unwrap();
    assert!(matches!(reply, Reply::Status(_)));
}

#[tokio::test]
async fn the_loop_gone_is_told_as_such() {
    let world = World::new();
    let handle = world.handle.clone();
    let socket = serve(&handle, Options::default());
    drop(world);
    let mut client = Client::connect(&socket.path).await.unwrap();
    let Err(Error::Failure(ended)) = client.ask(Request::Nodes {}).await else {
        panic!("nobody is there to answer");
    };
    assert_eq!(ended.kind, FailureKind::Ended);
}

#[tokio::test]
async fn what_is_repeated_to_a_peer_is_short_however_long_it_was() {
    let world = World::new();
    let socket = serve(&world.handle, Options::default());
    let mut client = Client::connect(&socket.path).await.unwrap();
    let long = "x".repeat(1024 * 1024);
    let source = |origin: &str, format: &str| Source {
        origin: origin.to_owned(),
        format: format.to_owned(),
        text: "run: [".to_owned(),
    };
    let nonsense = [
        Request::Explain { node: long.clone() },
        Request::Logs { node: long.clone(), after: 0, wait_ms: 0 },
        Request::Events { node: Some(long.clone()), after: None, limit: 1, wait_ms: 0 },
        Request::Operator { target: long.clone(), request: Operator::Retry },
        Request::Plan { source: source("a file", &long) },
        Request::Plan { source: source(&long, "yaml") },
    ];
    for request in nonsense {
        let Err(Error::Failure(failure)) = client.ask(request).await else {
            panic!("it is nonsense");
        };
        assert!(failure.message.len() < 300, "{} bytes", failure.message.len());
    }
}

#[tokio::test]
async fn a_peer_that_leaves_while_it_waits_for_news_gives_its_place_back() {
    let world = World::new();
    let options = Options { max_connections: 1, ..Options::default() };
    let socket = serve(&world.handle, options);
    let patient = Request::Events { node: None, after: Some(1000), limit: 1, wait_ms: 30_000 };
    let line = encode(&RequestLine { version: CONTROL_VERSION, request: patient });
    let mut waiting = UnixStream::connect(&socket.path).await.unwrap();
    waiting.write_all(&line).await.unwrap();
    drop(waiting);
    let served = async {
        loop {
            let mut next = Client::connect(&socket.path).await.unwrap();
            if next.ask(Request::Status {}).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(15), served).await.expect("half of what it was to wait");
}

#[tokio::test]
async fn a_peer_that_sends_nothing_more_is_answered_all_the_same() {
    let world = World::new();
    let socket = serve(&world.handle, Options::default());
    let patient = Request::Events { node: None, after: Some(1000), limit: 1, wait_ms: 1000 };
    let line = encode(&RequestLine { version: CONTROL_VERSION, request: patient });
    let mut half = UnixStream::connect(&socket.path).await.unwrap();
    half.write_all(&line).await.unwrap();
    half.shutdown().await.unwrap();
    assert!(
        matches!(answer_to(&mut half).await, Answer::Ok(Reply::Events(events)) if events.is_empty())
    );
}
