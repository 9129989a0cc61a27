//! The whole loop in one program: a driver, and an executor of our own that answers at once.
//!
//! ```sh
//! cargo run -p myelin-driver --example embed
//! ```
//!
//! The guide walks through this file in "Embed the driver".

use std::{
    collections::VecDeque,
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use myelin_check::{Linter, Settled, Snapshot};
use myelin_driver::{ClusterDriver, Desired, Effects, Event, Options, Submission};
use myelin_shape::{BootstrapSessionId, ClusterShape, RunId, RunNodeGroupSpec};
use myelin_state::{
    Connection, ErrorClass, ExecEndpoint, LeaseFacts, NodeEvent, NodeManagerCommand,
    NodeObservation, OperationError, OperationOutcome,
};

const START: SystemTime = SystemTime::UNIX_EPOCH;

/// An executor: it carries out what it is given, and says how that ended.
#[derive(Debug, Default)]
struct Yard {
    n_leased: u64,
}

impl Yard {
    /// Carries out one effect. Everything that is learned from it is an observation of the attempt it belongs to.
    fn carry_out(&mut self, submission: &Submission) -> Vec<Event> {
        let mut agent = None;
        let outcome = match &submission.command {
            // The yard is empty at first: what fails is tried again, when the driver says so.
            NodeManagerCommand::CreateLease { .. } if self.n_leased == 0 => {
                self.n_leased = 1;
                OperationOutcome::Failed(OperationError {
                    class: ErrorClass::NoCapacity,
                    message: "the yard is empty".into(),
                })
            }
            NodeManagerCommand::CreateLease { .. } => {
                self.n_leased += 1;
                let lease = self.lease();
                OperationOutcome::LeaseCreated {
                    connection: Some(connection(&lease)),
                    lease: Box::new(lease),
                }
            }
            NodeManagerCommand::LookupEndpoint { lease } => {
                OperationOutcome::EndpointFound(connection(lease))
            }
            NodeManagerCommand::StartBootstrap { .. } => {
                agent = Some(format!("agent-{}", submission.operation.attempt));
                let session = BootstrapSessionId(submission.operation.attempt.0);
                OperationOutcome::BootstrapStarted { session }
            }
            NodeManagerCommand::BootstrapConvergenceObserved { .. } => {
                OperationOutcome::ConvergenceRecorded
            }
            NodeManagerCommand::CancelBootstrap { .. } => OperationOutcome::BootstrapCancelled,
            NodeManagerCommand::DestroyLease { .. } => OperationOutcome::LeaseDestroyed,
        };
        let operation = submission.operation;
        let finished = NodeEvent::OperationFinished { operation, outcome };
        let joined = agent.map(|agent| NodeEvent::Joined { swactor: agent.as_str().into() });
        let events = [Some(finished), joined].into_iter().flatten();
        let observed = |event| {
            Event::Observed(NodeObservation {
                node: submission.node.clone(),
                attempt: submission.operation.attempt,
                event,
            })
        };
        events.map(observed).collect()
    }

    fn lease(&self) -> LeaseFacts {
        let name = format!("machine-{}", self.n_leased);
        LeaseFacts {
            provider: "yard".into(),
            lease_id: name.as_str().into(),
            provider_contract_id: name.as_str().into(),
            offer_id: None,
            destroy_handle: name.as_str().into(),
            provider_metadata: None,
            price: None,
        }
    }
}

fn connection(lease: &LeaseFacts) -> Connection {
    Connection::Exec(ExecEndpoint { target: lease.lease_id.as_str().into() })
}

/// The loop around a driver, in virtual time.
struct Loop {
    driver: ClusterDriver,
    yard: Yard,
    linter: Linter,
    now: SystemTime,
    told: String,
}

impl Loop {
    fn new() -> Self {
        Self {
            driver: ClusterDriver::new(Options::default()),
            yard: Yard::default(),
            linter: Linter::new(),
            now: START,
            told: String::new(),
        }
    }

    /// Wants a cluster, and works until it is so.
    fn want(&mut self, shape: ClusterShape) {
        let mut inbox = VecDeque::from([Event::Desired(Box::new(Desired::new(shape)))]);
        loop {
            let event = inbox.pop_front().unwrap_or(Event::Wake);
            let effects = self.driver.handle(self.now, event);
            self.tell(&effects);
            self.lint(&effects);
            // A durable driver commits `effects.changed` here, before anything is submitted.
            for submission in &effects.submit {
                inbox.extend(self.yard.carry_out(submission));
            }
            // `effects.expire` stops what takes too long, and `effects.forget` drops what is over: nothing here.
            if inbox.is_empty() {
                // Nothing is under way, so the next thing to happen is a deadline. A cluster at rest has none.
                let Some(time) = effects.wake_at else { return };
                self.now = time;
            }
        }
    }

    /// Writes down what happened, one line each.
    fn tell(&mut self, effects: &Effects) {
        for event in &effects.changed.events {
            let at = event.at.duration_since(START).unwrap_or_default();
            let node = event.node.as_ref().map_or("-", |node| node.as_str());
            writeln!(self.told, "{:>4} {node} {}", at.as_secs(), event.kind)
                .expect("a string takes everything");
        }
    }

    /// Compares every step with the rules of the loop.
    fn lint(&mut self, effects: &Effects) {
        let snapshot = Snapshot {
            desired: self.driver.desired(),
            history: Some(&effects.changed.events),
            settled: Some(Settled { wake_at: effects.wake_at }),
            ..Snapshot::new(self.driver.state(), self.now)
        };
        self.linter.step(&snapshot).unwrap_or_else(|violations| panic!("{violations}"));
    }
}

fn shape(generation: u64, count: u32) -> ClusterShape {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", count, "yard");
    ClusterShape::new(RunId(1), generation, [group])
}

fn story() -> String {
    let mut it = Loop::new();
    it.want(shape(1, 2));
    it.now += Duration::from_hours(1);
    it.want(shape(2, 1));
    it.told
}

fn main() {
    #[expect(clippy::print_stdout, reason = "an example shows something")]
    {
        print!("{}", story());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_of_two_becomes_ready_and_then_one() {
        insta::assert_snapshot!(story(), @r"
           0 - desired generation 1 accepted
           0 worker-0 slot added
           0 worker-1 slot added
           0 worker-0 CreateLease 0.0 submitted
           0 worker-1 CreateLease 1.0 submitted
           0 worker-0 CreateLease 0.0 failed: no capacity: the yard is empty
           0 worker-1 CreateLease 1.0 done
           0 worker-1 LeaseRequested → EndpointKnown
           0 worker-1 StartBootstrap 1.1 submitted
           0 worker-1 StartBootstrap 1.1 done
           0 worker-1 EndpointKnown → BootstrapRunning
           0 worker-1 BootstrapRunning → SwactorJoined
           0 worker-1 BootstrapConvergenceObserved 1.2 submitted
           0 worker-1 BootstrapConvergenceObserved 1.2 done
           0 worker-1 SwactorJoined → Dormant
           0 worker-1 ready
           1 worker-0 CreateLease 0.1 submitted
           1 worker-0 CreateLease 0.1 done
           1 worker-0 LeaseRequested → EndpointKnown
           1 worker-0 StartBootstrap 0.2 submitted
           1 worker-0 StartBootstrap 0.2 done
           1 worker-0 EndpointKnown → BootstrapRunning
           1 worker-0 BootstrapRunning → SwactorJoined
           1 worker-0 BootstrapConvergenceObserved 0.3 submitted
           1 worker-0 BootstrapConvergenceObserved 0.3 done
           1 worker-0 SwactorJoined → Dormant
           1 worker-0 ready
        3601 - desired generation 2 accepted
        3601 worker-1 cleanup began: no longer desired
        3601 worker-1 DestroyLease 1.3 submitted
        3601 worker-1 DestroyLease 1.3 done
        3601 worker-1 cleaned up
        3601 worker-1 slot removed
        ");
    }
}
