//! The records of requests the door has refused by itself: of their head nothing is known but what its first line
//! asks for, so the record says that, where they came from and why they went no further.

use super::record::Records;
use super::request_id::RequestId;
use crate::edge::connection::Phase;
use crate::edge::refusal::{Recorder, Refused};
use crate::telemetry::access_log::record::AccessRecord;
use http::Method;
use std::sync::LazyLock;
use std::time::SystemTime;

/// Stands for a method that is not known; metrics fold it into `other`.
static NO_METHOD: LazyLock<Method> =
    LazyLock::new(|| Method::from_bytes(UNKNOWN.as_bytes()).unwrap_or_default());
/// Stands in a record for what is not known.
const UNKNOWN: &str = "-";

/// They are counted and logged like any other request.
impl Recorder for Records {
    fn refused(&self, refused: &Refused<'_>) {
        let snapshot = self.snapshots.load();
        let (connection, cause) = (refused.connection, refused.cause);
        let status = cause.rejection.status();
        self.metrics.rejection(cause.rejection.reason());
        snapshot.rejected.observe(&NO_METHOD, status, refused.waited.as_secs_f64(), 0, refused.sent);
        let mut request_id = RequestId::default();
        log::debug!("request {} from {}: {cause}", request_id.as_str(), connection.peer);
        let method = refused.asked.map_or(UNKNOWN, |asked| asked.method);
        let target = refused.asked.map_or(UNKNOWN, |asked| asked.target);
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let (policy, client) = (&snapshot.access_log, connection.peer.ip());
        if !policy.wants(
            client,
            refused.asked.map_or("", |_| path),
            status,
            self.metrics.access_log_excluded(),
        ) {
            return;
        }
        let record = AccessRecord {
            time: SystemTime::now().checked_sub(refused.waited).unwrap_or_else(SystemTime::now),
            request_id: request_id.as_str(),
            client,
            peer: Some(connection.transport_peer),
            listener: &connection.listener.name,
            tls: connection.tls.as_ref().map(|tls| tls.version),
            method,
            host: "",
            path,
            query,
            protocol: if connection.phase() == Phase::Multiplexed { "HTTP/2" } else { "HTTP/1.1" },
            status,
            bytes_in: 0,
            bytes_out: refused.sent,
            duration: refused.waited,
            upstream: None,
            endpoint: None,
            upstream_time: None,
            attempts: 0,
            retries: None,
            route: "rejected",
            generation: snapshot.generation,
            rejection: Some(cause.rejection.reason()),
            rejection_detail: cause.detail,
            user_agent: None,
            referer: None,
        };
        self.access_log.append(|buffer| policy.format(&record, buffer));
    }
}
