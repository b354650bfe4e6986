//! One address of an upstream.
//!
//! Holds what is fixed when it is compiled; who is chosen is [`super::balance`]'s business.

use super::transport::Transport;
use crate::config::EndpointConfig;
use pingora_core::upstreams::peer::HttpPeer;
use std::net::SocketAddr;
use std::sync::Arc;

/// One address of an upstream, ready to be connected to.
#[derive(Debug)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Share of the traffic relative to the others.
    pub weight: u32,
    /// The address as metric label and log field.
    pub label: Arc<str>,
    /// What [`Endpoint::peer`] clones.
    pub(super) template: HttpPeer,
}

impl Endpoint {
    /// Compiles one endpoint of an upstream with this transport. `keep` = whether idle connections are
    /// kept for reuse.
    pub fn new(config: &EndpointConfig, transport: &Transport, keep: bool) -> Endpoint {
        Endpoint {
            address: config.address,
            weight: config.weight,
            label: config.address.to_string().into(),
            template: super::peer::template(config.address, transport, keep),
        }
    }
}
