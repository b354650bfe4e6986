//! How long a configuration takes from its file to what serves: what a reload waits for before it is published.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis::snapshot::{self, Shared};
use portcullis::telemetry::metrics::Metrics;
use portcullis::tls::tickets::TicketKeys;
use std::fmt::Write;
use std::hint::black_box;
use std::path::PathBuf;
use tempfile::TempDir;

/// Routes and prefixes of each file.
const SIZES: [(usize, usize); 3] = [(10, 10), (1_000, 10_000), (10_000, 1_000_000)];

/// Writes the file of a size, and the list of prefixes it names.
fn file(folder: &TempDir, routes: usize, prefixes: usize) -> PathBuf {
    let mut list = String::new();
    for number in 0..prefixes as u32 {
        // Every /28 of 16.0.0.0/4 in turn, neighbours far apart.
        let address = std::net::Ipv4Addr::from(
            0x1000_0000 | (number.wrapping_mul(0x9E37_79B1) >> 8 & 0x00FF_FFFF) << 4,
        );
        writeln!(list, "{address}/28").expect("memory");
    }
    std::fs::write(folder.path().join("deny.txt"), list).expect("list");
    let mut written = String::from("access:\n  deny:\n    - file: deny.txt\nroutes:\n");
    for number in 0..routes {
        writeln!(
            written,
            "  - hosts: [app{number}.example.com]\n    path: /v1\n    upstream: [\"127.0.0.1:9000\"]"
        )
        .expect("memory");
    }
    let path = folder.path().join("portcullis.yaml");
    std::fs::write(&path, written).expect("configuration");
    path
}

fn prepare(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prepare");
    group.sample_size(10);
    let shared = Shared { metrics: Metrics::new(), tickets: TicketKeys::generate().expect("keys") };
    for (routes, prefixes) in SIZES {
        let folder = tempfile::tempdir().expect("folder");
        let path = file(&folder, routes, prefixes);
        group.throughput(Throughput::Elements((routes + prefixes) as u64));
        let name = format!("{routes} routes, {prefixes} prefixes");
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_with_large_drop(|| {
                snapshot::prepare(Some(black_box(&path)), &shared, None).expect("accepted")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, prepare);
criterion_main!(benches);
