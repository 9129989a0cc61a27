//! Bootstraps: real commands, a real agent, a real join, and every way in which that fails.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use myelin_executor::{Bootstrap as _, FoundSession, OutputStream, Provider as _, StartRequest};
use myelin_shape::{BootSpec, SecretRef};
use myelin_state::{
    BootstrapStage::{self, *},
    ErrorClass, NodeEvent,
};
use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::Signal,
};

use crate::world::{
    World, request, running_on, secret, signal, soon, starting, template, until_running, verifying,
};

fn directory(world: &World, start: &StartRequest) -> PathBuf {
    world.root().join(start.lease.destroy_handle.as_str())
}

#[tokio::test]
async fn an_agent_joins_and_goes_on_after_the_bootstrap_is_concluded() {
    let mut world = World::new().await;
    let boot = BootSpec { verify_commands: vec!["echo checked".into()], ..BootSpec::default() };
    let (start, session) = world.start(boot).await;
    world.joined().await;
    let line = world.reports.line("agent: joined as worker-0").await;
    assert_eq!(line.stream, OutputStream::Stdout);
    assert_eq!(world.reports.line("checked").await.sequence, 1);
    world.reports.stage(WaitingForSwactorJoin).await;
    world.provider.conclude(session).await.unwrap();
    let stages = [
        Created,
        SshConnecting,
        SshReady,
        BootChecking,
        SwactorStarting,
        WaitingForSwactorJoin,
        Converged,
    ];
    assert_eq!(world.reports.stages(), stages);
    let numbers: Vec<u64> = world.reports.numbered().keys().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(running_on(&start.lease).len(), 1);
    assert_eq!(world.session(&start).await, None);
    assert_eq!(world.provider.start(&start).await.unwrap(), session, "it has its agent");
    world.provider.destroy(&start.lease).await.unwrap();
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    assert_eq!(world.reports.stages(), stages, "the end of an agent that has joined is no failure");
}

#[tokio::test]
async fn a_killed_agent_is_noticed_by_the_listener_and_a_frozen_one_loses_nothing() {
    let mut world = World::new().await;
    let (start, session) = world.start(BootSpec::default()).await;
    world.joined().await;
    world.provider.conclude(session).await.unwrap();
    let [pid] = running_on(&start.lease)[..] else {
        panic!("one agent runs");
    };
    signal(pid, Signal::STOP);
    let stopped_at = world.handle.last_contact(&start.key).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    signal(pid, Signal::CONT);
    let heard = async {
        while world.handle.last_contact(&start.key).unwrap() <= stopped_at {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the next heartbeat", heard).await;
    assert!(world.told.try_recv().is_err(), "nothing was lost");
    signal(pid, Signal::KILL);
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
}

/// Starts a bootstrap that must fail, and returns the words of the failure.
async fn failure(boot: BootSpec, stage: BootstrapStage) -> String {
    let world = World::new().await;
    let (start, session) = world.start(boot).await;
    let message = world.reports.stage(stage).await;
    assert_eq!(world.session(&start).await, None);
    world.provider.cancel(session).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
    assert!(!world.reports.stages().contains(&Cancelled), "it had failed already");
    message
}

#[tokio::test]
async fn a_failed_bootstrap_says_what_failed_and_how() {
    let verify =
        verifying(&["true", "echo first >&2; echo disk is full >&2; exit 7", "touch never"]);
    assert_eq!(
        failure(verify, BootCheckFailed).await,
        "`echo first >&2; echo disk is full >&2; exit 7` exited with status 7: disk is full"
    );
    let killed = failure(verifying(&["kill -9 $$"]), BootCheckFailed).await;
    assert_eq!(killed, "`kill -9 $$` was ended by signal 9");
    let exited = failure(starting("echo no route to host >&2; exit 3"), SwactorJoinFailed).await;
    assert_eq!(exited, "agent exited with status 3 before it joined: no route to host");
    let daemon = failure(starting("sleep 0.3 & exit 0"), SwactorJoinFailed).await;
    assert_eq!(daemon, "agent exited with status 0 before it joined");
}

#[tokio::test]
async fn an_agent_that_cannot_be_started_is_a_start_failure() {
    let world = World::new().await;
    let request = world.request(1, BootSpec::default());
    let start = world.lease(&request).await;
    fs::create_dir(directory(&world, &start).join("stdout.1.log")).unwrap();
    world.provider.start(&start).await.unwrap();
    let message = world.reports.stage(StartFailed).await;
    assert_eq!(message, "cannot start the agent: Is a directory (os error 21)");
}

#[tokio::test]
async fn a_verify_command_past_its_deadline_is_ended_with_all_it_started() {
    let mut world = World::new().await;
    let mut options = myelin_provider_process::Options::new(
        world.root(),
        crate::world::agent_command(),
        myelin_provider_process::JoinSource {
            address: world.handle.address().to_string(),
            secret: secret(),
        },
    );
    options.verify_deadline = Duration::from_millis(300);
    options.grace = Duration::from_millis(200);
    let sink = Arc::clone(&world.reports);
    let provider = myelin_provider_process::ProcessProvider::new(options, sink).unwrap();
    world.provider = Arc::new(provider);
    let (start, _) = world.start(verifying(&["sleep 610 & sleep 611"])).await;
    let message = world.reports.stage(BootCheckFailed).await;
    assert_eq!(message, "`sleep 610 & sleep 611` did not end within 300ms");
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

#[tokio::test]
async fn a_bootstrap_can_be_cancelled_while_it_verifies() {
    let world = World::new().await;
    let (start, session) = world.start(verifying(&["sleep 612 & sleep 613"])).await;
    until_running(&start.lease, 3).await;
    world.provider.cancel(session).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
    assert_eq!(world.reports.stages().last(), Some(&Cancelled));
    world.provider.cancel(session).await.unwrap();
    let again = world.provider.start(&start).await.unwrap();
    assert_ne!(again, session, "what is over is not started again under its id");
    world.provider.destroy(&start.lease).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

/// Says something on both streams when it is asked to end, by itself: what it would start is asked to end too. It ends
/// in the middle of a line, which is not whole until it is known that no more comes.
const LAST_WORDS: &str = "trap 'printf really >&2; printf last\\ words; exit' TERM; echo ready; \
    while :; do sleep 0.01; done";

fn said(world: &World, words: &str) -> bool {
    world.reports.lines().iter().any(|line| line.text == words)
}

#[tokio::test]
async fn what_is_printed_until_the_end_is_reported_before_the_machine_is_gone() {
    let world = World::new().await;
    let (start, _) = world.start(starting(LAST_WORDS)).await;
    world.reports.line("ready").await;
    world.provider.destroy(&start.lease).await.unwrap();
    assert!(said(&world, "last words") && said(&world, "really"), "{:?}", world.reports);
}

#[tokio::test]
async fn what_is_printed_until_the_end_is_reported_before_the_bootstrap_is_cancelled() {
    let world = World::new().await;
    let (start, session) = world.start(starting(LAST_WORDS)).await;
    world.reports.line("ready").await;
    world.provider.cancel(session).await.unwrap();
    assert!(said(&world, "last words") && said(&world, "really"), "{:?}", world.reports);
    assert_eq!(world.reports.stages().last(), Some(&Cancelled));
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

#[tokio::test]
async fn a_bootstrap_whose_directory_is_gone_ends_and_says_so() {
    let world = World::new().await;
    let go = world.directory.path().join("go");
    let verify = format!("until test -e {}; do sleep 0.01; done", go.display());
    let (start, _) = world.start(verifying(&[&verify])).await;
    world.reports.stage(BootChecking).await;
    fs::remove_dir_all(directory(&world, &start)).unwrap();
    fs::write(go, "").unwrap();
    let message = world.reports.stage(StreamError).await;
    assert!(message.ends_with("session.json: No such file or directory (os error 2)"), "{message}");
}

#[tokio::test]
async fn a_restart_takes_up_a_session_whose_agent_runs() {
    let mut world = World::new().await;
    let boot = starting("echo before; echo ready >&2; exec sleep 614");
    let (start, session) = world.start(boot).await;
    world.reports.line("ready").await;
    world.reports.stage(WaitingForSwactorJoin).await;
    let before = until_running(&start.lease, 1).await;
    let numbered = world.reports.numbered();
    world.restart();
    let found = world.session(&start).await;
    let stage = WaitingForSwactorJoin;
    assert_eq!(found, Some(FoundSession { session, stage }));
    assert_eq!(world.provider.start(&start).await.unwrap(), session);
    assert_eq!(running_on(&start.lease), before, "the same processes");
    assert_eq!(world.reports.line("before").await.sequence, 1);
    world.reports.stage(WaitingForSwactorJoin).await;
    let repeated = world.reports.numbered();
    assert!(repeated.iter().all(|(number, stage)| numbered[number] == *stage));
    signal(before[0], Signal::KILL);
    assert_eq!(world.reports.stage(SwactorJoinFailed).await, "agent ended before it joined: ready");
}

#[tokio::test]
async fn a_restart_verifies_again_what_was_interrupted() {
    let mut world = World::new().await;
    let boot = BootSpec {
        verify_commands: vec!["echo run >> runs; test -e go || exec sleep 615".into()],
        ..BootSpec::default()
    };
    let (start, session) = world.start(boot).await;
    until_running(&start.lease, 1).await;
    world.restart();
    fs::write(directory(&world, &start).join("go"), "").unwrap();
    assert_eq!(world.provider.resume(world.cluster).await.unwrap(), 1);
    world.joined().await;
    let runs = fs::read_to_string(directory(&world, &start).join("runs")).unwrap();
    assert_eq!(runs, "run\nrun\n");
    assert_eq!(running_on(&start.lease).len(), 1, "the interrupted command is gone");
    world.provider.conclude(session).await.unwrap();
}

#[tokio::test]
async fn sessions_are_cancelled_and_concluded_by_id_after_a_restart() {
    let mut world = World::new().await;
    let (start, session) = world.start(starting("exec sleep 616")).await;
    world.reports.stage(WaitingForSwactorJoin).await;
    world.restart();
    world.provider.conclude(session).await.unwrap();
    world.reports.stage(Converged).await;
    world.restart();
    world.provider.cancel(session).await.unwrap();
    assert_eq!(running_on(&start.lease), Vec::<i32>::new());
}

#[tokio::test]
async fn a_session_that_may_be_in_an_unreadable_record_is_not_called_unknown() {
    let mut world = World::new().await;
    let (start, session) = world.start(starting("exec sleep 619")).await;
    world.reports.stage(WaitingForSwactorJoin).await;
    world.restart();
    let record = directory(&world, &start).join("session.json");
    fs::remove_file(&record).unwrap();
    symlink("session.json", &record).unwrap();
    let error = world.provider.cancel(session).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "{error}");
    world.provider.conclude(session).await.unwrap_err();
    assert_eq!(running_on(&start.lease).len(), 1);
}

#[tokio::test]
async fn a_restart_leaves_an_agent_that_has_joined_alone_even_without_its_identity() {
    let mut world = World::new().await;
    let (start, session) = world.start(BootSpec::default()).await;
    world.joined().await;
    world.provider.conclude(session).await.unwrap();
    let running = running_on(&start.lease);
    let path = directory(&world, &start).join("session.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(record["leader"].take().is_object());
    fs::write(&path, record.to_string()).unwrap();
    world.restart();
    assert_eq!(world.provider.resume(world.cluster).await.unwrap(), 0, "it is over");
    world.reports.line("joined").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running_on(&start.lease), running);
    assert!(world.told.try_recv().is_err(), "it neither left nor joined again");
}

#[tokio::test]
async fn a_restart_right_after_the_agent_was_started_goes_on_with_it() {
    let mut world = World::new().await;
    let (start, _) = world.start(starting("exec sleep 620")).await;
    world.reports.stage(WaitingForSwactorJoin).await;
    let path = directory(&world, &start).join("session.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["stage"] = serde_json::to_value(SwactorStarting).unwrap();
    fs::write(&path, record.to_string()).unwrap();
    let running = until_running(&start.lease, 1).await;
    world.restart();
    world.provider.resume(world.cluster).await.unwrap();
    world.reports.stage(WaitingForSwactorJoin).await;
    assert_eq!(running_on(&start.lease), running);
}

#[tokio::test]
async fn the_token_is_in_a_private_file_and_nowhere_else() {
    let mut world = World::new().await;
    let (start, _) = world.start(BootSpec::default()).await;
    world.joined().await;
    let token = secret().token(&start.key).expose();
    let path = directory(&world, &start).join("join.json");
    assert!(fs::read_to_string(&path).unwrap().contains(&token));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for pid in running_on(&start.lease) {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(&token), "{file} shows the token");
        }
    }
    for entry in fs::read_dir(directory(&world, &start)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("join.json") {
            assert!(!fs::read_to_string(&path).unwrap().contains(&token), "{}", path.display());
        }
    }
    let reported = format!("{:?}", world.reports);
    assert!(!reported.contains(&token));
}

#[tokio::test]
async fn commands_see_a_clean_environment_and_their_arguments() {
    let world = World::new().await;
    let mut boot = starting("env; printf '[%s]' ");
    boot.args = vec!["a b".into(), "$HOME".into()];
    boot.env.insert("GREETING".into(), "hello".into());
    boot.env.insert("MYELIN_LEASE".into(), "escape".into());
    let (start, _) = world.start(boot).await;
    world.reports.line("GREETING=hello").await;
    world.reports.line("[a b][$HOME]").await;
    let lines: Vec<String> = world.reports.lines().into_iter().map(|line| line.text).collect();
    assert!(lines.contains(&format!("MYELIN_LEASE={}", start.key)), "{lines:?}");
    let join_file = directory(&world, &start).canonicalize().unwrap().join("join.json");
    assert!(lines.contains(&format!("MYELIN_JOIN_FILE={}", join_file.display())));
    assert!(!lines.iter().any(|line| line.starts_with("CARGO")), "{lines:?}");
}

#[tokio::test]
async fn output_is_numbered_cut_and_followed_from_files_that_appear_later() {
    let world = World::new().await;
    let long = "head -c 5000 /dev/zero | tr '\\0' x; echo; printf 'caf\\351\\n'";
    let later = "sleep 0.2; echo from a file > app.log; exec sleep 617";
    let mut boot = starting(&format!("{long}; {later}"));
    boot.stderr_sources = vec!["app.log".into()];
    let (start, _) = world.start(boot).await;
    let line = world.reports.line("from a file").await;
    assert_eq!((line.stream, line.sequence), (OutputStream::Stderr, 1));
    let cut = world.reports.line("xxx").await;
    assert!(cut.text.ends_with("x…") && cut.text.len() <= 4096, "{}", cut.text.len());
    assert_eq!(world.reports.line("caf").await.text, "caf\u{fffd}");
    let log = world.provider.read_log(&start.key, 1).await.unwrap();
    let log: Vec<_> = log.iter().map(|line| (line.sequence, line.text.as_str())).collect();
    assert_eq!(log, [(2, "caf\u{fffd}"), (1, "from a file")]);
}

#[tokio::test]
async fn an_agent_that_talks_for_ever_fills_no_disk() {
    use std::os::unix::fs::MetadataExt as _;
    let mut world = World::new().await;
    let chunk = "head -c 100000 /dev/zero | tr '\\0' x | fold -w 999; echo";
    let talk = format!("for i in 1 2 3 4 5 6 7 8 9; do {chunk}; {chunk}; {chunk}; {chunk}; done");
    let (start, _) = world.start(starting(&format!("{talk}; echo done; exec sleep 618"))).await;
    let done = world.reports.line("done").await;
    let log = directory(&world, &start).join("stdout.1.log");
    let freed = async {
        while fs::metadata(&log).unwrap().blocks() * 512 > 5 << 19 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the beginning to be given up", freed).await;
    assert!(fs::metadata(&log).unwrap().len() > 3_600_000);
    world.restart();
    world.provider.resume(world.cluster).await.unwrap();
    assert_eq!(world.reports.line("done").await, done);
    assert_eq!(world.provider.read_log(&start.key, 1).await.unwrap(), [done]);
}

#[tokio::test]
async fn a_token_by_reference_is_read_or_refused_by_name() {
    let world = World::new().await;
    let reference = |reference: SecretRef| {
        let mut template = template(BootSpec::default());
        template.swarm_join.join_token_ref = reference;
        template.swarm_join.orch_swactor_addr = Some("127.0.0.1:1".into());
        template
    };
    let file = world.directory.path().join("token");
    fs::write(&file, "not a token\n").unwrap();
    let pipe = world.directory.path().join("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR).unwrap();
    let cases = [
        (
            SecretRef::Env("MYELIN_NO_SUCH".into()),
            "join token env:MYELIN_NO_SUCH environment variable not found",
        ),
        (SecretRef::File(file.clone()), "must be 64 lower-case hexadecimal digits"),
        (SecretRef::File("/dev/zero".into()), "join token file:/dev/zero is far too long"),
        (SecretRef::File(pipe), "must be 64 lower-case hexadecimal digits"),
        (
            SecretRef::File("/nonexistent".into()),
            "cannot be read: No such file or directory (os error 2)",
        ),
    ];
    for (attempt, (case, words)) in cases.into_iter().enumerate() {
        let request = request(world.cluster, attempt as u64, reference(case));
        let start = world.lease(&request).await;
        let error = world.provider.start(&start).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Permanent);
        assert!(error.message.ends_with(words), "{error}");
        assert!(!error.message.contains("not a token"), "what was read is not shown");
    }
    fs::write(&file, format!("{}\n", "0f".repeat(32))).unwrap();
    let request = request(world.cluster, 9, reference(SecretRef::File(file)));
    let start = world.lease(&request).await;
    world.provider.start(&start).await.unwrap();
    let join = fs::read_to_string(directory(&world, &start).join("join.json")).unwrap();
    assert!(join.contains(&"0f".repeat(32)) && join.contains("127.0.0.1:1"));
}

#[tokio::test]
async fn a_start_without_its_lease_is_told_so() {
    let world = World::new().await;
    let start = world.lease(&world.request(1, BootSpec::default())).await;
    world.provider.destroy(&start.lease).await.unwrap();
    let error = world.provider.start(&start).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::AlreadyAbsent);
    assert_eq!(world.session(&start).await, None);
}
