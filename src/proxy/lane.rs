//! The straight lane: one request, one response, no machinery between them.
//!
//! What most requests need is little: write a head, read a head, copy a body ([`upload`]: one in each
//! direction). The engine does it with two futures and two channels, because it can do much more; here it
//! is a loop. Every decision is made by the same functions the engine's hooks call (endpoint: [`upstream`], retries: [`retry`], what the upstream
//! is told: [`request_head`], what the client is told: `response_head`, by way of [`upstream`]), in the
//! order the engine calls them; only what the engine does itself between two hooks stands here again.
//! A request that needs more than the lane can do is left to the engine before anything is done for it.

use super::context::Exchange;
use super::request_body::{self, client_gone};
use super::{mirror, pieces, request_head, retry, upload, upstream};
use crate::upstream::identity;
use crate::upstream::idle::IdleConnections;
use bytes::Bytes;
use http::{Method, header};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamSession;
use pingora_core::server::configuration::ServerConf;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::select;
use tokio::time::timeout;

/// The lane of one worker, and the idle connections of its own.
pub struct Lane {
    connector: TransportConnector,
    idle: IdleConnections,
    attempts: usize,
}

impl Lane {
    /// A lane with as much room for idle connections, and as many attempts, as the engine has.
    pub fn new(conf: &ServerConf) -> Self {
        let options = ConnectorOptions::from_server_conf(conf);
        Lane {
            idle: IdleConnections::new(options.keepalive_pool_size),
            connector: TransportConnector::new(Some(options)),
            attempts: conf.max_retries,
        }
    }

    /// Forwards a request if the lane can. `Ok(false)`: nothing was done, the engine is to do it.
    ///
    /// # Errors
    /// What the engine would have ended the exchange with.
    pub async fn forward(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
        if !is_simple(session) || !exchange.snapshot.lane || !upstream::is_plain_http1(session, exchange) {
            return Ok(false);
        }
        for _ in 1..self.attempts {
            match self.attempt(session, exchange).await {
                Err(error) if error.retry() => {}
                ended => return ended.map(|()| true),
            }
        }
        self.attempt(session, exchange).await.map(|()| true)
    }

    async fn connect(&self, peer: &HttpPeer) -> Result<Stream> {
        let stream = self.connector.new_stream(peer).await?;
        identity::verify(stream.get_ssl_digest().as_deref())?;
        Ok(stream)
    }

    async fn attempt(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
        let peer = upstream::peer(session, exchange)?;
        let key = peer.reuse_hash();
        let idle = self.idle.take(key);
        let reused = idle.is_some();
        let stream = match idle {
            Some(stream) => stream,
            // In a box that is gone when the request waits for its answer.
            None => match Box::pin(self.connect(&peer)).await {
                Ok(stream) => stream,
                Err(error) => return Err(retry::connect_failed(error, exchange)),
            },
        };
        upstream::connected(reused, stream.id(), exchange);
        match exchange_messages(session, stream, &peer, exchange).await {
            Ok(connection) => {
                exchange.attempt.lift_deadline();
                if let Some(mut connection) = connection {
                    connection.respect_keepalive();
                    if let Some(stream) = connection.reuse().await {
                        self.idle.put(key, stream, peer.idle_timeout().unwrap_or_default());
                    }
                }
                Ok(())
            }
            Err(error) => Err(retry::exchange_failed(error, session, exchange, reused)),
        }
    }
}

/// Whether client and request ask for nothing but a response.
fn is_simple(session: &mut ServerSession) -> bool {
    let empty = session.is_body_empty();
    let headers = &session.req_header().headers;
    let fits = match session {
        ServerSession::H1(_) => !headers.contains_key(header::UPGRADE),
        ServerSession::H2(_) => true,
        _ => false,
    };
    // A body that waits to be asked for is more than a body.
    fits && (empty || !headers.contains_key(header::EXPECT))
}

/// One attempt. Gives the connection if another request may follow on it; otherwise it is gone.
async fn exchange_messages(
    session: &mut ServerSession,
    stream: Stream,
    peer: &HttpPeer,
    exchange: &mut Exchange,
) -> Result<Option<UpstreamSession>> {
    let Some(body) = request_body::at_hand(session, exchange).await? else {
        let mut connection = open(stream, peer);
        // Every connection has a future with room for this one, and few need it.
        let sent = Box::pin(upload::exchange_messages(session, &mut connection, exchange)).await?;
        return Ok(sent.then_some(connection));
    };
    let mut connection = send(&body, session, stream, peer, exchange).await?;
    // From here on a deadline is watched; the engine's own would only come after it.
    upstream::sending(body.len(), true, exchange)?;
    loop {
        let task = select! {
            biased;
            task = connection.read_response_task() => pieces::received(task),
            gone = client_gone(session) => return Err(gone),
        };
        let tasks =
            pieces::at_hand(task, &mut connection, |task| pieces::pass(task, session, exchange)).await?;
        if session.response_duplex_vec(tasks).await? {
            return Ok(Some(connection));
        }
    }
}

/// Sends the request, all of whose `body` is there.
async fn send(
    body: &Bytes,
    session: &mut ServerSession,
    mut stream: Stream,
    peer: &HttpPeer,
    exchange: &mut Exchange,
) -> Result<UpstreamSession> {
    if needs_no_copy(session, exchange)
        && let Some(mut request) = request_head::write(session.req_header(), exchange)?
    {
        request.extend_from_slice(body);
        let mut taken = 0;
        let written = write(&mut stream, &request, peer.options.write_timeout, &mut taken).await;
        exchange.attempt.unsent = taken == 0;
        return written.map(|()| open(stream, peer)).map_err(Error::into_up);
    }
    let mut connection = open(stream, peer);
    let head = request_head::copy(session, exchange)?;
    upload::send_head(head, &mut connection, exchange).await?;
    if !body.is_empty() {
        mirror::body_sent(Some(body), true, exchange);
        upload::write(body, true, &mut connection).await.map_err(Error::into_up)?;
    }
    Ok(connection)
}

fn open(stream: Stream, peer: &HttpPeer) -> UpstreamSession {
    let mut connection = UpstreamSession::new_with_options(stream, peer);
    connection.write_timeout = peer.options.write_timeout;
    connection
}

/// Whether nobody has to know the head that was sent: no mirror, and not whoever reads the response, which
/// has no body when it answers HEAD.
fn needs_no_copy(session: &ServerSession, exchange: &Exchange) -> bool {
    let mirrored = exchange.route.as_ref().is_some_and(|route| route.mirror.is_some());
    !mirrored && session.req_header().method != Method::HEAD
}

/// Writes a request. `taken` is how much of it the connection took at least, should that fail.
async fn write(
    stream: &mut Stream,
    request: &[u8],
    limit: Option<Duration>,
    taken: &mut usize,
) -> Result<()> {
    let sent = async {
        *taken = stream.write(request).await?;
        stream.write_all(&request[*taken..]).await?;
        stream.flush().await
    };
    match in_time(limit.unwrap_or(Duration::MAX), sent).await {
        Some(sent) => sent.or_err(ErrorType::WriteError, "sending a request"),
        None => Error::e_explain(ErrorType::WriteTimedout, "sending a request"),
    }
}

/// What `writing` gives, or `None` after `limit`. Nearly always the socket takes all at once, and no timer is
/// made.
async fn in_time<T>(limit: Duration, writing: impl Future<Output = T>) -> Option<T> {
    let mut writing = pin!(writing);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx))).await {
        return Some(done);
    }
    timeout(limit, writing).await.ok()
}
