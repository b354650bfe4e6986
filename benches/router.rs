//! How long one route lookup takes: many hosts, many paths under one host, wildcards, predicates.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Method};
use portcullis::config::{PathConfig, Problems, RouteConfig, Source, ValueMatchConfig};
use portcullis::routing::{RequestView, Router, Rule};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

const SIZES: [usize; 2] = [1_000, 10_000];

fn route(host: String, path: Option<PathConfig>) -> RouteConfig {
    RouteConfig { hosts: vec![host], path, ..RouteConfig::default() }
}

/// The routes of a workload, and the host and path that each of them takes.
fn workload(name: &str, size: usize) -> (Vec<RouteConfig>, Vec<(String, String)>) {
    let prefix = |path: String| Some(PathConfig::Prefix(path));
    let one = |n: usize| match name {
        "hosts" => (
            route(format!("app{n}.example.com"), prefix("/v1".into())),
            (format!("app{n}.example.com"), "/v1/items/42".into()),
        ),
        "wildcards" => (
            route(format!("*.team{n}.example.com"), None),
            (format!("app.team{n}.example.com"), "/v1/items/42".into()),
        ),
        "exact_paths" => (
            route("app.example.com".into(), Some(PathConfig::Exact(format!("/service/{n}")))),
            ("app.example.com".into(), format!("/service/{n}")),
        ),
        "predicates" => {
            let mut canary = route(format!("app{n}.example.com"), prefix("/v1".into()));
            canary.methods = vec!["GET".into(), "POST".into()];
            canary.headers.insert("x-env".into(), ValueMatchConfig::Exact("canary".into()));
            canary.query.insert("beta".into(), ValueMatchConfig::Exact("1".into()));
            (canary, (format!("app{n}.example.com"), "/v1/items/42".into()))
        }
        _ => (
            route("app.example.com".into(), prefix(format!("/service/{n}"))),
            ("app.example.com".into(), format!("/service/{n}/items/42")),
        ),
    };
    // Asked in an order that no prefetcher guesses; copied, so that the requests themselves lie in a row
    // as if each had just been read.
    let (routes, mut requests): (Vec<_>, Vec<(String, String)>) = (0..size).map(one).unzip();
    requests.sort_by_cached_key(|(host, path)| {
        format!("{host}{path}").into_bytes().into_iter().rev().collect::<Vec<_>>()
    });
    let requests = requests.clone();
    (routes, requests)
}

fn find(criterion: &mut Criterion) {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_static("bench"));
    headers.insert("x-env", HeaderValue::from_static("canary"));
    for name in ["hosts", "wildcards", "exact_paths", "prefix_paths", "predicates", "no_host"] {
        let mut group = criterion.benchmark_group(format!("router/find/{name}"));
        group.throughput(Throughput::Elements(1));
        for size in SIZES {
            let (routes, mut requests) = workload(if name == "no_host" { "hosts" } else { name }, size);
            if name == "no_host" {
                requests = vec![("nobody.example.org".into(), "/v1/items/42".into())];
            }
            let router = build(&routes);
            let mut next = 0;
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter(|| {
                    next = (next + 1) % requests.len();
                    let (host, path) = &requests[next];
                    let found = router.find(black_box(&RequestView {
                        host,
                        path,
                        query: Some("page=2&beta=1"),
                        method: &Method::GET,
                        headers: &headers,
                        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
                        client_certificate: None,
                    }));
                    assert_eq!(found.is_none(), name == "no_host");
                });
            });
        }
    }
}

fn build(routes: &[RouteConfig]) -> Router<usize> {
    let mut problems = Problems::default();
    let rules = routes.iter().enumerate().map(|(index, config)| {
        Rule::compile(config, None, index, &Source::default(), "routes[]", &mut problems)
    });
    let (router, _) = Router::build(rules.collect());
    assert!(problems.is_empty(), "{problems}");
    router
}

fn compile(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("router/build");
    group.sample_size(10);
    for name in ["hosts", "prefix_paths"] {
        let (routes, _) = workload(name, 10_000);
        group.bench_function(BenchmarkId::new(name, 10_000), |bencher| {
            bencher.iter(|| build(black_box(&routes)))
        });
    }
}

criterion_group!(benches, find, compile);
criterion_main!(benches);
