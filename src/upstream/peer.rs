//! What does Pingora connect to? Its peer, prebuilt per endpoint, with the timeouts of a route.
//!
//! All of Pingora's upstream timeouts are off by default, and its key for reusing connections leaves
//! settings out: both are mended here.

use super::endpoint::Endpoint;
use super::identity;
use super::transport::Transport;
use crate::config::EndpointAddress;
use pingora_core::protocols::TcpKeepalive;
use pingora_core::protocols::l4::socket::SocketAddr as EngineAddr;
use pingora_core::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest time an idle connection is kept for reuse; below what servers commonly allow.
const MAX_KEPT: Duration = Duration::from_secs(60);

/// Upstream timeouts of a route; zero = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP connect and TLS handshake together.
    pub connect: Duration,
    /// Between two reads from the upstream, the first of which waits for the response head. Pingora has
    /// one timeout for both head and body.
    pub response: Duration,
    /// Between two writes to the upstream, and how long a connection may lie idle for reuse, there at
    /// most a minute.
    pub idle: Duration,
}

impl Endpoint {
    /// A peer to connect to with these timeouts. The caller may change its options before it hands it
    /// over, such as `options.read_timeout` for an upgraded connection.
    pub fn peer(&self, timeouts: &Timeouts) -> Box<HttpPeer> {
        let mut peer = Box::new(self.template.clone());
        let options = &mut peer.options;
        options.connection_timeout = limit(timeouts.connect);
        options.total_connection_timeout = limit(timeouts.connect);
        options.read_timeout = limit(timeouts.response);
        options.write_timeout = limit(timeouts.idle);
        // The template has one only where connections are not kept at all.
        if options.idle_timeout.is_none() {
            let kept = self.state.kept_alive.limit().unwrap_or(MAX_KEPT).min(MAX_KEPT);
            options.idle_timeout = Some(limit(timeouts.idle).map_or(kept, |idle| idle.min(kept)));
        }
        peer
    }

    /// The same for a connection nobody has used before, nor will.
    pub fn fresh_peer(&self, timeouts: &Timeouts) -> Box<HttpPeer> {
        // A key of its own: nothing is found under it, then or later.
        static FRESH: AtomicU64 = AtomicU64::new(0x5bd1_e995_9d1b_54a7);
        let mut peer = self.peer(timeouts);
        peer.group_key ^= FRESH.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
        peer
    }

    /// A peer without timeouts to ask how the endpoint is, at another port if one is given.
    pub(super) fn check_peer(&self, port: Option<u16>) -> HttpPeer {
        let mut peer = self.template.clone();
        if let (Some(port), EngineAddr::Inet(address)) = (port, &mut peer._address) {
            address.set_port(port);
        }
        peer
    }
}

/// A peer without timeouts for an address.
pub(super) fn template(address: &EndpointAddress, transport: &Transport, keep: bool) -> HttpPeer {
    let tls = transport.tls.as_ref();
    let server_name = tls.map_or_else(String::new, |tls| identity::server_name(tls, address));
    let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut peer = match address {
        EndpointAddress::Socket(address) => HttpPeer::new(*address, tls.is_some(), server_name),
        // The configuration's checks leave no path that cannot be one.
        EndpointAddress::Unix(path) => HttpPeer::new_uds(path, tls.is_some(), server_name.clone())
            .unwrap_or_else(|_| HttpPeer::new(nobody, tls.is_some(), server_name)),
        EndpointAddress::Name { .. } => HttpPeer::new(nobody, tls.is_some(), server_name),
    };
    peer.group_key = transport.group_key;
    let options = &mut peer.options;
    options.http_upstream_request_policy = HttpUpstreamRequestPolicy::standard();
    options.tcp_keepalive = Some(TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        count: 6,
        #[cfg(target_os = "linux")]
        user_timeout: Duration::ZERO,
    });
    if let Some(tls) = tls {
        identity::demand(options, tls, address);
        options.ca.clone_from(&tls.ca);
        peer.client_cert_key.clone_from(&tls.client);
    }
    super::protocol::set(&mut peer, transport.protocol);
    if !keep {
        peer.options.idle_timeout = Some(Duration::ZERO);
    }
    peer
}

fn limit(timeout: Duration) -> Option<Duration> {
    (!timeout.is_zero()).then_some(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EndpointConfig, Problems, UpstreamProtocol, UpstreamTlsConfig};
    use crate::upstream::fixtures::{Authority, Folder, tls, tls_origin};
    use crate::upstream::moment::Moment;
    use crate::upstream::state::{EndpointStates, Health};
    use pingora_core::connectors::TransportConnector;
    use pingora_core::upstreams::peer::Peer;

    const TIMEOUTS: Timeouts = Timeouts {
        connect: Duration::from_secs(2),
        response: Duration::from_secs(30),
        idle: Duration::from_secs(50),
    };

    fn plain(keep: bool) -> Endpoint {
        let address = ([127, 0, 0, 1], 9000).into();
        let config = EndpointConfig::at(address);
        let states = EndpointStates::default();
        Endpoint::new(&config, address, &Transport::default(), keep, &states, Health::Unchecked, Moment::ZERO)
    }

    fn over_tls(folder: &Folder, address: SocketAddr, tls: &UpstreamTlsConfig) -> Endpoint {
        let mut problems = Problems::default();
        let (source, http1) = (folder.source(), UpstreamProtocol::Http1);
        let config = EndpointConfig::at(address);
        let endpoints = std::slice::from_ref(&config);
        let transport =
            Transport::compile(Some(tls), http1, endpoints, &source, "upstreams.app", &mut problems);
        let states = EndpointStates::default();
        Endpoint::new(&config, address, &transport.unwrap(), true, &states, Health::Unchecked, Moment::ZERO)
    }

    #[test]
    fn every_timeout_is_set() {
        let options = plain(true).peer(&TIMEOUTS).options;
        assert_eq!(options.connection_timeout, Some(TIMEOUTS.connect));
        assert_eq!(options.total_connection_timeout, Some(TIMEOUTS.connect));
        assert_eq!(options.read_timeout, Some(TIMEOUTS.response));
        assert_eq!(options.write_timeout, Some(TIMEOUTS.idle));
        assert_eq!(options.idle_timeout, Some(TIMEOUTS.idle));
        assert!(options.tcp_keepalive.is_some());
    }

    #[test]
    fn zero_means_no_timeout_but_idle_connections_are_never_kept_for_ever() {
        let none = Timeouts { connect: Duration::ZERO, response: Duration::ZERO, idle: Duration::ZERO };
        let options = plain(true).peer(&none).options;
        assert_eq!((options.connection_timeout, options.read_timeout), (None, None));
        assert_eq!(options.idle_timeout, Some(MAX_KEPT));
        let long = Timeouts { idle: Duration::from_secs(3600), ..TIMEOUTS };
        assert_eq!(plain(true).peer(&long).options.idle_timeout, Some(MAX_KEPT));
        assert_eq!(plain(false).peer(&TIMEOUTS).options.idle_timeout, Some(Duration::ZERO));
    }

    #[tokio::test]
    async fn certificate_and_name_of_the_upstream_are_verified() {
        let folder = Folder::new();
        let authority = Authority::new();
        let origin = tls_origin(&authority.issue("app.test"));
        let ca = Some(folder.write("ca.pem", &authority.cert_pem()));
        let other = Some(folder.write("other.pem", &Authority::new().cert_pem()));
        let connector = TransportConnector::new(None);
        for (config, expected) in [
            (UpstreamTlsConfig { ca: ca.clone(), ..tls("app.test") }, true),
            (UpstreamTlsConfig { ca, ..tls("other.test") }, false),
            (UpstreamTlsConfig { ca: other.clone(), ..tls("app.test") }, false),
            (UpstreamTlsConfig { ca: other, verify: false, ..tls("app.test") }, true),
            (UpstreamTlsConfig { verify: false, ..tls("other.test") }, true),
        ] {
            let peer = over_tls(&folder, origin, &config).peer(&TIMEOUTS);
            assert_eq!(connector.new_stream(&*peer).await.is_ok(), expected, "{config:?}");
        }
    }

    #[tokio::test]
    async fn without_a_name_the_address_is_verified() {
        let folder = Folder::new();
        let authority = Authority::new();
        let ca = Some(folder.write("ca.pem", &authority.cert_pem()));
        let other = Some(folder.write("other.pem", &Authority::new().cert_pem()));
        let connector = TransportConnector::new(None);
        let own = UpstreamTlsConfig { ca, server_name: None, ..tls("") };
        let named = |name: &str| UpstreamTlsConfig { server_name: Some(name.to_owned()), ..own.clone() };
        for (certificate, config, expected) in [
            ("127.0.0.1", own.clone(), true),
            ("127.0.0.2", own.clone(), false),
            ("app.test", own.clone(), false),
            ("127.0.0.1", UpstreamTlsConfig { ca: other, ..own.clone() }, false),
            ("127.0.0.2", UpstreamTlsConfig { verify: false, ..own.clone() }, true),
            ("::1", named("::1"), true),
            ("127.0.0.1", named("::1"), false),
            ("127.0.0.1", named("app.test"), false),
        ] {
            let origin = tls_origin(&authority.issue(certificate));
            let peer = over_tls(&folder, origin, &config).peer(&TIMEOUTS);
            let stream = connector.new_stream(&*peer).await;
            let verified = stream.and_then(|stream| identity::verify(stream.get_ssl_digest().as_deref()));
            assert_eq!(verified.is_ok(), expected, "{certificate}, {config:?}: {verified:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_reused_by_its_like_and_not_across_authorities() {
        let folder = Folder::new();
        let authority = Authority::new();
        let origin = tls_origin(&authority.issue("app.test"));
        let ca = Some(folder.write("ca.pem", &authority.cert_pem()));
        // The same authority and another one: as trusted for this origin, yet not the same policy.
        let wider = [authority.cert_pem(), Authority::new().cert_pem()].concat();
        let wider = Some(folder.write("wider.pem", &wider));
        let narrow = over_tls(&folder, origin, &UpstreamTlsConfig { ca, ..tls("app.test") });
        let wide = over_tls(&folder, origin, &UpstreamTlsConfig { ca: wider, ..tls("app.test") });
        let connector = TransportConnector::new(None);
        let peer = narrow.peer(&TIMEOUTS);
        let (stream, _) = connector.get_stream(&*peer).await.unwrap();
        connector.release_stream(stream, peer.reuse_hash(), peer.idle_timeout());
        let (_other, reused) = connector.get_stream(&*wide.peer(&TIMEOUTS)).await.unwrap();
        assert!(!reused);
        let (_same, reused) = connector.get_stream(&*narrow.peer(&TIMEOUTS)).await.unwrap();
        assert!(reused);
    }
}
