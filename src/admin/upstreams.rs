//! `/v1/upstreams`: the pools that serve and their endpoints.

use super::AdminState;
use crate::config::{BalanceConfig, UpstreamConfig};
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
    /// Always true until endpoints are checked.
    up: bool,
}

/// `GET /v1/upstreams`.
pub async fn upstreams(State(state): State<AdminState>) -> Json<Upstreams> {
    let snapshot = state.store.pin();
    let pools = snapshot.pools.iter();
    let upstreams =
        pools.map(|(name, pool)| UpstreamView::new(name, pool, snapshot.config.upstreams.get(name)));
    Json(Upstreams { generation: snapshot.generation, upstreams: upstreams.collect() })
}

impl UpstreamView {
    /// `config` is `None` for an inline list, which has the defaults.
    fn new(name: &str, pool: &Pool, config: Option<&UpstreamConfig>) -> Self {
        let endpoint = |endpoint: &crate::upstream::endpoint::Endpoint| EndpointView {
            address: endpoint.address,
            weight: endpoint.weight,
            up: true,
        };
        UpstreamView {
            name: name.to_owned(),
            balance: config.map(|config| config.balance).unwrap_or_default(),
            keepalive: config.map_or(UpstreamConfig::DEFAULT_KEEPALIVE, |config| config.keepalive),
            tls: config.is_some_and(|config| config.tls.is_some()),
            endpoints: pool.endpoints().iter().map(endpoint).collect(),
        }
    }
}
