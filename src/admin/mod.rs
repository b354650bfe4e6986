//! What port 7998 says: life, readiness, metrics, and what the process runs.
//!
//! Handlers read memory only: the serving snapshot, the readiness facts, the metric registry; those that
//! change something change an atomic. They
//! run on a thread of their own ([`service`]), so traffic cannot starve them and they cannot slow
//! traffic. `/livez`, `/readyz` and `/metrics` answer anyone; `/v1` answers this machine only
//! ([`guard`]).

pub mod certificates;
pub mod guard;
pub mod health;
mod places;
pub mod problem;
pub mod routes;
pub mod service;
pub mod status;
pub mod upstreams;

use crate::background::Readiness;
use crate::background::heartbeat::Heartbeats;
use crate::snapshot::SnapshotStore;
use crate::telemetry::metrics::Metrics;
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
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
    /// Whether the workers turn.
    pub heartbeats: Arc<Heartbeats>,
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
        heartbeats: Arc<Heartbeats>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (started, started_instant) = (SystemTime::now(), Instant::now());
        AdminState { path, store, readiness, heartbeats, metrics, started, started_instant }
    }
}

/// Every endpoint. Requests must carry a [`guard::Peer`] extension; without one `/v1` refuses.
pub fn router(state: AdminState) -> Router {
    let v1 = Router::new()
        .route("/status", get(status::status))
        .route("/routes", get(routes::routes))
        .route("/upstreams", get(upstreams::upstreams))
        .route("/upstreams/{name}/endpoints/{address}/drain", post(upstreams::drain))
        .route("/upstreams/{name}/endpoints/{address}/enable", post(upstreams::enable))
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
mod tests {
    use super::guard::Peer;
    use super::*;
    use crate::background::readiness::{ReloadFailure, ReloadOutcome};
    use crate::snapshot::{self, Shared};
    use crate::tls::tickets::TicketKeys;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::net::SocketAddr;
    use tower::ServiceExt;

    const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 50_000);
    const REMOTE: ([u8; 4], u16) = ([192, 0, 2, 7], 50_000);

    fn state() -> AdminState {
        let tickets = TicketKeys::generate().expect("random bytes");
        let shared = Shared { metrics: Metrics::new(), tickets };
        let first = snapshot::prepare(None, &shared, None).expect("the embedded configuration is right");
        let store = Arc::new(SnapshotStore::new(first));
        AdminState::new(None, store, Arc::new(Readiness::new(1)), Heartbeats::new(1), shared.metrics)
    }

    fn come_up(readiness: &Readiness) {
        readiness.listeners_bound(vec![("edge".to_owned(), ([0, 0, 0, 0], 7999).into())]);
        readiness.worker_up();
    }

    struct Answer {
        status: StatusCode,
        headers: axum::http::HeaderMap,
        body: String,
    }

    impl Answer {
        fn json(&self) -> Value {
            serde_json::from_str(&self.body).expect("JSON")
        }
    }

    async fn ask(state: &AdminState, method: &str, path: &str, host: &str, peer: ([u8; 4], u16)) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .extension(Peer(SocketAddr::from(peer)))
            .body(Body::empty())
            .expect("a request");
        let response = router(state.clone()).oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }

    async fn get(state: &AdminState, path: &str) -> Answer {
        ask(state, "GET", path, "127.0.0.1:7998", LOCAL).await
    }

    #[tokio::test]
    async fn life_is_told_to_anyone_whatever_the_state() {
        let answer = ask(&state(), "GET", "/livez", "gateway.test", REMOTE).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "ok"));
        assert_eq!(answer.headers["cache-control"], "no-store");
    }

    #[tokio::test]
    async fn readiness_follows_the_life_of_the_process() {
        let state = state();
        let starting = ask(&state, "GET", "/readyz", "gateway.test", REMOTE).await;
        assert_eq!(starting.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(starting.json()["state"], "starting");
        come_up(&state.readiness);
        let ready = get(&state, "/readyz").await;
        assert_eq!(ready.status, StatusCode::OK);
        assert_eq!(ready.headers["content-type"], "application/json");
        let body = ready.json();
        assert_eq!((&body["ready"], &body["generation"]), (&Value::from(true), &Value::from(1)));
        for check in ["configuration", "listeners", "workers", "upstreams"] {
            assert_eq!(body["checks"][check]["ok"], true, "{check}");
            assert!(body["checks"][check]["detail"].is_string(), "{check}");
        }
        state.readiness.set_draining();
        let draining = get(&state, "/readyz").await;
        assert_eq!(draining.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(draining.json()["state"], "draining");
    }

    #[tokio::test]
    async fn a_failed_reload_is_named_and_stays_ready() {
        let state = state();
        come_up(&state.readiness);
        let failure = ReloadFailure { first: "a.yaml:7: bad".to_owned(), others: 1 };
        let outcome = ReloadOutcome { at: SystemTime::UNIX_EPOCH, generation: 1, result: Err(failure) };
        state.readiness.reload_finished(outcome);
        let ready = get(&state, "/readyz").await;
        assert_eq!(ready.status, StatusCode::OK);
        let detail = ready.json()["checks"]["configuration"]["detail"].to_string();
        assert!(detail.contains("a.yaml:7: bad (and 1 more problem)"), "{detail}");
        let last = get(&state, "/v1/status").await.json()["last_reload"].clone();
        assert_eq!(last["result"], "failure");
        assert_eq!(last["time"], "1970-01-01T00:00:00Z");
        assert_eq!(last["error"], "a.yaml:7: bad (and 1 more problem)");
    }

    #[tokio::test]
    async fn metrics_are_told_to_anyone_as_text() {
        let answer = ask(&state(), "GET", "/metrics", "gateway.test", REMOTE).await;
        assert_eq!(answer.status, StatusCode::OK);
        let kind = answer.headers["content-type"].to_str().expect("text");
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        assert!(answer.body.contains("# HELP"));
    }

    #[tokio::test]
    async fn status_says_what_runs() {
        let state = state();
        come_up(&state.readiness);
        let status = get(&state, "/v1/status").await.json();
        assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(status["generation"], 1);
        assert_eq!(status["state"], "ready");
        assert_eq!(status["workers"], serde_json::json!({ "wanted": 1, "up": 1 }));
        assert_eq!(status["listeners"], serde_json::json!([{ "name": "edge", "address": "0.0.0.0:7999" }]));
        assert!(status["last_reload"].is_null() && status["configuration"].is_null());
        assert!(status["started"].is_string() && status["uptime_seconds"].is_u64());
    }

    #[tokio::test]
    async fn routes_upstreams_and_certificates_are_listed() {
        let state = state();
        let routes = get(&state, "/v1/routes").await.json();
        let route = &routes["routes"][0];
        assert!(route["name"].is_string() && route["hosts"].is_array() && route["access"].is_boolean());
        assert_eq!(route["target"]["kind"], "respond");
        assert!(get(&state, "/v1/upstreams").await.json()["upstreams"].is_array());
        assert!(get(&state, "/v1/certificates").await.json()["certificates"].is_array());
    }

    #[tokio::test]
    async fn head_is_answered_like_get_without_a_body() {
        let state = state();
        for path in ["/livez", "/metrics", "/v1/status"] {
            let answer = ask(&state, "HEAD", path, "127.0.0.1", LOCAL).await;
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, ""), "{path}");
        }
    }

    #[tokio::test]
    async fn errors_are_problem_documents() {
        let state = state();
        for path in ["/livez", "/v1/routes"] {
            let answer = ask(&state, "POST", path, "127.0.0.1", LOCAL).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.headers["allow"], "GET,HEAD", "{path}");
            assert_eq!(answer.headers["content-type"], "application/problem+json");
            assert_eq!(answer.json()["status"], 405);
        }
        for path in ["/", "/nothing", "/v1", "/v1/nothing", "/livez/"] {
            let answer = get(&state, path).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(answer.headers["content-type"], "application/problem+json");
            assert_eq!(answer.json()["title"], "Not Found");
        }
    }

    #[tokio::test]
    async fn v1_answers_this_machine_only() {
        let state = state();
        for path in ["/v1/status", "/v1/routes", "/v1/upstreams", "/v1/certificates", "/v1/nothing"] {
            let answer = ask(&state, "GET", path, "127.0.0.1", REMOTE).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
            assert!(answer.json()["hint"].is_string());
        }
    }

    #[tokio::test]
    async fn v1_does_not_answer_to_a_rebound_name() {
        let state = state();
        let answer = ask(&state, "GET", "/v1/status", "evil.test:7998", LOCAL).await;
        assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(ask(&state, "GET", "/v1/status", "localhost:7998", LOCAL).await.status, StatusCode::OK);
    }
}
