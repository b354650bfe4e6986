//! What the door learnt about a connection, for the request path and the access log.
//!
//! It reaches the request path through the engine's connection digest, for HTTP/1 and HTTP/2 alike.

use super::listener::Listener;
use super::stream::EdgeStream;
use crate::tls::client_certificate::ClientCertificate;
use crate::tls::demands::Settled;
use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use pingora::http::ResponseHeader;
use pingora_core::protocols::Digest;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::server::ShutdownWatch;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// One accepted connection.
pub struct Connection {
    /// Where it came in.
    pub listener: Arc<Listener>,
    /// Who speaks to us: the address a PROXY header named, else the other end; an IPv4-mapped address
    /// is shown as IPv4. Every decision goes by this one.
    pub peer: SocketAddr,
    /// The other end of the socket, whatever it said.
    pub transport_peer: SocketAddr,
    /// Present when the connection is TLS.
    pub tls: Option<TlsInfo>,
    /// [`Connection::peer`] as a header value, for X-Forwarded-For.
    pub peer_value: HeaderValue,
    leaving: ShutdownWatch,
    phase: AtomicU8,
    heads: AtomicU32,
    tunnel_idle_ms: AtomicU64,
    websocket: AtomicBool,
    stalled: AtomicBool,
    handed: AtomicU64,
    body: AtomicU64,
    answer: Mutex<Option<Bytes>>,
    keep: AtomicBool,
    kept: Mutex<Option<Box<EdgeStream>>>,
    fault: Mutex<Option<&'static str>>,
}

/// Both ends a connection may be said to come from; the same without a PROXY header.
#[derive(Debug, Clone, Copy)]
pub struct Peers {
    /// See [`Connection::peer`].
    pub peer: SocketAddr,
    /// See [`Connection::transport_peer`].
    pub transport_peer: SocketAddr,
}

/// How a request's body ends (RFC 9112 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
}

/// Stands for [`Body::Chunked`].
const CHUNKED: u64 = u64::MAX;

/// What the handshake settled.
#[derive(Debug, Clone)]
pub struct TlsInfo {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The name the client asked for, lower-case.
    pub server_name: Option<Box<str>>,
    /// What decides which names the connection may serve.
    pub settled: Settled,
    /// The certificate the client has shown, verified.
    pub client: Option<Box<ClientCertificate>>,
}

/// Where an HTTP/1 connection stands; decides which deadline holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Waiting for, or in the middle of, a header block.
    Head = 0,
    /// A request is being served.
    Exchange = 1,
    /// Upgraded: bytes both ways until one side closes.
    Tunnel = 2,
    /// HTTP/2: the engine has its own deadlines.
    Multiplexed = 3,
}

impl Connection {
    /// A connection that was just accepted; `leaving` turns true when it is to end.
    pub fn new(
        listener: Arc<Listener>,
        peers: Peers,
        tls: Option<TlsInfo>,
        multiplexed: bool,
        leaving: ShutdownWatch,
    ) -> Self {
        let Peers { peer, transport_peer } = peers;
        listener.metrics.connection(if multiplexed { "http2" } else { "http1" });
        let phase = if multiplexed { Phase::Multiplexed } else { Phase::Head };
        // An address is always a valid header value.
        let peer_value = HeaderValue::try_from(peer.ip().to_string());
        Connection {
            listener,
            peer,
            transport_peer,
            tls,
            peer_value: peer_value.unwrap_or_else(|_| HeaderValue::from_static("unknown")),
            leaving,
            phase: AtomicU8::new(phase as u8),
            heads: AtomicU32::new(0),
            tunnel_idle_ms: AtomicU64::new(0),
            websocket: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            handed: AtomicU64::new(0),
            body: AtomicU64::new(0),
            answer: Mutex::new(None),
            keep: AtomicBool::new(false),
            kept: Mutex::new(None),
            fault: Mutex::new(None),
        }
    }

    /// The connection a request came in on. `None` only for streams the door did not make.
    pub fn of(digest: Option<&Digest>) -> Option<&Arc<Connection>> {
        digest?.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref()
    }

    /// Packs it into the form the engine carries along.
    pub fn into_digest(self: &Arc<Self>) -> Arc<ProxyDigest> {
        let (head, ()) = http::Response::new(()).into_parts();
        Arc::new(ProxyDigest::new(Box::new(ResponseHeader::from(head)), Some(Box::new(Arc::clone(self)))))
    }

    /// Whether this is its last exchange: its listener was removed, or the process leaves.
    pub fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Turns true when it is to end.
    pub fn leaving(&self) -> &ShutdownWatch {
        &self.leaving
    }

    /// A head was read whole: its deadline no longer holds.
    pub fn head_complete(&self) {
        if self.phase() == Phase::Head {
            self.heads.store(self.heads().wrapping_add(1), Relaxed);
            self.body.store(0, Relaxed);
            self.set_phase(Phase::Exchange);
        }
    }

    /// The exchange is over; the next bytes begin a head.
    pub fn exchange_complete(&self) {
        if self.phase() == Phase::Exchange {
            self.set_phase(Phase::Head);
        }
    }

    /// The engine was given so many `bytes` of a head.
    pub(super) fn handed(&self, bytes: u64) {
        self.handed.store(bytes, Relaxed);
    }

    /// The head that was read whole has `head` bytes, and this body. `false`: the engine has more than
    /// that already, because the head ends in a way only it understands; what follows is not to be
    /// trusted.
    pub fn body_begins(&self, head: u64, body: Body) -> bool {
        let left = match body {
            Body::Length(length) => length,
            Body::Chunked => CHUNKED,
        };
        self.body.store(left, Relaxed);
        self.handed.load(Relaxed) <= head
    }

    /// What was to come of the body when its head had been read.
    pub(super) fn body(&self) -> Body {
        match self.body.load(Relaxed) {
            CHUNKED => Body::Chunked,
            length => Body::Length(length),
        }
    }

    /// Gives the door a whole response of HTTP/1: the stream writes it when it is flushed next.
    pub fn give_answer(&self, answer: Bytes) {
        *self.answer.lock() = Some(answer);
    }

    /// Takes the response to be written.
    pub(super) fn take_answer(&self) -> Option<Bytes> {
        self.answer.lock().take()
    }

    /// Says what the engine could not read of a head, before it refuses it.
    pub fn set_head_fault(&self, detail: Option<&'static str>) {
        *self.fault.lock() = detail;
    }

    /// What it could not read.
    pub(super) fn head_fault(&self) -> Option<&'static str> {
        *self.fault.lock()
    }

    /// Whether the connection is to be kept though the engine, after a failed exchange, is about to
    /// drop it: the client was answered in full and nothing of its request is unread.
    pub fn keep(&self, keep: bool) {
        self.keep.store(keep, Relaxed);
    }

    /// Takes the stream the engine dropped, if it was to be kept.
    pub fn take_kept(&self) -> Option<Box<EdgeStream>> {
        self.kept.lock().take()
    }

    /// Whether a dropped stream is to be given back through [`Connection::give_back`]; asks once.
    pub(super) fn wants_back(&self) -> bool {
        self.keep.load(Relaxed) && self.keep.swap(false, Relaxed)
    }

    /// Holds a stream for [`Connection::take_kept`], which must follow: the stream holds this.
    pub(super) fn give_back(&self, stream: Box<EdgeStream>) {
        *self.kept.lock() = Some(stream);
    }

    /// The connection was upgraded, to a `websocket` or something else: from now on it may be silent for
    /// `idle`.
    pub fn upgraded(&self, idle: Duration, websocket: bool) {
        self.websocket.store(websocket, Relaxed);
        self.tunnel_idle_ms.store(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.set_phase(Phase::Tunnel);
    }

    /// Whether it was upgraded to a websocket.
    pub fn is_websocket(&self) -> bool {
        self.websocket.load(Relaxed)
    }

    /// The client has not taken in time what was written to it.
    pub(super) fn stalled(&self) {
        self.stalled.store(true, Relaxed);
    }

    /// Whether the connection ended because its client did not take what was written to it.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Where the connection stands.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Head,
            1 => Phase::Exchange,
            2 => Phase::Tunnel,
            _ => Phase::Multiplexed,
        }
    }

    /// How many heads were read whole.
    pub fn heads(&self) -> u32 {
        self.heads.load(Relaxed)
    }

    /// How long the tunnel may be silent.
    pub fn tunnel_idle(&self) -> Duration {
        Duration::from_millis(self.tunnel_idle_ms.load(Relaxed))
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

/// `::ffff:a.b.c.d` is shown and matched as IPv4.
pub(super) fn canonical_peer(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_peers_are_ipv4() {
        let peer: SocketAddr = "[::ffff:192.0.2.1]:4711".parse().expect("address");
        assert_eq!(canonical_peer(peer), "192.0.2.1:4711".parse().expect("address"));
    }
}
