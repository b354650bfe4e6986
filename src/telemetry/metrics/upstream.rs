//! What is measured of each upstream and its endpoints.
//!
//! Observing is atomic additions, but for endpoint state, which changes rarely and takes a lock.
//! Does not know what an upstream is.

use super::durations::Durations;
use super::family::{Family, Kind, Observed};
use super::labels::{CodeCounters, LabelCounters};
use parking_lot::Mutex;
use prometheus::IntGauge;
use prometheus::proto::Metric;
use std::collections::BTreeMap;
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
const ENDPOINT_UP: Family = Family {
    name: "portcullis_upstream_endpoint_up",
    help: "Whether an endpoint gets requests (1) or not (0).",
    labels: &["upstream", "endpoint"],
    kind: Kind::Gauge,
};
const IN_FLIGHT: Family = Family {
    name: "portcullis_upstream_requests_in_flight",
    help: "Requests an upstream is working on.",
    labels: &["upstream"],
    kind: Kind::Gauge,
};

/// The measurements of one upstream.
pub struct UpstreamMetrics {
    name: Arc<str>,
    codes: OnceLock<Box<CodeCounters>>,
    durations: OnceLock<Box<Durations>>,
    opened: AtomicU64,
    reused: AtomicU64,
    retries: LabelCounters<&'static str, 16>,
    endpoints: Mutex<BTreeMap<String, bool>>,
    in_flight: IntGauge,
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
            endpoints: Mutex::default(),
            in_flight: IntGauge::new(IN_FLIGHT.name, IN_FLIGHT.help).expect("a constant name"),
        }
    }

    /// Records one answer of the upstream: its status and the time it took in seconds.
    pub fn observe(&self, code: u16, seconds: f64) {
        self.codes.get_or_init(CodeCounters::new).add(code);
        self.durations.get_or_init(Durations::new).observe(seconds);
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

    /// Requests the upstream is working on; the caller adds and subtracts.
    pub fn in_flight(&self) -> &IntGauge {
        &self.in_flight
    }

    /// Sets whether an endpoint gets requests; its series exists from the first call.
    pub fn endpoint_up(&self, endpoint: &str, up: bool) {
        let mut endpoints = self.endpoints.lock();
        match endpoints.get_mut(endpoint) {
            Some(state) => *state = up,
            None => drop(endpoints.insert(endpoint.to_owned(), up)),
        }
    }

    /// Removes the series of an endpoint that is gone.
    pub fn remove_endpoint(&self, endpoint: &str) {
        self.endpoints.lock().remove(endpoint);
    }
}

impl Observed for UpstreamMetrics {
    const FAMILIES: &'static [&'static Family] =
        &[&REQUESTS, &DURATION, &CONNECTIONS, &RETRIES, &ENDPOINT_UP, &IN_FLIGHT];

    fn collect(&self, out: &mut [Vec<Metric>]) {
        let [requests, durations, connections, retries, endpoints, in_flight] = out else { return };
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
        for (endpoint, up) in self.endpoints.lock().iter() {
            endpoints.push(ENDPOINT_UP.gauge(&[name, endpoint], i64::from(*up)));
        }
        in_flight.push(IN_FLIGHT.gauge(&[name], self.in_flight.get()));
    }
}
