//! Metrics: well-formed, closed label sets, and read by a real Prometheus.

use crate::support::certificates::Authority;
use crate::support::commands::run;
use crate::support::eventually::{eventually, until};
use crate::support::ports::Port;
use crate::support::{Connection, Gateway, Origin};
use std::process::{Child, Command, Stdio};

const YAML: &str = "routes:\n  - { name: app, path: /app, upstream: app }\n  - { name: own, path: /own, respond: { body: own } }\n\
                    upstreams: { app: { endpoints: [\"{ORIGIN}\"] } }\n\
                    certificates: [{ cert: app.pem, key: app.key }]\naccess_log: { output: off }\n";

/// A program of somebody else, killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn busy_gateway() -> (Gateway, Origin) {
    let origin = Origin::fixed("hello");
    let builder = Gateway::builder(YAML);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    for path in ["/app", "/own", "/none"] {
        gateway.connect_tls("app.test").get("app.test", path, "");
    }
    gateway.wait_metric("portcullis_http_requests_total", &[], 3.0);
    gateway.wait_metric_is("portcullis_http_requests_in_flight", &[], 0.0);
    gateway.wait_metric_is("portcullis_upstream_requests_in_flight", &[], 0.0);
    (gateway, origin)
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let (gateway, _origin) = busy_gateway();
    let scrape = gateway.admin("/metrics");
    assert!(scrape.header("content-type").unwrap().starts_with("text/plain"), "{:?}", scrape.headers);
    let verdict = run("promtool", &["check", "metrics"], &scrape.body);
    let told = String::from_utf8_lossy(&[verdict.stdout, verdict.stderr].concat()).into_owned();
    assert!(verdict.status.success() && told.trim().is_empty(), "{told}");
}

#[test]
fn every_metric_of_the_contract_is_there() {
    let (gateway, _origin) = busy_gateway();
    let text = gateway.admin("/metrics").text().to_owned();
    for name in [
        "portcullis_http_requests_total",
        "portcullis_http_request_duration_seconds",
        "portcullis_http_request_bytes_total",
        "portcullis_http_response_bytes_total",
        "portcullis_http_requests_in_flight",
        "portcullis_upstream_requests_total",
        "portcullis_upstream_request_duration_seconds",
        "portcullis_upstream_connections_total",
        "portcullis_upstream_endpoint_up",
        "portcullis_upstream_requests_in_flight",
        "portcullis_upstream_ejections_total",
        "portcullis_upstream_panicking",
        "portcullis_upstream_circuit_open",
        "portcullis_upstream_requests_refused_total",
        "portcullis_connections_total",
        "portcullis_connections_open",
        "portcullis_tls_handshakes_total",
        "portcullis_certificate_not_after_timestamp_seconds",
        "portcullis_config_generation",
        "portcullis_config_last_reload_successful",
        "portcullis_config_last_reload_success_timestamp_seconds",
        "portcullis_access_log_lines_total",
        "portcullis_build_info",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
        "process_start_time_seconds",
    ] {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is missing in\n{text}");
    }
}

#[test]
fn requests_are_counted_once_with_their_bytes() {
    let (gateway, _origin) = busy_gateway();
    let metrics = gateway.metrics();
    let labels = [("route", "app"), ("method", "GET"), ("code", "200")];
    assert_eq!(metrics.get("portcullis_http_requests_total", &labels), Some(1.0));
    assert_eq!(metrics.sum("portcullis_http_requests_total", &[]), 3.0, "no grand-total row");
    assert_eq!(metrics.sum("portcullis_http_request_duration_seconds_count", &[("route", "app")]), 1.0);
    assert!(metrics.sum("portcullis_http_response_bytes_total", &[("route", "app")]) >= 5.0);
    assert_eq!(metrics.get("portcullis_http_requests_in_flight", &[]), Some(0.0));
    assert_eq!(
        metrics.sum("portcullis_upstream_requests_total", &[("upstream", "app"), ("code", "200")]),
        1.0
    );
    assert_eq!(metrics.sum("portcullis_upstream_requests_in_flight", &[]), 0.0);
}

#[test]
fn strange_hosts_paths_and_methods_make_no_series() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(
        "routes:\n  - { name: app, hosts: [app.test], upstream: [\"{ORIGIN}\"] }\n\
         access: { trusted_proxies: [127.0.0.0/8] }\naccess_log: { output: off }\n",
        &origin,
    );
    let ask = |connection: &mut Connection, index: usize| {
        let host = if index.is_multiple_of(10) { "app.test".to_owned() } else { format!("host{index}.test") };
        let method = if index.is_multiple_of(7) { format!("M{index}") } else { "GET".to_owned() };
        let client = format!("X-Forwarded-For: 203.0.{}.{}\r\n", index / 250 % 250, index % 250);
        let request = format!("{method} /p{index}?q={index} HTTP/1.1\r\nHost: {host}\r\n{client}\r\n");
        connection.request(&request).status
    };
    let mut connection = gateway.connect();
    for index in 0..200 {
        ask(&mut connection, index);
    }
    gateway.wait_metric("portcullis_http_requests_total", &[], 200.0);
    let before = gateway.metrics().count();
    for index in 200..9_900 {
        ask(&mut connection, index);
    }
    gateway.wait_metric("portcullis_http_requests_total", &[], 9_900.0);
    let after = gateway.metrics();
    assert_eq!(after.count(), before, "series grow with what clients send");
    assert_eq!(after.label_values("portcullis_http_requests_total", "method"), ["GET", "other"]);
}

#[test]
fn a_real_prometheus_scrapes_and_answers_a_query() {
    let (gateway, _origin) = busy_gateway();
    let port = Port::free();
    let config = gateway.dir().join("prometheus.yml");
    let target = gateway.admin_address();
    let scrape = "global: { scrape_interval: 1s }\nscrape_configs:\n  - job_name: portcullis\n    static_configs: [{ targets: [\"TARGET\"] }]\n";
    std::fs::write(&config, scrape.replace("TARGET", &target.to_string())).unwrap();
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", gateway.dir().join("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is needed for this test");
    let _prometheus = Running(prometheus);
    let address = ([127, 0, 0, 1], port.number()).into();
    until("prometheus to listen", || std::net::TcpStream::connect::<std::net::SocketAddr>(address).is_ok());
    let query = "/api/v1/query?query=portcullis_http_requests_total%7Broute%3D%22app%22%7D";
    let value = eventually("an answer with a sample", || {
        let answer = Connection::open(address).get("prometheus", query, "Connection: close\r\n");
        if answer.status != 200 {
            return None;
        }
        answer.json()["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    });
    assert_eq!(value, "1");
}
