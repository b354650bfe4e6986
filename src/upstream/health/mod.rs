//! Is an endpoint well? The active checks of an upstream: what is asked, what a good answer is, and how
//! many answers make a verdict.
//!
//! A check travels like a request: the TLS settings, the client certificate and the PROXY header of the
//! upstream are its own too, so that what passes here can serve there. It knows no loop, no clock but the
//! timeout of one check, and no state of the endpoint.

mod grpc;
mod http;
mod http2;
mod tcp;
pub mod verdict;

use super::announce;
use super::endpoint::Endpoint;
use super::identity;
use super::transport::Transport;
use crate::config::{HealthCheckConfig, HealthCheckType, UpstreamProtocol, UpstreamProxyProtocol};
use pingora_core::connectors::TransportConnector;
use pingora_core::protocols::l4::socket::SocketAddr as EngineAddr;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::upstreams::peer::HttpPeer;
use std::fmt;
use std::time::Duration;

/// Most of an answer's body that is read, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Active checks, compiled.
#[derive(Debug)]
pub struct HealthCheck {
    settings: Settings,
    /// From the start of one check to the start of the next.
    pub interval: Duration,
    /// Good checks in a row that bring an endpoint back.
    pub healthy: u32,
    /// Failed checks in a row that take an endpoint out.
    pub unhealthy: u32,
    timeout: Duration,
    /// What requests speak, and so `http` checks.
    protocol: UpstreamProtocol,
    probe: Probe,
}

/// All that a check depends on.
#[derive(Debug, PartialEq)]
struct Settings {
    config: HealthCheckConfig,
    proxy_protocol: UpstreamProxyProtocol,
    /// Covers protocol and TLS settings.
    group_key: u64,
}

#[derive(Debug)]
enum Probe {
    Tcp,
    Http(Box<http::HttpProbe>),
    Grpc(grpc::GrpcProbe),
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure: a metric label.
    pub kind: FailureKind,
    /// For the log: what was seen.
    pub detail: String,
}

/// What kind of failure a check met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection, or no handshake.
    Connect,
    /// Not done in time.
    Timeout,
    /// An answer that is no HTTP, or none.
    Protocol,
    /// Another status than the good ones, of HTTP or gRPC.
    Status,
    /// The text looked for is not there.
    Body,
}

impl FailureKind {
    /// As metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Connect => "connect",
            FailureKind::Timeout => "timeout",
            FailureKind::Protocol => "protocol",
            FailureKind::Status => "status",
            FailureKind::Body => "body",
        }
    }
}

impl Failure {
    fn new(kind: FailureKind, detail: impl fmt::Display) -> Failure {
        let mut detail = detail.to_string();
        // What an endpoint sent may be in it.
        detail.retain(|character| !character.is_control());
        if let Some((end, _)) = detail.char_indices().nth(200) {
            detail.truncate(end);
        }
        Failure { kind, detail }
    }

    fn protocol(detail: impl fmt::Display) -> Failure {
        Failure::new(FailureKind::Protocol, detail)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl HealthCheck {
    /// What `config`, which validation has passed, stands for with an upstream of this transport.
    pub fn new(
        config: &HealthCheckConfig,
        transport: &Transport,
        proxy_protocol: UpstreamProxyProtocol,
    ) -> HealthCheck {
        let server_name = transport.tls.as_ref().and_then(|tls| tls.server_name()).map(str::to_owned);
        let host = config.host.clone().or(server_name);
        let probe = match config.kind {
            HealthCheckType::Tcp => Probe::Tcp,
            HealthCheckType::Http => Probe::Http(Box::new(http::HttpProbe::new(config, host))),
            HealthCheckType::Grpc => Probe::Grpc(grpc::GrpcProbe::new(config.service.clone(), host)),
        };
        HealthCheck {
            interval: config.interval.0,
            healthy: config.healthy,
            unhealthy: config.unhealthy,
            timeout: config.timeout.0,
            protocol: transport.protocol,
            probe,
            settings: Settings { config: config.clone(), proxy_protocol, group_key: transport.group_key },
        }
    }

    /// Whether both ask the same in the same way.
    pub fn is_like(&self, other: &HealthCheck) -> bool {
        self.settings == other.settings
    }

    /// Asks one endpoint once, on a connection of its own. Ends within the timeout.
    ///
    /// # Errors
    /// When the endpoint is not well, or did not say so in time.
    pub async fn run(&self, endpoint: &Endpoint, connector: &TransportConnector) -> Result<(), Failure> {
        let peer = self.peer(endpoint);
        let checked = tokio::time::timeout(self.timeout, self.ask(&peer, connector)).await;
        checked.unwrap_or_else(|_| {
            let detail = format!("no answer within {} ms", self.timeout.as_millis());
            Err(Failure::new(FailureKind::Timeout, detail))
        })
    }

    fn peer(&self, endpoint: &Endpoint) -> HttpPeer {
        let mut peer = endpoint.check_peer(self.settings.config.port);
        peer.options.connection_timeout = Some(self.timeout);
        peer.options.total_connection_timeout = Some(self.timeout);
        peer.options.alpn = match self.probe {
            Probe::Grpc(_) => ALPN::H2,
            _ => match self.protocol {
                UpstreamProtocol::Http1 => ALPN::H1,
                UpstreamProtocol::Http2 | UpstreamProtocol::H2c => ALPN::H2,
                UpstreamProtocol::Auto => ALPN::H2H1,
            },
        };
        if self.settings.proxy_protocol == UpstreamProxyProtocol::V2 {
            announce::announce_own(&mut peer);
        }
        peer
    }

    async fn ask(&self, peer: &HttpPeer, connector: &TransportConnector) -> Result<(), Failure> {
        let connected = connector.new_stream(peer).await;
        let failed = |error: Box<pingora_core::Error>| Failure::new(FailureKind::Connect, plain(&error));
        let stream: Stream = connected.map_err(failed)?;
        identity::verify(stream.get_ssl_digest().as_deref()).map_err(failed)?;
        match &self.probe {
            Probe::Tcp => tcp::ask(stream).await,
            Probe::Http(probe) if self.in_http2(&stream) => probe.ask_http2(stream, peer).await,
            Probe::Http(probe) => probe.ask(stream, peer).await,
            Probe::Grpc(probe) => probe.ask(stream, peer).await,
        }
    }

    /// Whether a request on this connection would go in HTTP/2.
    fn in_http2(&self, stream: &Stream) -> bool {
        match self.protocol {
            UpstreamProtocol::Http1 => false,
            UpstreamProtocol::Http2 | UpstreamProtocol::H2c => true,
            UpstreamProtocol::Auto => stream.selected_alpn_proto() == Some(ALPN::H2),
        }
    }
}

/// The engine's error without its layers: its kind and the innermost cause.
fn plain(error: &pingora_core::Error) -> String {
    let (cause, context) = (&error.cause, &error.context);
    match (cause, context) {
        (Some(cause), _) => format!("{}: {cause}", error.etype().as_str()),
        (None, Some(context)) => format!("{}: {}", error.etype().as_str(), context.as_str()),
        (None, None) => error.etype().as_str().to_owned(),
    }
}

/// Whom a request is addressed to: `host`, or the address of the endpoint.
fn authority(host: Option<&str>, peer: &HttpPeer) -> String {
    match (host, &peer._address) {
        (Some(host), _) => host.to_owned(),
        (None, EngineAddr::Inet(address)) => address.to_string(),
        (None, EngineAddr::Unix(_)) => "localhost".to_owned(),
    }
}

/// The URI of a request of HTTP/2 for this path.
fn uri(host: Option<&str>, peer: &HttpPeer, path: &str) -> String {
    let scheme = if peer.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}{path}", authority(host, peer))
}
