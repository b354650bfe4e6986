//! The head, made canonical once before any decision, or refused.
//!
//! What is decided on here is what goes upstream: the request's own head is rewritten, so that no
//! later phase can see another path or host than the access rules and the router did.

use super::context::Exchange;
use super::http2_fields;
use super::request_target::{TargetError, TargetRules, canonical_path, has_encoded_slash, split_target};
use crate::edge::connection::{Body, Connection};
use crate::routing::host::canonical_host;
use crate::snapshot::{Cause, Limits, Rejection};
use http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use pingora::http::RequestHeader;
use pingora_core::protocols::http::ServerSession;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Takes the head in: connection facts and timeouts first, then limits, framing, host and path.
pub fn accept(session: &mut ServerSession, exchange: &mut Exchange) {
    exchange.connection = Connection::of(session.digest()).cloned();
    if let Some(connection) = &exchange.connection {
        exchange.client = connection.peer.ip();
        exchange.secure = connection.tls.is_some();
    }
    exchange.version = session.req_header().version;
    let begun = begin_body(session, exchange);
    set_deadlines(session, exchange);
    let limits = exchange.snapshot.limits;
    let checked = begun
        .and_then(|()| http2_fields::settle(session.req_header_mut()))
        .and_then(|()| check_limits(session, &limits))
        .and_then(|()| check_method(session))
        .and_then(|()| check_framing(session))
        .and_then(|()| check_expectation(session.req_header_mut()))
        .and_then(|()| make_canonical(session.req_header_mut(), exchange))
        .and_then(|()| check_loop(session.req_header(), exchange));
    close_if_asked(session);
    drop_upgrade(session);
    if let Err(cause) = checked {
        exchange.refuse(cause);
    }
}

fn set_deadlines(session: &mut ServerSession, exchange: &Exchange) {
    let limits = &exchange.snapshot.limits;
    let connection = exchange.connection.as_ref();
    let last = |connection: &Arc<Connection>| {
        connection.is_leaving() || connection.heads() >= limits.requests_per_connection
    };
    if connection.is_some_and(last) {
        session.set_keepalive(None);
    } else if session.get_keepalive().is_some() {
        session.set_keepalive(Some(limits.head_read_seconds()));
    }
    let body: Duration = limits.body_idle_timeout;
    session.set_read_timeout(Some(body));
    session.set_write_timeout(Some(body));
    session.set_total_drain_timeout(Some(body));
    // RFC 9110 section 15.2: a client of HTTP/1.0 must not get a 1xx.
    session.set_ignore_info_resp(session.req_header().version == Version::HTTP_10);
}

/// The door follows the body from here on, and keeps back what comes after it.
fn begin_body(session: &mut ServerSession, exchange: &Exchange) -> Result<(), Cause> {
    let Some(connection) = &exchange.connection else { return Ok(()) };
    connection.head_complete();
    let Some(http1) = session.as_http1() else { return Ok(()) };
    let head = session.req_header();
    let body = match head.headers.contains_key(header::TRANSFER_ENCODING) {
        true => Body::Chunked,
        false => Body::Length(declared_length(head)),
    };
    if connection.body_begins(http1.get_headers_raw_bytes().len() as u64, body) {
        return Ok(());
    }
    session.set_keepalive(None);
    Err(Rejection::Malformed.because("head_end"))
}

fn check_limits(session: &ServerSession, limits: &Limits) -> Result<(), Cause> {
    let head = session.req_header();
    // RFC 9112 section 3: method SP request-target SP HTTP-version CRLF.
    let line = head.method.as_str().len() + head.raw_path().len() + " HTTP/1.1 \r\n".len();
    if line > limits.request_line {
        return Err(Rejection::RequestLine.into());
    }
    if head.headers.len() > limits.header_count {
        return Err(Rejection::TooManyHeaders.into());
    }
    let block = match session.as_http1() {
        Some(http1) => http1.get_headers_raw_bytes().len(),
        // RFC 9113 section 6.5.2 counts 32 bytes of overhead a field.
        None => head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum(),
    };
    if block > limits.headers { Err(Rejection::HeadersTooLarge.into()) } else { Ok(()) }
}

/// The length a request's body is announced with, 0 when none is.
pub fn declared_length(head: &RequestHeader) -> u64 {
    let length = head.headers.get(header::CONTENT_LENGTH);
    length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0)
}

fn check_method(session: &mut ServerSession) -> Result<(), Cause> {
    match session.req_header().method {
        // RFC 9110 section 9.3.8: it shows a client headers it must not see.
        Method::TRACE => Err(Rejection::Method.into()),
        Method::CONNECT => {
            // What follows is meant for the tunnel (RFC 9110 section 9.3.6) and is no request.
            session.set_keepalive(None);
            Err(Rejection::Method.into())
        }
        _ => Ok(()),
    }
}

/// Framing the engine understands and somebody behind us may understand otherwise. Where such a
/// request ends is not certain, so nothing after it is taken for another one.
fn check_framing(session: &mut ServerSession) -> Result<(), Cause> {
    let headers = &session.req_header().headers;
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let cause = match (codings.next(), codings.next()) {
        (None, _) => match (lengths.next(), lengths.next()) {
            (Some(length), None) if length.as_bytes().contains(&b',') => {
                Rejection::Malformed.because("content_length_list")
            }
            (Some(_), Some(_)) => Rejection::Malformed.because("content_length_twice"),
            (Some(length), None) if !is_countable(length) => {
                Rejection::Malformed.because("content_length_range")
            }
            _ => return Ok(()),
        },
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => return Ok(()),
        (Some(_), None) => Rejection::TransferEncoding.because("coding"),
        (Some(_), Some(_)) => Rejection::TransferEncoding.because("twice"),
    };
    session.set_keepalive(None);
    Err(cause)
}

/// Whether sums with a length cannot run over: nobody sends more than 2^63 bytes.
fn is_countable(length: &HeaderValue) -> bool {
    length.to_str().is_ok_and(|length| length.parse::<i64>().is_ok())
}

/// RFC 9110 section 10.1.1: whoever expects what is not known here must hear of it. HTTP/1.0 knows no expectations, and the
/// upstream, which is spoken to in HTTP/1.1, must not hear of one.
fn check_expectation(head: &mut RequestHeader) -> Result<(), Cause> {
    if head.version == Version::HTTP_10 {
        head.remove_header(&header::EXPECT);
        return Ok(());
    }
    let known = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let all = head.headers.get_all(header::EXPECT).iter().all(known);
    if all { Ok(()) } else { Err(Rejection::Expectation.into()) }
}

/// RFC 9110 section 7.6: a gateway must not send a message round in circles.
fn check_loop(head: &RequestHeader, exchange: &Exchange) -> Result<(), Cause> {
    let passed = head.headers.contains_key(header::VIA);
    match &exchange.snapshot.via {
        Some(via) if passed && via.is_loop(&head.headers) => Err(Rejection::Loop.into()),
        _ => Ok(()),
    }
}

/// The engine looks at the first line of Connection alone; more than one is one by now.
fn close_if_asked(session: &mut ServerSession) {
    let head = session.req_header();
    let line = head.headers.get(header::CONNECTION).map(HeaderValue::as_bytes).unwrap_or_default();
    if line.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close")) {
        session.set_keepalive(None);
    }
}

fn make_canonical(head: &mut RequestHeader, exchange: &mut Exchange) -> Result<(), Cause> {
    exchange.host = host_of(head)?;
    simplify_connection(head)?;
    if !head.raw_path_is_utf8() {
        return Err(Rejection::Target.because("encoding"));
    }
    let paths = &exchange.snapshot.paths;
    let rules = TargetRules { merge_slashes: paths.merge_slashes, decode_slashes: paths.decode_slashes };
    if head.raw_path().first() != Some(&b'/') {
        return make_origin_form(head, &rules, exchange);
    }
    match canonical_path(head.uri.path(), &rules)? {
        Cow::Borrowed(_) => Ok(()),
        Cow::Owned(path) => {
            exchange.slash_decoded = rules.decode_slashes && has_encoded_slash(head.uri.path());
            rewrite_path(head, path)
        }
    }
}

/// The other forms of RFC 9112 section 3.2: a URL becomes its path, `*` stays, the rest is refused.
fn make_origin_form(
    head: &mut RequestHeader,
    rules: &TargetRules,
    exchange: &mut Exchange,
) -> Result<(), Cause> {
    let raw = std::str::from_utf8(head.raw_path()).map_err(|_| Rejection::Target.because("encoding"))?;
    let mut target_host = None;
    let target = split_target(&head.method, raw)?;
    if let Some(authority) = target.authority
        && !head.headers.contains_key(header::HOST)
    {
        // RFC 9112 section 3.2.2: the target names the host, and HTTP/1.0 needs no other word for it.
        let host = canonical_host(authority).map_err(|error| Rejection::Host.because(error.as_str()))?;
        exchange.host = host.into_owned();
        target_host = Some(authority.to_owned());
    }
    let path = canonical_path(target.path, rules)?;
    exchange.slash_decoded = rules.decode_slashes && has_encoded_slash(target.path);
    let target = join(path.into_owned(), target.query);
    if target != raw {
        rewrite_target(head, &target)?;
    }
    match target_host {
        Some(host) => {
            head.insert_header(header::HOST, host).map_err(|_| Rejection::Host.because("character"))
        }
        None => Ok(()),
    }
}

fn join(mut path: String, query: Option<&str>) -> String {
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path
}

/// Gives the request another path; its query stays.
///
/// # Errors
/// The path cannot be one: what is canonical never is refused.
pub fn rewrite_path(head: &mut RequestHeader, path: String) -> Result<(), Cause> {
    let target = join(path, head.uri.query());
    rewrite_target(head, &target)
}

fn rewrite_target(head: &mut RequestHeader, target: &str) -> Result<(), Cause> {
    let wrong = Rejection::Target.because("form");
    if head.version != Version::HTTP_2 {
        return head.set_raw_path(target.as_bytes()).map_err(|_| wrong);
    }
    let mut parts = head.uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().map_err(|_| wrong)?);
    head.set_uri(Uri::from_parts(parts).map_err(|_| wrong)?);
    Ok(())
}

impl From<TargetError> for Cause {
    fn from(error: TargetError) -> Self {
        Rejection::Target.because(error.as_str())
    }
}

/// Host or :authority without port, canonical. The engine has checked that they agree and that
/// there is one Host at most.
fn host_of(head: &RequestHeader) -> Result<String, Cause> {
    let written = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => match head.headers.get(header::HOST) {
            Some(host) => host.to_str().map_err(|_| Rejection::Host.because("character"))?,
            // RFC 9112 section 3.2: HTTP/1.1 without Host must be refused.
            None if head.version == Version::HTTP_10 => return Ok(String::new()),
            None => return Err(Rejection::Host.because("missing")),
        },
    };
    let host = canonical_host(written).map_err(|error| Rejection::Host.because(error.as_str()))?;
    Ok(host.into_owned())
}

/// A Connection header that is no text.
const CONNECTION: Cause = Cause { rejection: Rejection::Malformed, detail: Some("connection") };

/// The words in Connection this gateway acts on.
const KNOWN: [&str; 3] = ["close", "keep-alive", "upgrade"];

/// RFC 9110 section 7.6.1: end-to-end fields must not be nominated. Those that frame the message or
/// say who asks for what decide about it, so whoever nominates them is not obeyed.
const NEVER_NOMINATED: [HeaderName; 10] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-request-id"),
];

/// A client must not be able to have the headers stripped that the upstream relies on: what it
/// nominates in Connection is dropped here, before our own are set, and only the words this gateway
/// acts on are left. An Upgrade that Connection does not speak of is meant for nobody (section 7.8).
fn simplify_connection(head: &mut RequestHeader) -> Result<(), Cause> {
    let mut values = head.headers.get_all(header::CONNECTION).iter();
    let (first, second) = (values.next(), values.next());
    let Some(first) = first else {
        head.remove_header(&header::UPGRADE);
        return Ok(());
    };
    let known = |token: &&str| KNOWN.iter().any(|known| token.eq_ignore_ascii_case(known));
    if second.is_none()
        && let Some(word) = first.to_str().ok().filter(known)
    {
        if !word.eq_ignore_ascii_case("upgrade") {
            head.remove_header(&header::UPGRADE);
        }
        return Ok(());
    }
    rewrite_connection(head)
}

/// Only websockets are upgraded to: of any other protocol the routes and rules behind would know
/// nothing. What follows the request may be meant for that protocol, so nothing follows it; but whoever
/// offers HTTP/2 (as some clients do with every request) waits for its answer.
fn drop_upgrade(session: &mut ServerSession) {
    let headers = &session.req_header().headers;
    let mut upgrades = headers.get_all(header::UPGRADE).iter();
    let (Some(upgrade), second) = (upgrades.next(), upgrades.next()) else { return };
    if second.is_none() && upgrade.as_bytes().eq_ignore_ascii_case(b"websocket") {
        return;
    }
    let http2 = second.is_none() && upgrade.as_bytes().eq_ignore_ascii_case(b"h2c");
    session.req_header_mut().remove_header(&header::UPGRADE);
    if !http2 {
        session.set_keepalive(None);
    }
}

fn rewrite_connection(head: &mut RequestHeader) -> Result<(), Cause> {
    let mut kept: Vec<&str> = Vec::new();
    let mut nominated = Vec::new();
    for value in head.headers.get_all(header::CONNECTION) {
        let text = value.to_str().map_err(|_| CONNECTION)?;
        for token in text.split(',').map(str::trim).filter(|token| !token.is_empty()) {
            match KNOWN.iter().find(|word| token.eq_ignore_ascii_case(word)) {
                Some(word) if kept.contains(word) => {}
                Some(word) => kept.push(word),
                None => nominated.push(token.to_ascii_lowercase()),
            }
        }
    }
    for name in nominated {
        if !NEVER_NOMINATED.iter().any(|never| *never == name.as_str()) {
            head.remove_header(name.as_str());
        }
    }
    head.remove_header(&header::CONNECTION);
    if !kept.contains(&"upgrade") {
        head.remove_header(&header::UPGRADE);
    }
    if !kept.is_empty() {
        head.insert_header(header::CONNECTION, kept.join(", ")).map_err(|_| CONNECTION)?;
    }
    Ok(())
}
