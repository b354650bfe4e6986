//! Listening sockets: bound once for the process, duplicated for every worker.

use super::census::Census;
use crate::config::{ListenerConfig, ListenerTls, ProxyProtocol};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::{ListenerMetrics, Metrics};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Connections the kernel completes before we accept them.
const BACKLOG: i32 = 4096;
/// A peer that vanished is noticed after this long and a few probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What is true of every connection of one listening socket.
pub struct Listener {
    /// Metric label and log field.
    pub name: Arc<str>,
    /// The address it is bound to.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub tls: ListenerTls,
    /// Plain HTTP is redirected to https.
    pub redirect_http: bool,
    /// HTTP/2 is offered.
    pub http2: bool,
    /// Its series.
    pub metrics: Arc<ListenerMetrics>,
    /// Its connections, counted.
    pub census: Arc<Census>,
    bound_with: Entrance,
}

/// Settings that hold for connections accepted from now on: a reload changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: ProxyProtocol,
    /// Connections at a time.
    pub max_connections: u32,
    /// Connections of one client at a time; 0 = no limit.
    pub max_connections_per_client: u32,
}

/// A bound socket and what its connections are.
pub struct BoundListener {
    /// Shared by every connection accepted here.
    pub listener: Arc<Listener>,
    socket: TcpListener,
}

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (listener `{name}`): {error}")]
pub struct BindError {
    name: String,
    address: SocketAddr,
    error: io::Error,
}

impl Listener {
    /// What the configuration that serves says of new connections.
    pub fn entrance(&self, snapshot: &Snapshot) -> Entrance {
        let mut listeners = snapshot.listeners().iter();
        let config = listeners.find(|config| config.name.as_deref() == Some(&*self.name));
        config.map_or(self.bound_with, Entrance::from)
    }
}

impl From<&ListenerConfig> for Entrance {
    fn from(config: &ListenerConfig) -> Self {
        Entrance {
            proxy_protocol: config.proxy_protocol,
            max_connections: config.max_connections,
            max_connections_per_client: config.max_connections_per_client,
        }
    }
}

impl BoundListener {
    /// Binds one configured address.
    ///
    /// # Errors
    /// When the address is in use, not on this machine, or not permitted.
    pub fn bind(config: &ListenerConfig, name: String, metrics: &Metrics) -> Result<Self, BindError> {
        let socket = bind(config.address).map_err(|error| BindError {
            name: name.clone(),
            address: config.address,
            error,
        })?;
        let listener = Arc::new(Listener {
            address: socket.local_addr().unwrap_or(config.address),
            tls: config.tls,
            redirect_http: config.redirect_http,
            http2: config.http2,
            metrics: metrics.listener(&name),
            name: name.into(),
            census: Arc::default(),
            bound_with: Entrance::from(config),
        });
        Ok(BoundListener { listener, socket })
    }

    /// Another descriptor of the same socket, for one worker alone.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn duplicate(&self) -> io::Result<BoundListener> {
        Ok(BoundListener { listener: Arc::clone(&self.listener), socket: self.socket.try_clone()? })
    }

    /// Registers the socket with the calling runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch one more descriptor.
    pub fn into_tokio(self) -> io::Result<(Arc<Listener>, tokio::net::TcpListener)> {
        Ok((self.listener, tokio::net::TcpListener::from_std(self.socket)?))
    }
}

/// Options set here are inherited by accepted sockets on Linux, which saves two calls for each.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` is dual stack whatever the system's default says.
        socket.set_only_v6(false)?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
