//! The life of an HTTP/2 connection (RFC 9113): streams side by side, bounds on what a client can make
//! us do without asking for anything, and a good end.
//!
//! The protocol is the engine's and its `h2` crate's, which also ends some of what floods: streams reset
//! before they are served, headers without an end, small or empty DATA frames. What is added here:
//! a deadline for the preface, the idle time of the configuration that serves, a bound on refused
//! streams and on the requests of one connection, and a count of what was ended and why. The [`frames`] of a
//! connection are followed on both sides of the engine ([`inspection`]): for those that serve nothing ([`flood`]), and
//! for what [`trailers`] may not name.

pub mod flood;
pub mod frames;
pub mod inspection;
pub mod interim;
pub mod trailers;

use self::inspection::{Inspection, Shared};
use self::interim::Place;
use super::connection::Connection;
use super::http::{Application, ForgetKept};
use super::refusal::Refusals;
use super::silence::Silence;
use super::socket::Socket;
use super::stream::EdgeStream;
use crate::snapshot::{Limits, Rejection, SnapshotStore};
use bytes::Bytes;
use h2::Reason;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora_core::protocols::{Digest, GetProxyDigest, GetSocketDigest, GetTimingDigest, Ssl, Stream};
use pingora_core::server::ShutdownWatch;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// What a client begins with (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Streams one connection may have open (RFC 9113 section 5.1.2 advises at least 100).
pub(super) const STREAMS: u32 = 128;
/// Response bytes held for one stream whose client takes them slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams of one connection that may break the protocol, and be reset by us for it, over its whole
/// life: each may have cost an upstream a request (CVE-2025-8671).
const BROKEN_STREAMS: usize = 100;
/// Streams of one connection that may be refused for what they ask, over its whole life.
const REFUSED_STREAMS: u32 = 32;
/// How many times the limit a header list may be to be read, so that its refusal is recorded.
const READABLE_HEADERS: usize = 2;
/// How long a connection that was told to end may take to do so once nothing runs on it.
const GOODBYE: Duration = Duration::from_secs(5);

/// Tells a client that knows beforehand (RFC 9113 section 3.3) from one of HTTP/1, by what it begins
/// with: `first` is there already.
///
/// # Errors
/// The reason to refuse it, when it breaks off before it can be told or takes longer than `limit`.
pub async fn is_preface(socket: &mut Socket, first: u8, limit: Duration) -> Result<bool, &'static str> {
    if Some(&first) != PREFACE.first() {
        return Ok(false);
    }
    match timeout(limit, poll_fn(|cx| socket.poll_begins_with(PREFACE, cx))).await {
        Ok(Ok(preface)) => Ok(preface),
        Ok(Err(_)) | Err(_) => Err("http2_preface"),
    }
}

/// Serves a connection until it ends.
pub async fn serve<A: Application>(
    app: &Arc<A>,
    mut stream: Box<EdgeStream>,
    refusals: &Refusals,
    shutdown: &ShutdownWatch,
) {
    let connection = stream.connection();
    let shared = Arc::<Shared>::default();
    stream.inspect(Inspection::new(Arc::clone(&shared)));
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let limits = refusals.snapshots.load().limits;
    let shaken = timeout(limits.header_timeout, handshake(stream, Some(options(&limits)))).await;
    let engine = match shaken {
        Ok(Ok(engine)) => engine,
        Ok(Err(error)) => return log::debug!("HTTP/2 from {}: {error}", connection.peer),
        Err(_) => return connection.listener.metrics.refused("http2_preface"),
    };
    let life = Life {
        engine,
        digest,
        connection: Arc::clone(&connection),
        refusals,
        shared,
        running: Arc::default(),
        silence: Silence::default(),
        asked: 0,
        crossing: 0,
        order: 0,
        refused: 0,
        is_cut: false,
    };
    let _kept = ForgetKept(Arc::clone(&connection));
    connection.keep(true);
    let told = life.run(app, shutdown).await;
    // Closed with unread bytes a socket is reset, and the reset may overtake the last GOAWAY: a client would
    // not know which of its requests were served.
    if let Some(mut stream) = connection.take_kept().filter(|_| told) {
        stream.linger().await;
    }
}

fn options(limits: &Limits) -> H2Options {
    let mut options = default_h2_options();
    // What `h2` refuses itself reaches no record; the request path refuses what is over the limit.
    let readable = limits.headers.saturating_mul(READABLE_HEADERS);
    options.max_header_list_size(u32::try_from(readable).unwrap_or(u32::MAX));
    options.max_concurrent_streams(STREAMS);
    options.max_send_buffer_size(SEND_BUFFER);
    options.max_local_error_reset_streams(Some(BROKEN_STREAMS));
    options
}

struct Life<'a> {
    engine: h2::server::Connection<Stream, Bytes>,
    digest: Arc<Digest>,
    connection: Arc<Connection>,
    refusals: &'a Refusals,
    shared: Arc<Shared>,
    running: Arc<Running>,
    silence: Silence,
    /// Requests so far.
    asked: u32,
    /// Streams the engine has given so far, those it has refused included.
    order: u64,
    /// Requests since the client was told to make no more.
    crossing: u32,
    /// Streams refused so far.
    refused: u32,
    /// The connection ends whatever runs on it.
    is_cut: bool,
}

impl Life<'_> {
    /// Gives whether the client was told of the end.
    async fn run<A: Application>(mut self, app: &Arc<A>, shutdown: &ShutdownWatch) -> bool {
        let mut leaving = shutdown.clone();
        let mut ending = false;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = leaving.wait_for(|leaving| *leaving), if !ending => {
                    self.engine.graceful_shutdown();
                    ending = true;
                    continue;
                }
                reason = self.shared.flooded() => {
                    self.cut(reason);
                    ending = true;
                    continue;
                }
                accepted = HttpSession::from_h2_conn(&mut self.engine, Arc::clone(&self.digest)) => accepted,
                () = self.running.silent(&mut self.silence, &self.refusals.snapshots, ending) => {
                    if ending {
                        return false;
                    }
                    // Nothing runs, so nothing is cut off; a request that crosses this on its way
                    // was not begun, and the client is told so.
                    self.engine.abrupt_shutdown(Reason::NO_ERROR);
                    ending = true;
                    continue;
                }
            };
            match accepted {
                // A client that heard of the end, and would have said so, asks no more.
                Ok(Some(H2Accept::Session(mut session))) if ending && self.crossing >= STREAMS => {
                    session.shutdown_with_reason(Reason::REFUSED_STREAM);
                    self.refuse();
                }
                Ok(Some(H2Accept::Session(session))) => {
                    self.crossing += u32::from(ending);
                    self.spawn(app, session);
                    if !ending && self.asked >= self.limits().requests_per_connection {
                        self.engine.graceful_shutdown();
                        ending = true;
                    }
                }
                Ok(Some(H2Accept::Rejected)) => {
                    self.refusals.record(&self.connection, Rejection::Malformed.into(), Duration::ZERO, 0);
                    self.order += 1;
                    self.shared.refused_by_engine();
                    self.refuse();
                    ending |= self.is_cut;
                }
                Ok(None) => return true,
                Err(error) => return self.broken(&error),
            }
        }
    }

    /// One more stream was refused.
    fn refuse(&mut self) {
        self.refused += 1;
        if self.refused > REFUSED_STREAMS {
            self.cut("http2_refused_streams");
        }
    }

    /// Ends the connection now, whatever runs on it, and counts it.
    fn cut(&mut self, reason: &'static str) {
        if !std::mem::replace(&mut self.is_cut, true) {
            self.connection.listener.metrics.refused(reason);
            self.engine.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    fn limits(&self) -> Limits {
        self.refusals.snapshots.load().limits
    }

    fn spawn<A: Application>(&mut self, app: &Arc<A>, session: HttpSession) {
        self.asked = self.asked.saturating_add(1);
        let mut session = Box::new(ServerSession::new_http2(session));
        let place = Place { shared: Arc::clone(&self.shared), order: self.order };
        self.order += 1;
        session.req_header_mut().extensions_mut().insert(place);
        let (app, run) = (Arc::clone(app), Running::begin(&self.running));
        tokio::spawn(async move {
            app.serve(session).await;
            drop(run);
        });
    }

    /// The protocol was broken, or the connection; only what we ended is an event. Gives whether it was us.
    fn broken(&self, error: &pingora_core::Error) -> bool {
        log::debug!("HTTP/2 from {}: {error}", self.connection.peer);
        let cause = error.root_cause().downcast_ref::<h2::Error>();
        let Some(cause) = cause.filter(|cause| cause.is_library()) else { return false };
        let flood = cause.reason() == Some(Reason::ENHANCE_YOUR_CALM);
        self.connection.listener.metrics.refused(if flood { "http2_flood" } else { "http2_protocol" });
        true
    }
}

/// The streams of one connection that are being served.
#[derive(Default)]
struct Running {
    count: AtomicUsize,
    changed: Notify,
}

struct Run(Arc<Running>);

impl Running {
    fn begin(running: &Arc<Self>) -> Run {
        running.count.fetch_add(1, Relaxed);
        Run(Arc::clone(running))
    }

    /// Returns when nothing has run for the idle time that is configured at that moment.
    async fn silent(&self, silence: &mut Silence, snapshots: &SnapshotStore, ending: bool) {
        while self.count.load(Relaxed) > 0 {
            self.changed.notified().await;
        }
        silence.broken();
        poll_fn(|cx| {
            let idle = snapshots.load().limits.idle_timeout;
            silence.poll_exceeded(if ending { idle.min(GOODBYE) } else { idle }, cx)
        })
        .await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Relaxed) == 1 {
            self.0.changed.notify_one();
        }
    }
}
