//! Every metric, each defined once, and the page Prometheus scrapes.
//!
//! Handles are resolved when a configuration is compiled; observing through them never locks. Label
//! values are configured names or constants of the program, never what a client sent. Families that
//! belong to features that do not exist yet are not registered: a metric that never moves is a lie.

mod durations;
mod family;
mod labels;
mod listener;
mod process;
mod route;
mod upstream;

pub use listener::ListenerMetrics;
pub use route::RouteMetrics;
pub use upstream::{UpstreamMetrics, UpstreamNow};

use family::{Named, Shown};
use process::ProcessMetrics;
use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Label values of `route` that are no configured name and are never removed: no route matched, and
/// refused before routing.
const STANDING_ROUTES: [&str; 2] = ["none", "rejected"];

/// All measurements of the process; lives as long as it does, across every reload.
pub struct Metrics {
    registry: Registry,
    routes: Arc<Named<RouteMetrics>>,
    upstreams: Arc<Named<UpstreamMetrics>>,
    listeners: Arc<Named<ListenerMetrics>>,
    process: Arc<ProcessMetrics>,
    requests_in_flight: IntGauge,
    access_log_written: IntCounter,
    access_log_dropped: IntCounter,
    access_log_excluded: IntCounter,
    generation: IntGauge,
    last_reload_successful: IntGauge,
    last_reload_success: IntGauge,
    reloads_succeeded: IntCounter,
    reloads_failed: IntCounter,
}

impl Metrics {
    /// Registers everything. The configuration the process started with counts as a successful load, but
    /// not as a reload.
    pub fn new() -> Arc<Metrics> {
        let registry = Registry::new();
        let routes = Named::new(RouteMetrics::new);
        let upstreams = Named::new(UpstreamMetrics::new);
        let listeners = Named::new(ListenerMetrics::new);
        let process = Arc::new(ProcessMetrics::new());
        register(&registry, Shown::new(Arc::clone(&routes)));
        register(&registry, Shown::new(Arc::clone(&upstreams)));
        register(&registry, Shown::new(Arc::clone(&listeners)));
        register(&registry, Shown::new(Arc::clone(&process)));
        register(&registry, Box::new(prometheus::process_collector::ProcessCollector::for_self()));
        let lines = counters(
            &registry,
            "portcullis_access_log_lines_total",
            "Access records, by what became of them.",
            "result",
        );
        let reloads =
            counters(&registry, "portcullis_config_reloads_total", "Reloads, by their result.", "result");
        build_info(&registry);
        let gauge = |name, help| gauge(&registry, name, help);
        let metrics = Metrics {
            routes,
            upstreams,
            listeners,
            process,
            requests_in_flight: gauge(
                "portcullis_http_requests_in_flight",
                "Requests whose answer is not finished.",
            ),
            access_log_written: lines.with_label_values(&["written"]),
            access_log_dropped: lines.with_label_values(&["dropped"]),
            access_log_excluded: lines.with_label_values(&["excluded"]),
            generation: gauge("portcullis_config_generation", "Generation of the running configuration."),
            last_reload_successful: gauge(
                "portcullis_config_last_reload_successful",
                "Whether the last load or reload of the configuration succeeded.",
            ),
            last_reload_success: gauge(
                "portcullis_config_last_reload_success_timestamp_seconds",
                "When a configuration was last loaded with success, in seconds since the epoch.",
            ),
            reloads_succeeded: reloads.with_label_values(&["success"]),
            reloads_failed: reloads.with_label_values(&["failure"]),
            registry,
        };
        metrics.last_load_succeeded();
        Arc::new(metrics)
    }

    /// The page of a scrape, in the Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        let mut page = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut page) {
            log::error!("metrics cannot be written: {error}");
        }
        page
    }

    /// The handle of a route, or of `none` and `rejected`; the same one for the same name.
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        self.routes.get(name)
    }

    /// The handle of an upstream; the same one for the same name.
    pub fn upstream(&self, name: &str) -> Arc<UpstreamMetrics> {
        self.upstreams.get(name)
    }

    /// The handle of a listener; the same one for the same name.
    pub fn listener(&self, name: &str) -> Arc<ListenerMetrics> {
        self.listeners.get(name)
    }

    /// Drops the series of every route that is not named; call it after a snapshot was published.
    pub fn retain_routes(&self, names: &[&str]) {
        self.routes.retain(&names.iter().copied().chain(STANDING_ROUTES).collect());
    }

    /// Drops the series of every upstream that is not named; call it after a snapshot was published.
    pub fn retain_upstreams(&self, names: &[&str]) {
        self.upstreams.retain(&names.iter().copied().collect());
    }

    /// Drops the series of every listener that is not named; call it after the listeners were changed.
    pub fn retain_listeners(&self, names: &[&str]) {
        self.listeners.retain(&names.iter().copied().collect());
    }

    /// Requests whose answer is not finished; the caller adds and subtracts.
    pub fn requests_in_flight(&self) -> &IntGauge {
        &self.requests_in_flight
    }

    /// Counts a request an access policy refused: scope `global` or `route`, and why.
    pub fn access_denied(&self, scope: &'static str, reason: &'static str) {
        self.process.access_denied(scope, reason);
    }

    /// Counts a request the gateway answered with an error of its own. At most 48 reasons, further ones
    /// are `other`.
    pub fn rejection(&self, reason: &'static str) {
        self.process.rejection(reason);
    }

    /// Access records written out.
    pub fn access_log_written(&self) -> &IntCounter {
        &self.access_log_written
    }

    /// Access records lost: the buffer was full or the output failed.
    pub fn access_log_dropped(&self) -> &IntCounter {
        &self.access_log_dropped
    }

    /// Access records the operator did not want.
    pub fn access_log_excluded(&self) -> &IntCounter {
        &self.access_log_excluded
    }

    /// Sets the generation of the running configuration.
    pub fn config_generation(&self, generation: u64) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    /// Records a reload that was published.
    pub fn reload_succeeded(&self) {
        self.reloads_succeeded.inc();
        self.last_load_succeeded();
    }

    /// Records a reload that changed nothing.
    pub fn reload_failed(&self) {
        self.reloads_failed.inc();
        self.last_reload_successful.set(0);
    }

    /// Says for how many seconds each worker has not turned.
    pub fn workers_silent(&self, seconds: &[u64]) {
        self.process.workers_silent(seconds);
    }

    /// Replaces the expiry times, each a name and seconds since the epoch.
    pub fn certificate_not_after(&self, certificates: &[(String, i64)]) {
        self.process.certificate_not_after(certificates);
    }

    /// The OCSP responses now in use: name and until when it can be stapled; 0 = it cannot.
    pub fn ocsp_next_update(&self, responses: &[(String, i64)]) {
        self.process.ocsp_next_update(responses);
    }

    fn last_load_succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_reload_success.set(now.as_secs() as i64);
        self.last_reload_successful.set(1);
    }
}

fn register(registry: &Registry, collector: Box<dyn Collector>) {
    registry.register(collector).expect("every metric is a constant and registered once");
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauge = IntGauge::new(name, help).expect("a constant name");
    register(registry, Box::new(gauge.clone()));
    gauge
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), &[label]).expect("a constant name");
    register(registry, Box::new(counters.clone()));
    counters
}

fn build_info(registry: &Registry) {
    let options = Opts::new("portcullis_build_info", "Always 1; its labels say what is running.");
    let info = IntGaugeVec::new(options, &["version", "revision"]).expect("a constant name");
    let revision = option_env!("PORTCULLIS_REVISION").unwrap_or("unknown");
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), revision]).set(1);
    register(registry, Box::new(info));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn value(page: &str, series: &str) -> Option<f64> {
        let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|l| l.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn busy() -> Arc<Metrics> {
        let metrics = Metrics::new();
        metrics.route("api").observe(&Method::GET, 200, 0.002, 10, 100);
        metrics.route("none").observe(&Method::GET, 404, 0.001, 0, 20);
        let upstream = metrics.upstream("app");
        upstream.observe(502, 0.5);
        upstream.connection(true);
        upstream.retry("connect");
        upstream.refusal();
        upstream.ejection();
        upstream.show(UpstreamNow {
            in_flight: 1,
            circuit_open: true,
            panicking: false,
            endpoints: vec![("127.0.0.1:9000".into(), true)],
            names: vec![("app.internal".to_owned(), 1)],
        });
        let listener = metrics.listener("edge");
        listener.connection("http2");
        listener.open().inc();
        listener.refused("limit");
        listener.handshake("TLSv1.3", true, true);
        metrics.access_denied("global", "listed");
        metrics.rejection("host");
        metrics.certificate_not_after(&[("a".into(), 5), ("a".into(), 3)]);
        metrics.ocsp_next_update(&[("a".into(), 4), ("b".into(), 0)]);
        metrics.config_generation(7);
        metrics
    }

    #[test]
    fn the_page_names_every_series() {
        let page = busy().render();
        for (series, expected) in [
            (r#"portcullis_http_requests_total{route="api",method="GET",code="200"}"#, 1.0),
            (r#"portcullis_http_request_duration_seconds_bucket{route="api",le="0.0025"}"#, 1.0),
            (r#"portcullis_http_request_bytes_total{route="api"}"#, 10.0),
            (r#"portcullis_http_response_bytes_total{route="api"}"#, 100.0),
            (r#"portcullis_http_requests_in_flight"#, 0.0),
            (r#"portcullis_upstream_requests_total{upstream="app",code="502"}"#, 1.0),
            (r#"portcullis_upstream_request_duration_seconds_count{upstream="app"}"#, 1.0),
            (r#"portcullis_upstream_connections_total{upstream="app",reused="true"}"#, 1.0),
            (r#"portcullis_upstream_retries_total{upstream="app",reason="connect"}"#, 1.0),
            (r#"portcullis_upstream_endpoint_up{upstream="app",endpoint="127.0.0.1:9000"}"#, 1.0),
            (r#"portcullis_upstream_requests_in_flight{upstream="app"}"#, 1.0),
            (r#"portcullis_upstream_ejections_total{upstream="app"}"#, 1.0),
            (r#"portcullis_upstream_panicking{upstream="app"}"#, 0.0),
            (r#"portcullis_upstream_circuit_open{upstream="app"}"#, 1.0),
            (r#"portcullis_upstream_requests_refused_total{upstream="app"}"#, 1.0),
            (r#"portcullis_access_denied_total{scope="global",reason="listed"}"#, 1.0),
            (r#"portcullis_rejections_total{reason="host"}"#, 1.0),
            (r#"portcullis_connections_total{listener="edge",protocol="http2"}"#, 1.0),
            (r#"portcullis_connections_open{listener="edge"}"#, 1.0),
            (r#"portcullis_connections_refused_total{listener="edge",reason="limit"}"#, 1.0),
            (
                r#"portcullis_tls_handshakes_total{listener="edge",version="TLSv1.3",result="success",resumed="true"}"#,
                1.0,
            ),
            (r#"portcullis_certificate_not_after_timestamp_seconds{name="a"}"#, 3.0),
            (r#"portcullis_ocsp_next_update_timestamp_seconds{name="a"}"#, 4.0),
            (r#"portcullis_ocsp_next_update_timestamp_seconds{name="b"}"#, 0.0),
            ("portcullis_config_generation", 7.0),
            ("portcullis_config_last_reload_successful", 1.0),
            (r#"portcullis_config_reloads_total{result="failure"}"#, 0.0),
            (r#"portcullis_access_log_lines_total{result="dropped"}"#, 0.0),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
        for series in ["portcullis_build_info{", "process_resident_memory_bytes ", "process_open_fds "] {
            assert!(page.lines().any(|line| line.starts_with(series)), "{series}\n{page}");
        }
    }

    #[test]
    fn every_family_has_help_and_type_exactly_once() {
        let page = busy().render();
        let mut names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let families = names.len();
        names.dedup();
        assert_eq!(names.len(), families);
        assert_eq!(page.lines().filter(|line| line.starts_with("# HELP ")).count(), families);
    }

    #[test]
    fn the_number_of_series_does_not_follow_what_clients_send() {
        let metrics = busy();
        let route = metrics.route("api");
        let observe = |from: u32| {
            for number in from..from + 1000 {
                let method = format!("M{number}").parse().unwrap();
                route.observe(&method, 600 + number as u16, 0.001, 1, 1);
            }
            metrics.render().lines().count()
        };
        assert_eq!(observe(0), observe(1000));
    }

    #[test]
    fn kept_routes_go_on_counting_and_removed_ones_stay_away() {
        let metrics = busy();
        let removed = metrics.route("old");
        removed.observe(&Method::GET, 200, 0.1, 0, 0);
        metrics.retain_routes(&["api"]);
        metrics.retain_upstreams(&[]);
        // A request that started before the reload ends after it.
        removed.observe(&Method::POST, 201, 0.1, 0, 0);
        metrics.route("api").observe(&Method::GET, 200, 0.1, 0, 0);
        let page = metrics.render();
        assert!(!page.contains(r#"route="old""#) && !page.contains(r#"upstream="app""#), "{page}");
        let api = r#"portcullis_http_requests_total{route="api",method="GET",code="200"}"#;
        assert_eq!(value(&page, api), Some(2.0));
        assert!(page.contains(r#"route="none""#));
    }

    #[test]
    fn a_failed_reload_keeps_the_time_of_the_last_good_one() {
        let metrics = Metrics::new();
        let time = "portcullis_config_last_reload_success_timestamp_seconds";
        let before = value(&metrics.render(), time);
        metrics.reload_failed();
        let page = metrics.render();
        assert_eq!(value(&page, "portcullis_config_last_reload_successful"), Some(0.0));
        assert_eq!(value(&page, time), before);
        metrics.reload_succeeded();
        let page = metrics.render();
        assert_eq!(value(&page, "portcullis_config_last_reload_successful"), Some(1.0));
        assert_eq!(value(&page, r#"portcullis_config_reloads_total{result="success"}"#), Some(1.0));
    }

    #[test]
    fn a_name_with_quotes_stays_one_label() {
        let metrics = Metrics::new();
        metrics.route("a\"b\\c\nd").observe(&Method::GET, 200, 0.1, 0, 0);
        assert!(metrics.render().contains(r#"{route="a\"b\\c\nd",method="GET",code="200"} 1"#));
    }
}
