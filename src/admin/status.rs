//! `/v1/status`: which process this is and what it serves.

use super::{AdminState, rfc3339, unix_seconds};
use crate::background::readiness::{BoundListener, ReloadOutcome, State as LifeState};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::path::PathBuf;

/// The body of `/v1/status`.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    /// The source revision it was built from; `unknown` outside a release build.
    revision: &'static str,
    /// The configuration that serves.
    generation: u64,
    /// Where it was read from; null = the embedded quickstart configuration.
    configuration: Option<PathBuf>,
    /// RFC 3339.
    started: Option<String>,
    uptime_seconds: u64,
    state: LifeState,
    workers: WorkersStatus,
    listeners: Vec<BoundListener>,
    /// Null before the first reload.
    last_reload: Option<ReloadStatus>,
}

#[derive(Debug, Serialize)]
struct WorkersStatus {
    wanted: usize,
    up: usize,
}

#[derive(Debug, Serialize)]
struct ReloadStatus {
    result: ReloadResult,
    /// RFC 3339.
    time: Option<String>,
    /// The generation that served afterwards.
    generation: u64,
    /// The first problem and the number of others; null for a success.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ReloadResult {
    Success,
    Failure,
}

/// `GET /v1/status`.
pub async fn status(State(state): State<AdminState>) -> Json<Status> {
    let snapshot = state.store.pin();
    let (up, wanted) = state.readiness.workers();
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("PORTCULLIS_REVISION").unwrap_or("unknown"),
        generation: snapshot.generation,
        configuration: state.path.clone(),
        started: rfc3339(unix_seconds(state.started)),
        uptime_seconds: state.started_instant.elapsed().as_secs(),
        state: state.readiness.state(),
        workers: WorkersStatus { wanted, up },
        listeners: state.readiness.listeners(),
        last_reload: state.readiness.last_reload().map(ReloadStatus::from),
    })
}

impl From<ReloadOutcome> for ReloadStatus {
    fn from(outcome: ReloadOutcome) -> Self {
        ReloadStatus {
            result: if outcome.result.is_ok() { ReloadResult::Success } else { ReloadResult::Failure },
            time: rfc3339(unix_seconds(outcome.at)),
            generation: outcome.generation,
            error: outcome.result.err().map(|failure| failure.to_string()),
        }
    }
}
