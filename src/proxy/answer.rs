//! The answers the gateway gives itself, without losing the connection for it.

use super::context::Exchange;
use super::decide::{Verdict, fixed};
use super::intake::declared_length;
use super::whole;
use crate::snapshot::{FixedResponse, Rejection};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora_core::protocols::http::ServerSession;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::timeout;

/// A request body up to this size is read and dropped so that the connection can be kept; the
/// rest of a larger one is not worth waiting for.
const DRAIN_LIMIT: u64 = 64 * 1024;

/// How long, and for how much, a client that is still sending is listened to before its
/// connection is closed. A connection that could be kept is not waited for any longer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_LIMIT: u64 = 8 * 1024 * 1024;

/// Gives the answer a verdict calls for. `Ok(false)`: the request is to be forwarded.
///
/// # Errors
/// Those of writing to the client.
pub async fn give(verdict: Verdict, session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
    if matches!(verdict, Verdict::Forward) {
        return Ok(false);
    }
    let rest = match verdict {
        Verdict::Close => Rest::None,
        _ => rest_of_body(session, exchange),
    };
    match verdict {
        Verdict::Forward => {}
        Verdict::Respond(route) => {
            if let Some(response) = fixed(&route) {
                send_fixed(response, session, exchange).await?;
            }
        }
        Verdict::Head(head) => send(*head, Bytes::new(), session, exchange).await?,
        Verdict::Reject(rejection) => {
            if rejection == Rejection::Misdirected {
                // On a connection of its own the client gets what the host demands.
                session.set_keepalive(None);
            }
            send_page(rejection, session, exchange).await?;
        }
        Verdict::Close => close(session, exchange),
    }
    match rest {
        Rest::None => {}
        Rest::Drain => drain(session, exchange).await,
        Rest::Linger => linger(session, exchange).await,
    }
    Ok(true)
}

/// Sends the page of a rejection, in the form the client understands.
///
/// # Errors
/// Those of writing to the client.
pub async fn send_page(
    rejection: Rejection,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    let snapshot = Arc::clone(&exchange.snapshot);
    let page = snapshot.pages.page(rejection, &session.req_header().headers);
    exchange.refused = Some(rejection);
    send_fixed(page, session, exchange).await
}

/// A response that is the same for every request leaves in one piece where HTTP/1 and the request allow it.
async fn send_fixed(
    response: &FixedResponse,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    let Some(piece) = in_one_piece(response, session, exchange) else {
        return send(response.head.clone(), response.body.clone(), session, exchange).await;
    };
    if let Some(connection) = &exchange.connection {
        connection.give_answer(piece);
    }
    exchange.status = response.head.status.as_u16();
    exchange.whole = Some(0);
    // Writes out what the door holds, which has a deadline for it.
    session.finish_body().await?;
    exchange.whole = Some(response.body.len() as u64);
    Ok(())
}

/// The engine would close the connection after an answer to a request whose body it has not read, and keeps the
/// body from HEAD: both are left to it.
fn in_one_piece(
    response: &FixedResponse,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Option<Bytes> {
    if exchange.connection.is_none()
        || session.req_header().method == Method::HEAD
        || !exchange.body.has_ended(session)
    {
        return None;
    }
    let http1 = session.as_http1()?;
    if http1.response_written().is_some() {
        return None;
    }
    let second = exchange.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    whole::of(response, second, http1.will_keepalive())
}

async fn send(
    head: ResponseHeader,
    body: Bytes,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    exchange.status = head.status.as_u16();
    // RFC 9110 section 9.3.2: the head says what GET would get, the body stays away.
    let body = if session.req_header().method == Method::HEAD { Bytes::new() } else { body };
    match session {
        // The head itself ends the stream: a call of gRPC takes an end of its own for a broken answer.
        ServerSession::H2(http2) if body.is_empty() => http2.write_response_header(Box::new(head), true),
        _ => {
            session.write_response_header(Box::new(head)).await?;
            session.write_response_body(body, true).await
        }
    }
}

/// The status of the response that was begun, interim ones (RFC 9110 section 15.2) aside.
pub fn begun(session: &ServerSession) -> Option<StatusCode> {
    let status = session.response_written()?.status;
    (!status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS).then_some(status)
}

/// Closes without an answer: HTTP/1 loses its connection, HTTP/2 the stream, for a reason that does
/// not invite to try again (RFC 9113 section 8.7).
fn close(session: &mut ServerSession, exchange: &mut Exchange) {
    exchange.status = 403;
    session.set_keepalive(None);
    session.shutdown_with_reason(h2::Reason::CANCEL);
}

/// What is done with the unread part of a request body once the answer is out.
enum Rest {
    /// Nothing is left, or a client of HTTP/2 waits for `100 Continue`.
    None,
    /// Little is left: it is dropped, and the connection is kept.
    Drain,
    /// Too much is left, or nobody knows whether it comes, because the client waits for `100 Continue` or does not: the
    /// connection closes, and the answer says so.
    Linger,
}

fn rest_of_body(session: &mut ServerSession, exchange: &mut Exchange) -> Rest {
    if exchange.body.has_ended(session) {
        return Rest::None;
    }
    // Whoever expects something else waits for nothing.
    if exchange.rejection != Some(Rejection::Expectation)
        && session.req_header().headers.contains_key(header::EXPECT)
    {
        return if session.as_http1().is_some() { Rest::Linger } else { Rest::None };
    }
    if declared_length(session.req_header()) > DRAIN_LIMIT {
        return Rest::Linger;
    }
    session.set_close_on_response_before_downstream_finish(false);
    Rest::Drain
}

/// Listens on after an answer that closes the connection. A socket closed with unread bytes is
/// reset, and the reset may overtake the answer on its way to a client that is still sending.
pub async fn linger(session: &mut ServerSession, exchange: &mut Exchange) {
    let listen = async {
        // A body that breaks off here says so once; behind that the door drops what comes, to its end.
        let ended = exchange.body.drop_rest(session, LINGER_LIMIT).await;
        ended || exchange.body.drop_rest(session, LINGER_LIMIT).await
    };
    // Whatever comes of it, the connection closes now.
    let _ = timeout(LINGER, listen).await;
}

/// Reads what is left of a body whose answer is out already, if that is little; else the connection
/// closes, and is listened to before.
pub async fn finish_rest(session: &mut ServerSession, exchange: &mut Exchange) {
    drain(session, exchange).await;
    if session.get_keepalive().is_none() {
        linger(session, exchange).await;
    }
}

/// The rest gets a time of its own, because the engine's is for each read, and HTTP/2 has none.
async fn drain(session: &mut ServerSession, exchange: &mut Exchange) {
    let limit = exchange.snapshot.limits.body_idle_timeout.min(LINGER);
    if timeout(limit, exchange.body.drop_rest(session, DRAIN_LIMIT)).await != Ok(true) {
        session.set_keepalive(None);
    }
}
