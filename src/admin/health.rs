//! `/livez`, `/readyz` and `/metrics`: what probes and Prometheus read. They answer anyone.

use super::AdminState;
use crate::background::gauges;
use crate::background::readiness::{ReadinessReport, Serving};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};

/// The Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /livez`: 200 while every worker turns, else 503 and which one does not. Checks nothing else, so that
/// a probe never restarts a process that would only come back to the same trouble.
pub async fn live(State(state): State<AdminState>) -> (StatusCode, String) {
    match state.heartbeats.stuck() {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(stuck) => (StatusCode::SERVICE_UNAVAILABLE, stuck),
    }
}

/// `GET /readyz`: 200 when this process should get traffic, else 503; the body says why.
pub async fn ready(State(state): State<AdminState>) -> (StatusCode, Json<ReadinessReport>) {
    let serving = Serving::from(&**state.store.load());
    let report = state.readiness.report(&serving, state.heartbeats.stuck());
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

/// `GET /metrics`: every metric in the text format.
pub async fn metrics(State(state): State<AdminState>) -> ([(HeaderName, &'static str); 1], String) {
    gauges::show_upstreams(&state.store.pin());
    state.metrics.workers_silent(&state.heartbeats.silent());
    ([(header::CONTENT_TYPE, METRICS_TYPE)], state.metrics.render())
}
