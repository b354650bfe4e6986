//! The answers the gateway gives itself, without losing the connection for it.

use super::context::Exchange;
use super::decide::{Verdict, fixed};
use crate::snapshot::FixedResponse;
use bytes::Bytes;
use http::{Method, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora_core::protocols::http::ServerSession;

/// A request body up to this size is read and dropped so that the connection can be kept; the
/// rest of a larger one is not worth waiting for.
const DRAIN_LIMIT: u64 = 64 * 1024;

/// Gives the answer a verdict calls for. `Ok(false)`: the request is to be forwarded.
///
/// # Errors
/// Those of writing to the client.
pub async fn give(verdict: Verdict, session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
    match verdict {
        Verdict::Forward => return Ok(false),
        Verdict::Respond(route) => {
            if let Some(response) = fixed(&route) {
                send(response.head.clone(), response.body.clone(), session, exchange).await?;
            }
        }
        Verdict::Redirect(head) => send(*head, Bytes::new(), session, exchange).await?,
        Verdict::Reject(rejection) => {
            let snapshot = std::sync::Arc::clone(&exchange.snapshot);
            let page = snapshot.pages.page(rejection, &session.req_header().headers);
            send_page(page, session, exchange).await?;
        }
        Verdict::Close => close(session, exchange),
    }
    Ok(true)
}

/// Sends a rendered response.
///
/// # Errors
/// Those of writing to the client.
pub async fn send_page(
    page: &FixedResponse,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    send(page.head.clone(), page.body.clone(), session, exchange).await
}

async fn send(
    head: ResponseHeader,
    body: Bytes,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    exchange.status = head.status.as_u16();
    drain(session).await;
    // RFC 9110 section 9.3.2: the head says what GET would get, the body stays away.
    let body = if session.req_header().method == Method::HEAD { Bytes::new() } else { body };
    session.write_response_header(Box::new(head)).await?;
    session.write_response_body(body, true).await
}

/// Closes without an answer: HTTP/1 loses its connection, HTTP/2 the stream.
fn close(session: &mut ServerSession, exchange: &mut Exchange) {
    exchange.status = 403;
    session.set_keepalive(None);
    session.shutdown_with_reason(h2::Reason::REFUSED_STREAM);
}

/// Reads what is left of a small request body. A client that waits for `100 Continue` has not
/// sent it and must not be made to: its connection closes after the answer.
async fn drain(session: &mut ServerSession) {
    if session.is_body_done() {
        return;
    }
    let head = session.req_header();
    let declared =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > DRAIN_LIMIT) || head.headers.contains_key(header::EXPECT) {
        return;
    }
    let mut read = 0;
    while let Ok(Some(chunk)) = session.read_request_body().await {
        read += chunk.len() as u64;
        if read > DRAIN_LIMIT {
            return;
        }
    }
}
