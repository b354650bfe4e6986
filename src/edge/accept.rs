//! From an accepted socket to a connection the application serves.

use super::admission::Admission;
use super::census::Place;
use super::connection::{Connection, Peers, TlsInfo, canonical_peer};
use super::deadline::Deadline;
use super::drain::{Drain, DrainGuard, Patience};
use super::http::{self, Application};
use super::http2;
use super::idle::{Wait, Waited};
use super::listener::{BACKLOG, Listener, Listening};
use super::post::Post;
use super::refusal::Refusals;
use super::share::{Share, ShareGuard};
use super::socket::Socket;
use super::stream::{Digests, EdgeStream};
use super::transport::Transport;
use crate::config::{ListenerTls, TlsVersion};
use crate::snapshot::{Limits, SnapshotStore};
use crate::telemetry::metrics::Metrics;
use crate::tls::client_auth::PolicyId;
use crate::tls::client_certificate::ClientCertificate;
use crate::tls::demands::Settled;
use pingora_core::protocols::l4::socket::SocketAddr as EngineAddr;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{ALPN, SocketDigest};
use pingora_core::server::ShutdownWatch;
use pingora_core::tls::ssl::{Error as TlsError, ErrorCode, NameType, SslRef, SslVersion};
use pingora_core::tls::tokio_ssl::SslStream;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// First byte of a TLS handshake record (RFC 8446 section 5.1). No HTTP method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// Pause after accept fails for want of descriptors or memory: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Nobody needs to read more often why it fails.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// A worker with more than its share of the connections lets the others accept for this long.
const SHARE_PAUSE: Duration = Duration::from_millis(1);

/// What the accept loops of one worker share.
pub struct Door<A> {
    /// Serves what comes in.
    pub app: Arc<A>,
    /// For certificates, limits and pages.
    pub snapshots: Arc<SnapshotStore>,
    /// For refusals.
    pub metrics: Arc<Metrics>,
    /// For requests refused here.
    pub refusals: Refusals,
    /// Counts open connections of the process.
    pub drain: Arc<Drain>,
    /// How long they may go on once they are to end.
    pub patience: Arc<Patience>,
    /// Counts open connections of this worker, against those of the process.
    pub share: Share,
}

impl<A: Application> Door<A> {
    /// Accepts until the post is left, then returns when its connections have drained.
    pub async fn accept_loop(self: Arc<Self>, listening: Listening, post: Arc<Post>) {
        let Listening { socket, held } = listening;
        let mut leaving = post.leaving();
        let mut said: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = leaving.wait_for(|leaving| *leaving) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    self.admit(&post, stream, peer);
                    if self.share.is_exceeded(self.drain.open()) {
                        tokio::time::sleep(SHARE_PAUSE).await;
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                        log::error!("listener `{}` cannot accept: {error}", post.listener().name);
                        said = Some(Instant::now());
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        self.admit_backlog(&post, socket);
        drop(held);
        post.drained(&self.patience).await;
    }

    /// Closing the socket resets what the kernel has completed and nobody has accepted.
    fn admit_backlog(self: &Arc<Self>, post: &Arc<Post>, socket: TcpListener) {
        let Ok(socket) = socket.into_std() else { return };
        for _ in 0..BACKLOG {
            let Ok((stream, peer)) = socket.accept() else { return };
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.admit(post, stream, peer);
            }
        }
    }

    fn admit(self: &Arc<Self>, post: &Arc<Post>, stream: TcpStream, peer: SocketAddr) {
        let (door, post, listener) = (Arc::clone(self), Arc::clone(post), post.listener());
        let Some(place) = listener.census.enter(listener.entrance.max_connections) else {
            listener.metrics.refused("max_connections");
            log::debug!("listener `{}`: connection from {peer} refused: it is full", listener.name);
            return;
        };
        // Counted here and not in the task, which has not run when the next one is accepted.
        let drain = [self.drain.enter(), post.open().enter()];
        let open = Open::new(&listener, place, drain, &self.share);
        tokio::spawn(async move {
            door.serve(listener, &post, stream, peer).await;
            drop(open);
        });
    }

    async fn serve(&self, listener: Arc<Listener>, post: &Post, stream: TcpStream, peer: SocketAddr) {
        let limits = self.snapshots.load().limits;
        let peer = canonical_peer(peer);
        let mut socket = Socket::new(stream);
        let mut wait = post.waiting().enter(&mut socket);
        let refuse = |reason| {
            listener.metrics.refused(reason);
            log::debug!("listener `{}`: connection from {peer} refused: {reason}", listener.name);
        };
        let admission = Admission {
            listener: &listener,
            snapshots: &self.snapshots,
            metrics: &self.metrics,
            limits: &limits,
        };
        let admitted = match admission.settle(&mut socket, peer, &mut wait).await {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(reason) => return refuse(reason),
        };
        // Its memory is given back: the task of a connection is as large as the largest thing in it, for as long
        // as the connection is open.
        match Box::pin(self.open(&listener, socket, &limits, &mut wait)).await {
            Ok(Some(opened)) => {
                let shutdown = post.leaving();
                let peers = Peers { peer: admitted.peer, transport_peer: peer };
                let stream = self.wrap(Arc::clone(&listener), opened, peers, &limits, shutdown.clone());
                http::serve(&self.app, stream, wait, &self.refusals, &shutdown).await;
            }
            Ok(None) => {}
            Err(reason) => refuse(reason),
        }
        drop(admitted.place);
    }

    /// Sniffs and handshakes. `Ok(None)`: the client left or stayed silent, which is no event.
    async fn open(
        &self,
        listener: &Listener,
        mut socket: Socket,
        limits: &Limits,
        wait: &mut Wait,
    ) -> Result<Option<Opened>, &'static str> {
        if listener.tls == ListenerTls::Off && !listener.http2 {
            return Ok(Some(Opened::plain(socket, false)));
        }
        let first = match wait.next_byte(&mut socket, limits.idle_timeout).await {
            Waited::Spoken(first) => first,
            Waited::Closed | Waited::Leaving => return Ok(None),
            Waited::Silent => return Err("silent"),
        };
        if first != TLS_HANDSHAKE || listener.tls == ListenerTls::Off {
            return match listener.tls {
                ListenerTls::Required => Err("not_tls"),
                _ => {
                    let limit = limits.header_timeout;
                    let http2 = listener.http2 && http2::is_preface(&mut socket, first, limit).await?;
                    Ok(Some(Opened::plain(socket, http2)))
                }
            };
        }
        match timeout(limits.header_timeout, self.handshake(listener, socket)).await {
            Ok(handshaken) => handshaken.map(Some),
            Err(_) => {
                listener.metrics.handshake("none", false, false);
                Err("handshake_timeout")
            }
        }
    }

    async fn handshake(&self, listener: &Listener, mut socket: Socket) -> Result<Opened, &'static str> {
        socket.enable_read_ahead();
        let session = self.snapshots.load().certificates.session(listener.http2);
        let stream = session.and_then(|session| SslStream::new(session, socket));
        let Ok(mut stream) = stream.inspect_err(|error| log::error!("TLS session: {error}")) else {
            return Err("handshake_failed");
        };
        match Pin::new(&mut stream).accept().await {
            Ok(()) => {
                let ssl = stream.ssl();
                listener.metrics.handshake(ssl.version_str(), true, ssl.session_reused());
                let tls = Some(tls_info(ssl)?);
                // The client's last message has no answer of its own: tickets leave with the first response.
                stream.get_ref().acknowledge();
                Ok(Opened { tls, transport: Transport::Tls(Box::new(stream)), prior_knowledge: false })
            }
            Err(error) => {
                listener.metrics.handshake("none", false, false);
                log::debug!("TLS handshake: {error}");
                Err(refusal(&error))
            }
        }
    }

    fn wrap(
        &self,
        listener: Arc<Listener>,
        opened: Opened,
        peers: Peers,
        limits: &Limits,
        leaving: ShutdownWatch,
    ) -> Box<EdgeStream> {
        let Opened { transport, tls, prior_knowledge } = opened;
        let (fd, tls_digest, alpn) = match &transport {
            Transport::Plain(socket) => (socket.fd(), None, prior_knowledge.then_some(ALPN::H2)),
            Transport::Tls(stream) => {
                let ssl = stream.ssl();
                let cipher = ssl.current_cipher().map_or("", |cipher| cipher.name());
                let digest = SslDigest::new(cipher, ssl.version_str(), None, None, Vec::new());
                let alpn = match ssl.selected_alpn_protocol() {
                    Some(b"h2") => Some(ALPN::H2),
                    Some(_) => Some(ALPN::H1),
                    None => None,
                };
                (stream.get_ref().fd(), Some(Arc::new(digest)), alpn)
            }
        };
        let socket = SocketDigest::from_raw_fd(fd);
        // Known from accept: saves the engine asking the kernel for it.
        let _ = socket.peer_addr.set(Some(EngineAddr::Inet(peers.peer)));
        let multiplexed = matches!(alpn, Some(ALPN::H2));
        let connection = Arc::new(Connection::new(listener, peers, tls, multiplexed, leaving));
        let digests =
            Digests { proxy: connection.into_digest(), socket: Arc::new(socket), tls: tls_digest, alpn };
        let deadline = Deadline::new(limits.header_timeout);
        Box::new(EdgeStream::new(transport, connection, digests, self.refusals.clone(), deadline))
    }
}

/// A connection whose protocol is known.
struct Opened {
    transport: Transport,
    tls: Option<TlsInfo>,
    /// HTTP/2 without TLS (RFC 9113 section 3.3).
    prior_knowledge: bool,
}

impl Opened {
    fn plain(socket: Socket, prior_knowledge: bool) -> Self {
        Opened { transport: Transport::Plain(socket), tls: None, prior_knowledge }
    }
}

/// An accepted socket, counted in the gauge of its listener and for draining.
struct Open {
    listener: Arc<Listener>,
    _place: Place,
    _drain: [DrainGuard; 2],
    _share: ShareGuard,
}

impl Open {
    fn new(listener: &Arc<Listener>, place: Place, drain: [DrainGuard; 2], share: &Share) -> Self {
        listener.metrics.open().inc();
        Open { listener: Arc::clone(listener), _place: place, _drain: drain, _share: share.enter() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.listener.metrics.open().dec();
    }
}

/// Why a handshake failed, as the metric says it.
fn refusal(error: &TlsError) -> &'static str {
    let of_client =
        |reason| matches!(reason, Some("PEER_DID_NOT_RETURN_A_CERTIFICATE" | "CERTIFICATE_VERIFY_FAILED"));
    let reasons = error.ssl_error().map(|stack| stack.errors()).unwrap_or_default();
    match error.code() {
        ErrorCode::SYSCALL => "handshake_closed",
        _ if reasons.iter().any(|error| of_client(error.reason())) => "client_certificate",
        _ => "handshake_failed",
    }
}

/// What a finished handshake settled; the error is why its client is refused all the same.
fn tls_info(ssl: &SslRef) -> Result<TlsInfo, &'static str> {
    let server_name = ssl.servername(NameType::HOST_NAME).map(|name| name.to_ascii_lowercase().into());
    let client = ClientCertificate::of(ssl, unix_now).map_err(|unusable| {
        log::debug!("TLS handshake: {unusable}");
        "client_certificate"
    })?;
    let version =
        if ssl.version2() == Some(SslVersion::TLS1_3) { TlsVersion::V1_3 } else { TlsVersion::V1_2 };
    Ok(TlsInfo {
        version: ssl.version_str(),
        server_name,
        settled: Settled { version, client_auth: PolicyId::enforced_on(ssl) },
        client: client.map(Box::new),
    })
}

/// Seconds since 1970.
fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Errors accept(2) reports of a connection that was gone before it was taken.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
