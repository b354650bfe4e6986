//! `/v1/upstreams`: the pools that serve and their endpoints.

use super::AdminState;
use crate::config::BalanceConfig;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::moment::Moment;
use crate::upstream::pool::Pool;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::net::SocketAddr;

/// The body of `/v1/upstreams`.
#[derive(Debug, Serialize)]
pub struct Upstreams {
    generation: u64,
    upstreams: Vec<UpstreamView>,
}

#[derive(Debug, Serialize)]
struct UpstreamView {
    /// An inline list carries the name of its route.
    name: String,
    balance: BalanceConfig,
    /// Idle connections kept, per worker.
    keepalive: u32,
    /// Whether the gateway speaks TLS to it.
    tls: bool,
    endpoints: Vec<EndpointView>,
}

#[derive(Debug, Serialize)]
struct EndpointView {
    address: SocketAddr,
    weight: u32,
    /// Whether it gets requests.
    up: bool,
}

/// `GET /v1/upstreams`.
pub async fn upstreams(State(state): State<AdminState>) -> Json<Upstreams> {
    let snapshot = state.store.pin();
    let upstreams = snapshot.pools.values().map(|pool| UpstreamView::from(&**pool));
    Json(Upstreams { generation: snapshot.generation, upstreams: upstreams.collect() })
}

impl From<&Pool> for UpstreamView {
    fn from(pool: &Pool) -> Self {
        let config = pool.config();
        UpstreamView {
            name: pool.name().to_owned(),
            balance: config.balance.clone(),
            keepalive: config.keepalive,
            tls: config.tls.is_some(),
            endpoints: pool.endpoints().iter().map(|endpoint| EndpointView::from(&**endpoint)).collect(),
        }
    }
}

impl From<&Endpoint> for EndpointView {
    fn from(endpoint: &Endpoint) -> Self {
        EndpointView {
            address: endpoint.address,
            weight: endpoint.weight,
            up: endpoint.state.available(Moment::now()),
        }
    }
}
