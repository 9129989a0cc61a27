//! The process that started everything is killed: an executor that remembers nothing finds it all.

use std::{
    fs,
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::sleep,
};

use myelin_executor::{
    EffectExecutor as _, Executor, Options, Provider, ProviderSetup, Submission,
};
use myelin_shape::{BootSpec, BootstrapSessionId, NodeAttemptId, OperationId, RunId};
use myelin_state::{
    BootstrapStage::{SwactorJoinFailed, WaitingForSwactorJoin},
    LeaseMode, NodeEvent,
    NodeManagerCommand::{self, CancelBootstrap, CreateLease, DestroyLease, StartBootstrap},
    NodeObservation, OperationOutcome,
};

use crate::world::{World, agent_command, built, request, running_on, signal, soon, template};

/// Boots a node from a process of its own, which is then killed. Returns the session.
async fn boot_and_kill(world: &mut World) -> BootstrapSessionId {
    let mut host = Command::new(built("process-host"))
        .arg(world.root())
        .arg(world.handle.address().to_string())
        .arg(&agent_command()[0])
        .arg(world.cluster.to_string())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let line = soon("the start", lines.next_line()).await.unwrap().expect("it says the session");
    world.joined().await;
    // An agent that is not recorded yet would be started anew, by the rule that none runs twice.
    let key = request(world.cluster, 1, template(BootSpec::default())).key;
    let recorded = async {
        loop {
            let lines = world.provider.read_log(&key, 9).await.unwrap();
            let path = world.root().join(key.to_string()).join("session.json");
            let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            if record["stage"] == "waiting_for_swactor_join" && lines.len() == 2 {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    soon("what it is killed after", recorded).await;
    soon("the kill", host.kill()).await.unwrap();
    BootstrapSessionId(line.parse().unwrap())
}

struct Anew {
    executor: Executor,
    results: UnboundedReceiver<NodeObservation>,
    last: u64,
}

impl Anew {
    fn new(world: &World) -> Self {
        let (sender, results) = unbounded_channel();
        let setup =
            ProviderSetup::new(Arc::clone(&world.provider) as _, Arc::clone(&world.provider) as _);
        let options = Options::new(world.cluster, RunId(1));
        Self { executor: Executor::new(options, [setup], sender), results, last: 7 }
    }

    async fn perform(&mut self, command: NodeManagerCommand) -> OperationOutcome {
        self.last += 1;
        let operation = OperationId { attempt: NodeAttemptId(1), sequence: self.last };
        let deadline = SystemTime::now() + Duration::from_mins(1);
        let node = "worker-0".into();
        let submission = Submission { node, operation, command, generation: 1, deadline };
        self.executor.submit(submission).unwrap();
        let observation = soon("an outcome", self.results.recv()).await.unwrap();
        let NodeEvent::OperationFinished { outcome, .. } = observation.event else {
            panic!("{observation:?}");
        };
        outcome
    }
}

#[tokio::test]
async fn an_agent_outlives_the_kill_of_its_host_and_is_adopted_by_its_attempt() {
    let mut world = World::new().await;
    let session = boot_and_kill(&mut world).await;
    let request = request(world.cluster, 1, template(BootSpec::default()));
    world.restart();
    assert_eq!(world.provider.resume(world.cluster).await.unwrap(), 1);
    let found = Provider::find(&*world.provider, &request.key).await.unwrap();
    let running = running_on(&found[0].lease);
    assert_eq!(running.len(), 1);
    let line = world.reports.line("agent: joined as worker-0").await;
    assert_eq!(line.sequence, 2, "it dialled before");
    world.reports.stage(WaitingForSwactorJoin).await;

    let mut anew = Anew::new(&world);
    let (mode, unsettled_since) = (LeaseMode::AdoptOnly, Some(SystemTime::UNIX_EPOCH));
    let create = CreateLease { spec: request.spec.clone(), mode, unsettled_since };
    let outcome = anew.perform(create).await;
    let OperationOutcome::LeaseCreated { lease, connection: Some(connection) } = outcome else {
        panic!("{outcome:?}");
    };
    let (spec, lease) = (request.spec, *lease);
    let start = StartBootstrap { spec, lease: lease.clone(), connection, mode, unsettled_since };
    let outcome = anew.perform(start).await;
    assert_eq!(outcome, OperationOutcome::BootstrapStarted { session });
    assert_eq!(running_on(&lease), running, "the same process");
    assert!(world.told.try_recv().is_err(), "it neither left nor joined again");

    let cancel = CancelBootstrap { provider: lease.provider.clone(), session };
    assert_eq!(anew.perform(cancel).await, OperationOutcome::BootstrapCancelled);
    assert_eq!(running_on(&lease), Vec::<i32>::new());
    let destroyed = anew.perform(DestroyLease { lease }).await;
    assert_eq!(destroyed, OperationOutcome::LeaseDestroyed);
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 0, "nothing is left");
}

#[tokio::test]
async fn an_agent_that_ends_while_nobody_looks_is_a_failed_bootstrap_later() {
    let mut world = World::new().await;
    boot_and_kill(&mut world).await;
    let key = request(world.cluster, 1, template(BootSpec::default())).key;
    let found = Provider::find(&*world.provider, &key).await.unwrap();
    signal(running_on(&found[0].lease)[0], Signal::KILL);
    assert!(matches!(world.event().await, NodeEvent::Silent { .. }));
    world.restart();
    world.provider.resume(world.cluster).await.unwrap();
    let message = world.reports.stage(SwactorJoinFailed).await;
    assert!(message.starts_with("agent ended before it joined"), "{message}");
    let log = world.provider.read_log(&key, 9).await.unwrap();
    assert!(log.iter().any(|line| line.text.starts_with("agent: joined as worker-0")), "{log:?}");
}
