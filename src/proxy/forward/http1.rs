//! Attempts on upstreams of HTTP/1.

use super::super::context::Exchange;
use super::super::tunnel::Upstream;
use super::super::upstream_deadline::Line;
use super::super::{mirror, request_body, request_head, retry, upstream};
use super::relay;
use crate::upstream::identity;
use crate::upstream::idle::IdleConnections;
use crate::upstream::link::{Http1Link, RequestFraming};
use http::header;
use pingora::Result;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::configuration::ServerConf;

/// What connects to upstreams of HTTP/1, and the idle connections to them.
pub struct Http1 {
    connector: TransportConnector,
    idle: IdleConnections,
}

impl Http1 {
    /// With as much room for idle connections as the engine has.
    pub fn new(conf: &ServerConf) -> Self {
        let options = ConnectorOptions::from_server_conf(conf);
        Http1 {
            idle: IdleConnections::new(options.keepalive_pool_size),
            connector: TransportConnector::new(Some(options)),
        }
    }

    /// One attempt.
    ///
    /// # Errors
    /// What it ended with; the error says whether there is to be another.
    pub async fn attempt(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
        let peer = upstream::peer(session, exchange)?;
        if let Some(stream) = self.idle(&peer) {
            return self.over(stream, true, &peer, session, exchange).await;
        }
        // In a box that is gone when the request waits for its answer.
        match Box::pin(super::connected(session, self.connect(&peer))).await {
            Ok(stream) => self.over(stream, false, &peer, session, exchange).await,
            Err(error) => Err(retry::connect_failed(error, exchange)),
        }
    }

    /// An idle connection to this peer.
    pub fn idle(&self, peer: &HttpPeer) -> Option<Stream> {
        self.idle.take(peer.reuse_hash())
    }

    /// One attempt, over a connection that is there.
    ///
    /// # Errors
    /// What it ended with; the error says whether there is to be another.
    pub async fn over(
        &self,
        stream: Stream,
        reused: bool,
        peer: &HttpPeer,
        session: &mut ServerSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        upstream::connected(reused, Line::Own(stream.id()), exchange);
        match exchange_messages(stream, session, exchange).await {
            Ok(link) => {
                exchange.attempt.lift_deadline();
                if exchange.attempt.tunnel {
                    let (stream, begun) = link.into_parts();
                    exchange.attempt.granted = Some(Upstream { stream, begun });
                    return Ok(());
                }
                if let Some(stream) = link.release().await {
                    self.idle.put(peer.reuse_hash(), stream, peer.idle_timeout().unwrap_or_default());
                }
                Ok(())
            }
            Err(error) => Err(retry::exchange_failed(error, session, exchange, reused)),
        }
    }

    async fn connect(&self, peer: &HttpPeer) -> Result<Stream> {
        let stream = self.connector.new_stream(peer).await?;
        identity::verify(stream.get_ssl_digest().as_deref())?;
        Ok(stream)
    }
}

/// One attempt, over a connection that is there; gone if it fails. A body that is there already goes up with its head, in
/// one write.
async fn exchange_messages(
    stream: Stream,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<Http1Link> {
    let at_hand = request_body::at_hand(session, exchange).await?;
    let framing = match &at_hand {
        Some(_) => RequestFraming::Complete,
        None if session.req_header().headers.contains_key(header::CONTENT_LENGTH) => RequestFraming::Length,
        None => RequestFraming::Chunked,
    };
    let mut request = request_head::bytes(session, framing == RequestFraming::Chunked, exchange)?;
    let (method, head) = (session.req_header().method.clone(), request.len());
    if let Some(body) = &at_hand {
        if !body.is_empty() {
            mirror::body_sent(Some(body), true, exchange);
            request.extend_from_slice(body);
        }
        // From here on a deadline is watched.
        upstream::sending(body.len(), true, exchange)?;
    }
    let mut link = Http1Link::new(stream, method, request, head, framing);
    if at_hand.is_none() {
        relay::begin_body(&mut link, session, exchange)?;
    }
    let ended = relay::run(&mut link, session, exchange).await;
    if ended.is_err() {
        exchange.attempt.unsent = Box::pin(link.is_unseen()).await;
    }
    ended.map(|()| link)
}
