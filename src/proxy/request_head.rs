//! The head of a request as it goes to an upstream of HTTP/1, written straight from what the client sent.
//!
//! A head of the engine's is made to be changed: to copy one, to set six fields and to write it costs more than
//! all else that is done for a small request. What is passed on and what is told is decided elsewhere
//! (`forwarding`).

use super::context::Exchange;
use super::forwarding::{self, HopByHop, Told};
use super::mirror;
use http::{HeaderName, HeaderValue, Version, header};
use pingora::http::{HeaderNameVariant, RequestHeader};
use pingora::{Error, ErrorType, Result};
use pingora_core::protocols::http::ServerSession;

/// Enough for nearly all.
const ROOM: usize = 1024;

/// The head of a request. `chunked`: its body goes up in chunks, whatever the client has sent it in.
///
/// # Errors
/// When its target has bytes that must not stand in one. The rest cannot fail: every value is one we made or already was
/// a header value.
pub fn bytes(session: &mut ServerSession, chunked: bool, exchange: &mut Exchange) -> Result<Vec<u8>> {
    if exchange.route.as_ref().is_some_and(|route| route.mirror.is_some()) {
        let head = copy(session.req_header(), exchange)?;
        mirror::head_sent(session, &head, exchange);
    }
    write(session.req_header(), chunked, exchange)
}

fn write(head: &RequestHeader, chunked: bool, exchange: &mut Exchange) -> Result<Vec<u8>> {
    let target = head.raw_path();
    if target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Error::e_explain(ErrorType::InvalidHTTPHeader, "a target that cannot be sent");
    }
    let authority = forwarding::authority(head)?;
    let host = authority.as_ref().or_else(|| head.headers.get(header::HOST));
    let told = Told::new(head, host, exchange)?;
    let host_missing = host.is_none();
    let mut out = Vec::with_capacity(ROOM);
    for part in [head.method.as_str().as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    if let Some(authority) = &authority {
        field(&mut out, b"Host", authority);
    }
    if host_missing {
        field(&mut out, b"Host", &forwarding::endpoint_host(exchange));
    }
    let hop_by_hop = HopByHop::of(head);
    let passes = |name: &HeaderName| {
        !(hop_by_hop.has(name)
            || told.sets(name.as_str())
            || told.drops(name.as_str())
            || (authority.is_some() && *name == header::HOST))
    };
    // Both go through the same fields in the same order; only this one knows how the client wrote their names.
    let mut names = head.headers.iter();
    head.map(|written, value| {
        if names.next().is_some_and(|(name, _)| passes(name)) {
            match written {
                HeaderNameVariant::Case(name) => field(&mut out, name.as_slice(), value),
                HeaderNameVariant::Titled(name) => field(&mut out, name.as_bytes(), value),
            }
        }
        Ok(())
    })?;
    for (name, value) in &told.fields {
        field(&mut out, name.as_bytes(), value);
    }
    if exchange.attempt.upgrade
        && let Some(protocol) = head.headers.get(header::UPGRADE)
    {
        // Asked for anew: both fields are about one connection (RFC 9110 section 7.8).
        field(&mut out, b"Connection", &HeaderValue::from_static("Upgrade"));
        field(&mut out, b"Upgrade", protocol);
    }
    if chunked {
        // The transfer coding has ended with the client's connection: a body without a length gets one anew.
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

/// The same as a head of its own, for the mirror.
fn copy(head: &RequestHeader, exchange: &mut Exchange) -> Result<RequestHeader> {
    let mut head = head.clone();
    forwarding::strip_hop_by_hop(&mut head);
    forwarding::name_host(&mut head)?;
    head.set_version(Version::HTTP_11);
    forwarding::set(&mut head, exchange)?;
    Ok(head)
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &HeaderValue) {
    for part in [name, b": ", value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}
