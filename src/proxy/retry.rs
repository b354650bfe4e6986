//! Whether an attempt that failed is followed by another, where, and why.
//!
//! Three kinds of failure. The upstream cannot be at work on the request (no connection, one that took no whole
//! head, a word of HTTP/2 that it was not begun): sending it once more costs nothing. It may be (a timeout, an answer
//! that says so, a connection that ended without one: RFC 9110 section 9.2.2): only what may be repeated goes out again, and only within the upstream's budget. Anything of
//! the answer has reached the client: nothing goes out again.

use super::context::Exchange;
use super::upstream_deadline::Late;
use super::{answer, failure};
use crate::snapshot::Fault;
use crate::upstream::retry::RetryPolicy;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorSource, ErrorType, Result, RetryType};
use pingora_core::protocols::http::ServerSession;

/// A connection could not be made: another endpoint gets a try if there is one.
pub fn connect_failed(error: Box<Error>, exchange: &mut Exchange) -> Box<Error> {
    // The engine says so only afterwards.
    let client_gone = *error.esource() == ErrorSource::Downstream;
    let mut error = if client_gone { error } else { error.into_up() };
    if fault(&error, exchange) != Fault::Upstream {
        error.retry = RetryType::Decided(false);
        return error;
    }
    exchange.attempt.end(StatusCode::BAD_GATEWAY.as_u16(), Some(Fault::Upstream));
    // Also what the engine calls it when a kept connection takes no more streams.
    let stale = matches!(error.etype(), ErrorType::H2Error);
    let fresh = stale && again_on_fresh(exchange);
    if !fresh {
        exchange.attempt.endpoint_failed();
    }
    let retry = fresh || elsewhere(exchange);
    exchange.attempt.again = false;
    error.retry = RetryType::Decided(retry);
    error
}

/// A final response head has come.
///
/// # Errors
/// When it is given up for another attempt; the error says so to the engine.
pub fn answered(session: &mut ServerSession, head: &ResponseHeader, exchange: &mut Exchange) -> Result<()> {
    let status = head.status.as_u16();
    // Nearly all answers end here.
    let reason = exchange.attempt.pool.as_ref().and_then(|pool| pool.retry().status(status));
    let Some(reason) = reason else { return Ok(()) };
    let Some(pool) = exchange.attempt.pool.clone() else { return Ok(()) };
    if !may_repeat(session, exchange, pool.retry()) {
        return Ok(());
    }
    exchange.attempt.answer(status);
    if !once_more(exchange, reason) {
        return Ok(());
    }
    if matches!(status, 502..=504) {
        exchange.attempt.endpoint_failed();
    }
    let mut error = Error::explain(ErrorType::HTTPStatus(status), "tried again").into_up();
    error.retry = RetryType::Decided(true);
    Err(error)
}

/// The exchange broke; whether there is another attempt is told by the error.
pub fn exchange_failed(
    mut error: Box<Error>,
    session: &mut ServerSession,
    exchange: &mut Exchange,
    reused: bool,
) -> Box<Error> {
    // The connection is gone already: its descriptor may be another's at the next await.
    exchange.attempt.lift_deadline();
    let given_up = exchange.attempt.again;
    let blamed = !given_up && fault(&error, exchange) == Fault::Upstream;
    let late = exchange.attempt.late == Some(Late::Upstream);
    let retry = given_up || (blamed && decide(&error, session, exchange, reused));
    if blamed && (late || !retry) {
        exchange.attempt.endpoint_failed();
    }
    if retry {
        exchange.attempt.end(StatusCode::BAD_GATEWAY.as_u16(), Some(Fault::Upstream));
        exchange.attempt.again = false;
        exchange.attempt.late = None;
    }
    error.retry = RetryType::Decided(retry);
    error
}

/// Whose fault it is that an attempt has ended.
fn fault(error: &Error, exchange: &mut Exchange) -> Fault {
    if failure::is_timeout(error) {
        exchange.attempt.judge_timeout();
    }
    failure::rejection(error, exchange).fault()
}

fn decide(error: &Error, session: &mut ServerSession, exchange: &mut Exchange, reused: bool) -> bool {
    let Some(pool) = exchange.attempt.pool.clone() else { return false };
    let policy = pool.retry();
    if exchange.attempt.answered || exchange.attempt.tunnel || *error.esource() != ErrorSource::Upstream {
        return false;
    }
    if exchange.attempt.late == Some(Late::Upstream) || *error.etype() == ErrorType::ReadTimedout {
        return policy.timeout && may_repeat(session, exchange, policy) && once_more(exchange, "timeout");
    }
    if !reused && is_dead(error) {
        return policy.closed && may_repeat(session, exchange, policy) && after_end(exchange);
    }
    let unseen =
        is_refused(error) || (is_dead(error) && (is_idempotent(session, policy) || exchange.attempt.unsent));
    unseen && policy.stale && replayable(session, exchange) && again_on_fresh(exchange)
}

/// The endpoint has closed a connection that was made for the request: it has failed, whatever comes of another
/// attempt.
fn after_end(exchange: &mut Exchange) -> bool {
    let again = once_more(exchange, "closed");
    if again {
        exchange.attempt.endpoint_failed();
    }
    again
}

/// Whether the connection was closed under the request, without an answer.
fn is_dead(error: &Error) -> bool {
    use ErrorType::{ConnectionClosed, ReadError, WriteError};
    match error.etype() {
        ConnectionClosed | ReadError | WriteError => true,
        ErrorType::H2Error => cause(error).is_some_and(h2::Error::is_io),
        _ => false,
    }
}

/// Whether the upstream has said that it did not begin (RFC 9113 sections 6.8 and 8.7).
fn is_refused(error: &Error) -> bool {
    let refused = |error: &h2::Error| match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => error.is_reset(),
        Some(h2::Reason::NO_ERROR) => error.is_go_away(),
        Some(h2::Reason::HTTP_1_1_REQUIRED) => true,
        _ => false,
    };
    cause(error).is_some_and(|error| error.is_remote() && refused(error))
}

fn cause(error: &Error) -> Option<&h2::Error> {
    error.root_cause().downcast_ref()
}

fn may_repeat(session: &mut ServerSession, exchange: &Exchange, policy: &RetryPolicy) -> bool {
    is_idempotent(session, policy) && replayable(session, exchange)
}

fn is_idempotent(session: &ServerSession, policy: &RetryPolicy) -> bool {
    policy.all_methods || session.req_header().method.is_idempotent()
}

/// Whether all of the body that was sent is still here, and nothing has reached the client.
fn replayable(session: &mut ServerSession, exchange: &Exchange) -> bool {
    !session.retry_buffer_truncated() && answer::begun(session).is_none() && exchange.rejection.is_none()
}

/// The same endpoint once more, over a connection nobody has used: once for each request.
fn again_on_fresh(exchange: &mut Exchange) -> bool {
    let attempt = &mut exchange.attempt;
    let (Some(pool), Some(endpoint)) = (&attempt.pool, &attempt.endpoint) else { return false };
    if attempt.fresh || !pool.retry().stale {
        return false;
    }
    attempt.next = Some(endpoint.clone());
    attempt.fresh = true;
    attempt.once_more("stale");
    true
}

/// Another endpoint, if there is one: this one cannot be reached.
fn elsewhere(exchange: &mut Exchange) -> bool {
    let attempt = &mut exchange.attempt;
    attempt.failed.extend(attempt.endpoint.clone());
    let Some(pool) = attempt.pool.clone() else { return false };
    if !pool.retry().connect || attempt.counted() >= pool.retry().attempts {
        return false;
    }
    if !pool.has_endpoint(&attempt.failed) {
        return false;
    }
    attempt.once_more("connect");
    true
}

/// Another endpoint, or the same where there is no other, if the budget allows.
fn once_more(exchange: &mut Exchange, reason: &'static str) -> bool {
    let attempt = &mut exchange.attempt;
    let Some(pool) = attempt.pool.clone() else { return false };
    if attempt.counted() >= pool.retry().attempts {
        return false;
    }
    if !pool.retry().spend() {
        pool.metrics().retry_denied();
        return false;
    }
    attempt.failed.extend(attempt.endpoint.clone());
    if !pool.has_endpoint(&attempt.failed) {
        attempt.next = attempt.failed.pop();
    }
    attempt.once_more(reason);
    true
}
