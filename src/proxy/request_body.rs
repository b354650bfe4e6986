//! The body of the client's request: read here, and here alone is known whether it has ended.
//!
//! Two things say that a body has ended. A session says that nothing more can come; one of HTTP/2 does not while
//! trailers may follow, and a read gives nothing then. Whoever asks only the session asks for ever.

use super::context::Exchange;
use super::intake::declared_length;
use crate::snapshot::Rejection;
use bytes::Bytes;
use http::{Version, header};
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;
use std::future::ready;
use tokio::select;
use tokio::time::timeout;

/// A body up to this size may go up with its head.
const AT_HAND: u64 = 16 * 1024;

/// What is known of the end of a request body, through all attempts of its exchange.
#[derive(Debug, Default)]
pub struct RequestBody {
    ended: bool,
}

impl RequestBody {
    /// Whether all of it was read. True from the start where there is none.
    pub fn has_ended(&mut self, session: &mut ServerSession) -> bool {
        self.ended = self.ended || session.is_body_done();
        self.ended
    }

    /// All of it is there.
    pub fn set_read(&mut self) {
        self.ended = true;
    }

    /// Whether all of it was read when last something was.
    pub fn is_read(&self) -> bool {
        self.ended
    }

    /// Reads a piece. Behind the end it waits until the client goes away, which is an error, or has sent the
    /// next request, which is kept for later. May be given up and begun again.
    ///
    /// # Errors
    /// Those of the client's connection, which are its fault.
    pub async fn read(&self, session: &mut ServerSession) -> Result<Option<Bytes>> {
        session.read_body_or_idle(self.ended).await.map_err(Error::into_down)
    }

    /// What goes up of what was read, the end included: nothing of an empty piece that ends nothing.
    pub fn took(&mut self, piece: Option<Bytes>, session: &mut ServerSession) -> Option<Bytes> {
        if self.ended {
            // The next request, kept for later.
            return None;
        }
        self.ended = piece.is_none() || session.is_body_done();
        let piece = piece.unwrap_or_default();
        (self.ended || !piece.is_empty()).then_some(piece)
    }

    /// Reads what is left and drops it. Whether the body ended before more than `limit` bytes of it had come: where one
    /// that broke off ends nobody knows, and what follows is no request.
    pub async fn drop_rest(&mut self, session: &mut ServerSession, limit: u64) -> bool {
        let mut read = 0;
        while !self.has_ended(session) {
            match session.read_request_body().await {
                Ok(Some(piece)) => read += piece.len() as u64,
                Ok(None) => self.ended = true,
                Err(_) => return false,
            }
            if read > limit {
                return false;
            }
        }
        true
    }
}

/// A request of HTTP/2 that announces a body of nothing counts as one without a body, whatever follows its head. So its
/// end is waited for before an upstream hears of it: with DATA it is malformed (RFC 9113 section 8.1.1).
///
/// # Errors
/// When something else comes than the end; the exchange's rejection says what is wrong.
pub async fn settle_empty(session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    let head = session.req_header();
    let announced = head.version == Version::HTTP_2
        && head.headers.get(header::CONTENT_LENGTH).is_some_and(|length| length == "0");
    if !announced {
        return Ok(());
    }
    let limit = exchange.snapshot.limits.body_idle_timeout;
    loop {
        match timeout(limit, session.read_request_body()).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(piece))) if piece.is_empty() => {}
            Ok(Err(error)) if is_remote(&error) => return Err(error.into_down()),
            Ok(_) => {
                exchange.refuse(Rejection::Malformed.because("content_length"));
                return Error::e_explain(ErrorType::InvalidHTTPHeader, "a body that was not announced")
                    .map_err(Error::into_down);
            }
            Err(_) => {
                return Error::e_explain(ErrorType::ReadTimedout, "the end of a request")
                    .map_err(Error::into_down);
            }
        }
    }
}

/// Whether the client has ended its stream or the connection.
fn is_remote(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_none_or(|cause| cause.is_remote() || cause.is_io())
}

/// All of the body, if it is small, says how long it is and is there without waiting: then it goes up with its
/// head, in one write. Empty when there is none. What was read all the same goes up once more, as in another
/// attempt.
///
/// # Errors
/// When the client breaks it off.
pub async fn at_hand(session: &mut ServerSession, exchange: &mut Exchange) -> Result<Option<Bytes>> {
    if session.is_body_empty() {
        exchange.body.set_read();
        return Ok(Some(Bytes::new()));
    }
    if !(1..=AT_HAND).contains(&declared_length(session.req_header())) {
        return Ok(None);
    }
    session.enable_retry_buffering();
    while !exchange.body.has_ended(session) {
        let piece = select! {
            biased;
            piece = exchange.body.read(session) => piece?,
            () = ready(()) => return Ok(None),
        };
        exchange.body.took(piece, session);
    }
    Ok(session.get_retry_buffer())
}
