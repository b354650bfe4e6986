//! What does it cost to choose an endpoint? In turn and at random, few members and many, with and
//! without one to avoid.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portcullis::config::BalanceConfig;
use portcullis::upstream::balance::Balancer;
use std::hint::black_box;

fn balance(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("balance");
    for members in [1_u32, 3, 100, 10_000] {
        let weights: Vec<u32> = (0..members).map(|member| member % 5 + 1).collect();
        for (name, balance) in [("round_robin", BalanceConfig::RoundRobin), ("random", BalanceConfig::Random)]
        {
            let Some(balancer) = Balancer::new(balance, &weights) else { continue };
            group.bench_function(BenchmarkId::new(name, members), |bencher| {
                bencher.iter(|| balancer.pick(|_| black_box(true)));
            });
            group.bench_function(BenchmarkId::new(format!("{name}_avoid"), members), |bencher| {
                bencher.iter(|| balancer.pick(|member| member != black_box(0)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, balance);
criterion_main!(benches);
