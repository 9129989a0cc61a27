//! What the ledger adds to an operation: submitted, sent, ended.

use std::{sync::Arc, time::SystemTime};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

use myelin_executor::{Ledger, Submission};
use myelin_shape::{NodeAttemptId, OperationId, RunId, RunNodeGroupSpec, expand_node_group};
use myelin_state::{
    Connection, ExecEndpoint, LeaseFacts, LeaseMode, NodeManagerCommand, OperationOutcome,
};

fn lease(n: u32) -> LeaseFacts {
    LeaseFacts {
        provider: "fake".into(),
        lease_id: format!("lease-{n}").into(),
        provider_contract_id: "contract".into(),
        offer_id: None,
        destroy_handle: "handle".into(),
        provider_metadata: None,
        price: None,
    }
}

/// Three operations of every node, in the order an instant executor would end them.
fn operations(n_nodes: u32) -> Vec<(Arc<Submission>, OperationOutcome)> {
    let group = RunNodeGroupSpec::new(RunId(1), "worker", n_nodes, "fake");
    let mut operations = Vec::new();
    for sequence in 0..3 {
        for (n, spec) in (0..).zip(expand_node_group(&group)) {
            let node = spec.logical_node_id.clone();
            let (command, outcome) = operation(sequence, n, spec);
            let submission = Submission {
                node,
                operation: OperationId { attempt: NodeAttemptId(u64::from(n)), sequence },
                command,
                generation: 1,
                deadline: SystemTime::UNIX_EPOCH,
            };
            operations.push((Arc::new(submission), outcome));
        }
    }
    operations
}

fn operation(
    sequence: u64,
    n: u32,
    spec: myelin_shape::LogicalNodeSpec,
) -> (NodeManagerCommand, OperationOutcome) {
    let lease = lease(n);
    let connection = Connection::Exec(ExecEndpoint { target: "target".into() });
    let session = myelin_shape::BootstrapSessionId(u64::from(n));
    match sequence {
        0 => (
            NodeManagerCommand::CreateLease {
                spec,
                mode: LeaseMode::CreateOrAdopt,
                unsettled_since: None,
            },
            OperationOutcome::LeaseCreated { lease: Box::new(lease), connection: Some(connection) },
        ),
        1 => (
            NodeManagerCommand::StartBootstrap {
                spec,
                lease,
                connection,
                mode: LeaseMode::CreateOrAdopt,
                unsettled_since: None,
            },
            OperationOutcome::BootstrapStarted { session },
        ),
        _ => (
            NodeManagerCommand::BootstrapConvergenceObserved {
                provider: "fake".into(),
                session: Some(session),
            },
            OperationOutcome::ConvergenceRecorded,
        ),
    }
}

fn push(ledger: &mut Ledger, operations: Vec<(Arc<Submission>, OperationOutcome)>) {
    for (submission, outcome) in operations {
        ledger.submit(&submission).expect("each is the newest");
        ledger.sent(submission.operation);
        ledger.ended(submission.operation, Some(outcome));
    }
}

fn three_operations_of_each_node(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger");
    group.sample_size(10);
    // The first fits the caches: what the code costs. The second does not: what memory costs.
    for n_nodes in [1_000, 100_000] {
        let prepared = operations(n_nodes);
        group.throughput(Throughput::Elements(u64::from(n_nodes) * 3));
        group.bench_function(format!("{n_nodes} nodes"), |bencher| {
            bencher.iter_batched(
                || (Ledger::beginning_at(SystemTime::UNIX_EPOCH), prepared.clone()),
                |(mut ledger, operations)| {
                    push(&mut ledger, operations);
                    ledger
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, three_operations_of_each_node);
criterion_main!(benches);
