//! Wall times of the driver at small sizes, under criterion. `cargo xtask bench` has the large ones and the gates.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use myelin_driver::Event;

mod fixture;

const SIZES: [u32; 2] = [1_000, 10_000];

fn steady_full_pass(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("steady full pass");
    for n in SIZES {
        let mut driver = fixture::converged(n);
        group.throughput(Throughput::Elements(n.into()));
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
            bencher.iter(|| black_box(driver.handle(fixture::start(), Event::Tick)));
        });
    }
}

fn incremental_pass(criterion: &mut Criterion) {
    let mut group =
        criterion.benchmark_group("incremental pass, 100 nodes fall silent and are heard");
    for n in SIZES {
        let mut driver = fixture::converged(n);
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
            bencher.iter(|| {
                fixture::silence(&mut driver, 100, fixture::start());
                black_box(driver.run(fixture::start()));
                fixture::hear(&mut driver, fixture::start());
            });
        });
    }
}

fn full_convergence(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("full convergence");
    group.sample_size(10);
    for n in SIZES {
        group.throughput(Throughput::Elements(n.into()));
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
            let converge = |mut driver| {
                fixture::converge(&mut driver, n);
                driver
            };
            bencher.iter_batched(fixture::driver, converge, BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, steady_full_pass, incremental_pass, full_convergence);
criterion_main!(benches);
