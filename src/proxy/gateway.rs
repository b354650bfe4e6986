//! The request path, from a head that was read to the record of its exchange, top to bottom.

use super::context::Exchange;
use super::engine::Engine;
use super::forward::Forwarder;
use super::record::{Ended, Records};
use super::{answer, decide, failure, intake, request_body, tunnel};
use crate::edge::http::Application;
use pingora::Result;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::{Shutdown, Stream};

/// The gateway: one for each worker, sharing all but what forwards.
pub struct Gateway {
    /// Where exchanges are counted and logged.
    pub records: Records,
    /// Forwards nearly everything.
    pub forwarder: Forwarder,
    /// Forwards what needs more.
    pub engine: Engine,
}

impl Application for Gateway {
    /// The exchange pins the snapshot it lives under until it is logged.
    async fn serve(&self, mut session: Box<ServerSession>) -> Option<Stream> {
        let mut exchange = self.records.begin();
        let error = match self.respond(&mut session, &mut exchange).await {
            Ok(true) => None,
            Ok(false) => return Box::pin(self.engine.take_over(session, exchange)).await,
            Err(error) => Some(error),
        };
        if let Some(error) = &error {
            failure::tell(error, &mut session, &mut exchange).await;
        }
        if let Some(upstream) = exchange.attempt.granted.take() {
            return Box::pin(tunnel::run(session, upstream, exchange, &self.records)).await;
        }
        self.records.end(&Ended::of(&session), error.as_deref(), &mut exchange);
        // After a failure the door keeps what can be kept.
        let end = if error.is_some() { End::Gone } else { finish(&mut session).await };
        let ServerSession::H1(http1) = *session else { return None };
        match end {
            End::Next => Some(http1.into_inner()),
            End::Close => {
                // By its own shutdown, which listens on where a body has broken off: the session's would only
                // close what it writes to.
                Shutdown::shutdown(&mut *http1.into_inner()).await;
                None
            }
            End::Gone => None,
        }
    }
}

impl Gateway {
    /// The head is made canonical or refused; client address, access and route are settled; then the
    /// gateway answers, or forwards. `Ok(false)`: that is left to the engine.
    async fn respond(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
        intake::accept(session, exchange);
        let verdict = decide::decide(session.req_header_mut(), exchange, &self.records.metrics);
        if answer::give(verdict, session, exchange).await? {
            return Ok(true);
        }
        request_body::settle_empty(session, exchange).await?;
        self.forwarder.forward(session, exchange).await
    }
}

/// What becomes of the connection of a session that has ended.
#[derive(Clone, Copy)]
enum End {
    /// Another request may follow.
    Next,
    /// None may.
    Close,
    /// There is nothing left to do for it here.
    Gone,
}

/// Ends a session that was answered.
///
/// What the session does itself at its end, and what that takes: it would be moved from one function to the
/// next, five times its size, and every request would have room for all of them.
async fn finish(session: &mut ServerSession) -> End {
    match session {
        ServerSession::H1(http1) => {
            if http1.finish_body().await.is_err() {
                return End::Gone;
            }
            if !http1.will_keepalive() {
                return End::Close;
            }
            match http1.drain_request_body().await {
                Ok(()) => End::Next,
                Err(_) => End::Gone,
            }
        }
        ServerSession::H2(http2) => {
            // Of no consequence: the client has gone away if it fails.
            let _ = http2.finish();
            End::Gone
        }
        _ => End::Gone,
    }
}
