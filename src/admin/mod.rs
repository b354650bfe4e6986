//! What port 7998 says: life, readiness, metrics, and what the process runs.
//!
//! Handlers read memory only: the serving snapshot, the readiness facts, the metric registry. They
//! run on a thread of their own ([`service`]), so traffic cannot starve them and they cannot slow
//! traffic. `/livez`, `/readyz` and `/metrics` answer anyone; `/v1` answers this machine only
//! ([`guard`]).

pub mod certificates;
pub mod guard;
pub mod health;
pub mod problem;
pub mod routes;
pub mod service;
pub mod status;
pub mod upstreams;

use crate::background::Readiness;
use crate::snapshot::SnapshotStore;
use crate::telemetry::metrics::Metrics;
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub use service::AdminService;

/// What the handlers read.
#[derive(Clone)]
pub struct AdminState {
    /// The configuration file; `None` = the embedded quickstart configuration.
    pub path: Option<PathBuf>,
    /// The configuration that serves.
    pub store: Arc<SnapshotStore>,
    /// What the process knows of its own state.
    pub readiness: Arc<Readiness>,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// When the process started, for a human.
    pub started: SystemTime,
    /// The same moment, for uptime: clocks may be set.
    pub started_instant: Instant,
}

impl AdminState {
    /// For a process that starts now.
    pub fn new(
        path: Option<PathBuf>,
        store: Arc<SnapshotStore>,
        readiness: Arc<Readiness>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (started, started_instant) = (SystemTime::now(), Instant::now());
        AdminState { path, store, readiness, metrics, started, started_instant }
    }
}

/// Every endpoint. Requests must carry a [`guard::Peer`] extension; without one `/v1` refuses.
pub fn router(state: AdminState) -> Router {
    let v1 = Router::new()
        .route("/status", get(status::status))
        .route("/routes", get(routes::routes))
        .route("/upstreams", get(upstreams::upstreams))
        .route("/certificates", get(certificates::certificates))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::from_fn(guard::local_only));
    Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .nest("/v1", v1)
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::map_response(never_stored))
        .with_state(state)
}

/// Every answer is about this moment; nosniff because some repeat what an operator wrote.
async fn never_stored(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Seconds since 1970 as RFC 3339 in UTC; `None` outside the years it can write.
fn rfc3339(unix_seconds: i64) -> Option<String> {
    let time = chrono::DateTime::from_timestamp(unix_seconds, 0)?;
    Some(time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
}

/// A moment of this process as seconds since 1970; 0 for a clock set before that.
fn unix_seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
