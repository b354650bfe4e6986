//! Rules that keep requests from going round in circles: who the gateway says it is, and that no upstream is one of its
//! own listeners.

use super::super::error::{ValueError, quoted};
use super::super::via::ViaConfig;
use super::super::{Config, EndpointAddress, EndpointConfig, UpstreamTargetConfig};
use super::{Check, syntax};
use std::net::SocketAddr;

impl Check<'_> {
    pub(super) fn via(&mut self, config: &Config) {
        let ViaConfig::Pseudonym(pseudonym) = &config.proxy.via else { return };
        if syntax::header_name(pseudonym).is_err() {
            let error = ValueError::new(format!("{} is not a pseudonym", quoted(pseudonym)));
            self.refuse("proxy.via", error.with_hint("letters, digits, . and -, such as edge-1; or off"));
        }
    }

    /// A name may lead here too, and is found out by `Via` while running.
    pub(super) fn own_listeners(&mut self, config: &Config) {
        for (name, upstream) in &config.upstreams {
            self.no_listener(config, &upstream.endpoints, &format!("upstreams.{name}.endpoints"));
        }
        for (index, route) in config.routes.iter().enumerate() {
            if let Some(UpstreamTargetConfig::Inline(endpoints)) = &route.upstream {
                self.no_listener(config, endpoints, &format!("routes[{index}].upstream"));
            }
        }
    }

    fn no_listener(&mut self, config: &Config, endpoints: &[EndpointConfig], path: &str) {
        for (index, endpoint) in endpoints.iter().enumerate() {
            let EndpointAddress::Socket(address) = endpoint.address else { continue };
            let mut listeners = config.listeners.iter().enumerate();
            if let Some((at, listener)) = listeners.find(|(_, listener)| listens(listener.address, address)) {
                let own = listener.name(at);
                let error = ValueError::new(format!("{address} is the listener {} itself", quoted(&own)));
                self.refuse(
                    format!("{path}[{index}]"),
                    error.with_hint("requests would go round in circles"),
                );
            }
        }
    }
}

/// Whether who connects to `address` on this machine comes in at `listener`.
fn listens(listener: SocketAddr, address: SocketAddr) -> bool {
    let (own, ip) = (listener.ip(), address.ip().to_canonical());
    let any = own.is_unspecified() && (ip.is_loopback() || ip.is_unspecified());
    // Without IPv6 nobody listens there.
    let reaches = any && (own.is_ipv6() || ip.is_ipv4());
    listener.port() == address.port() && (own.to_canonical() == ip || reaches)
}
