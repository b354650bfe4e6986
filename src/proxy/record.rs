//! The end of an exchange: one access record, and every metric once.

use super::context::Exchange;
use crate::snapshot::{Cause, Rejection, SnapshotStore};
use crate::telemetry::access_log::record::AccessRecord;
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use http::{Version, header};
use pingora::Error;
use pingora::http::RequestHeader;
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;

/// Where exchanges are counted and logged.
#[derive(Clone)]
pub struct Records {
    /// The configuration that serves, for what has none of its own.
    pub snapshots: Arc<SnapshotStore>,
    /// Where series are.
    pub metrics: Arc<Metrics>,
    /// Where access records go.
    pub access_log: Arc<AccessLogWriter>,
}

/// How an exchange looks at its end.
pub struct Ended<'a> {
    /// The request's head.
    pub head: &'a RequestHeader,
    /// The status that was sent, interim ones aside.
    pub status: Option<u16>,
    /// What came of the client behind its head.
    pub bytes_in: u64,
    /// What the client was sent behind a head.
    pub bytes_out: u64,
}

impl<'a> Ended<'a> {
    /// As its session has it.
    pub fn of(session: &'a ServerSession) -> Self {
        Ended {
            head: session.req_header(),
            status: super::answer::begun(session).map(|status| status.as_u16()),
            bytes_in: session.body_bytes_read() as u64,
            bytes_out: session.body_bytes_sent() as u64,
        }
    }
}

impl Records {
    /// Begins an exchange under the configuration that serves: it keeps that until it is dropped.
    pub fn begin(&self) -> Exchange {
        Exchange::new(self.snapshots.pin(), self.metrics.requests_in_flight())
    }

    /// Counts and logs an exchange that is over, and tells its connection; `error` is what it ended with.
    pub fn end(&self, ended: &Ended<'_>, error: Option<&Error>, exchange: &mut Exchange) {
        write(ended, error, exchange, &self.metrics, &self.access_log);
        if let Some(connection) = &exchange.connection {
            connection.exchange_complete();
        }
    }
}

fn write(
    ended: &Ended<'_>,
    error: Option<&Error>,
    exchange: &mut Exchange,
    metrics: &Metrics,
    log: &AccessLogWriter,
) {
    settle(ended.status, error, exchange);
    if let Some(rejection) = exchange.rejection {
        let cause = Cause { rejection, detail: exchange.rejection_detail };
        metrics.rejection(rejection.reason());
        log::debug!("request {}: {cause}", exchange.request_id.as_str());
    }
    let bytes_in = ended.bytes_in;
    let bytes_out = ended.bytes_out + exchange.whole.unwrap_or(0);
    let duration = exchange.started.elapsed();
    let head = ended.head;
    series(exchange).observe(&head.method, exchange.status, duration.as_secs_f64(), bytes_in, bytes_out);

    let snapshot = Arc::clone(&exchange.snapshot);
    let policy = &snapshot.access_log;
    if !policy.wants(exchange.client, head.uri.path(), exchange.status, metrics.access_log_excluded()) {
        return;
    }
    // Created here if nobody needed it before, so that every record has one.
    let mut request_id = std::mem::take(&mut exchange.request_id);
    let connection = exchange.connection.as_deref();
    let pool = exchange.attempt.pool.as_deref();
    let endpoint = exchange.attempt.endpoint.as_deref();
    let record = AccessRecord {
        time: exchange.time,
        request_id: request_id.as_str(),
        client: exchange.client,
        peer: connection.map(|connection| connection.transport_peer),
        listener: connection.map_or("", |connection| &connection.listener.name),
        tls: connection.and_then(|connection| connection.tls.as_ref()).map(|tls| tls.version),
        method: head.method.as_str(),
        host: &exchange.host,
        path: head.uri.path(),
        query: head.uri.query(),
        protocol: protocol(head.version),
        status: exchange.status,
        bytes_in,
        bytes_out,
        duration,
        upstream: pool.map(|pool| pool.name()),
        endpoint: endpoint.map(|endpoint| &*endpoint.label),
        upstream_time: exchange.attempt.took,
        attempts: exchange.attempt.count,
        retries: exchange.attempt.reasons(),
        route: exchange.route.as_ref().map_or(unrouted_name(exchange), |route| &route.name),
        generation: snapshot.generation,
        rejection: exchange.rejection.map(Rejection::reason),
        rejection_detail: exchange.rejection_detail,
        user_agent: head.headers.get(header::USER_AGENT).map(|value| value.as_bytes()),
        referer: head.headers.get(header::REFERER).map(|value| value.as_bytes()),
    };
    log.append(|buffer| policy.format(&record, buffer));
}

/// Settles status and rejection from what really happened on the wire.
fn settle(written: Option<u16>, error: Option<&Error>, exchange: &mut Exchange) {
    // A tunnel ends when one side closes it, whatever the engine calls that.
    if let Some(error) = error.filter(|_| written != Some(101)) {
        let rejection = super::failure::rejection(error, exchange);
        exchange.rejection.get_or_insert(rejection);
        exchange.rejection_detail = exchange.rejection_detail.or(super::failure::detail(error));
    }
    match written {
        // A refused call of gRPC gets 200 and a status of its own, but it was refused.
        Some(status) => exchange.status = exchange.refused.map_or(status, Rejection::status),
        None => {
            if let Some(rejection) = exchange.rejection
                && exchange.status == 0
            {
                exchange.status = rejection.status();
            }
        }
    }
    exchange.attempt.end(exchange.status, exchange.rejection.map(Rejection::fault));
    exchange.attempt.slot = None;
}

/// Requests are counted under their route, or under why they have none.
fn series(exchange: &Exchange) -> &RouteMetrics {
    match &exchange.route {
        Some(route) => &route.metrics,
        None if is_unrouted(exchange) => &exchange.snapshot.unrouted,
        None => &exchange.snapshot.rejected,
    }
}

fn is_unrouted(exchange: &Exchange) -> bool {
    matches!(exchange.rejection, None | Some(Rejection::NoRoute))
}

fn unrouted_name(exchange: &Exchange) -> &'static str {
    if is_unrouted(exchange) { "none" } else { "rejected" }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
