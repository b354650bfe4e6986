//! What telemetry costs a request: one observation of a route, one access record in each format, and
//! handing a record to the writer.

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::config::{AccessLogConfig, AccessLogFormat, AccessLogOutput, ByteSize, Problems, Source};
use portcullis::telemetry::access_log::policy::AccessLogPolicy;
use portcullis::telemetry::access_log::record::AccessRecord;
use portcullis::telemetry::access_log::writer::AccessLogWriter;
use portcullis::telemetry::metrics::Metrics;
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

/// Lines between two flushes; they fit in the writer's buffer.
const BURST: usize = 1000;

fn record() -> AccessRecord<'static> {
    AccessRecord {
        time: SystemTime::now(),
        request_id: "0190f3c2a7b84d1e9c55d2f0a1b2c3d4",
        client: [192, 0, 2, 7].into(),
        peer: Some(([10, 0, 0, 1], 4711).into()),
        listener: "edge",
        tls: Some("TLSv1.3"),
        method: "GET",
        host: "app.example.com",
        path: "/api/v1/customers/4711/orders",
        query: Some("page=2&token=abcdef&sort=date"),
        protocol: "HTTP/1.1",
        status: 200,
        bytes_in: 0,
        bytes_out: 11_776,
        duration: Duration::from_micros(1234),
        upstream: Some("app"),
        endpoint: Some("127.0.0.1:9000"),
        upstream_time: Some(Duration::from_micros(1111)),
        attempts: 1,
        retries: None,
        route: "api",
        generation: 3,
        rejection: None,
        rejection_detail: None,
        user_agent: Some(b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
        referer: Some(b"https://app.example.com/customers"),
    }
}

fn policy(format: AccessLogFormat) -> AccessLogPolicy {
    let mut config = AccessLogConfig { format, ..AccessLogConfig::default() };
    config.redact.query = vec!["token".to_owned()];
    AccessLogPolicy::compile(&config, &Source::default(), "access_log", &mut Problems::default())
}

fn telemetry(criterion: &mut Criterion) {
    let metrics = Metrics::new();
    let route = metrics.route("api");
    criterion.bench_function("route_observe", |bencher| {
        bencher.iter(|| {
            route.observe(black_box(&http::Method::GET), black_box(200), black_box(0.0012), 0, 11_776)
        });
    });
    let template = AccessLogFormat::Template("{time} {client} {method} {path} {status} {duration_ms}".into());
    for (name, format) in
        [("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined), ("template", template)]
    {
        let policy = policy(format);
        let (record, mut out) = (record(), Vec::new());
        criterion.bench_function(&format!("record_{name}"), |bencher| {
            bencher.iter(|| {
                out.clear();
                policy.format(black_box(&record), &mut out);
                black_box(out.len())
            });
        });
    }
    let output = AccessLogOutput::File("/dev/null".into());
    let writer = AccessLogWriter::start(&output, metrics, 1, ByteSize::mib(64)).expect("/dev/null opens");
    let (policy, record) = (policy(AccessLogFormat::Json), record());
    criterion.bench_function("append_json", |bencher| {
        // Flushed in between and outside the clock, or it would measure how fast lines are dropped.
        bencher.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            for first in (0..iterations).step_by(BURST) {
                let start = Instant::now();
                for _ in first..iterations.min(first + BURST as u64) {
                    writer.append(|out| policy.format(black_box(&record), out));
                }
                total += start.elapsed();
                writer.flush(Duration::from_secs(10));
            }
            total
        });
    });
}

criterion_group!(benches, telemetry);
criterion_main!(benches);
