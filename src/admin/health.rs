//! `/livez`, `/readyz` and `/metrics`: what probes and Prometheus read. They answer anyone.

use super::AdminState;
use crate::background::gauges;
use crate::background::readiness::{ReadinessReport, Serving};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};

/// The Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /livez`: the process runs. Checks nothing, so that a probe never restarts a process that
/// would only come back to the same trouble.
pub async fn live() -> &'static str {
    "ok"
}

/// `GET /readyz`: 200 when this process should get traffic, else 503; the body says why.
pub async fn ready(State(state): State<AdminState>) -> (StatusCode, Json<ReadinessReport>) {
    let serving = Serving::from(&**state.store.load());
    let report = state.readiness.report(&serving);
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

/// `GET /metrics`: every metric in the text format.
pub async fn metrics(State(state): State<AdminState>) -> ([(HeaderName, &'static str); 1], String) {
    gauges::show_upstreams(&state.store.pin());
    ([(header::CONTENT_TYPE, METRICS_TYPE)], state.metrics.render())
}
