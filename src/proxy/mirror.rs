//! Copies of requests for a second upstream, sent beside the exchange and never in its way: a copy has
//! a task of its own, is bounded in size, number and time, and whatever becomes of it is only counted.
//!
//! A copy goes out when the request has been sent whole: what clients give up is not copied.

use super::context::Exchange;
use super::{forwarding, upstream};
use crate::config::UpstreamProxyProtocol;
use crate::upstream::announce::announce;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::identity;
use crate::upstream::mirror::{Mirror, OnItsWay};
use crate::upstream::peer::Timeouts;
use crate::upstream::state::Slot;
use crate::upstream::tier::Wish;
use bytes::Bytes;
use http::{Uri, Version, header};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest body that is copied.
const BODY: usize = 64 * 1024;
/// Most of an answer that is read so that the connection can be kept.
const ANSWER: usize = 1024 * 1024;

thread_local! {
    /// Connections of their own: those of the exchanges must not be taken away.
    static CONNECTOR: Arc<Connector> = Arc::new(Connector::new(None));
}

/// A copy that is being made.
pub struct Copy {
    mirror: Arc<Mirror>,
    head: Box<RequestHeader>,
    /// The request says how long its body is.
    framed: bool,
    body: Vec<Bytes>,
    size: usize,
    timeouts: Timeouts,
    /// The client, and where it has connected to, if the second upstream is to be told before all else.
    ends: Option<(SocketAddr, SocketAddr)>,
}

/// The head of a request is about to be sent; it may be one to copy.
pub fn head_sent(session: &mut ServerSession, head: &RequestHeader, exchange: &mut Exchange) {
    if exchange.attempt.count > 1 {
        // What was read of the body is sent, and seen here, once more.
        if let Some(copy) = &mut exchange.copy {
            copy.body.clear();
            copy.size = 0;
        }
        return;
    }
    let Some(route) = &exchange.route else { return };
    let Some(mirror) = route.mirror.as_ref().filter(|mirror| !exchange.attempt.upgrade && mirror.next())
    else {
        return;
    };
    let (mirror, timeouts) = (Arc::clone(mirror), route.timeouts);
    let framed = head.headers.contains_key(header::CONTENT_LENGTH);
    let Some(head) = neutral(head) else { return };
    let ends = match mirror.pool().config().proxy_protocol {
        UpstreamProxyProtocol::V2 => upstream::ends(session, exchange),
        UpstreamProxyProtocol::Off => None,
    };
    exchange.copy = Some(Box::new(Copy { mirror, head, framed, body: Vec::new(), size: 0, timeouts, ends }));
    if session.is_body_empty() {
        send(exchange);
    }
}

/// A piece of the body has been sent, or its end.
pub fn body_sent(piece: Option<&Bytes>, end: bool, exchange: &mut Exchange) {
    let Some(copy) = &mut exchange.copy else { return };
    if let Some(piece) = piece {
        copy.size += piece.len();
        copy.body.push(piece.clone());
    }
    if copy.size > BODY {
        copy.mirror.pool().metrics().mirrored("body_too_large");
        exchange.copy = None;
    } else if end {
        send(exchange);
    }
}

/// The head as it is sent over HTTP/1; what frames the body and concerns the connection is set anew.
fn neutral(head: &RequestHeader) -> Option<Box<RequestHeader>> {
    let mut head = Box::new(head.clone());
    forwarding::name_host(&mut head).ok()?;
    if head.uri.authority().is_some() {
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).parse::<Uri>().ok()?;
        head.set_uri(target);
    }
    head.set_version(Version::HTTP_11);
    for name in [header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::EXPECT, header::CONNECTION] {
        head.remove_header(&name);
    }
    Some(head)
}

fn send(exchange: &mut Exchange) {
    let Some(copy) = exchange.copy.take() else { return };
    let metrics = Arc::clone(copy.mirror.pool().metrics());
    let (Some(room), Some(slot)) = (copy.mirror.enter(), copy.mirror.pool().enter()) else {
        return metrics.mirrored("too_many");
    };
    let connector = CONNECTOR.with(Arc::clone);
    tokio::spawn(async move {
        let limit = copy.timeouts.connect + copy.timeouts.response + copy.timeouts.idle;
        let sent = tokio::time::timeout(limit, copy.deliver(&connector, (room, slot))).await;
        metrics.mirrored(if sent == Ok(true) { "sent" } else { "failed" });
    });
}

impl Copy {
    /// Whether an answer came.
    async fn deliver(self, connector: &Connector, room: (OnItsWay, Slot)) -> bool {
        let _room = room;
        let pool = Arc::clone(self.mirror.pool());
        let Some(endpoint) = pool.pick(Wish::default(), &[]) else { return false };
        let _in_flight = endpoint.state.enter();
        let began = Instant::now();
        let mut outcome = self.attempt(connector, &endpoint, false).await;
        if let Ok((None, true)) = outcome {
            outcome = self.attempt(connector, &endpoint, true).await;
        }
        let Ok((Some(status), _)) = outcome else {
            log::debug!("a copy for {} got no answer", pool.name());
            return false;
        };
        pool.metrics().observe(status, began.elapsed().as_secs_f64());
        true
    }

    /// The status of the answer, if there was one, and whether the connection had been used before.
    async fn attempt(
        &self,
        connector: &Connector,
        endpoint: &Endpoint,
        fresh: bool,
    ) -> Result<(Option<u16>, bool)> {
        let peer = self.peer(endpoint, fresh);
        let (mut session, reused) = connector.get_http_session(&*peer).await?;
        identity::verify(session.digest().and_then(|digest| digest.ssl_digest.as_deref()))?;
        self.mirror.pool().metrics().connection(reused);
        session.set_read_timeout(Some(self.timeouts.response.max(Duration::from_millis(1))));
        let Ok(status) = self.exchange(&mut session, peer.is_tls()).await else { return Ok((None, reused)) };
        if rest_is_small(&mut session).await {
            connector.release_http_session(session, &*peer, peer.options.idle_timeout).await;
        } else {
            session.shutdown().await;
        }
        Ok((status, reused))
    }

    fn peer(&self, endpoint: &Endpoint, fresh: bool) -> Box<HttpPeer> {
        let timeouts = &self.timeouts;
        let mut peer = if fresh { endpoint.fresh_peer(timeouts) } else { endpoint.peer(timeouts) };
        if let Some((client, gateway)) = self.ends {
            announce(&mut peer, client, gateway);
        }
        peer
    }

    async fn exchange(&self, session: &mut HttpSession, tls: bool) -> Result<Option<u16>> {
        let mut head = self.head.clone();
        if let HttpSession::H2(_) = session {
            // Without an authority the second upstream says what it thinks of it.
            let _ = forwarding::address(&mut head, tls);
        }
        if self.framed || self.size > 0 {
            head.insert_header(header::CONTENT_LENGTH, self.size)?;
        }
        session.write_request_header(head).await?;
        for piece in &self.body {
            session.write_request_body(piece.clone(), false).await?;
        }
        session.finish_request_body().await?;
        loop {
            session.read_response_header().await?;
            match session.response_header().map(|head| head.status) {
                Some(status) if status.is_informational() => {}
                status => return Ok(status.map(|status| status.as_u16())),
            }
        }
    }
}

/// Reads the answer and drops it; whether that was all of it.
async fn rest_is_small(session: &mut HttpSession) -> bool {
    let mut read = 0;
    loop {
        match session.read_response_body().await {
            Ok(Some(piece)) if read + piece.len() <= ANSWER => read += piece.len(),
            Ok(None) => return true,
            _ => return false,
        }
    }
}
