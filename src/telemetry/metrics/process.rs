//! What is measured of the gateway as a whole: refusals, certificates and their OCSP responses, workers, the
//! lines of its log.
//!
//! Refusals never lock; certificates are replaced whole at each reload, what is known of workers at each scrape.

use super::super::logging;
use super::family::{Family, Kind, Observed};
use super::labels::LabelCounters;
use parking_lot::Mutex;
use prometheus::proto::Metric;
use std::collections::BTreeMap;

const DENIED: Family = Family {
    name: "portcullis_access_denied_total",
    help: "Requests refused by an access policy, by scope and reason.",
    labels: &["scope", "reason"],
    kind: Kind::Counter,
};
const REJECTIONS: Family = Family {
    name: "portcullis_rejections_total",
    help: "Requests the gateway answered with an error of its own, by reason.",
    labels: &["reason"],
    kind: Kind::Counter,
};
const NOT_AFTER: Family = Family {
    name: "portcullis_certificate_not_after_timestamp_seconds",
    help: "When a certificate expires, in seconds since the epoch.",
    labels: &["name"],
    kind: Kind::Gauge,
};
const OCSP: Family = Family {
    name: "portcullis_ocsp_next_update_timestamp_seconds",
    help: "Until when the OCSP response of a certificate can be stapled, in seconds since the epoch; 0 = it cannot.",
    labels: &["name"],
    kind: Kind::Gauge,
};
const SILENT: Family = Family {
    name: "portcullis_worker_silent_seconds",
    help: "Seconds since a worker was last seen to turn.",
    labels: &["worker"],
    kind: Kind::Gauge,
};
const LOG_LINES: Family = Family {
    name: "portcullis_log_lines_total",
    help: "Lines of the process's own log, by what became of them.",
    labels: &["result"],
    kind: Kind::Counter,
};

/// Measurements that belong to no route, upstream or listener.
pub(super) struct ProcessMetrics {
    denied: LabelCounters<(&'static str, &'static str), 8>,
    rejections: LabelCounters<&'static str, 48>,
    certificates: Mutex<BTreeMap<String, i64>>,
    responses: Mutex<BTreeMap<String, i64>>,
    workers: Mutex<Vec<u64>>,
}

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        ProcessMetrics {
            denied: LabelCounters::new(("other", "other")),
            rejections: LabelCounters::new("other"),
            certificates: Mutex::default(),
            responses: Mutex::default(),
            workers: Mutex::default(),
        }
    }

    pub(super) fn access_denied(&self, scope: &'static str, reason: &'static str) {
        self.denied.add((scope, reason));
    }

    pub(super) fn rejection(&self, reason: &'static str) {
        self.rejections.add(reason);
    }

    /// By number of the worker.
    pub(super) fn workers_silent(&self, seconds: &[u64]) {
        *self.workers.lock() = seconds.to_vec();
    }

    pub(super) fn certificate_not_after(&self, certificates: &[(String, i64)]) {
        *self.certificates.lock() = earliest(certificates);
    }

    pub(super) fn ocsp_next_update(&self, responses: &[(String, i64)]) {
        *self.responses.lock() = earliest(responses);
    }
}

/// Certificates of one name are one series: the earliest expiry is the one to worry about.
fn earliest(dates: &[(String, i64)]) -> BTreeMap<String, i64> {
    let mut earliest = BTreeMap::new();
    for (name, date) in dates {
        let known = earliest.entry(name.clone()).or_insert(*date);
        *known = (*known).min(*date);
    }
    earliest
}

impl Observed for ProcessMetrics {
    const FAMILIES: &'static [&'static Family] =
        &[&DENIED, &REJECTIONS, &NOT_AFTER, &OCSP, &SILENT, &LOG_LINES];

    fn collect(&self, out: &mut [Vec<Metric>]) {
        let [denied, rejections, certificates, responses, workers, lines] = out else { return };
        for ((scope, reason), count) in self.denied.seen() {
            denied.push(DENIED.counter(&[scope, reason], count));
        }
        self.rejections.samples(&REJECTIONS, None, rejections);
        for (name, not_after) in self.certificates.lock().iter() {
            certificates.push(NOT_AFTER.gauge(&[name], *not_after));
        }
        for (name, next_update) in self.responses.lock().iter() {
            responses.push(OCSP.gauge(&[name], *next_update));
        }
        for (number, seconds) in self.workers.lock().iter().enumerate() {
            workers.push(SILENT.gauge(&[&number.to_string()], i64::try_from(*seconds).unwrap_or(i64::MAX)));
        }
        let logged = logging::counts();
        lines.push(LOG_LINES.counter(&["written"], logged.written));
        lines.push(LOG_LINES.counter(&["dropped"], logged.dropped));
    }
}
