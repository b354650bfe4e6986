//! `resolver:`, how names of endpoints become addresses.

use super::address::Address;
use super::each;
use super::units::HumanDuration;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::SocketAddr;

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
    let servers: Vec<Address> = each::list(deserializer)?;
    Ok(Some(servers.into_iter().map(|server| server.0).collect()))
}
