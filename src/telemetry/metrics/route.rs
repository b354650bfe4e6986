//! What is measured of each route.
//!
//! On the hot path: one observation is at most six atomic additions. A route that never saw a request
//! costs about 250 bytes and shows no series; a (route, method) pair costs half a KiB once seen.
//! Does not know what a route is.

use super::durations::{self, Durations};
use super::family::{Family, Kind, Observed};
use super::labels::{CodeCounters, METHOD_LABELS, METHODS, method_index};
use prometheus::proto::Metric;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const REQUESTS: Family = Family {
    name: "portcullis_http_requests_total",
    help: "Requests answered, by route, method and status.",
    labels: &["route", "method", "code"],
    kind: Kind::Counter,
};
const DURATION: Family = Family {
    name: "portcullis_http_request_duration_seconds",
    help: "Time from the first byte of a request to the last byte of its answer, websockets aside.",
    labels: &["route"],
    kind: Kind::Histogram,
};
const WEBSOCKET_DURATION: Family = Family {
    name: "portcullis_websocket_duration_seconds",
    help: "Time from the first byte of a request for a websocket to the end of that.",
    labels: &["route"],
    kind: Kind::Histogram,
};
const REQUEST_BYTES: Family = Family {
    name: "portcullis_http_request_bytes_total",
    help: "Request body bytes received from clients.",
    labels: &["route"],
    kind: Kind::Counter,
};
const RESPONSE_BYTES: Family = Family {
    name: "portcullis_http_response_bytes_total",
    help: "Response body bytes sent to clients.",
    labels: &["route"],
    kind: Kind::Counter,
};

/// The measurements of one route, or of `none` and `rejected`.
pub struct RouteMetrics {
    name: Arc<str>,
    methods: [OnceLock<Box<CodeCounters>>; METHODS],
    durations: OnceLock<Box<Durations>>,
    /// A websocket lives for hours and says nothing about how fast a route is.
    websockets: OnceLock<Box<Durations>>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl RouteMetrics {
    pub(super) fn new(name: Arc<str>) -> Self {
        RouteMetrics {
            name,
            methods: [const { OnceLock::new() }; METHODS],
            durations: OnceLock::new(),
            websockets: OnceLock::new(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }

    /// Records one finished request: its status (499 when the client went away), how long it took, and
    /// the body bytes of both directions. Call it once a request. Never locks; allocates the first time
    /// a method is seen.
    pub fn observe(&self, method: &http::Method, code: u16, seconds: f64, bytes_in: u64, bytes_out: u64) {
        self.methods[method_index(method)].get_or_init(CodeCounters::new).add(code);
        let durations = match code {
            101 => self.websockets.get_or_init(|| Durations::new(&durations::TUNNEL)),
            _ => self.durations.get_or_init(|| Durations::new(&durations::REQUEST)),
        };
        durations.observe(seconds);
        if bytes_in > 0 {
            self.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        }
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
    }
}

impl Observed for RouteMetrics {
    const FAMILIES: &'static [&'static Family] =
        &[&REQUESTS, &DURATION, &WEBSOCKET_DURATION, &REQUEST_BYTES, &RESPONSE_BYTES];

    fn collect(&self, out: &mut [Vec<Metric>]) {
        let [requests, durations, websockets, request_bytes, response_bytes] = out else { return };
        if self.durations.get().is_none() && self.websockets.get().is_none() {
            return;
        }
        let name = &*self.name;
        for (method, counters) in METHOD_LABELS.iter().zip(&self.methods) {
            let seen = counters.get().into_iter().flat_map(|counters| counters.seen());
            requests.extend(seen.map(|(code, count)| REQUESTS.counter(&[name, method, code], count)));
        }
        durations.extend(self.durations.get().map(|observed| observed.sample(&DURATION, &[name])));
        websockets
            .extend(self.websockets.get().map(|observed| observed.sample(&WEBSOCKET_DURATION, &[name])));
        request_bytes.push(REQUEST_BYTES.counter(&[name], self.bytes_in.load(Ordering::Relaxed)));
        response_bytes.push(RESPONSE_BYTES.counter(&[name], self.bytes_out.load(Ordering::Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untouched_route_costs_a_few_hundred_bytes_and_shows_nothing() {
        assert!(size_of::<RouteMetrics>() <= 256, "{} bytes", size_of::<RouteMetrics>());
        let mut out = vec![Vec::new(); 5];
        RouteMetrics::new("a".into()).collect(&mut out);
        assert!(out.iter().all(Vec::is_empty));
    }

    #[test]
    fn a_websocket_is_a_request_whose_duration_stands_apart() {
        let route = RouteMetrics::new("a".into());
        route.observe(&http::Method::GET, 101, 7000.0, 3, 5);
        let mut out = vec![Vec::new(); 5];
        route.collect(&mut out);
        assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1, 1, 1]);
        let histogram = out[2][0].get_histogram();
        assert_eq!((histogram.get_sample_count(), histogram.get_sample_sum()), (1, 7000.0));
        assert_eq!(histogram.get_bucket()[8].cumulative_count(), 0, "more than an hour");
        assert_eq!(histogram.get_bucket()[9].cumulative_count(), 1, "less than two");
    }

    #[test]
    fn threads_lose_no_observation() {
        let route = RouteMetrics::new("a".into());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        route.observe(&http::Method::GET, 200, 0.01, 3, 5);
                    }
                });
            }
        });
        let mut out = vec![Vec::new(); 5];
        route.collect(&mut out);
        let counters: Vec<f64> = [0, 3, 4].map(|i| out[i][0].get_counter().get_value()).into();
        assert_eq!(counters, [4000.0, 12000.0, 20000.0]);
        assert_eq!(out[1][0].get_histogram().get_sample_count(), 4000);
    }
}
