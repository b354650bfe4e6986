//! What is measured of each upstream and its endpoints.
//!
//! Observing is atomic additions; what a pool is like now is told before a scrape, under a lock.
//! Does not know what an upstream is.

use super::durations::{self, Durations};
use super::family::{Family, Kind, Observed};
use super::labels::{CodeCounters, LabelCounters};
use parking_lot::Mutex;
use prometheus::proto::Metric;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const REQUESTS: Family = Family {
    name: "portcullis_upstream_requests_total",
    help: "Answers received from an upstream, by status.",
    labels: &["upstream", "code"],
    kind: Kind::Counter,
};
const DURATION: Family = Family {
    name: "portcullis_upstream_request_duration_seconds",
    help: "Time an upstream took for a request.",
    labels: &["upstream"],
    kind: Kind::Histogram,
};
const CONNECTIONS: Family = Family {
    name: "portcullis_upstream_connections_total",
    help: "Connections taken for a request, by whether an idle one was reused.",
    labels: &["upstream", "reused"],
    kind: Kind::Counter,
};
const RETRIES: Family = Family {
    name: "portcullis_upstream_retries_total",
    help: "Attempts after the first one, by what made them necessary.",
    labels: &["upstream", "reason"],
    kind: Kind::Counter,
};
const RETRIES_DENIED: Family = Family {
    name: "portcullis_upstream_retries_denied_total",
    help: "Attempts not made because too many had been made already (retry.budget_percent).",
    labels: &["upstream"],
    kind: Kind::Counter,
};
const MIRRORED: Family = Family {
    name: "portcullis_upstream_mirrored_requests_total",
    help: "Copies of requests meant for an upstream, by what became of them.",
    labels: &["upstream", "result"],
    kind: Kind::Counter,
};
const ENDPOINT_UP: Family = Family {
    name: "portcullis_upstream_endpoint_up",
    help: "Whether an endpoint gets requests (1) or not (0).",
    labels: &["upstream", "endpoint"],
    kind: Kind::Gauge,
};
const HEALTH_CHECKS: Family = Family {
    name: "portcullis_upstream_health_checks_total",
    help: "Active checks of an upstream's endpoints, by result.",
    labels: &["upstream", "result"],
    kind: Kind::Counter,
};
const RESOLUTIONS: Family = Family {
    name: "portcullis_upstream_resolutions_total",
    help: "Lookups of the names of an upstream's endpoints, by result.",
    labels: &["upstream", "result"],
    kind: Kind::Counter,
};
const RESOLVED: Family = Family {
    name: "portcullis_upstream_last_resolution_timestamp_seconds",
    help: "When a name was last resolved, in seconds since the epoch; 0 = never.",
    labels: &["upstream", "name"],
    kind: Kind::Gauge,
};
const IN_FLIGHT: Family = Family {
    name: "portcullis_upstream_requests_in_flight",
    help: "Requests an upstream is working on.",
    labels: &["upstream"],
    kind: Kind::Gauge,
};

const EJECTIONS: Family = Family {
    name: "portcullis_upstream_ejections_total",
    help: "Endpoints taken out because they kept failing.",
    labels: &["upstream"],
    kind: Kind::Counter,
};
const PANICKING: Family = Family {
    name: "portcullis_upstream_panicking",
    help: "Whether all endpoints are used, good or bad, because too few are available (1) or not (0).",
    labels: &["upstream"],
    kind: Kind::Gauge,
};
const CIRCUIT_OPEN: Family = Family {
    name: "portcullis_upstream_circuit_open",
    help: "Whether an upstream works on as many requests as it may, so that more are refused (1) or not (0).",
    labels: &["upstream"],
    kind: Kind::Gauge,
};
const REFUSED: Family = Family {
    name: "portcullis_upstream_requests_refused_total",
    help: "Requests refused because an upstream worked on as many as it may.",
    labels: &["upstream"],
    kind: Kind::Counter,
};

/// What an upstream is like at one moment.
#[derive(Debug, Clone, Default)]
pub struct UpstreamNow {
    /// Requests it is working on.
    pub in_flight: u32,
    /// More would be refused.
    pub circuit_open: bool,
    /// All endpoints are used because too few are available.
    pub panicking: bool,
    /// Every endpoint, and whether it should get requests.
    pub endpoints: Vec<(Arc<str>, bool)>,
    /// Every name, and when it was last resolved, in seconds since the epoch; 0 = never.
    pub names: Vec<(String, i64)>,
}

/// The measurements of one upstream.
pub struct UpstreamMetrics {
    name: Arc<str>,
    codes: OnceLock<Box<CodeCounters>>,
    durations: OnceLock<Box<Durations>>,
    opened: AtomicU64,
    reused: AtomicU64,
    retries: LabelCounters<&'static str, 16>,
    ejections: AtomicU64,
    refused: AtomicU64,
    health_checks: LabelCounters<&'static str, 8>,
    resolutions: LabelCounters<&'static str, 8>,
    now: Mutex<UpstreamNow>,
    retries_denied: AtomicU64,
    mirrored: LabelCounters<&'static str, 4>,
}

impl UpstreamMetrics {
    pub(super) fn new(name: Arc<str>) -> Self {
        UpstreamMetrics {
            name,
            codes: OnceLock::new(),
            durations: OnceLock::new(),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            retries: LabelCounters::new("other"),
            ejections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            health_checks: LabelCounters::new("other"),
            resolutions: LabelCounters::new("other"),
            now: Mutex::default(),
            retries_denied: AtomicU64::new(0),
            mirrored: LabelCounters::new("other"),
        }
    }

    /// Records one answer of the upstream: its status and the time it took in seconds.
    pub fn observe(&self, code: u16, seconds: f64) {
        self.codes.get_or_init(CodeCounters::new).add(code);
        self.durations.get_or_init(|| Durations::new(&durations::REQUEST)).observe(seconds);
    }

    /// Counts a connection taken for a request.
    pub fn connection(&self, reused: bool) {
        let count = if reused { &self.reused } else { &self.opened };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt after the first one. At most 16 reasons, further ones are `other`.
    pub fn retry(&self, reason: &'static str) {
        self.retries.add(reason);
    }

    /// Counts an attempt that was not made because the budget for retries was spent.
    pub fn retry_denied(&self) {
        self.retries_denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a copy of a request: `sent`, `failed`, `too_many` or `body_too_large`.
    pub fn mirrored(&self, result: &'static str) {
        self.mirrored.add(result);
    }

    /// Counts an endpoint that was taken out because it kept failing.
    pub fn ejection(&self) {
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request refused because the upstream works on as many as it may.
    pub fn refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an active check of an endpoint. At most 8 results, further ones are `other`.
    pub fn health_check(&self, result: &'static str) {
        self.health_checks.add(result);
    }

    /// Counts a lookup of a name. At most 8 results, further ones are `other`.
    pub fn resolution(&self, result: &'static str) {
        self.resolutions.add(result);
    }

    /// Says what the upstream is like now; endpoints that are not in it have no series any more.
    pub fn show(&self, now: UpstreamNow) {
        *self.now.lock() = now;
    }
}

impl Observed for UpstreamMetrics {
    const FAMILIES: &'static [&'static Family] = &[
        &REQUESTS,
        &DURATION,
        &CONNECTIONS,
        &RETRIES,
        &ENDPOINT_UP,
        &IN_FLIGHT,
        &EJECTIONS,
        &PANICKING,
        &CIRCUIT_OPEN,
        &REFUSED,
        &HEALTH_CHECKS,
        &RESOLUTIONS,
        &RESOLVED,
        &RETRIES_DENIED,
        &MIRRORED,
    ];

    fn collect(&self, out: &mut [Vec<Metric>]) {
        let [requests, durations, connections, retries, rest @ ..] = out else { return };
        let [endpoints, in_flight, ejections, panicking, circuit_open, refused, rest @ ..] = rest else {
            return;
        };
        let [health_checks, resolutions, resolved, denied, mirrored] = rest else { return };
        let name = &*self.name;
        if let Some(codes) = self.codes.get() {
            requests.extend(codes.seen().map(|(code, count)| REQUESTS.counter(&[name, code], count)));
        }
        if let Some(observed) = self.durations.get() {
            durations.push(observed.sample(&DURATION, &[name]));
        }
        for (label, count) in [("false", &self.opened), ("true", &self.reused)] {
            connections.push(CONNECTIONS.counter(&[name, label], count.load(Ordering::Relaxed)));
        }
        self.retries.samples(&RETRIES, Some(name), retries);
        self.health_checks.samples(&HEALTH_CHECKS, Some(name), health_checks);
        denied.push(RETRIES_DENIED.counter(&[name], self.retries_denied.load(Ordering::Relaxed)));
        self.mirrored.samples(&MIRRORED, Some(name), mirrored);
        let now = self.now.lock();
        for (endpoint, up) in &now.endpoints {
            endpoints.push(ENDPOINT_UP.gauge(&[name, endpoint], i64::from(*up)));
        }
        in_flight.push(IN_FLIGHT.gauge(&[name], i64::from(now.in_flight)));
        panicking.push(PANICKING.gauge(&[name], i64::from(now.panicking)));
        circuit_open.push(CIRCUIT_OPEN.gauge(&[name], i64::from(now.circuit_open)));
        ejections.push(EJECTIONS.counter(&[name], self.ejections.load(Ordering::Relaxed)));
        refused.push(REFUSED.counter(&[name], self.refused.load(Ordering::Relaxed)));
        self.resolutions.samples(&RESOLUTIONS, Some(name), resolutions);
        for (host, time) in &now.names {
            resolved.push(RESOLVED.gauge(&[name, host], *time));
        }
    }
}
