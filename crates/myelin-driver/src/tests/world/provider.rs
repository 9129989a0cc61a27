//! Machines, bootstraps and agents, as they really are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use myelin_shape::{
    BootstrapSessionId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId, OperationId, SwactorId,
};
use myelin_state::{
    BootstrapStage, Connection, ErrorClass, ExecEndpoint, LeaseFacts, LeaseMode, NodeEvent,
    NodeManagerCommand, NodeObservation, OperationError, OperationKind, OperationOutcome,
};

use super::{Boot, Happening, Reply, script::Script};
use crate::{Event, Submission};

/// How long an effect takes.
const TAKES: Duration = Duration::from_secs(1);

pub(crate) type AgentKey = (LogicalNodeId, NodeAttemptId);

/// The provider, the machines it leased, and what runs on them.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    pub(crate) script: Script,
    /// Live leases by what they were made for.
    pub(crate) leases: BTreeSet<AgentKey>,
    pub(crate) n_leases_ever: usize,
    pub(crate) most_leases: usize,
    sessions: BTreeMap<AgentKey, BootstrapSessionId>,
    n_sessions: u64,
    agents: BTreeSet<AgentKey>,
    /// Agents that found the listener closed.
    pub(crate) waiting: Vec<AgentKey>,
    /// Effects whose outcome may still be unknown when their time is over.
    open: BTreeMap<OperationId, OperationKind>,
    stuck: BTreeSet<OperationId>,
}

type Later = Vec<(SystemTime, Happening)>;

impl Provider {
    /// Does what an effect asks, as the script wants it, and says what the driver learns of it when.
    pub(crate) fn submit(&mut self, now: SystemTime, submission: &Submission) -> Later {
        let Submission { node, operation, command, .. } = submission;
        let kind = command.kind();
        let mut later = Vec::new();
        let reply = self.script.reply(kind, node);
        self.open.insert(*operation, kind);
        let answer = |outcome| finished(node, *operation, outcome);
        if let Reply::Fails(class) = reply {
            if class == ErrorClass::AlreadyAbsent && kind == OperationKind::DestroyLease {
                self.destroy(&(node.clone(), operation.attempt));
            }
            later.push((now + TAKES, answer(failed(class))));
            return later;
        }
        if reply == Reply::Stuck {
            self.stuck.insert(*operation);
            return later;
        }
        let outcome = self.perform(now, node, operation.attempt, command, &mut later);
        match reply {
            Reply::Works => later.push((now + TAKES, answer(outcome))),
            Reply::After(delay) => later.push((now + delay, answer(outcome))),
            Reply::Twice => {
                later.push((now + TAKES, answer(outcome.clone())));
                later.push((now + 3 * TAKES, answer(outcome)));
            }
            Reply::Ambiguous => later.push((now + TAKES, answer(failed(ErrorClass::Ambiguous)))),
            Reply::Lost | Reply::Fails(_) | Reply::Stuck => {}
        }
        later
    }

    /// Stops an effect whose time is over; its outcome is not known.
    pub(crate) fn expire(
        &mut self,
        now: SystemTime,
        node: &LogicalNodeId,
        operation: OperationId,
    ) -> Later {
        if self.stuck.contains(&operation) {
            return Vec::new();
        }
        let class = match self.open.remove(&operation) {
            Some(kind) if kind.creates() => ErrorClass::Ambiguous,
            _ => ErrorClass::Transient,
        };
        vec![(now + TAKES, finished(node, operation, failed(class)))]
    }

    fn perform(
        &mut self,
        now: SystemTime,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        command: &NodeManagerCommand,
        later: &mut Later,
    ) -> OperationOutcome {
        let key = (node.clone(), attempt);
        match command {
            NodeManagerCommand::CreateLease { mode, .. } => self.create(&key, *mode),
            NodeManagerCommand::LookupEndpoint { .. } => {
                OperationOutcome::EndpointFound(connection(&key))
            }
            NodeManagerCommand::StartBootstrap { mode, spec, .. } => {
                self.start(now, key, *mode, spec, later)
            }
            NodeManagerCommand::BootstrapConvergenceObserved { .. } => {
                self.sessions.remove(&key);
                OperationOutcome::ConvergenceRecorded
            }
            NodeManagerCommand::CancelBootstrap { session, .. } => {
                if self.sessions.get(&key) == Some(session) {
                    self.sessions.remove(&key);
                    self.agents.remove(&key);
                }
                OperationOutcome::BootstrapCancelled
            }
            NodeManagerCommand::DestroyLease { .. } => {
                self.destroy(&key);
                OperationOutcome::LeaseDestroyed
            }
        }
    }

    fn create(&mut self, key: &AgentKey, mode: LeaseMode) -> OperationOutcome {
        if !self.leases.contains(key) {
            if mode == LeaseMode::AdoptOnly {
                return OperationOutcome::LeaseAbsent;
            }
            let other = self.leases.iter().find(|(node, _)| *node == key.0);
            assert_eq!(other, None, "two live leases of one slot, the second for {key:?}");
            self.leases.insert(key.clone());
            self.n_leases_ever += 1;
            self.most_leases = self.most_leases.max(self.leases.len());
        }
        OperationOutcome::LeaseCreated { lease: Box::new(lease(key)), connection: None }
    }

    fn start(
        &mut self,
        now: SystemTime,
        key: AgentKey,
        mode: LeaseMode,
        spec: &LogicalNodeSpec,
        later: &mut Later,
    ) -> OperationOutcome {
        if let Some(&session) = self.sessions.get(&key) {
            return OperationOutcome::BootstrapStarted { session };
        }
        if mode == LeaseMode::AdoptOnly {
            return OperationOutcome::BootstrapAbsent;
        }
        self.n_sessions += 1;
        let session = BootstrapSessionId(self.n_sessions);
        self.sessions.insert(key.clone(), session);
        let image = spec.template.shape.image.as_str();
        let delay = match self.script.boot(&key.0, image) {
            Boot::Joins => 4 * TAKES,
            Boot::JoinsFirst => TAKES / 2,
            Boot::Fails(stage) => {
                later.push((now + 2 * TAKES, report(&key, session, 1, BootstrapStage::SshReady)));
                later.push((now + 3 * TAKES, report(&key, session, 2, stage)));
                return OperationOutcome::BootstrapStarted { session };
            }
            Boot::Hangs => return OperationOutcome::BootstrapStarted { session },
        };
        later.push((now + 2 * TAKES, report(&key, session, 1, BootstrapStage::SshReady)));
        self.agents.insert(key.clone());
        later.push((now + delay, Happening::Dial(key)));
        OperationOutcome::BootstrapStarted { session }
    }

    pub(crate) fn destroy(&mut self, key: &AgentKey) {
        self.leases.remove(key);
        self.sessions.remove(key);
        self.agents.remove(key);
    }

    /// Works and answers from now on.
    pub(crate) fn heal(&mut self) {
        self.script.clear();
        self.stuck.clear();
    }

    /// Returns what the driver learns when an agent dials in.
    pub(crate) fn dial(&self, agent: &AgentKey) -> Option<NodeObservation> {
        let (node, attempt) = self.agents.get(agent)?.clone();
        let swactor = swactor(&node, attempt);
        let event = NodeEvent::Joined { swactor };
        Some(NodeObservation { node, attempt, event })
    }

    /// Ends the agent of a node.
    pub(crate) fn kill(&mut self, node: &LogicalNodeId) -> AgentKey {
        let agent = self.agents.iter().find(|(n, _)| n == node);
        let agent = agent.expect("the node has an agent").clone();
        self.agents.remove(&agent);
        agent
    }

    pub(crate) fn living(&self) -> Vec<AgentKey> {
        self.agents.iter().cloned().collect()
    }

    pub(crate) fn agent(&self, node: &str) -> AgentKey {
        let node = LogicalNodeId::from(node);
        let agent = self.agents.iter().find(|(n, _)| *n == node);
        agent.expect("the node has an agent").clone()
    }
}

pub(crate) fn swactor(node: &LogicalNodeId, attempt: NodeAttemptId) -> SwactorId {
    format!("{node}-{attempt}").into()
}

fn lease((node, attempt): &AgentKey) -> LeaseFacts {
    let name = format!("{node}-{attempt}");
    LeaseFacts {
        provider: "fake".into(),
        lease_id: name.as_str().into(),
        provider_contract_id: name.as_str().into(),
        offer_id: None,
        destroy_handle: name.as_str().into(),
        provider_metadata: None,
        price: None,
    }
}

fn connection((node, attempt): &AgentKey) -> Connection {
    Connection::Exec(ExecEndpoint { target: format!("{node}-{attempt}").into() })
}

fn failed(class: ErrorClass) -> OperationOutcome {
    OperationOutcome::Failed(OperationError { class, message: "scripted".into() })
}

fn finished(node: &LogicalNodeId, operation: OperationId, outcome: OperationOutcome) -> Happening {
    let event = NodeEvent::OperationFinished { operation, outcome };
    Happening::Event(Event::Observed(NodeObservation {
        node: node.clone(),
        attempt: operation.attempt,
        event,
    }))
}

fn report(
    (node, attempt): &AgentKey,
    session: BootstrapSessionId,
    sequence: u64,
    stage: BootstrapStage,
) -> Happening {
    let event = NodeEvent::Bootstrap { session, sequence, stage, message: None };
    Happening::Event(Event::Observed(NodeObservation {
        node: node.clone(),
        attempt: *attempt,
        event,
    }))
}
