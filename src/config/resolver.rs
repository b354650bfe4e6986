//! `resolver:`, how names of endpoints become addresses.

use super::error::{ValueError, quoted};
use super::units::HumanDuration;
use super::{address, each, text};
use serde::{Deserialize, Deserializer, Serialize};
use std::net::{IpAddr, SocketAddr};

/// How names of endpoints become addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// DNS servers, in the order they are asked; `None` = those of `/etc/resolv.conf`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "servers")]
    pub servers: Option<Vec<SocketAddr>>,
    /// For one answer of one server.
    pub timeout: HumanDuration,
    /// Shortest time an answer is used, whatever its TTL.
    pub min_ttl: HumanDuration,
    /// Longest time an answer is used, whatever its TTL.
    pub max_ttl: HumanDuration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        ResolverConfig {
            servers: None,
            timeout: HumanDuration::secs(2),
            min_ttl: HumanDuration::secs(1),
            max_ttl: HumanDuration::secs(300),
        }
    }
}

fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    let servers: Vec<Server> = each::list(deserializer)?;
    Ok(Some(servers.into_iter().map(|server| server.0).collect()))
}

struct Server(SocketAddr);

impl<'de> Deserialize<'de> for Server {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "an address and port such as 10.0.0.2:53", server).map(Server)
    }
}

fn server(written: &str) -> Result<SocketAddr, ValueError> {
    let Ok(ip) = written.parse::<IpAddr>() else { return address::parse(written) };
    let error = ValueError::new(format!("{} is not an address and port", quoted(written)));
    Err(error.with_hint(format!("add the port: {}", SocketAddr::new(ip, 53))))
}
