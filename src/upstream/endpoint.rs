//! One address of an upstream.
//!
//! Holds what is fixed when it is compiled, and its [`EndpointState`], which is not; who is chosen is
//! [`super::balance`]'s business.

use super::moment::Moment;
use super::state::{EndpointState, EndpointStates, Health};
use super::sticky::Tie;
use super::transport::Transport;
use crate::config::{EndpointAddress, EndpointConfig};
use pingora_core::upstreams::peer::HttpPeer;
use std::sync::Arc;

/// One address of an upstream, ready to be connected to.
#[derive(Debug)]
pub struct Endpoint {
    /// Where it listens; never a name.
    pub address: EndpointAddress,
    /// Share of the traffic relative to the others.
    pub weight: u32,
    /// Gets requests only when no other is available.
    pub backup: bool,
    /// The address as metric label and log field.
    pub label: Arc<str>,
    /// How it is doing; shared with whoever else this upstream has at this address.
    pub state: Arc<EndpointState>,
    /// What ties a client to it; `None` where nothing does.
    pub tie: Option<Tie>,
    /// What [`Endpoint::peer`] clones.
    pub(super) template: HttpPeer,
}

impl Endpoint {
    /// Compiles one endpoint of an upstream, at this address, with this transport. `keep` = whether idle connections are
    /// kept for reuse; `health` and `since` = what is known of it and since when it gets requests, if it
    /// is new.
    pub fn new(
        config: &EndpointConfig,
        address: impl Into<EndpointAddress>,
        transport: &Transport,
        keep: bool,
        states: &EndpointStates,
        health: Health,
        since: Moment,
    ) -> Endpoint {
        let address = address.into();
        let label = address.to_string().into();
        Endpoint {
            template: super::peer::template(&address, transport, keep),
            address,
            weight: config.weight,
            backup: config.backup,
            state: states.of(&label, health, since),
            label,
            tie: None,
        }
    }

    /// The endpoint, to which clients can be tied by `tie`.
    pub fn tied_by(self, tie: Option<Tie>) -> Endpoint {
        Endpoint { tie, ..self }
    }

    /// Whether both are one endpoint, under whatever settings.
    pub fn is(&self, other: &Endpoint) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}
