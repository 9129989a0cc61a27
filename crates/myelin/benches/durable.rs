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
    env,
    time::{Duration, Instant},
};

use myelin_driver::{ClusterDriver, Effects};
use myelin_shape::{ClusterUid, RunId};
use myelin_state::OperationKind;
use myelin_store::{
    Batch, Identity, Options, Secret, Source, SqliteStore, Store, StoreError, StoredDesired,
};
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
    // The temporary directory may be in memory.
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let identity = Identity {
        cluster: ClusterUid([1; 16]),
        run: RunId(1),
        begun_at: fixture::start(),
        secret: Secret([2; 32]),
    };
    let store = SqliteStore::create(directory.path(), &identity, Options::default());
    let store = runtime.block_on(store).expect("a fresh directory");
    let mut driver = fixture::driver();
    let mut n_commits = 0;
    let start = Instant::now();
    fixture::converge_recorded(&mut driver, n, |driver, effects| {
        n_commits += 1;
        if figure == "disk" {
            runtime.block_on(commit(&store, driver, effects)).expect("the disk has room");
        }
    });
    (start.elapsed(), n_commits)
}

async fn commit(
    store: &SqliteStore,
    driver: &ClusterDriver,
    effects: &Effects,
) -> Result<(), StoreError> {
    let desired = driver.desired().filter(|_| effects.changed.desired);
    let desired = desired.map(|shape| StoredDesired {
        shape: shape.clone(),
        retry: driver.retry_policy().clone(),
        source: Source::default(),
        accepted_at: fixture::start(),
    });
    let barrier = effects.submit.iter().any(|submission| {
        matches!(
            submission.command.kind(),
            OperationKind::CreateLease | OperationKind::DestroyLease
        )
    });
    let batch = Batch {
        nodes: &effects.changed.nodes,
        cluster: effects.changed.cluster,
        desired: desired.as_ref(),
        events: &effects.changed.events,
        barrier,
        ..Batch::new(fixture::start(), driver.state())
    };
    store.commit(batch).await
}
