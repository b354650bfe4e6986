//! What does it cost to choose an endpoint? Every policy, few endpoints and many, with one that is out,
//! with one to avoid, and with requests in flight everywhere.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portcullis::config::{BalanceConfig, EndpointConfig, HashBy, UpstreamConfig};
use portcullis::upstream::endpoint::Endpoint;
use portcullis::upstream::members::Members;
use portcullis::upstream::moment::Moment;
use portcullis::upstream::slots::key;
use portcullis::upstream::state::{EndpointStates, Health};
use portcullis::upstream::tier::Wish;
use portcullis::upstream::transport::Transport;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [(&str, BalanceConfig); 5] = [
    ("round_robin", BalanceConfig::RoundRobin),
    ("random", BalanceConfig::Random),
    ("least_requests", BalanceConfig::LeastRequests),
    ("p2c", BalanceConfig::P2c),
    ("hash", BalanceConfig::Hash(HashBy::Client)),
];

fn members(balance: &BalanceConfig, count: u16) -> (Members, Vec<Arc<Endpoint>>) {
    let endpoint = |port: u16| EndpointConfig {
        weight: u32::from(port % 5) + 1,
        ..EndpointConfig::at(([10, 0, 0, 1], 1_000 + port).into())
    };
    let config = UpstreamConfig {
        balance: balance.clone(),
        ..UpstreamConfig::inline((0..count).map(endpoint).collect())
    };
    let states = EndpointStates::default();
    let endpoint = |config: &EndpointConfig| {
        let address = config.address.socket().expect("an address");
        let transport = Transport::default();
        Arc::new(Endpoint::new(config, address, &transport, true, &states, Health::Unchecked, Moment::ZERO))
    };
    let endpoints: Vec<_> = config.endpoints.iter().map(endpoint).collect();
    (Members::new(&config, endpoints.clone(), Arc::clone(states.changes())), endpoints)
}

fn balance(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("balance");
    for count in [1, 3, 100] {
        for (name, balance) in POLICIES {
            let (members, endpoints) = members(&balance, count);
            let mut number = 0_u64;
            let mut pick = |avoid: &[Arc<Endpoint>]| {
                number += 1;
                let wish = Wish { key: Some(key(&number.to_le_bytes())), token: None };
                black_box(members.pick(wish, black_box(avoid)).is_some());
            };
            group.bench_function(BenchmarkId::new(name, count), |bencher| bencher.iter(|| pick(&[])));
            let now = Moment::now();
            for endpoint in &endpoints {
                endpoint.state.latency().observe(now, Duration::from_millis(2));
            }
            let guards: Vec<_> = endpoints.iter().map(|endpoint| endpoint.state.enter()).collect();
            group.bench_function(BenchmarkId::new(format!("{name}_busy"), count), |bencher| {
                bencher.iter(|| pick(&[]));
            });
            drop(guards);
            let Some((first, _)) = endpoints.split_first().filter(|(_, others)| !others.is_empty()) else {
                continue;
            };
            let tried = [Arc::clone(first)];
            group.bench_function(BenchmarkId::new(format!("{name}_avoid"), count), |bencher| {
                bencher.iter(|| pick(&tried));
            });
            first.state.set_health(Health::Down);
            group.bench_function(BenchmarkId::new(format!("{name}_one_out"), count), |bencher| {
                bencher.iter(|| pick(&[]));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, balance);
criterion_main!(benches);
