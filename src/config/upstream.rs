//! `upstreams:`, where requests are sent.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A named upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// At least one.
    pub endpoints: Vec<EndpointConfig>,
    /// How an endpoint is chosen.
    #[serde(default)]
    pub balance: BalanceConfig,
    /// Idle connections kept, per worker.
    #[serde(default = "keepalive")]
    pub keepalive: u32,
    /// Speak TLS to the endpoints; `None` = plain.
    #[serde(default)]
    pub tls: Option<UpstreamTlsConfig>,
}

fn keepalive() -> u32 {
    1024
}

/// One endpoint: `127.0.0.1:9000` or `{ address: …, weight: 2 }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Address and port.
    pub address: SocketAddr,
    /// Share of the traffic relative to the others; 1 to 1,000 (default 1).
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BalanceConfig {
    /// In turn, smoothly by weight.
    #[default]
    RoundRobin,
    /// At random, by weight.
    Random,
}

/// TLS towards an upstream; certificates are verified unless `verify: false`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTlsConfig {
    /// The name asked for (SNI) and verified; required, never empty.
    pub server_name: String,
    /// PEM file of the authorities trusted in place of the system's.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM; needs `key`.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Client key, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// Verify the endpoint's certificate and name.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn yes() -> bool {
    true
}

/// `upstream:` of a route.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum UpstreamTargetConfig {
    /// The name of an entry of `upstreams:`.
    Named(String),
    /// An inline list of endpoints.
    Inline(Vec<EndpointConfig>),
    /// `[{ app: 90 }, { app-next: 10 }]`: a weighted split between named upstreams, in file order.
    Split(Vec<(String, u32)>),
}
