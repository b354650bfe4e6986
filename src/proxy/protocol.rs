//! What differs when the upstream is spoken to in HTTP/2, and the client's own deadline.

use super::context::Exchange;
use super::grpc;
use super::upstream;
use super::upstream_deadline::Watch;
use crate::config::UpstreamProtocol;
use crate::edge::http2::interim;
use crate::snapshot::Rejection;
use crate::upstream::peer::Timeouts;
use http::{HeaderMap, StatusCode, Version, header};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_core::protocols::http::ServerSession;
use std::time::{Duration, Instant};

/// The head is about to be sent.
///
/// # Errors
/// Those of writing to the client.
pub async fn sending(
    session: &mut ServerSession,
    head: &mut RequestHeader,
    exchange: &mut Exchange,
) -> Result<()> {
    if head.version != Version::HTTP_2 {
        let pool = exchange.attempt.pool.as_ref();
        // To the engine, an endpoint that chooses nothing in the handshake has chosen HTTP/1.
        return match pool.is_some_and(|pool| pool.config().protocol == UpstreamProtocol::Http2) {
            true => upstream::refuse(exchange, Rejection::UpstreamInvalid),
            false => Ok(()),
        };
    }
    exchange.attempt.read_ahead = true;
    if session.is_body_empty()
        && let (Some(line), Some(timeouts)) = (exchange.attempt.line, exchange.attempt.timeouts)
    {
        // The engine says that a body has ended, but not that there is none.
        exchange.attempt.watch = Some(Watch::waiting(line, timeouts.response));
    }
    // The engine hears no interim answers over HTTP/2. RFC 9110 section 10.1.1 lets a gateway give the
    // one a client waits for.
    if head.remove_header(&header::EXPECT).is_some() {
        match session.req_header().version {
            Version::HTTP_11 => {
                session.write_continue_response().await.map_err(|error| error.into_down())?;
            }
            Version::HTTP_2 => {
                interim::send(session.req_header(), StatusCode::CONTINUE, &HeaderMap::new()).await;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The timeouts of an attempt that begins now: those of the route, cut to what is left of the client's
/// own deadline. `None` when nothing is.
pub fn timeouts(session: &ServerSession, exchange: &mut Exchange, route: &Timeouts) -> Option<Timeouts> {
    let whole = grpc::timeout(&session.req_header().headers);
    // One beyond the end of the clock is none.
    let deadline = whole.and_then(|whole| exchange.started.checked_add(whole));
    exchange.attempt.deadline = deadline;
    let Some(deadline) = deadline else { return Some(*route) };
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    let cut = |timeout: Duration| if timeout.is_zero() { left } else { timeout.min(left) };
    Some(Timeouts { connect: cut(route.connect), response: cut(route.response), idle: cut(route.idle) })
}
