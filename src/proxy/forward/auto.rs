//! Attempts on upstreams whose protocol only the handshake tells.

use super::super::context::Exchange;
use super::super::{retry, upstream};
use super::http1::Http1;
use super::http2::{Chosen, Http2};
use pingora::Result;
use pingora_core::protocols::http::ServerSession;

/// One attempt, in what the connection speaks that is kept, or is made now.
///
/// # Errors
/// What it ended with; the error says whether there is to be another.
pub async fn attempt(
    http1: &Http1,
    http2: &Http2,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    let peer = upstream::peer(session, exchange)?;
    match http2.kept(&peer).await {
        Ok(Some(stream)) => return http2.over(stream, true, &peer, session, exchange).await,
        Ok(None) => {}
        Err(error) => return Err(retry::connect_failed(error, exchange)),
    }
    if let Some(stream) = http1.idle(&peer) {
        return http1.over(stream, true, &peer, session, exchange).await;
    }
    match super::connected(session, http2.chosen(&peer)).await {
        Ok(Chosen::Http1(stream)) => http1.over(stream, false, &peer, session, exchange).await,
        Ok(Chosen::Http2(stream)) => http2.over(*stream, false, &peer, session, exchange).await,
        Err(error) => Err(retry::connect_failed(error, exchange)),
    }
}
