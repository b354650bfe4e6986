//! A listening socket: bound once for the process, with one descriptor for each worker.
//!
//! What its connections are (TLS, name, HTTP/2) may change while it listens; the socket does not.

use super::census::Census;
use super::closing::{Closing, Held};
use crate::config::{ListenerConfig, ListenerTls, ProxyProtocol};
use crate::telemetry::metrics::{ListenerMetrics, Metrics};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Connections the kernel completes before we accept them.
pub(super) const BACKLOG: i32 = 4096;
/// A peer that vanished is noticed after this long and a few probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What is true of every connection accepted under one configuration of a listener.
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
    /// Who may come in.
    pub entrance: Entrance,
}

/// What decides who may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: ProxyProtocol,
    /// Connections at a time.
    pub max_connections: u32,
    /// Connections of one client at a time; 0 = no limit.
    pub max_connections_per_client: u32,
}

impl Listener {
    /// As configured; `bound` is where its socket is, `census` counts those who come in there.
    pub fn new(
        config: &ListenerConfig,
        name: &str,
        bound: SocketAddr,
        census: Arc<Census>,
        metrics: &Metrics,
    ) -> Self {
        Listener {
            name: name.into(),
            address: bound,
            tls: config.tls,
            redirect_http: config.redirect_http,
            http2: config.http2,
            metrics: metrics.listener(name),
            census,
            entrance: Entrance::from(config),
        }
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

/// A socket that listens, and descriptors of it for the workers.
pub struct Sockets {
    own: TcpListener,
    shares: Vec<TcpListener>,
}

impl Sockets {
    /// Binds an address and makes `workers` more descriptors of the socket.
    ///
    /// # Errors
    /// When the address is in use, not on this machine, or not permitted, or when the process is out
    /// of descriptors.
    pub fn bind(address: SocketAddr, workers: usize) -> io::Result<Self> {
        Sockets::share(bind(address)?, workers)
    }

    /// The same around a socket that listens already.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn share(own: TcpListener, workers: usize) -> io::Result<Self> {
        // Another program may have bound it.
        own.set_nonblocking(true)?;
        let shares = (0..workers).map(|_| own.try_clone()).collect::<io::Result<_>>()?;
        Ok(Sockets { own, shares })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.own.local_addr().ok()
    }
}

/// What the connections of a listener are from now on; the socket itself belongs to [`BoundListener`],
/// so that holding these does not hold a port.
pub struct Settings(Mutex<Arc<Listener>>);

impl Settings {
    /// For the next connection.
    pub fn current(&self) -> Arc<Listener> {
        Arc::clone(&self.0.lock())
    }
}

/// A socket the process listens on. The port closes when this and every descriptor taken are gone.
pub struct BoundListener {
    configured: SocketAddr,
    settings: Arc<Settings>,
    own: TcpListener,
    shares: Mutex<Vec<TcpListener>>,
    // Dropped last.
    _held: Held,
    closing: Arc<Closing>,
}

/// A worker's own descriptor of a listening socket.
pub struct Listening {
    /// Registered with the worker's runtime.
    pub socket: tokio::net::TcpListener,
    /// To be dropped when the socket is closed.
    pub held: Held,
}

impl BoundListener {
    /// A socket with its first settings.
    pub fn new(configured: SocketAddr, sockets: Sockets, listener: Listener) -> Self {
        let closing = Arc::new(Closing::default());
        BoundListener {
            configured,
            settings: Arc::new(Settings(Mutex::new(Arc::new(listener)))),
            own: sockets.own,
            shares: Mutex::new(sockets.shares),
            _held: closing.hold(),
            closing,
        }
    }

    /// The address as it was configured.
    pub fn configured(&self) -> SocketAddr {
        self.configured
    }

    /// What its connections are, now and later.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings)
    }

    /// New connections are this from now on.
    pub fn change(&self, listener: Listener) {
        *self.settings.0.lock() = Arc::new(listener);
    }

    /// One worker's descriptor, registered with the calling runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch one more descriptor, or every worker has its own already.
    pub fn take_share(&self) -> io::Result<Listening> {
        let share = self.shares.lock().pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(Listening { socket: tokio::net::TcpListener::from_std(share)?, held: self.closing.hold() })
    }

    /// Tells when the port is closed.
    pub fn closing(&self) -> Arc<Closing> {
        Arc::clone(&self.closing)
    }

    /// The process's own descriptor.
    pub fn socket(&self) -> &TcpListener {
        &self.own
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
