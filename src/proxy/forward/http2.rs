//! Attempts on upstreams of HTTP/2.

use super::super::context::Exchange;
use super::super::upstream_deadline::Line;
use super::super::{forwarding, mirror, protocol, retry, upstream};
use super::relay;
use crate::upstream::identity;
use crate::upstream::link::Http2Link;
use http::{Version, header};
use pingora::http::RequestHeader;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::v2::Connector;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::http::v2::client::Http2Session;
use pingora_core::server::configuration::ServerConf;

/// What an endpoint has chosen in the handshake.
pub enum Chosen {
    /// HTTP/1.1, or nothing.
    Http1(Stream),
    /// HTTP/2.
    Http2(Box<Http2Session>),
}

/// What connects to upstreams of HTTP/2, and the connections to them.
pub struct Http2(Connector);

impl Http2 {
    /// With as much room for idle connections as the engine has.
    pub fn new(conf: &ServerConf) -> Self {
        Http2(Connector::new(Some(ConnectorOptions::from_server_conf(conf))))
    }

    /// One attempt.
    ///
    /// # Errors
    /// What it ended with; the error says whether there is to be another.
    pub async fn attempt(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
        let peer = upstream::peer(session, exchange)?;
        match super::connected(session, self.connect(&peer)).await {
            Ok((stream, reused)) => self.over(stream, reused, &peer, session, exchange).await,
            Err(error) => Err(retry::connect_failed(error, exchange)),
        }
    }

    /// One attempt, over a stream that is there.
    ///
    /// # Errors
    /// What it ended with; the error says whether there is to be another.
    pub async fn over(
        &self,
        mut stream: Http2Session,
        reused: bool,
        peer: &HttpPeer,
        session: &mut ServerSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        upstream::connected(reused, Line::Stream, exchange);
        let ended = exchange_messages(session, &mut stream, peer, exchange).await;
        exchange.attempt.lift_deadline();
        // A stream ends with its handle. The connection is as good as before if it was the client that gave up.
        if ended.as_ref().map_or_else(|error| *error.esource() == ErrorSource::Downstream, |()| true) {
            self.0.release_http_session(stream, peer, peer.idle_timeout());
        }
        ended.map_err(|error| retry::exchange_failed(error, session, exchange, reused))
    }

    async fn connect(&self, peer: &HttpPeer) -> Result<(Http2Session, bool)> {
        if let Some(stream) = self.kept(peer).await? {
            return Ok((stream, true));
        }
        match self.chosen(peer).await? {
            Chosen::Http2(stream) => Ok((*stream, false)),
            Chosen::Http1(_) => Error::e_explain(ErrorType::InvalidH2, "the endpoint has not chosen HTTP/2"),
        }
    }

    /// A stream of a connection that is kept.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn kept(&self, peer: &HttpPeer) -> Result<Option<Http2Session>> {
        self.0.reused_http_session(peer).await
    }

    /// A connection of its own, in what the handshake has chosen.
    ///
    /// # Errors
    /// Those of connecting.
    pub async fn chosen(&self, peer: &HttpPeer) -> Result<Chosen> {
        match self.0.new_http_session::<HttpPeer, ()>(peer).await? {
            HttpSession::H2(stream) => {
                identity::verify(stream.digest().and_then(|digest| digest.ssl_digest.as_deref()))?;
                Ok(Chosen::Http2(Box::new(stream)))
            }
            HttpSession::H1(session) => {
                let stream = session.into_inner();
                identity::verify(stream.get_ssl_digest().as_deref())?;
                Ok(Chosen::Http1(stream))
            }
            HttpSession::Custom(()) => Error::e_explain(ErrorType::InternalError, "a protocol of nobody's"),
        }
    }
}

async fn exchange_messages(
    session: &mut ServerSession,
    stream: &mut Http2Session,
    peer: &HttpPeer,
    exchange: &mut Exchange,
) -> Result<()> {
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
    let mut link = Http2Link::begin(stream, head, empty).map_err(Error::into_up)?;
    match empty {
        true => exchange.body.set_read(),
        false => relay::begin_body(&mut link, session, exchange)?,
    }
    relay::run(&mut link, session, exchange).await
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
