//! One figure a run: `figures <name> <nodes> [repeats]`, printed as JSON. `cargo xtask bench` collects them.
//!
//! What is measured happens in functions named `measured_*`, so that a profiler can count their instructions alone.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

mod fixture;

use std::{env, fs, hint::black_box, time::Instant};

use myelin_decider::{Planner, ReconcilePlan, Topology};
use myelin_driver::{ClusterDriver, Effects, Event};
use myelin_shape::{ClusterShape, LogicalNodeId};
use myelin_state::{ClusterState, NodeObservation};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let args: Vec<String> = env::args().filter(|arg| !arg.starts_with("--")).collect();
    let [_, name, nodes, rest @ ..] = args.as_slice() else {
        println!("usage: figures <name> <nodes> [repeats]");
        return;
    };
    let n: u32 = nodes.replace('_', "").parse().expect("a number of nodes");
    let repeats: usize = rest.first().map_or(5, |text| text.parse().expect("a number of repeats"));
    let (unit, mut samples) = match name.as_str() {
        "cold" => ("ns_per_node", cold(n, repeats)),
        "steady" => ("ns_per_node", steady(n, repeats)),
        "incremental" => ("ns_per_pass", incremental(n, repeats)),
        "react" => ("ns_per_pass", react(n, repeats)),
        "oracle" => ("ns_per_node", oracle(n, repeats)),
        "converge" => ("ns_per_node", converge(n, repeats)),
        "memory" => ("bytes_per_node", memory(n)),
        other => panic!("no figure is called {other}"),
    };
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    println!(
        r#"{{"figure":"{name}","nodes":{n},"unit":"{unit}","median":{median:.1},"samples":{samples:.1?}}}"#
    );
}

fn timed<T>(samples: &mut Vec<f64>, per: f64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    samples.push(start.elapsed().as_nanos() as f64 / per);
    result
}

#[inline(never)]
fn measured_cold(planner: &mut Planner, state: &ClusterState) -> ReconcilePlan {
    planner.plan(state, [], fixture::start())
}

/// The first plan of a cluster that does not exist: every node is inserted.
fn cold(n: u32, repeats: usize) -> Vec<f64> {
    let topology = Topology::with_max_nodes(&fixture::shape(n, 1), u64::MAX).expect("valid");
    let state = ClusterState::default();
    let mut samples = Vec::new();
    for _ in 0..repeats {
        let mut planner = Planner::new(topology.clone());
        let plan = timed(&mut samples, f64::from(n), || measured_cold(&mut planner, &state));
        assert_eq!(plan.actions.len(), n as usize);
    }
    samples
}

#[inline(never)]
fn measured_steady(driver: &mut ClusterDriver) -> Effects {
    driver.handle(fixture::start(), Event::Tick)
}

/// A full pass over a converged cluster: the safety net looks at every node and finds nothing.
fn steady(n: u32, repeats: usize) -> Vec<f64> {
    let mut driver = fixture::converged(n);
    let mut samples = Vec::new();
    for _ in 0..repeats {
        let effects = timed(&mut samples, f64::from(n), || measured_steady(&mut driver));
        assert_eq!(effects, Effects::default());
    }
    samples
}

#[inline(never)]
fn measured_incremental(driver: &mut ClusterDriver) -> Effects {
    driver.run(fixture::start())
}

/// A pass over a converged cluster after 100 reports were folded.
fn incremental(n: u32, repeats: usize) -> Vec<f64> {
    let mut driver = fixture::converged(n);
    let mut samples = Vec::new();
    for _ in 0..repeats {
        fixture::silence(&mut driver, 100, fixture::start());
        let effects = timed(&mut samples, 1.0, || measured_incremental(&mut driver));
        assert!(effects.submit.is_empty() && effects.wake_at.is_some());
        fixture::hear(&mut driver, fixture::start());
    }
    samples
}

#[inline(never)]
fn measured_react(driver: &mut ClusterDriver, reports: Vec<NodeObservation>) -> Effects {
    for report in reports {
        driver.fold(fixture::start(), Event::Observed(report));
    }
    driver.run(fixture::start())
}

/// 100 reports from all over a converged cluster, and the pass that follows.
fn react(n: u32, repeats: usize) -> Vec<f64> {
    let mut driver = fixture::converged(n);
    let mut samples = Vec::new();
    for _ in 0..repeats {
        let reports = fixture::silences(&driver, 100, fixture::start());
        let effects = timed(&mut samples, 1.0, || measured_react(&mut driver, reports));
        assert!(effects.submit.is_empty() && effects.wake_at.is_some());
        fixture::hear(&mut driver, fixture::start());
    }
    samples
}

#[inline(never)]
fn measured_oracle(state: &ClusterState, shape: &ClusterShape) -> ReconcilePlan {
    let topology = Topology::with_max_nodes(shape, u64::MAX).expect("valid");
    Planner::new(topology).plan(state, state.nodes.keys().cloned(), fixture::start())
}

/// What the seed's `reconcile` does, without its ceiling, over a converged cluster: it expands the shape and counts anew.
fn oracle(n: u32, repeats: usize) -> Vec<f64> {
    let driver = fixture::converged(n);
    let shape = driver.desired().expect("accepted").clone();
    let mut samples = Vec::new();
    for _ in 0..repeats {
        let plan = timed(&mut samples, f64::from(n), || measured_oracle(driver.state(), &shape));
        assert!(plan.actions.is_empty());
    }
    samples
}

#[inline(never)]
fn measured_converge(driver: &mut ClusterDriver, n: u32) {
    fixture::converge(driver, n);
}

/// From nothing to converged with an executor that answers at once, through the operation ledger.
fn converge(n: u32, repeats: usize) -> Vec<f64> {
    let mut samples = Vec::new();
    for _ in 0..repeats {
        let mut driver = fixture::driver();
        timed(&mut samples, f64::from(n), || {
            measured_converge(&mut driver, n);
        });
        black_box(&driver);
    }
    samples
}

/// Live heap bytes of a converged driver: state, planner and queue; the ledger is the executor's.
fn memory(n: u32) -> Vec<f64> {
    let region = Region::new(ALLOCATOR);
    let driver = fixture::converged(n);
    let change = region.change();
    let live = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    black_box::<Option<&LogicalNodeId>>(driver.state().nodes.keys().next());
    let resident = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    println!("statm: {}", resident.trim());
    vec![live / f64::from(n)]
}
