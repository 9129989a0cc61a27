//! An executor over fake worlds, with submissions in short and outcomes as text.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use myelin_executor::{
    Clock, EffectExecutor, Executor, Options, ProviderSetup, Submission, SubmitError,
    fake::FakeWorld,
};
use myelin_shape::{
    AttemptKey, BootstrapSessionId, ClusterUid, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    NodeTemplate, OperationId, RunId, RunNodeGroupSpec,
};
use myelin_state::{
    Connection, ErrorClass, ExecEndpoint, LeaseFacts, LeaseMode, NodeEvent, NodeManagerCommand,
    NodeObservation, OperationOutcome,
};

pub(crate) const CLUSTER: ClusterUid = ClusterUid([7; 16]);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long an operation has, unless a test says otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) struct Rig {
    pub(crate) world: FakeWorld,
    pub(crate) executor: Executor,
    pub(crate) clock: Clock,
    pub(crate) results: UnboundedReceiver<NodeObservation>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let world = FakeWorld::new();
        Self::with([world.setup()], world)
    }

    pub(crate) fn with(setups: impl IntoIterator<Item = ProviderSetup>, world: FakeWorld) -> Self {
        let (sender, results) = unbounded_channel();
        let options = Options { cluster: CLUSTER, run: RunId(1), clock: world.clock() };
        Self {
            clock: options.clock.clone(),
            executor: Executor::new(options, setups, sender),
            world,
            results,
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// Submits under attempt 1 of `worker-0`.
    pub(crate) fn submit(&self, sequence: u64, command: NodeManagerCommand) {
        self.try_submit("worker-0", id(1, sequence), command).expect("the submission is in order");
    }

    pub(crate) fn try_submit(
        &self,
        node: &str,
        operation: OperationId,
        command: NodeManagerCommand,
    ) -> Result<(), SubmitError> {
        self.executor.submit(Submission {
            node: node.into(),
            operation,
            command,
            generation: 1,
            deadline: self.now() + TIMEOUT,
        })
    }

    pub(crate) fn expire(&self, sequence: u64) {
        self.executor.expire(&LogicalNodeId::from("worker-0"), id(1, sequence));
    }

    /// Waits for the next outcome, as long as any deadline could matter.
    pub(crate) async fn outcome(&mut self) -> String {
        let received = timeout(Duration::from_hours(24), self.results.recv()).await;
        let observation = received.expect("an outcome comes").expect("the executor lives");
        show(&observation)
    }

    /// Submits and waits for the outcome.
    pub(crate) async fn perform(&mut self, sequence: u64, command: NodeManagerCommand) -> String {
        self.submit(sequence, command);
        self.outcome().await
    }

    /// Lets everything happen that needs no time.
    pub(crate) async fn settle(&self) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn no_outcome(&mut self) {
        if let Ok(observation) = self.results.try_recv() {
            panic!("unexpected outcome {}", show(&observation));
        }
    }

    /// Returns the lease of attempt 1.
    pub(crate) fn lease(&self) -> LeaseFacts {
        self.world.leases()[0].lease.clone()
    }
}

pub(crate) fn id(attempt: u64, sequence: u64) -> OperationId {
    OperationId { attempt: NodeAttemptId(attempt), sequence }
}

pub(crate) fn key(attempt: u64) -> AttemptKey {
    AttemptKey {
        cluster: CLUSTER,
        run: RunId(1),
        node: "worker-0".into(),
        attempt: NodeAttemptId(attempt),
    }
}

pub(crate) fn template(image: &str, provider: &str) -> Arc<NodeTemplate> {
    let mut group = RunNodeGroupSpec::new(RunId(1), "worker", 1, provider);
    image.clone_into(&mut group.shape.image);
    Arc::new(group.template())
}

pub(crate) fn spec_of(template: Arc<NodeTemplate>) -> LogicalNodeSpec {
    LogicalNodeSpec { logical_node_id: "worker-0".into(), index: 0, template }
}

pub(crate) fn spec() -> LogicalNodeSpec {
    spec_of(template("", "fake"))
}

pub(crate) fn create_of(spec: LogicalNodeSpec) -> NodeManagerCommand {
    NodeManagerCommand::CreateLease { spec, mode: LeaseMode::CreateOrAdopt, unsettled_since: None }
}

pub(crate) fn create() -> NodeManagerCommand {
    create_of(spec())
}

pub(crate) fn create_again(mode: LeaseMode, since: SystemTime) -> NodeManagerCommand {
    NodeManagerCommand::CreateLease { spec: spec(), mode, unsettled_since: Some(since) }
}

pub(crate) fn start_again(
    lease: LeaseFacts,
    mode: LeaseMode,
    unsettled_since: Option<SystemTime>,
) -> NodeManagerCommand {
    let target = lease.lease_id.as_str().into();
    NodeManagerCommand::StartBootstrap {
        spec: spec(),
        lease,
        connection: Connection::Exec(ExecEndpoint { target }),
        mode,
        unsettled_since,
    }
}

pub(crate) fn start(lease: LeaseFacts) -> NodeManagerCommand {
    start_again(lease, LeaseMode::CreateOrAdopt, None)
}

pub(crate) fn look_up(lease: LeaseFacts) -> NodeManagerCommand {
    NodeManagerCommand::LookupEndpoint { lease }
}

pub(crate) fn destroy(lease: LeaseFacts) -> NodeManagerCommand {
    NodeManagerCommand::DestroyLease { lease }
}

pub(crate) fn cancel(session: u64) -> NodeManagerCommand {
    cancel_at("fake", session)
}

pub(crate) fn cancel_at(provider: &str, session: u64) -> NodeManagerCommand {
    NodeManagerCommand::CancelBootstrap {
        provider: provider.into(),
        session: BootstrapSessionId(session),
    }
}

pub(crate) fn conclude(session: Option<u64>) -> NodeManagerCommand {
    NodeManagerCommand::BootstrapConvergenceObserved {
        provider: "fake".into(),
        session: session.map(BootstrapSessionId),
    }
}

/// A lease no world ever made.
pub(crate) fn stray_lease() -> LeaseFacts {
    LeaseFacts {
        provider: "fake".into(),
        lease_id: "lease-999".into(),
        provider_contract_id: "lease-999".into(),
        offer_id: None,
        destroy_handle: "lease-999".into(),
        provider_metadata: None,
        price: None,
    }
}

/// Renders what tests compare: the operation and how it ended.
pub(crate) fn show(observation: &NodeObservation) -> String {
    let NodeEvent::OperationFinished { operation, outcome } = &observation.event else {
        return format!("{observation:?}");
    };
    format!("{operation} {}", show_outcome(outcome))
}

fn show_outcome(outcome: &OperationOutcome) -> String {
    match outcome {
        OperationOutcome::LeaseCreated { lease, connection } => {
            let connected = if connection.is_some() { ", connected" } else { "" };
            format!("created {}{connected}", lease.lease_id)
        }
        OperationOutcome::BootstrapStarted { session } => format!("started {session}"),
        OperationOutcome::EndpointFound(_) => "endpoint found".to_owned(),
        OperationOutcome::Failed(error) => {
            if let ErrorClass::RateLimited(after) = error.class {
                return format!("rate limited for {after:?}");
            }
            error.to_string()
        }
        OperationOutcome::LeaseAbsent
        | OperationOutcome::EndpointNotReady
        | OperationOutcome::BootstrapAbsent
        | OperationOutcome::ConvergenceRecorded
        | OperationOutcome::BootstrapCancelled
        | OperationOutcome::LeaseDestroyed => format!("{outcome:?}"),
    }
}
