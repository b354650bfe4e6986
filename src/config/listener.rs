//! `listeners:`, the sockets that accept traffic.

use super::address;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::SocketAddr;

/// One listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Metric label and log field; default `edge` for the first, the address for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address and port; `[::]` is dual stack.
    #[serde(deserialize_with = "address::socket")]
    pub address: SocketAddr,
    /// Whether this port speaks TLS.
    #[serde(default)]
    pub tls: ListenerTls,
    /// Plain HTTP on an `auto` port is answered with 308 to the same URL under https.
    #[serde(default)]
    pub redirect_http: bool,
    /// Speak HTTP/2: by ALPN, and without TLS with prior knowledge.
    #[serde(default = "yes")]
    pub http2: bool,
    /// Whether connections begin with a PROXY header, believed from trusted proxies only.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// Connections at a time.
    #[serde(default = "most_connections")]
    pub max_connections: u32,
    /// Connections of one client at a time; 0 = no limit.
    #[serde(default)]
    pub max_connections_per_client: u32,
}

impl ListenerConfig {
    /// The name as written, or its default; `index` is its place in `listeners`.
    pub fn name(&self, index: usize) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None if index == 0 => Cow::Borrowed("edge"),
            None => Cow::Owned(self.address.to_string()),
        }
    }
}

/// Whether a port speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenerTls {
    /// HTTP and HTTPS on one port, told apart by the first byte.
    #[default]
    Auto,
    /// HTTPS only.
    Required,
    /// HTTP only.
    Off,
}

/// Whether connections begin with a header of the PROXY protocol, version 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    /// Nothing is looked for.
    #[default]
    Off,
    /// Those of trusted proxies may.
    Accept,
    /// They must, and only trusted proxies may connect.
    Require,
}

fn most_connections() -> u32 {
    100_000
}

fn yes() -> bool {
    true
}

/// What stands in for `listeners:` when it is left out.
pub(super) fn default_listeners() -> Vec<ListenerConfig> {
    vec![ListenerConfig {
        name: Some("edge".to_owned()),
        address: SocketAddr::from(([0, 0, 0, 0], 7999)),
        tls: ListenerTls::Auto,
        redirect_http: false,
        http2: true,
        proxy_protocol: ProxyProtocol::Off,
        max_connections: most_connections(),
        max_connections_per_client: 0,
    }]
}
