//! The exchange with the upstream: which endpoint, and what comes back.

use super::affinity;
use super::context::Exchange;
use super::protocol;
use super::response_head::{self, Framing};
use super::upstream_deadline::{Line, Watch};
use crate::config::UpstreamProxyProtocol;
use crate::snapshot::{Rejection, Target};
use crate::upstream::announce::announce;
use crate::upstream::peer::Timeouts;
use crate::upstream::pool::Pool;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The peer for the next attempt.
///
/// # Errors
/// When the route has no endpoint left to try; the exchange's rejection says so.
pub fn peer(session: &ServerSession, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
    let (Some(route), Some(pool)) = (exchange.route.clone(), pool(session, exchange)) else {
        return refuse(exchange, Rejection::Internal);
    };
    if exchange.attempt.slot.is_none() {
        exchange.attempt.slot = pool.enter();
        if exchange.attempt.slot.is_none() {
            pool.metrics().refusal();
            return refuse(exchange, Rejection::UpstreamLimit);
        }
    }
    let next = exchange.attempt.next.take();
    let Some(endpoint) =
        next.or_else(|| pool.pick(affinity::wish(&pool, session, exchange), &exchange.attempt.failed))
    else {
        return refuse(exchange, Rejection::NoEndpoint);
    };
    let Some(timeouts) = protocol::timeouts(session, exchange, &route.timeouts) else {
        return refuse(exchange, Rejection::ClientDeadline);
    };
    if exchange.attempt.count == 0 {
        pool.retry().earn();
    }
    let fresh = exchange.attempt.fresh;
    let mut peer = if fresh { endpoint.fresh_peer(&timeouts) } else { endpoint.peer(&timeouts) };
    if pool.config().proxy_protocol == UpstreamProxyProtocol::V2
        && let Some((client, gateway)) = ends(session, exchange)
    {
        announce(&mut peer, client, gateway);
    }
    exchange.attempt.upgrade = session.is_upgrade_req();
    if exchange.attempt.upgrade {
        // What the handshake may choose otherwise has no upgrades (RFC 9113 section 8.6).
        peer.options.set_http_version(1, 1);
    }
    exchange.attempt.timeouts = Some(timeouts);
    peer.options.read_timeout = last_resort(&timeouts, exchange);
    // What was read of the body before goes up once more.
    exchange.body_bytes = 0;
    exchange.attempt.begin(pool, endpoint);
    Ok(peer)
}

/// The pool the exchange goes to, whatever number of attempts it takes: chosen when first asked for, and
/// named by the record from then on, whatever becomes of the request.
pub(super) fn pool(session: &ServerSession, exchange: &mut Exchange) -> Option<Arc<Pool>> {
    if exchange.attempt.pool.is_none()
        && let Some(Target::Upstream(split)) = exchange.route.as_ref().map(|route| &route.target)
    {
        let tied = affinity::upstream(split, session).cloned();
        exchange.attempt.pool = Some(tied.unwrap_or_else(|| Arc::clone(split.pick())));
    }
    exchange.attempt.pool.clone()
}

/// The client, and where it has connected to. Behind a proxy that speaks HTTP its port is not known: 0.
pub(super) fn ends(session: &ServerSession, exchange: &Exchange) -> Option<(SocketAddr, SocketAddr)> {
    let connection = exchange.connection.as_ref()?;
    let is_peer = connection.peer.ip() == exchange.client;
    let client = if is_peer { connection.peer } else { SocketAddr::new(exchange.client, 0) };
    let socket = session.digest().and_then(|digest| digest.socket_digest.as_ref());
    let local = socket.and_then(|socket| socket.local_addr()?.as_inet());
    Some((client, local.copied().unwrap_or(connection.listener.address)))
}

/// The engine's read timeout runs in every phase, while the client is still sending too, and cannot
/// tell whose turn it is: it comes after all deadlines that are watched. A tunnel's silence is watched
/// by the downstream stream, which sees both directions.
fn last_resort(timeouts: &Timeouts, exchange: &Exchange) -> Option<Duration> {
    const GRACE: Duration = Duration::from_secs(1);
    let longest = timeouts.response.max(timeouts.idle).max(exchange.snapshot.limits.body_idle_timeout);
    (!exchange.attempt.upgrade).then_some(longest + GRACE)
}

pub(super) fn refuse<T>(exchange: &mut Exchange, rejection: Rejection) -> Result<T> {
    exchange.rejection = Some(rejection);
    Err(Error::explain(ErrorType::HTTPStatus(rejection.status()), rejection.reason()))
}

/// A connection is there, fresh or from the pool of idle ones.
pub fn connected(reused: bool, line: Line, exchange: &mut Exchange) {
    let attempt = &mut exchange.attempt;
    if let Some(pool) = &attempt.pool {
        pool.metrics().connection(reused);
    }
    attempt.line = Some(line);
}

/// A piece of the request body is on its way, or its end: then the response is waited for.
///
/// # Errors
/// When the route's limit is exceeded; the exchange's rejection says so.
pub fn sending(bytes: usize, end: bool, exchange: &mut Exchange) -> Result<()> {
    if exchange.attempt.tunnel {
        return Ok(());
    }
    exchange.body_bytes += bytes as u64;
    let Some(Timeouts { response, idle, .. }) = exchange.attempt.timeouts else {
        return Ok(());
    };
    let attempt = &mut exchange.attempt;
    if end && exchange.body_bytes > 0 {
        attempt.sent = Some(Instant::now());
    }
    match (&attempt.watch, attempt.line) {
        (Some(watch), _) if end && !attempt.answered => watch.wait(response),
        (Some(watch), _) => watch.moved(),
        (None, _) if attempt.answered => {}
        (None, Some(line)) if end => attempt.watch = Some(Watch::waiting(line, response)),
        (None, Some(line)) => {
            let patience = exchange.snapshot.limits.body_idle_timeout;
            attempt.watch = Some(Watch::sending(line, idle, patience));
        }
        (None, None) => {}
    }
    let limit = exchange.route.as_ref().map_or(u64::MAX, |route| route.body_limit);
    if exchange.body_bytes > limit {
        return refuse(exchange, Rejection::BodyTooLarge);
    }
    Ok(())
}

/// The response head has arrived.
///
/// # Errors
/// When it makes no sense; the exchange's rejection says so.
pub fn answered(
    session: &mut ServerSession,
    head: &mut ResponseHeader,
    exchange: &mut Exchange,
) -> Result<()> {
    if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
        response_head::adapt_interim(head);
        return Ok(());
    }
    if !response_head::makes_sense(head, exchange.attempt.upgrade) {
        return refuse(exchange, Rejection::UpstreamInvalid);
    }
    if exchange.connection.as_ref().is_some_and(|connection| connection.is_leaving()) {
        // The client hears it with this answer and not by a connection that is gone.
        session.set_keepalive(None);
    }
    if let Some(endpoint) = &exchange.attempt.endpoint {
        endpoint.state.kept_alive.learn(&head.headers);
    }
    exchange.attempt.answer(head.status.as_u16());
    if matches!(head.status.as_u16(), 502..=504) {
        exchange.attempt.endpoint_failed();
    }
    affinity::tie(session, head, exchange);
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        exchange.attempt.lift_deadline();
        tunnel(session, head, exchange);
        return Ok(());
    }
    if exchange.attempt.read_ahead {
        // The connection is read ahead, so the socket cannot say that the client is slow. The engine
        // can: its last resort only runs while it reads.
        exchange.attempt.lift_deadline();
    } else if let (Some(watch), Some(timeouts)) = (&exchange.attempt.watch, exchange.attempt.timeouts) {
        watch.wait(timeouts.idle);
    }
    // What followed an upgrade that was not granted may have been meant for the tunnel, and the engine
    // has dropped what it read of it.
    let lost = exchange.attempt.upgrade;
    if response_head::adapt(head, session.req_header().version) == Framing::UntilClose || lost {
        session.set_keepalive(None);
    }
    Ok(())
}

/// A piece of the request waits for the upstream to take it.
pub fn offered(exchange: &Exchange) {
    let attempt = &exchange.attempt;
    if let (Some(watch), Some(timeouts), false) = (&attempt.watch, attempt.timeouts, attempt.answered) {
        watch.wait(timeouts.idle);
    }
}

/// The upstream has taken it: the client is to send more, or the upstream to answer when that was all.
pub fn taken(all: bool, exchange: &Exchange) {
    let attempt = &exchange.attempt;
    if let (Some(watch), Some(timeouts), false) = (&attempt.watch, attempt.timeouts, attempt.answered) {
        match all {
            true => watch.wait(timeouts.response),
            false => watch.expect(timeouts.idle, exchange.snapshot.limits.body_idle_timeout),
        }
    }
}

/// What has come of the answer waits for the client to take it: nobody else is late meanwhile.
pub fn paused(exchange: &Exchange) {
    if let Some(watch) = &exchange.attempt.watch {
        watch.wait(Duration::MAX);
    }
}

/// The client has taken it.
pub fn resumed(exchange: &Exchange) {
    if let (Some(watch), Some(timeouts)) = (&exchange.attempt.watch, exchange.attempt.timeouts) {
        watch.wait(timeouts.idle);
    }
}

/// A piece of the response body has arrived.
pub fn body_arrived(end: bool, exchange: &mut Exchange) {
    let attempt = &mut exchange.attempt;
    match &attempt.watch {
        Some(_) if end => attempt.lift_deadline(),
        Some(watch) => watch.moved(),
        None => {}
    }
}

/// From here on bytes flow both ways; the route says how long they may not.
fn tunnel(session: &mut ServerSession, head: &ResponseHeader, exchange: &mut Exchange) {
    exchange.attempt.tunnel = true;
    let (Some(route), Some(connection)) = (&exchange.route, &exchange.connection) else { return };
    session.set_read_timeout(None);
    session.set_write_timeout(None);
    let protocol = head.headers.get(http::header::UPGRADE);
    let websocket = protocol.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket"));
    connection.upgraded(route.websocket_idle, websocket);
}
