//! Forwards a request to its upstream, whatever that speaks.
//!
//! `http1` and `http2` make the connection and begin the exchange on it, `auto` whichever the handshake chooses; `relay` is the loop that both have in
//! common: a body up, an answer down, neither waiting for the other. Every decision is made by the functions the
//! engine's hooks call (endpoint: [`upstream`], retries: [`retry`](super::retry)), in the order the engine calls them.
//! A request that needs more than this is left to the engine before anything is done for it.

mod auto;
mod http1;
mod http2;
mod relay;

use super::context::Exchange;
use super::upstream;
use crate::config::UpstreamProtocol;
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::configuration::ServerConf;
use std::future::Future;

/// What forwards on one worker, with the idle connections of its own.
pub struct Forwarder {
    http1: http1::Http1,
    http2: http2::Http2,
    attempts: usize,
}

/// What is spoken to an upstream.
#[derive(Clone, Copy)]
enum Spoken {
    Http1,
    Http2,
    /// What the handshake says.
    Auto,
}

impl Forwarder {
    /// A forwarder with as much room for idle connections, and as many attempts, as the engine has.
    pub fn new(conf: &ServerConf) -> Self {
        Forwarder {
            http1: http1::Http1::new(conf),
            http2: http2::Http2::new(conf),
            attempts: conf.max_retries,
        }
    }

    /// Forwards a request. `Ok(false)`: nothing was done, the engine is to do it.
    ///
    /// # Errors
    /// What the exchange ended with.
    pub async fn forward(&self, session: &mut ServerSession, exchange: &mut Exchange) -> Result<bool> {
        let Some(spoken) = spoken(session, exchange) else { return Ok(false) };
        for _ in 1..self.attempts {
            match self.attempt(spoken, session, exchange).await {
                Err(error) if error.retry() => {}
                ended => return ended.map(|()| true),
            }
        }
        self.attempt(spoken, session, exchange).await.map(|()| true)
    }

    async fn attempt(
        &self,
        spoken: Spoken,
        session: &mut ServerSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        match spoken {
            Spoken::Http1 => self.http1.attempt(session, exchange).await,
            // Every request has a future with room for this one, and few need it.
            Spoken::Http2 => Box::pin(self.http2.attempt(session, exchange)).await,
            Spoken::Auto => Box::pin(auto::attempt(&self.http1, &self.http2, session, exchange)).await,
        }
    }
}

/// What the request's upstream is spoken to in. `None`: that is for the engine.
fn spoken(session: &ServerSession, exchange: &mut Exchange) -> Option<Spoken> {
    let pool = upstream::pool(session, exchange)?;
    match pool.config().protocol {
        UpstreamProtocol::Http2 | UpstreamProtocol::H2c => Some(Spoken::Http2),
        _ if !exchange.snapshot.lane => None,
        UpstreamProtocol::Http1 => Some(Spoken::Http1),
        UpstreamProtocol::Auto if session.is_upgrade_req() => Some(Spoken::Http1),
        UpstreamProtocol::Auto => Some(Spoken::Auto),
    }
}

/// What `connecting` gives, unless a client of HTTP/2 takes its stream back meanwhile: then the error is the client's.
/// A client of HTTP/1 that leaves is noticed when there is a connection.
async fn connected<T>(session: &mut ServerSession, connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let ServerSession::H2(http2) = session else { return connecting.await };
    tokio::select! {
        biased;
        connected = connecting => connected,
        _ = http2.idle() => {
            Error::e_explain(ErrorType::ConnectionClosed, "while connecting").map_err(Error::into_down)
        }
    }
}
