//! What went wrong, told apart: the engine's errors become rejections.

use super::answer;
use super::context::Exchange;
use super::upstream_deadline::Late;
use crate::edge::framing::BadChunk;
use crate::snapshot::Rejection;
use http::header;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_core::protocols::http::ServerSession;
use std::io;

/// The rejection an error stands for.
pub fn rejection(error: &Error, exchange: &Exchange) -> Rejection {
    // A phase that refuses says so before it returns its error.
    if let Some(rejection) = exchange.rejection {
        return rejection;
    }
    match exchange.attempt.late {
        Some(Late::Upstream) => return Rejection::UpstreamTimeout,
        Some(Late::Client) => return Rejection::BodyTimeout,
        Some(Late::Nobody) => return Rejection::ClientDeadline,
        None => {}
    }
    if bad_chunk(error).is_some() {
        return Rejection::Malformed;
    }
    let stalled = exchange.connection.as_ref().is_some_and(|connection| connection.is_stalled());
    if stalled && *error.esource() != ErrorSource::Upstream {
        return Rejection::WriteTimeout;
    }
    match error.esource() {
        ErrorSource::Downstream => downstream(error.etype()),
        ErrorSource::Upstream => upstream(error.etype()),
        // Of our own answers the engine does not say whom they were written to.
        ErrorSource::Internal | ErrorSource::Unset if *error.etype() == ErrorType::WriteTimedout => {
            Rejection::WriteTimeout
        }
        ErrorSource::Internal | ErrorSource::Unset => Rejection::Internal,
    }
}

/// Whether an error is a wait for the upstream that took too long, and was ended by whoever waited.
pub fn is_timeout(error: &Error) -> bool {
    use ErrorType::{ConnectTimedout, ReadTimedout, TLSHandshakeTimedout, WriteTimedout};
    let kinds =
        matches!(error.etype(), ConnectTimedout | TLSHandshakeTimedout | ReadTimedout | WriteTimedout);
    kinds && *error.esource() == ErrorSource::Upstream
}

/// Which cause of its rejection an error stands for, where that is known.
pub fn detail(error: &Error) -> Option<&'static str> {
    bad_chunk(error).map(|bad| bad.0)
}

/// The door's word on a chunked body, on which it reads no further.
fn bad_chunk(error: &Error) -> Option<&BadChunk> {
    error.root_cause().downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Notes what an exchange failed by, and answers.
pub async fn tell(error: &Error, session: &mut ServerSession, exchange: &mut Exchange) -> Rejection {
    let rejection = rejection(error, exchange);
    exchange.rejection = Some(rejection);
    tell_client(rejection, session, exchange).await;
    if rejection != Rejection::ClientClosed {
        // The access record says it; a client must not be able to fill the process log.
        log::debug!("exchange failed: {error}");
    }
    rejection
}

/// Answers with the page of a rejection, unless a response has begun or the client is gone.
///
/// The engine drops the stream after a failed exchange; the door takes it back where the client can
/// go on with it, and the answer says which.
async fn tell_client(rejection: Rejection, session: &mut ServerSession, exchange: &mut Exchange) {
    if matches!(rejection, Rejection::ClientClosed | Rejection::WriteTimeout)
        || answer::begun(session).is_some()
        || exchange.whole.is_some()
    {
        return;
    }
    let keep = can_be_kept(session, exchange);
    if !keep {
        session.set_keepalive(None);
    }
    if let Err(error) = answer::send_page(rejection, session, exchange).await {
        log::debug!("the client could not be told of {}: {error}", rejection.reason());
    } else if !keep {
        answer::linger(session, exchange).await;
    } else if let Some(connection) = &exchange.connection {
        connection.keep(true);
    }
}

/// Whether the next request can follow: all of this one was read, and its end is known for sure.
fn can_be_kept(session: &mut ServerSession, exchange: &mut Exchange) -> bool {
    session.as_http1().is_some()
        && session.get_keepalive().is_some()
        && exchange.body.has_ended(session)
        && !session.req_header().headers.contains_key(header::TRANSFER_ENCODING)
        && !session.req_header().headers.contains_key(header::UPGRADE)
}

fn downstream(etype: &ErrorType) -> Rejection {
    match etype {
        ErrorType::ReadTimedout => Rejection::BodyTimeout,
        ErrorType::WriteTimedout => Rejection::WriteTimeout,
        ErrorType::InvalidHTTPHeader => Rejection::Malformed,
        // What the engine calls a chunked body it cannot read; its constants are private.
        ErrorType::Custom("InvalidChunk" | "InvalidTrailerEnd") => Rejection::Malformed,
        _ => Rejection::ClientClosed,
    }
}

fn upstream(etype: &ErrorType) -> Rejection {
    match etype {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => Rejection::UpstreamConnectTimeout,
        ErrorType::TLSHandshakeFailure | ErrorType::InvalidCert | ErrorType::HandshakeError => {
            Rejection::UpstreamTls
        }
        ErrorType::ConnectRefused
        | ErrorType::ConnectNoRoute
        | ErrorType::ConnectError
        | ErrorType::SocketError
        | ErrorType::BindError => Rejection::UpstreamConnect,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Rejection::UpstreamTimeout,
        ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error | ErrorType::InvalidH2 => {
            Rejection::UpstreamInvalid
        }
        // What the engine calls a chunked body it cannot read; its constants are private.
        ErrorType::Custom("InvalidChunk" | "InvalidTrailerEnd") => Rejection::UpstreamInvalid,
        _ => Rejection::UpstreamClosed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_refused_and_slow_are_told_apart() {
        assert_eq!(upstream(&ErrorType::ConnectRefused).status(), 502);
        assert_eq!(upstream(&ErrorType::ConnectTimedout).status(), 504);
        assert_eq!(upstream(&ErrorType::ReadTimedout).reason(), "upstream_timeout");
        assert_eq!(upstream(&ErrorType::ConnectionClosed).reason(), "upstream_closed");
    }

    #[test]
    fn a_client_that_went_away_is_499() {
        assert_eq!(downstream(&ErrorType::ConnectionClosed).status(), 499);
        assert_eq!(downstream(&ErrorType::ReadTimedout).status(), 408);
        assert_eq!(downstream(&ErrorType::WriteTimedout).reason(), "write_timeout");
    }
}
