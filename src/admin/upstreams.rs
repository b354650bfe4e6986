//! `/v1/upstreams`: the pools that serve, their endpoints, and how they are doing; endpoints are drained
//! and enabled here.

use super::problem::ProblemDocument;
use super::{AdminState, rfc3339, unix_seconds};
use crate::config::{BalanceConfig, EndpointAddress};
use crate::upstream::endpoint::Endpoint;
use crate::upstream::members::Serving;
use crate::upstream::moment::Moment;
use crate::upstream::names::Name;
use crate::upstream::pool::Pool;
use crate::upstream::state::Mode;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use std::net::IpAddr;
use std::time::SystemTime;

/// The body of `/v1/upstreams`.
#[derive(Debug, Serialize)]
pub struct Upstreams {
    generation: u64,
    upstreams: Vec<UpstreamView>,
}

#[derive(Debug, Serialize)]
struct UpstreamView {
    /// `route:` and the name of its route for an inline list.
    name: String,
    balance: BalanceConfig,
    /// Idle connections kept, per worker.
    keepalive: u32,
    /// Whether the gateway speaks TLS to it.
    tls: bool,
    /// Which endpoints get the requests: `primaries`, `backups`, `panic` (all) or `nobody`.
    serving: &'static str,
    requests_in_flight: u32,
    /// 0 = no limit.
    max_requests: u32,
    /// `open` while it works on `max_requests`: more are refused.
    circuit: &'static str,
    endpoints: Vec<EndpointView>,
    /// Names among its endpoints, and what they stand for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<NameView>,
}

#[derive(Debug, Serialize)]
struct NameView {
    name: String,
    /// The last good answer.
    addresses: Vec<IpAddr>,
    /// RFC 3339; null = it never was.
    resolved: Option<String>,
    /// Why the last lookup failed; null when it did not.
    trouble: Option<String>,
}

/// One endpoint; also the answer to a change of it.
#[derive(Debug, Serialize)]
pub struct EndpointView {
    address: EndpointAddress,
    weight: u32,
    backup: bool,
    /// Whether it should get requests.
    up: bool,
    /// What active checks say: `unchecked`, `pending`, `up` or `down`.
    health: &'static str,
    /// What operators say: `enabled` or `drained`.
    mode: &'static str,
    /// When it is back, if it is out for its failures.
    ejected_until: Option<String>,
    requests_in_flight: u32,
    /// As `balance: p2c` knows it; null before the first answer.
    latency_ms: Option<f64>,
}

/// `GET /v1/upstreams`.
pub async fn upstreams(State(state): State<AdminState>) -> Json<Upstreams> {
    let snapshot = state.store.pin();
    let upstreams = snapshot.pools.values().map(|pool| UpstreamView::from(&**pool));
    Json(Upstreams { generation: snapshot.generation, upstreams: upstreams.collect() })
}

/// What a change is about: the upstream's name and the endpoint's address, as this API writes them.
type Named = Path<(String, String)>;

/// `POST /v1/upstreams/{name}/endpoints/{address}/drain`: it gets no new requests, through reloads too.
///
/// # Errors
/// 404 when there is no such endpoint.
pub async fn drain(
    State(state): State<AdminState>,
    Path((name, address)): Named,
) -> Result<Json<EndpointView>, ProblemDocument> {
    set_mode(&state, &name, &address, Mode::Drained)
}

/// `POST /v1/upstreams/{name}/endpoints/{address}/enable`: it may get requests again.
///
/// # Errors
/// 404 when there is no such endpoint.
pub async fn enable(
    State(state): State<AdminState>,
    Path((name, address)): Named,
) -> Result<Json<EndpointView>, ProblemDocument> {
    set_mode(&state, &name, &address, Mode::Enabled)
}

fn set_mode(
    state: &AdminState,
    name: &str,
    address: &str,
    mode: Mode,
) -> Result<Json<EndpointView>, ProblemDocument> {
    let snapshot = state.store.pin();
    let missing = |what| ProblemDocument::new(StatusCode::NOT_FOUND, what);
    let Some(pool) = snapshot.pools.get(name) else {
        let problem = missing(format!("no upstream is named `{name}`"));
        return Err(problem
            .hint("GET /v1/upstreams lists them; an inline list is `route:` and the name of its route"));
    };
    let endpoints = pool.endpoints();
    let Some(endpoint) = endpoints.iter().find(|endpoint| &*endpoint.label == address) else {
        let problem = missing(format!("`{name}` has no endpoint `{address}`"));
        return Err(problem.hint("GET /v1/upstreams lists their addresses"));
    };
    if pool.set_mode(endpoint, mode) != mode {
        log::info!("upstream {name}: {address} is {} by the admin API", word_of_mode(mode));
    }
    Ok(Json(EndpointView::from(&**endpoint)))
}

impl From<&Pool> for UpstreamView {
    fn from(pool: &Pool) -> Self {
        let config = pool.config();
        UpstreamView {
            name: pool.name().to_owned(),
            balance: config.balance.clone(),
            keepalive: config.keepalive,
            tls: config.tls.is_some(),
            serving: match pool.serving() {
                Serving::Primaries => "primaries",
                Serving::Backups => "backups",
                Serving::Panic => "panic",
                Serving::Nobody => "nobody",
            },
            requests_in_flight: pool.in_flight(),
            max_requests: config.max_requests,
            circuit: if pool.is_full() { "open" } else { "closed" },
            endpoints: pool.endpoints().iter().map(|endpoint| EndpointView::from(&**endpoint)).collect(),
            names: pool.names().iter().map(|name| NameView::from(&**name)).collect(),
        }
    }
}

impl From<&Name> for NameView {
    fn from(name: &Name) -> Self {
        let facts = name.facts();
        NameView {
            name: name.host().to_owned(),
            addresses: facts.addresses,
            resolved: facts.resolved_at.and_then(|at| rfc3339(unix_seconds(at))),
            trouble: facts.trouble,
        }
    }
}

impl From<&Endpoint> for EndpointView {
    fn from(endpoint: &Endpoint) -> Self {
        let (now, state) = (Moment::now(), &endpoint.state);
        let until = SystemTime::now() + state.ejected_until().since(now);
        EndpointView {
            address: endpoint.address.clone(),
            weight: endpoint.weight,
            backup: endpoint.backup,
            up: state.available(now),
            health: state.health().as_str(),
            mode: word_of_mode(state.mode()),
            ejected_until: state.ejected(now).then(|| rfc3339(unix_seconds(until))).flatten(),
            requests_in_flight: state.in_flight(),
            latency_ms: state.latency().micros(now).map(|micros| f64::from(micros) / 1_000.0),
        }
    }
}

fn word_of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enabled => "enabled",
        Mode::Drained => "drained",
    }
}
