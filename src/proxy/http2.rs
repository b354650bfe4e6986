//! Exchanges with upstreams of HTTP/2: both directions at once, neither waiting for the other.
//!
//! The engine does not look at the answer while the upstream takes its time with a piece of the
//! request: a call that gives back what it gets would stand still for good as soon as the windows between
//! are full. Here that cannot happen, and every deadline is known. What is decided is decided by the
//! functions the engine's hooks call, in the same order. `auto` upstreams are left to the engine, which
//! goes on in HTTP/1 where the endpoint speaks that.

use super::context::Exchange;
use super::pieces::Response;
use super::{answer, forwarding, mirror, pieces, protocol, response_head, retry, upstream};
use crate::config::UpstreamProtocol;
use crate::snapshot::Rejection;
use crate::upstream::identity;
use bytes::Bytes;
use h2::SendStream;
use http::{Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorSource, ErrorType, OrErr, Result};
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::v2::Connector;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::http::v2::client::Http2Session;
use std::cell::OnceCell;
use std::future::poll_fn;
use std::sync::Arc;

thread_local! {
    /// Those of one worker, with as much room for idle connections as the engine has.
    static CONNECTOR: OnceCell<Arc<Connector>> = const { OnceCell::new() };
}

/// Forwards a request to an upstream of HTTP/2. `Ok(false)`: it goes to another one, and nothing was
/// done.
///
/// # Errors
/// What the exchange ended with.
pub async fn forward(session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
    if !applies(session, exchange) {
        return Ok(false);
    }
    let room = || exchange.snapshot.upstream_keepalive();
    let new = || Arc::new(Connector::new(Some(ConnectorOptions::new(room()))));
    let connector = CONNECTOR.with(|connector| Arc::clone(connector.get_or_init(new)));
    loop {
        // Every request has a future with room for this one, and few need it.
        match Box::pin(attempt(&connector, session, exchange)).await {
            Err(error) if error.retry() => {}
            ended => return ended.map(|()| true),
        }
    }
}

fn applies(session: &ServerSession, exchange: &mut Exchange) -> bool {
    let pool = upstream::pool(session, exchange);
    pool.is_some_and(|pool| matches!(pool.config().protocol, UpstreamProtocol::Http2 | UpstreamProtocol::H2c))
}

async fn attempt(connector: &Connector, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    let peer = upstream::peer(session, exchange)?;
    let (mut stream, reused) = match connect(connector, &peer).await {
        Ok(connected) => connected,
        Err(error) => return Err(retry::connect_failed(error, exchange)),
    };
    upstream::connected(reused, stream.fd(), exchange);
    let ended = run(session, &mut stream, &peer, exchange).await;
    exchange.attempt.lift_deadline();
    match ended {
        Ok(()) => {
            connector.release_http_session(stream, &*peer, peer.idle_timeout());
            Ok(())
        }
        Err(error) => {
            // The stream ends with its handle. The connection is as good as before if it was the client
            // that gave up.
            if *error.esource() == ErrorSource::Downstream {
                connector.release_http_session(stream, &*peer, peer.idle_timeout());
            }
            Err(retry::exchange_failed(error, session, exchange, reused))
        }
    }
}

async fn connect(connector: &Connector, peer: &HttpPeer) -> Result<(Http2Session, bool)> {
    if let Some(stream) = connector.reused_http_session(peer).await? {
        return Ok((stream, true));
    }
    match connector.new_http_session::<HttpPeer, ()>(peer).await? {
        HttpSession::H2(stream) => {
            identity::verify(stream.digest().and_then(|digest| digest.ssl_digest.as_deref()))?;
            Ok((stream, false))
        }
        _ => Error::e_explain(ErrorType::InvalidH2, "the endpoint has not chosen HTTP/2"),
    }
}

async fn run(
    session: &mut ServerSession,
    stream: &mut Http2Session,
    peer: &HttpPeer,
    exchange: &mut Exchange,
) -> Result<()> {
    let mut request = Request::begin(session, stream, peer, exchange).await?;
    let mut ended = false;
    while !ended {
        tokio::select! {
            task = stream.next() => {
                let first = task.map_err(Error::into_up)?;
                let tasks = pieces::at_hand(first, stream, |task| pass(task, session, exchange)).await?;
                upstream::paused(exchange);
                ended = session.response_duplex_vec(tasks).await.map_err(of_client)?;
                upstream::resumed(exchange);
            }
            piece = exchange.body.read(session), if request.takes() => {
                request.took(piece?, session, exchange)?;
            }
            sent = request.send(exchange.body.is_read()), if !request.takes() => {
                // The answer may be there all the same, and say why.
                match sent {
                    Ok(()) => upstream::taken(exchange.body.is_read(), exchange),
                    Err(error) => request.broken(error),
                }
            }
        }
    }
    if !exchange.body.is_read() && session.as_http1().is_some() {
        answer::finish_rest(session, exchange).await;
    }
    Ok(())
}

/// What the client is to blame for, unless a piece says that the upstream is.
fn of_client(error: Box<Error>) -> Box<Error> {
    if *error.esource() == ErrorSource::Upstream { error } else { error.into_down() }
}

/// The request on its way.
struct Request {
    stream: SendStream<Bytes>,
    /// What the upstream has not taken yet.
    unsent: Option<Bytes>,
    /// The upstream takes no more of it.
    is_broken: bool,
}

impl Request {
    async fn begin(
        session: &mut ServerSession,
        stream: &mut Http2Session,
        peer: &HttpPeer,
        exchange: &mut Exchange,
    ) -> Result<Request> {
        let empty = session.is_body_empty();
        let mut head = session.req_header().clone();
        adopt(&mut head)?;
        forwarding::set(&mut head, exchange)?;
        protocol::sending(session, &mut head, exchange).await?;
        // Nobody reads this connection ahead.
        exchange.attempt.read_ahead = false;
        mirror::head_sent(session, &head, exchange);
        let addressed = forwarding::address(&mut head, peer.is_tls());
        addressed.or_else(|rejection| upstream::refuse(exchange, rejection))?;
        stream.write_request_header(Box::new(head), empty).map_err(Error::into_up)?;
        let Some(stream) = stream.take_request_body_writer() else {
            return Error::e_explain(ErrorType::InternalError, "a stream without a body");
        };
        session.enable_retry_buffering();
        exchange.body.has_ended(session);
        let mut request = Request { stream, unsent: None, is_broken: false };
        // What an earlier attempt has read goes up once more.
        if let Some(kept) = session.get_retry_buffer() {
            request.queue(kept, exchange)?;
        }
        Ok(request)
    }

    /// Whether the next piece can be read from the client; at its end, whether it goes away.
    fn takes(&self) -> bool {
        self.unsent.is_none()
    }

    fn took(
        &mut self,
        piece: Option<Bytes>,
        session: &mut ServerSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        match exchange.body.took(piece, session) {
            Some(piece) => self.queue(piece, exchange),
            None => Ok(()),
        }
    }

    fn queue(&mut self, piece: Bytes, exchange: &mut Exchange) -> Result<()> {
        let end = exchange.body.is_read();
        upstream::sending(piece.len(), end, exchange)?;
        mirror::body_sent(Some(&piece), end, exchange);
        if !self.is_broken {
            self.unsent = Some(piece);
            upstream::offered(exchange);
        }
        Ok(())
    }

    /// Sends what there is, as the upstream takes it; `is_read` is whether that is all. May be given up and begun again.
    async fn send(&mut self, is_read: bool) -> Result<()> {
        while let Some(piece) = &mut self.unsent {
            let mut part = Bytes::new();
            if !piece.is_empty() {
                self.stream.reserve_capacity(piece.len());
                let Some(room) = poll_fn(|cx| self.stream.poll_capacity(cx)).await else {
                    return Error::e_explain(ErrorType::WriteError, "the stream has ended");
                };
                let room = room.or_err(ErrorType::WriteError, "waiting for the upstream to take more")?;
                part = piece.split_to(room.min(piece.len()));
            }
            let last = piece.is_empty();
            let end = last && is_read;
            if last {
                self.unsent = None;
            }
            if !part.is_empty() || end {
                self.stream.send_data(part, end).or_err(ErrorType::WriteError, "sending to the upstream")?;
            }
        }
        Ok(())
    }

    fn broken(&mut self, error: Box<Error>) {
        log::debug!("the upstream takes no more of a request: {error}");
        self.is_broken = true;
        self.unsent = None;
    }
}

impl Response for Http2Session {
    async fn next(&mut self) -> Result<HttpTask> {
        if self.response_header().is_none() {
            self.read_response_header().await?;
            let end = self.check_response_end_or_error()?;
            let Some(head) = self.response_header().cloned() else {
                return Error::e_explain(ErrorType::InternalError, "a head that is not there");
            };
            return Ok(HttpTask::Header(Box::new(head), end));
        }
        loop {
            let Some(piece) = self.read_response_body().await? else {
                return Ok(match self.read_trailers().await? {
                    Some(trailers) => HttpTask::Trailer(Some(Box::new(trailers))),
                    None => HttpTask::Done,
                });
            };
            let end = self.check_response_end_or_error()?;
            if end || !piece.is_empty() {
                return Ok(HttpTask::Body(Some(piece), end));
            }
        }
    }
}

/// A piece of the answer on its way.
fn pass(task: &mut HttpTask, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    if let HttpTask::Header(head, true) = task
        && has_length(head)
        && response_head::may_have_body(head, &session.req_header().method)
    {
        // RFC 9113 section 8.1.1; the library only counts what comes in frames.
        return upstream::refuse(exchange, Rejection::UpstreamInvalid);
    }
    pieces::pass(task, session, exchange)
}

fn has_length(head: &ResponseHeader) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    length.is_some_and(|length| length.as_bytes().iter().any(|digit| *digit != b'0'))
}

/// Makes the client's head one of HTTP/2; Host stays until what is said of it is said.
fn adopt(head: &mut RequestHeader) -> Result<()> {
    // The one thing TE may say in HTTP/2; in HTTP/1 it is about the client's connection.
    let te = head.headers.get(header::TE).filter(|te| head.version == Version::HTTP_2 && *te == "trailers");
    let te = te.cloned();
    forwarding::strip_hop_by_hop(head);
    if let Some(te) = te {
        head.insert_header(header::TE, te)?;
    }
    forwarding::name_host(head)?;
    head.set_version(Version::HTTP_2);
    Ok(())
}
