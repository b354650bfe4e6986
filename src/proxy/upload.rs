//! The lane's exchanges with a request body: both directions in one loop.
//!
//! A piece of the body goes up as the engine sends it, by the functions its hooks call: it is counted, copied,
//! and kept for another attempt while there is little of it. What the engine does with an answer that comes too early is
//! done here again: one that comes while the body is on its way is passed on, and what is left of the body goes
//! up all the same; an upstream that takes no more of it may have answered before. Like the engine it does not look at
//! the answer while the upstream takes its time with a piece.

use super::context::Exchange;
use super::request_body::client_gone;
use super::{answer, mirror, pieces, request_head, upstream};
use bytes::Bytes;
use http::{HeaderValue, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamSession;
use pingora_core::protocols::http::{HttpTask, ServerSession};
use tokio::select;
use tokio::time::timeout;

/// A request body on its way.
struct Upload {
    /// The upstream takes no more of it.
    is_broken: bool,
    /// Why that is, until the client has been told.
    reason: Option<Box<Error>>,
    /// The answer is out.
    is_answered: bool,
}

/// One attempt, over a connection that is there. Whether all of the request was taken, so that another may follow on
/// the connection.
///
/// # Errors
/// What the engine would have ended the attempt with.
pub async fn exchange_messages(
    session: &mut ServerSession,
    connection: &mut UpstreamSession,
    exchange: &mut Exchange,
) -> Result<bool> {
    let head = head(session, exchange)?;
    send_head(head, connection, exchange).await?;
    session.enable_retry_buffering();
    exchange.body.has_ended(session);
    let mut upload = Upload { is_broken: false, reason: None, is_answered: false };
    // What an earlier attempt has read goes up once more; with nothing, the client's time begins.
    let kept = session.get_retry_buffer().unwrap_or_default();
    upload.send(kept, session, connection, exchange).await?;
    while !upload.is_answered {
        select! {
            task = connection.read_response_task() => {
                let first = pieces::received(task);
                let pass = |task: &mut HttpTask| {
                    upload.explain(task);
                    pieces::pass(task, session, exchange)
                };
                let tasks = pieces::at_hand(first, connection, pass).await?;
                upload.is_answered = session.response_duplex_vec(tasks).await?;
            }
            piece = exchange.body.read(session), if exchange.body.is_read() || !upload.is_broken => {
                upload.took(piece?, session, connection, exchange).await?;
            }
        }
    }
    upload.finish(session, connection, exchange).await
}

/// Writes the head. One that was not taken whole leaves the upstream nothing to work on.
///
/// # Errors
/// Those of the connection.
pub async fn send_head(
    head: RequestHeader,
    connection: &mut UpstreamSession,
    exchange: &mut Exchange,
) -> Result<()> {
    let written = connection.write_request_header(Box::new(head)).await;
    exchange.attempt.unsent = written.is_err();
    written.map(drop).map_err(Error::into_up)
}

fn head(session: &mut ServerSession, exchange: &mut Exchange) -> Result<RequestHeader> {
    let mut head = request_head::copy(session, exchange)?;
    if !head.headers.contains_key(header::CONTENT_LENGTH) {
        head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
    }
    Ok(head)
}

impl Upload {
    async fn took(
        &mut self,
        piece: Option<Bytes>,
        session: &mut ServerSession,
        connection: &mut UpstreamSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        match exchange.body.took(piece, session) {
            Some(piece) => self.send(piece, session, connection, exchange).await,
            None => Ok(()),
        }
    }

    /// Sends a piece, and the end if all was read.
    async fn send(
        &mut self,
        piece: Bytes,
        session: &mut ServerSession,
        connection: &mut UpstreamSession,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let end = exchange.body.is_read();
        upstream::sending(piece.len(), end, exchange)?;
        mirror::body_sent(Some(&piece).filter(|piece| !piece.is_empty()), end, exchange);
        upstream::offered(exchange);
        let written = select! {
            biased;
            written = write(&piece, end, connection) => written,
            gone = client_gone(session), if end && !self.is_answered => return Err(gone),
        };
        if let Err(error) = written {
            log::debug!("the upstream takes no more of a request: {error}");
            self.is_broken = true;
            self.reason = Some(error.into_up());
        }
        upstream::taken(end || self.is_broken, exchange);
        Ok(())
    }

    /// Where no answer comes any more, it is for what has happened before.
    fn explain(&mut self, task: &mut HttpTask) {
        if let HttpTask::Failed(error) = task
            && let Some(reason) = self.reason.take()
        {
            *error = reason;
        }
    }

    /// The answer is out. An upstream may want the rest of the request all the same; what it does not take is
    /// listened to, lest the answer is lost on its way to a client that is still sending.
    async fn finish(
        mut self,
        session: &mut ServerSession,
        connection: &mut UpstreamSession,
        exchange: &mut Exchange,
    ) -> Result<bool> {
        exchange.attempt.lift_deadline();
        let limit = exchange.snapshot.limits.body_idle_timeout;
        while !exchange.body.is_read() && !self.is_broken {
            let Ok(piece) = timeout(limit, exchange.body.read(session)).await else {
                let late = Error::explain(ErrorType::ReadTimedout, "the rest of a request body");
                return Err(late.into_down());
            };
            self.took(piece?, session, connection, exchange).await?;
        }
        if !exchange.body.is_read() && session.as_http1().is_some() {
            answer::finish_rest(session, exchange).await;
        }
        Ok(!self.is_broken)
    }
}

/// Writes a piece, and the end of the body behind it.
///
/// # Errors
/// Those of the connection.
pub async fn write(piece: &[u8], end: bool, connection: &mut UpstreamSession) -> Result<()> {
    if !piece.is_empty() {
        connection.write_body(piece).await?;
    }
    if end {
        connection.finish_body().await?;
    }
    Ok(())
}
