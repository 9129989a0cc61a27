//! A fake world, records in memory, and an inventory between them.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::advance,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use myelin_executor::{
    CreateRequest, FoundLease, ProviderIdentity,
    fake::{CallKind, FakeWorld},
};
use myelin_inventory::{
    Finding, Handle, Inventory, Life, Options, Records, Slot, Taking, Unasked, View,
};
use myelin_shape::{
    AttemptKey, ClusterUid, NodeAttemptId, ProviderKind, RunId, RunNodeGroupSpec, expand_node_group,
};
use myelin_state::NodeObservation;

pub(crate) const CLUSTER: ClusterUid = ClusterUid([7; 16]);

#[derive(Debug)]
pub(crate) struct Books {
    world: FakeWorld,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) view: Result<View, String>,
    pub(crate) refusal: Option<String>,
    pub(crate) identities: Vec<(ProviderKind, ProviderIdentity)>,
    pub(crate) lose_identities: bool,
    pub(crate) findings: Vec<Finding>,
    /// Each recorded taking, with whether the lease existed then.
    pub(crate) takings: Vec<(Taking, bool)>,
    /// What was taken unasked, as last recorded.
    pub(crate) unasked: Unasked,
    /// How many listings had been made at each reading.
    pub(crate) readings: Vec<usize>,
}

impl Books {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds the books")
    }
}

#[async_trait]
impl Records for Books {
    async fn view(&self) -> Result<View, String> {
        tokio::task::yield_now().await;
        let mut inner = self.inner();
        inner.readings.push(self.world.n_calls(CallKind::List));
        inner.view.clone()
    }

    async fn record_taking(&self, taking: &Taking, unasked: &Unasked) -> Result<(), String> {
        tokio::task::yield_now().await;
        let lease = &taking.found.lease.lease_id;
        let exists = self.world.leases().iter().any(|it| it.lease.lease_id == *lease);
        let mut inner = self.inner();
        if let Some(refusal) = &inner.refusal {
            return Err(refusal.clone());
        }
        inner.takings.push((taking.clone(), exists));
        inner.unasked = unasked.clone();
        Ok(())
    }

    async fn record_identity(
        &self,
        provider: &ProviderKind,
        identity: &ProviderIdentity,
    ) -> Result<(), String> {
        let mut inner = self.inner();
        if inner.lose_identities {
            return Err("disk full".to_owned());
        }
        inner.identities.push((provider.clone(), identity.clone()));
        Ok(())
    }

    fn note(&self, finding: &Finding) {
        self.inner().findings.push(finding.clone());
    }
}

pub(crate) struct Rig {
    pub(crate) world: FakeWorld,
    pub(crate) books: Arc<Books>,
    pub(crate) options: Options,
    pub(crate) shutdown: CancellationToken,
    pub(crate) observations: UnboundedReceiver<NodeObservation>,
}

impl Rig {
    /// Returns a world with so many recorded nodes, five minutes old.
    pub(crate) async fn of_nodes(n: u64) -> Self {
        let world = FakeWorld::new();
        let view = View {
            cluster: CLUSTER,
            run: RunId(1),
            next_attempt_id: 1000,
            generation: 9,
            longest_create: Duration::ZERO,
            paused: false,
            doubt: None,
            slots: std::collections::BTreeMap::new(),
        };
        let books = Arc::new(Books {
            world: world.clone(),
            inner: Mutex::new(Inner {
                view: Ok(view),
                refusal: None,
                identities: Vec::new(),
                lose_identities: false,
                findings: Vec::new(),
                takings: Vec::new(),
                unasked: Unasked::new(),
                readings: Vec::new(),
            }),
        });
        let rig = Self {
            options: Options::new(CLUSTER, world.clock()),
            world,
            books,
            shutdown: CancellationToken::new(),
            observations: unbounded_channel().1,
        };
        for number in 0..n {
            rig.make(number).await;
        }
        rig.record_all();
        advance(Duration::from_mins(5)).await;
        rig
    }

    /// Makes a lease for the attempt of this number, without recording it.
    pub(crate) async fn make(&self, number: u64) {
        let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
        let spec = expand_node_group(&group).next().expect("one node");
        let request = CreateRequest {
            key: AttemptKey {
                cluster: CLUSTER,
                run: RunId(1),
                node: format!("worker-{number}").into(),
                attempt: NodeAttemptId(number),
            },
            template_digest: "digest".into(),
            generation: 1,
            spec,
        };
        self.world.provider().create(&request).await.expect("nothing is scripted");
    }

    /// Makes leases that nobody recorded, and lets them grow old.
    pub(crate) async fn make_orphans(&self, n: u64) {
        for number in 0..n {
            self.make(500 + number).await;
        }
        advance(Duration::from_mins(5)).await;
    }

    pub(crate) fn record_all(&self) {
        let slots = self.world.leases().into_iter().map(|FoundLease { key, lease, .. }| {
            let slot = Slot {
                attempt: key.attempt,
                life: Life::Live,
                may_be_creating: false,
                lease: Some(Box::new(lease)),
                digest: None,
                existed_at: None,
                last_contact: None,
            };
            (key.node, slot)
        });
        self.books.inner().view.as_mut().expect("readable yet").slots.extend(slots);
    }

    pub(crate) fn start(&mut self) -> (Handle, AbortOnDropHandle<()>) {
        let (sender, observations) = unbounded_channel();
        self.observations = observations;
        let records: Arc<dyn Records> = Arc::clone(&self.books) as _;
        let providers = [self.world.provider()];
        let (inventory, handle) = Inventory::new(self.options.clone(), providers, records, sender);
        let task = tokio::spawn(inventory.run(self.shutdown.clone()));
        (handle, AbortOnDropHandle::new(task))
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.books.inner().findings.iter().map(ToString::to_string).collect()
    }
}
