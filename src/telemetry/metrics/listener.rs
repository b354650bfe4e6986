//! What is measured of each listener: connections and TLS handshakes.
//!
//! Observing never locks. Does not know what a listener is.

use super::family::{Family, Kind, Observed};
use super::labels::LabelCounters;
use prometheus::IntGauge;
use prometheus::proto::Metric;
use std::sync::Arc;

const CONNECTIONS: Family = Family {
    name: "portcullis_connections_total",
    help: "Connections that reached a protocol, by listener and protocol.",
    labels: &["listener", "protocol"],
    kind: Kind::Counter,
};
const OPEN: Family = Family {
    name: "portcullis_connections_open",
    help: "Connections open.",
    labels: &["listener"],
    kind: Kind::Gauge,
};
const REFUSED: Family = Family {
    name: "portcullis_connections_refused_total",
    help: "Connections closed for what their client did, most before a request, by reason.",
    labels: &["listener", "reason"],
    kind: Kind::Counter,
};
const HANDSHAKES: Family = Family {
    name: "portcullis_tls_handshakes_total",
    help: "TLS handshakes, by version, result and whether a session was resumed.",
    labels: &["listener", "version", "result", "resumed"],
    kind: Kind::Counter,
};

/// The measurements of one listener.
pub struct ListenerMetrics {
    name: Arc<str>,
    connections: LabelCounters<&'static str, 8>,
    open: IntGauge,
    refused: LabelCounters<&'static str, 24>,
    handshakes: LabelCounters<(&'static str, bool, bool), 24>,
}

impl ListenerMetrics {
    pub(super) fn new(name: Arc<str>) -> Self {
        ListenerMetrics {
            name,
            connections: LabelCounters::new("other"),
            open: IntGauge::new(OPEN.name, OPEN.help).expect("a constant name"),
            refused: LabelCounters::new("other"),
            handshakes: LabelCounters::new(("other", false, false)),
        }
    }

    /// Counts a connection once its protocol is known: `http1` or `http2`.
    pub fn connection(&self, protocol: &'static str) {
        self.connections.add(protocol);
    }

    /// Connections open; the caller adds and subtracts.
    pub fn open(&self) -> &IntGauge {
        &self.open
    }

    /// Counts a connection closed for what its client did. At most 24 reasons, further ones are `other`.
    pub fn refused(&self, reason: &'static str) {
        self.refused.add(reason);
    }

    /// Counts a handshake: protocol version (a constant such as `TLSv1.3`, or `none` when it failed
    /// before one was agreed), whether it succeeded, whether it resumed a session.
    pub fn handshake(&self, version: &'static str, ok: bool, resumed: bool) {
        self.handshakes.add((version, ok, resumed));
    }
}

impl Observed for ListenerMetrics {
    const FAMILIES: &'static [&'static Family] = &[&CONNECTIONS, &OPEN, &REFUSED, &HANDSHAKES];

    fn collect(&self, out: &mut [Vec<Metric>]) {
        let [connections, open, refused, handshakes] = out else { return };
        let name = &*self.name;
        self.connections.samples(&CONNECTIONS, Some(name), connections);
        open.push(OPEN.gauge(&[name], self.open.get()));
        self.refused.samples(&REFUSED, Some(name), refused);
        for ((version, ok, resumed), count) in self.handshakes.seen() {
            let result = if ok { "success" } else { "failure" };
            let resumed = if resumed { "true" } else { "false" };
            handshakes.push(HANDSHAKES.counter(&[name, version, result, resumed], count));
        }
    }
}
