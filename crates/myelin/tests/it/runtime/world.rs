//! A loop on a scripted provider, in virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use myelin::{
    file::{self, ClusterFile, Format},
    runtime::{
        Applied, Before, Error, Handle, Options, Oracle, Outputs, Parts, Service, SnapshotSource,
        Witness,
    },
    view::{EventView, ExplainView, NodeView},
};
use myelin_driver::{ClusterDriver, Effects};
use myelin_executor::{
    Executor, FoundLease, Options as ExecutorOptions,
    fake::{CallKind, FakeWorld},
};
use myelin_shape::{ClusterUid, RunId};
use myelin_state::{ClusterState, NodeObservation};
use myelin_store::{Identity, MemoryStore, Secret};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::agents::Agents;

/// How much virtual time anything may take that is to happen at once or after a few delays.
const PATIENCE: Duration = Duration::from_mins(15);

pub(crate) struct World {
    pub(super) fake: FakeWorld,
    pub(super) agents: Agents,
    pub(crate) handle: Handle,
    pub(super) observations: UnboundedSender<NodeObservation>,
    pub(super) store: Arc<MemoryStore>,
    findings: Arc<Mutex<Vec<String>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// Returns a cluster file with one group on the scripted provider.
pub(super) fn workers(count: u32, image: &str) -> ClusterFile {
    file(&format!("[{{id: worker, count: {count}, provider: fake, image: {image}}}]"), "")
}

/// Returns a cluster file with these groups and further sections.
pub(super) fn file(groups: &str, more: &str) -> ClusterFile {
    let text = format!("run: 1\ngroups: {groups}\n{more}");
    file::parse(text.as_bytes(), Format::Yaml, "test.yaml").unwrap()
}

/// Looks on like the oracle, and checks that what is stored is what the driver had: no change goes unnamed.
#[derive(Debug)]
struct Durable {
    oracle: Oracle,
    store: Arc<MemoryStore>,
    /// The state of the last step, and how many commits there were before it.
    before: Option<(ClusterState, u64)>,
    findings: Arc<Mutex<Vec<String>>>,
}

impl Witness for Durable {
    fn settled(&mut self, driver: &ClusterDriver, effects: &Effects, now: SystemTime) {
        self.oracle.settled(driver, effects, now);
        let n_commits = self.store.n_commits();
        if let Some((state, n_before)) = self.before.take()
            && n_commits > n_before
            && self.store.state() != state
        {
            self.findings.lock().unwrap().push("the store holds another state".to_owned());
        }
        self.before = Some((driver.state().clone(), n_commits));
    }
}

impl World {
    /// Returns a loop that desires nothing yet.
    pub(crate) fn new() -> Self {
        let fake = FakeWorld::new();
        let (cluster, run) = (ClusterUid([7; 16]), RunId(1));
        let (observations, received) = unbounded_channel();
        let agents = Agents::new(fake.clone(), observations.clone());
        let options = ExecutorOptions { cluster, run, clock: fake.clock() };
        let executor = Executor::new(options, [fake.setup()], observations.clone());
        let findings = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&findings);
        let oracle = Oracle::new(move |finding| told.lock().unwrap().push(finding.to_owned()));
        let identity =
            Identity { cluster, run, begun_at: SystemTime::UNIX_EPOCH, secret: Secret([7; 32]) };
        let store = Arc::new(MemoryStore::new(identity));
        let witness = Durable {
            oracle,
            store: Arc::clone(&store),
            before: None,
            findings: Arc::clone(&findings),
        };
        let snapshots = executor.clone();
        let parts = Parts {
            executor: Arc::new(executor),
            snapshot: SnapshotSource::new(move || snapshots.snapshot()),
            roster: Arc::new(agents.clone()),
            outputs: Outputs::new(fake.clock(), observations.clone()),
            observations: received,
            witness: Some(Box::new(witness)),
            store: store.clone(),
        };
        let options = Options::new(cluster, run, fake.clock(), vec!["fake".into()]);
        let (service, handle) = Service::new(options, parts, Before::default());
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(service.run(CancellationToken::new()))),
            AbortOnDropHandle::new(tokio::spawn(agents.clone().run())),
        ];
        Self { fake, agents, handle, observations, store, findings, _tasks: tasks }
    }

    /// Returns a loop on which a file has converged.
    pub(super) async fn converged(file: ClusterFile) -> Self {
        let world = Self::new();
        world.apply(file).await.unwrap();
        world.until_converged().await;
        world
    }

    pub(super) async fn apply(&self, file: ClusterFile) -> Result<Applied, Error> {
        self.handle.apply(file, None, true).await
    }

    pub(super) async fn nodes(&self) -> Vec<NodeView> {
        self.handle.nodes().await.unwrap()
    }

    pub(super) async fn explain(&self, id: &str) -> ExplainView {
        self.handle.explain(id.into()).await.unwrap()
    }

    /// Returns the current attempt of every node.
    pub(super) async fn attempts(&self) -> BTreeMap<String, u64> {
        let nodes = self.nodes().await.into_iter();
        nodes.filter_map(|node| Some((node.node, node.attempt?))).collect()
    }

    /// Returns all events of these codes, oldest first.
    pub(super) async fn events(&self, codes: &[&str]) -> Vec<EventView> {
        let all = self.handle.events(None, Some(0), usize::MAX).await.unwrap();
        all.into_iter().filter(|event| codes.contains(&event.code.as_str())).collect()
    }

    /// Waits until the nodes are so.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&[NodeView]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let nodes = self.nodes().await;
            if holds(&nodes) {
                return;
            }
            assert!(Instant::now() < deadline, "waited in vain: {what}\n{nodes:#?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn until_converged(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.handle.status().await.unwrap().converged {
            let nodes = self.nodes().await;
            assert!(Instant::now() < deadline, "does not converge\n{nodes:#?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the store takes what happens.
    pub(super) async fn until_recorded(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.handle.records().await.unwrap().doubt.is_some() {
            assert!(Instant::now() < deadline, "the store takes nothing");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns how many machines there are, by the provider's word.
    pub(super) fn n_leases(&self) -> usize {
        self.fake.leases().len()
    }

    /// Returns the machines, by the provider's word.
    pub(super) fn leases(&self) -> Vec<FoundLease> {
        self.fake.leases()
    }

    pub(super) fn n_creates(&self) -> usize {
        self.fake.n_calls(CallKind::Create)
    }

    /// Checks what must hold of every history, and takes the cluster down to nothing.
    pub(super) async fn end(self) {
        self.handle.down().await.unwrap();
        self.until("all nodes are gone", <[NodeView]>::is_empty).await;
        assert_eq!(self.n_leases(), 0, "no machine is left");
        self.check();
    }

    /// Checks what must hold of every history.
    pub(super) fn check(&self) {
        let findings = self.findings.lock().unwrap();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
        assert!(self.fake.most_leases_of_a_slot() <= 1, "two machines for one slot");
    }
}
