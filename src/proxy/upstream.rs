//! The exchange with the upstream: which endpoint, what is tried again, what comes back.

use super::context::Exchange;
use super::upstream_deadline::Watch;
use crate::snapshot::{Rejection, Target};
use http::{HeaderName, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result, RetryType};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Attempts of one exchange to get a connection, the first included.
const CONNECT_ATTEMPTS: u32 = 2;

/// The peer for the next attempt.
///
/// # Errors
/// When the route has no endpoint left to try; the exchange's rejection says so.
pub fn peer(session: &Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
    let route = exchange.route.clone();
    let Some((route, Target::Upstream(split))) = route.as_ref().map(|route| (route, &route.target)) else {
        return refuse(exchange, Rejection::Internal);
    };
    let pool = exchange.attempt.pool.clone().unwrap_or_else(|| Arc::clone(split.pick()));
    let Some(index) = pool.pick(&exchange.attempt.failed) else {
        return refuse(exchange, Rejection::NoEndpoint);
    };
    let Some(endpoint) = pool.endpoints().get(index) else {
        return refuse(exchange, Rejection::NoEndpoint);
    };
    let mut peer = endpoint.peer(&route.timeouts);
    exchange.attempt.upgrade = session.is_upgrade_req();
    // The longer of the two deadlines is the engine's, the shorter one is watched; a tunnel's silence
    // is watched by the downstream stream, which sees both directions.
    let longer = route.timeouts.response.max(route.timeouts.idle);
    peer.options.read_timeout = (!exchange.attempt.upgrade).then_some(longer);
    exchange.attempt.begin(pool, index);
    Ok(peer)
}

fn refuse<T>(exchange: &mut Exchange, rejection: Rejection) -> Result<T> {
    exchange.rejection = Some(rejection);
    Err(Error::explain(ErrorType::HTTPStatus(rejection.status()), rejection.reason()))
}

/// A connection could not be made: another endpoint gets a try if there is one.
pub fn connect_failed(mut error: Box<Error>, exchange: &mut Exchange) -> Box<Error> {
    let attempt = &mut exchange.attempt;
    attempt.end(StatusCode::BAD_GATEWAY.as_u16());
    attempt.failed.extend(attempt.endpoint);
    let another = attempt.pool.as_ref().is_some_and(|pool| pool.pick(&attempt.failed).is_some());
    let retry = another && attempt.count < CONNECT_ATTEMPTS;
    if retry && let Some(pool) = &attempt.pool {
        pool.metrics().retry("connect");
    }
    error.retry = RetryType::Decided(retry);
    error
}

/// A connection is there, fresh or from the pool of idle ones: its response is waited for.
pub fn connected(reused: bool, fd: RawFd, exchange: &mut Exchange) {
    let attempt = &mut exchange.attempt;
    if let Some(pool) = &attempt.pool {
        pool.metrics().connection(reused);
    }
    if let Some(route) = &exchange.route
        && (attempt.upgrade || route.timeouts.response < route.timeouts.idle)
    {
        attempt.watch = Some(Watch::arm(fd, route.timeouts.response));
    }
    attempt.fd = Some(fd);
}

/// The exchange broke. A reused connection may have been closed by the endpoint just before: an
/// idempotent request (RFC 9110 section 9.2.2) that nothing was answered to is sent once more.
pub fn exchange_failed(
    mut error: Box<Error>,
    session: &mut Session,
    exchange: &mut Exchange,
    reused: bool,
) -> Box<Error> {
    // The connection is gone already: its descriptor may be another's at the next await.
    exchange.attempt.lift_deadline();
    let repeatable = session.req_header().method.is_idempotent()
        && !session.as_ref().retry_buffer_truncated()
        && session.response_written().is_none()
        && exchange.rejection.is_none()
        && !exchange.attempt.late;
    if repeatable {
        error.retry.decide_reuse(reused);
    } else {
        error.set_retry(false);
    }
    if error.retry() {
        exchange.attempt.end(StatusCode::BAD_GATEWAY.as_u16());
        if let Some(pool) = &exchange.attempt.pool {
            pool.metrics().retry("stale");
        }
    }
    error
}

/// Counts request body bytes. A piece gives the upstream its time anew: the deadline of the response
/// head begins when the request is sent, however long the client takes to send it.
///
/// # Errors
/// When the route's limit is exceeded; the exchange's rejection says so.
pub fn count_body(bytes: usize, exchange: &mut Exchange) -> Result<()> {
    exchange.body_bytes += bytes as u64;
    let limit = exchange.route.as_ref().map_or(u64::MAX, |route| route.body_limit);
    let attempt = &exchange.attempt;
    if let (false, Some(watch), Some(route)) = (attempt.answered, &attempt.watch, &exchange.route) {
        watch.extend(route.timeouts.response);
    }
    let tunnel = attempt.upgrade && attempt.answered;
    if exchange.body_bytes > limit && !tunnel {
        return refuse(exchange, Rejection::BodyTooLarge);
    }
    Ok(())
}

/// RFC 9110 section 7.6.1: these concern only the connection to the upstream. `connection` itself
/// is rewritten by the engine, `transfer-encoding` frames the body it is still reading.
const HOP_BY_HOP: [HeaderName; 5] = [
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The response head has arrived.
pub fn answered(session: &mut Session, head: &mut ResponseHeader, exchange: &mut Exchange) {
    if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    if session.is_process_shutting_down() {
        // The client hears it with this answer and not by a connection that is gone.
        session.set_keepalive(None);
    }
    exchange.attempt.answer(head.status.as_u16());
    exchange.attempt.lift_deadline();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        tunnel(session, exchange);
        return;
    }
    if let (Some(route), Some(fd)) = (&exchange.route, exchange.attempt.fd)
        && (exchange.attempt.upgrade || route.timeouts.idle < route.timeouts.response)
    {
        exchange.attempt.watch = Some(Watch::arm(fd, route.timeouts.idle));
    }
    strip_hop_by_hop(head);
}

/// A piece of the response body has arrived.
pub fn body_arrived(end: bool, exchange: &mut Exchange) {
    let attempt = &mut exchange.attempt;
    match (&attempt.watch, &exchange.route) {
        (Some(_), _) if end => attempt.lift_deadline(),
        (Some(watch), Some(route)) => watch.extend(route.timeouts.idle),
        _ => {}
    }
}

/// From here on bytes flow both ways; the route says how long they may not.
fn tunnel(session: &mut Session, exchange: &Exchange) {
    let (Some(route), Some(connection)) = (&exchange.route, &exchange.connection) else { return };
    session.set_read_timeout(None);
    session.set_write_timeout(None);
    connection.upgraded(route.websocket_idle);
}

fn strip_hop_by_hop(head: &mut ResponseHeader) {
    if let Some(nominated) = head.headers.get(header::CONNECTION).cloned() {
        let names = nominated.to_str().unwrap_or_default().split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("upgrade")) {
            if !name.eq_ignore_ascii_case("transfer-encoding") && !name.eq_ignore_ascii_case("content-length")
            {
                head.remove_header(name);
            }
        }
        head.remove_header(&header::CONNECTION);
    }
    for name in &HOP_BY_HOP {
        head.remove_header(name);
    }
    head.remove_header(&header::UPGRADE);
}
