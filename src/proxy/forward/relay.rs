//! The loop of an exchange: what the client sends goes up, what the upstream answers comes down, side by side.
//!
//! A piece of the request is read when the one before is on its way, so that no more than one is held; the answer is
//! read meanwhile. An answer that comes before the end of the request is passed on at once. Deadlines are those of the
//! exchange (`upstream`): here they are told who is waited for.

use super::super::context::Exchange;
use super::super::upstream_deadline::Late;
use super::super::{answer, mirror, response_head, retry, upstream};
use crate::edge::http2::interim;
use crate::snapshot::Rejection;
use crate::upstream::link::{Link, Turn};
use bytes::Bytes;
use http::header;
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_core::protocols::http::{HttpTask, ServerSession};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use tokio::time::timeout;

/// Parts of an answer that are written at once if they are there at once.
const PARTS: usize = 4;

/// Interim answers an upstream may give to one request: one that says 1xx for ever has said nothing.
const INTERIMS: usize = 100;

/// Bytes of an answer beyond which nothing more is waited for before they are written.
const ENOUGH: usize = 16 * 1024;

/// What happened next.
enum Event {
    Upstream(Result<Turn>),
    Client(Result<Option<Bytes>>),
    /// Somebody has kept the exchange waiting for too long; the exchange knows who.
    Late,
}

/// Runs an exchange whose head was offered to its end.
///
/// # Errors
/// What it ended with. The client has been told nothing of it.
pub async fn run<L: Link>(link: &mut L, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    // Why the upstream takes no more of the request: the reason for an answer that does not come.
    let mut reason = None;
    let mut interims = 0;
    loop {
        match next(link, session, exchange).await {
            Event::Client(piece) => took(piece?, link, session, exchange)?,
            Event::Upstream(Ok(Turn::Taken)) => upstream::taken(exchange.body.is_read(), exchange),
            Event::Upstream(Ok(Turn::Broken(error))) => {
                log::debug!("the upstream takes no more of a request: {error}");
                reason = Some(error);
                upstream::taken(true, exchange);
            }
            Event::Upstream(Ok(Turn::Came(first))) => {
                let parts = at_hand(first, link, &mut reason, session, exchange)?;
                interims += parts.iter().filter(|part| is_interim(part)).count();
                if interims > INTERIMS {
                    return upstream::refuse(exchange, Rejection::UpstreamInvalid);
                }
                tell_interim(&parts, session).await;
                if exchange.attempt.answered {
                    upstream::paused(exchange);
                }
                if write(parts, session).await.map_err(of_client)? {
                    break;
                }
                if exchange.attempt.answered {
                    upstream::resumed(exchange);
                }
            }
            Event::Late => return Err(late(exchange)),
            Event::Upstream(Err(error)) => return Err(reason.unwrap_or(error).into_up()),
        }
    }
    if exchange.body.is_read() && !link.has_unsent() {
        return Ok(());
    }
    // Few answers come before the end of a request.
    Box::pin(finish(link, session, exchange)).await
}

/// Begins a body that does not go up with its head. What an earlier attempt has read of it goes up once more; with
/// nothing, the client's time begins.
///
/// # Errors
/// When it is over the route's limit; the exchange's rejection says so.
pub fn begin_body<L: Link>(link: &mut L, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    session.enable_retry_buffering();
    exchange.body.has_ended(session);
    let kept = session.get_retry_buffer().unwrap_or_default();
    offer(kept, link, exchange)
}

/// The error of an exchange somebody has kept waiting for too long.
fn late(exchange: &Exchange) -> Box<Error> {
    let error = Error::explain(ErrorType::ReadTimedout, "a deadline");
    match exchange.attempt.watch.as_ref().and_then(|watch| watch.late()) {
        Some(Late::Client) => error.into_down(),
        _ => error.into_up(),
    }
}

/// Waits for the upstream, and for the client where a piece of its body can be sent, or where all was read and it
/// may go away. A body goes first, an end last: an answer that is there is not lost for a client that leaves.
async fn next<L: Link>(link: &mut L, session: &mut ServerSession, exchange: &Exchange) -> Event {
    let is_read = exchange.body.is_read();
    let is_wanted = is_read || !(link.has_unsent() || link.is_broken());
    let mut client = pin!(exchange.body.read(session));
    poll_fn(|cx| {
        if is_wanted
            && !is_read
            && let Poll::Ready(piece) = client.as_mut().poll(cx)
        {
            return Poll::Ready(Event::Client(piece));
        }
        if let Poll::Ready(turn) = link.poll_turn(cx) {
            return Poll::Ready(Event::Upstream(turn));
        }
        if exchange.attempt.watch.as_ref().is_some_and(|watch| watch.is_over(cx)) {
            return Poll::Ready(Event::Late);
        }
        match is_read {
            true => client.as_mut().poll(cx).map(Event::Client),
            false => Poll::Pending,
        }
    })
    .await
}

fn took<L: Link>(
    piece: Option<Bytes>,
    link: &mut L,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<()> {
    match exchange.body.took(piece, session) {
        Some(piece) => offer(piece, link, exchange),
        None => Ok(()),
    }
}

/// Offers a piece to the upstream, and the end if all was read.
fn offer<L: Link>(piece: Bytes, link: &mut L, exchange: &mut Exchange) -> Result<()> {
    let end = exchange.body.is_read();
    upstream::sending(piece.len(), end, exchange)?;
    mirror::body_sent(Some(&piece).filter(|piece| !piece.is_empty()), end, exchange);
    if end || !piece.is_empty() {
        upstream::offered(exchange);
        link.offer(piece, end);
    }
    Ok(())
}

/// `first`, and what comes behind it without waiting, each on its way to the client.
///
/// # Errors
/// Where the answer is given up. What cannot be read is a part itself: the client is told after what came before.
fn at_hand<L: Link>(
    first: HttpTask,
    link: &mut L,
    reason: &mut Option<Box<Error>>,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> Result<Vec<HttpTask>> {
    let mut parts = Vec::with_capacity(PARTS);
    let (mut part, mut bytes) = (first, 0);
    loop {
        pass(&mut part, session, exchange)?;
        bytes += size(&part);
        let last = part.is_end() || parts.len() + 1 == PARTS || bytes > ENOUGH;
        parts.push(part);
        if last {
            return Ok(parts);
        }
        part = loop {
            match at_once(link) {
                None => return Ok(parts),
                Some(Ok(Turn::Came(part))) => break part,
                Some(Ok(Turn::Taken)) => upstream::taken(exchange.body.is_read(), exchange),
                Some(Ok(Turn::Broken(error))) => *reason = Some(error),
                Some(Err(error)) => break HttpTask::Failed(reason.take().unwrap_or(error).into_up()),
            }
        };
    }
}

/// What happens next if it is there. Whoever waits next is woken for what is not.
fn at_once<L: Link>(link: &mut L) -> Option<Result<Turn>> {
    let waker = std::task::Waker::noop();
    match link.poll_turn(&mut std::task::Context::from_waker(waker)) {
        Poll::Ready(turn) => Some(turn),
        Poll::Pending => None,
    }
}

/// Writes parts of an answer. Whether it has ended. Together only where they are small: the session copies what it
/// writes together, and keeps the room for it.
async fn write(parts: Vec<HttpTask>, session: &mut ServerSession) -> Result<bool> {
    let size: usize = parts.iter().map(size).sum();
    if parts.len() == 1 || size <= ENOUGH {
        return session.response_duplex_vec(parts).await;
    }
    let mut ended = false;
    for part in parts {
        ended = session.response_duplex_vec(vec![part]).await?;
    }
    Ok(ended)
}

fn size(part: &HttpTask) -> usize {
    match part {
        HttpTask::Body(Some(piece), _) => piece.len(),
        _ => 0,
    }
}

/// The session of HTTP/2 writes no interim answers.
async fn tell_interim(parts: &[HttpTask], session: &ServerSession) {
    if !matches!(session, ServerSession::H2(_)) {
        return;
    }
    for part in parts.iter().filter(|part| is_interim(part)) {
        if let HttpTask::Header(head, _) = part {
            interim::send(session.req_header(), head.status, &head.headers).await;
        }
    }
}

fn is_interim(part: &HttpTask) -> bool {
    matches!(part, HttpTask::Header(head, _) if head.status.is_informational())
}

/// Whether the client waits to be asked for its body, and was not.
fn is_unasked(session: &ServerSession, exchange: &Exchange) -> bool {
    !exchange.body.is_read()
        && exchange.body_bytes == 0
        && session.req_header().headers.contains_key(header::EXPECT)
}

/// What happens to a part of the answer on its way.
///
/// # Errors
/// When the answer is given up; the error and the exchange's rejection say why.
fn pass(part: &mut HttpTask, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    match part {
        HttpTask::Header(head, end) => {
            let method = &session.req_header().method;
            if *end
                && head.version == http::Version::HTTP_2
                && has_length(head)
                && response_head::may_have_body(head, method)
            {
                // RFC 9113 section 8.1.1; the library only counts what comes in frames.
                return upstream::refuse(exchange, Rejection::UpstreamInvalid);
            }
            retry::answered(session, head, exchange)?;
            response_head::frame(head, *end, &session.req_header().method)?;
            if !head.status.is_informational() && is_unasked(session, exchange) {
                // RFC 9110 section 10.1.1: what comes next, its body or another request, nobody can tell.
                session.set_keepalive(None);
            }
            upstream::answered(session, head, exchange)
        }
        HttpTask::Body(_, end) => {
            upstream::body_arrived(*end, exchange);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn has_length(head: &ResponseHeader) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    length.is_some_and(|length| length.as_bytes().iter().any(|digit| *digit != b'0'))
}

/// What the client is to blame for, unless a part says that the upstream is.
fn of_client(error: Box<Error>) -> Box<Error> {
    if *error.esource() == ErrorSource::Upstream { error } else { error.into_down() }
}

/// Like [`next`], where it is of no interest whether the client goes away.
async fn rest<L: Link>(link: &mut L, session: &mut ServerSession, exchange: &Exchange) -> Event {
    match exchange.body.is_read() {
        true => Event::Upstream(link.turn().await),
        false => next(link, session, exchange).await,
    }
}

/// The answer is out before the end of the request. An upstream that keeps its connection may want the rest all the
/// same; what it does not take is listened to, lest the answer is lost on its way to a client that is still sending.
async fn finish<L: Link>(link: &mut L, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    exchange.attempt.lift_deadline();
    if is_unasked(session, exchange) {
        return Ok(());
    }
    let limit = exchange.snapshot.limits.body_idle_timeout;
    while link.wants_rest() && !link.is_broken() && (link.has_unsent() || !exchange.body.is_read()) {
        let Ok(event) = timeout(limit, rest(link, session, exchange)).await else {
            if link.has_unsent() {
                break;
            }
            let late = Error::explain(ErrorType::ReadTimedout, "the rest of a request body");
            return Err(late.into_down());
        };
        match event {
            Event::Client(piece) => took(piece?, link, session, exchange)?,
            // The answer is out: nothing else is of interest, and an upstream that says more is not kept.
            Event::Upstream(Ok(Turn::Taken)) => {}
            Event::Upstream(_) | Event::Late => break,
        }
    }
    if !exchange.body.is_read() && session.as_http1().is_some() {
        answer::finish_rest(session, exchange).await;
    }
    Ok(())
}
