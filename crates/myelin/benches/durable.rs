//! What durability costs the loop: `durable <nodes> [repeats]`, printed as JSON. `cargo xtask bench` collects it.
//!
//! From nothing to converged with an executor that answers at once, every run of the driver committed to SQLite on disk
//! before anything of it is carried out, as the loop does it.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    dead_code,
    reason = "a program that prints figures, with a fixture that others use more of"
)]

#[path = "../../myelin-driver/benches/fixture/mod.rs"]
mod fixture;

use std::{
    collections::VecDeque,
    env,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use myelin_driver::{ClusterDriver, DriverEvent, Effects, Submission};
use myelin_durable::{DurableDriver, Shell};
use myelin_executor::Ledger;
use myelin_shape::{ClusterUid, LogicalNodeId, NodeAttemptId, OperationId, RunId};
use myelin_store::{Identity, Options, Secret, Source, SqliteStore};
use tokio::runtime;

fn main() {
    let args: Vec<String> = env::args().filter(|arg| !arg.starts_with("--")).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.replace('_', "").parse().ok());
    let (n, repeats) = (number(1).unwrap_or(1000), number(2).unwrap_or(1));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for figure in ["memory", "disk"] {
        let mut samples: Vec<_> = (0..repeats).map(|_| measure(&runtime, n, figure)).collect();
        samples.sort();
        let (total, n_commits) = samples[samples.len() / 2];
        let (total, per_commit) =
            (total.as_secs_f64(), total.as_secs_f64() * 1e6 / n_commits as f64);
        println!(
            r#"{{"figure":"durable_{figure}","nodes":{n},"seconds":{total:.3},"passes":{n_commits},"us_per_pass":{per_commit:.1}}}"#
        );
    }
}

/// Returns how long it took, and how many runs of the driver it were.
fn measure(runtime: &runtime::Runtime, n: u32, figure: &str) -> (Duration, u64) {
    if figure == "memory" {
        let (start, mut driver) = (Instant::now(), fixture::driver());
        let n_runs = fixture::converge(&mut driver, n);
        return (start.elapsed(), n_runs);
    }
    // The temporary directory may be in memory.
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let identity = Identity {
        cluster: ClusterUid([1; 16]),
        run: RunId(1),
        begun_at: fixture::start(),
        secret: Secret([2; 32]),
    };
    runtime.block_on(async {
        let store = SqliteStore::create(directory.path(), &identity, Options::default());
        let store = store.await.expect("a fresh directory");
        let start = Instant::now();
        let n_runs = converge(store, n).await;
        (start.elapsed(), n_runs)
    })
}

async fn converge(store: SqliteStore, n: u32) -> u64 {
    let mut durable = DurableDriver::new(fixture::driver(), Arc::new(store), Source::default());
    let mut ledger = Ledger::beginning_at(fixture::start());
    let mut shell = Obedient::default();
    durable.fold(fixture::start(), fixture::desired(n));
    durable.settle(&mut shell).await;
    while !shell.waiting.is_empty() {
        let batch = fixture::BATCH.min(shell.waiting.len());
        for submission in shell.waiting.drain(..batch) {
            for event in fixture::answers(&mut ledger, submission) {
                durable.fold(fixture::start(), event);
            }
        }
        durable.settle(&mut shell).await;
        assert!(durable.trouble().is_none(), "the disk has room");
    }
    assert!(durable.driver().convergence().converged, "nothing is left to wait for");
    shell.n_runs
}

/// Takes every effect.
#[derive(Default)]
struct Obedient {
    waiting: VecDeque<Submission>,
    n_runs: u64,
}

impl Shell for Obedient {
    fn now(&self) -> SystemTime {
        fixture::start()
    }

    fn ran(&mut self, _: &ClusterDriver, _: &Effects, _: SystemTime) {
        self.n_runs += 1;
    }

    fn tell(&mut self, _: DriverEvent) {}

    fn submit(&mut self, submission: Submission) -> Result<(), Box<str>> {
        self.waiting.push_back(submission);
        Ok(())
    }

    fn expire(&mut self, _: &LogicalNodeId, _: OperationId) {}

    fn forget(&mut self, _: &ClusterDriver, _: LogicalNodeId, _: NodeAttemptId) {}
}
