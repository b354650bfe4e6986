//! A check by gRPC's own protocol for it: `grpc.health.v1.Health/Check` (grpc/doc/health-checking.md),
//! over HTTP/2, without TLS by prior knowledge.
//!
//! Both messages have one field, so they are written and read here.

use super::http2::{self, Answer};
use super::{Failure, FailureKind, http};
use ::http::{HeaderMap, Method, Request};
use bytes::{BufMut, Bytes, BytesMut};
use pingora_core::protocols::Stream;
use pingora_core::upstreams::peer::HttpPeer;

/// `ServingStatus.SERVING`.
const SERVING: u64 = 1;
/// Names of `ServingStatus`.
const NAMES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// What is asked.
#[derive(Debug)]
pub(super) struct GrpcProbe {
    /// The message with its prefix, rendered once.
    message: Bytes,
    /// `None` = the address of the endpoint.
    host: Option<String>,
}

impl GrpcProbe {
    /// Asks about `service`, or the server as a whole.
    pub(super) fn new(service: Option<String>, host: Option<String>) -> GrpcProbe {
        GrpcProbe { message: message(service.as_deref().unwrap_or("")), host }
    }

    pub(super) async fn ask(&self, stream: Stream, peer: &HttpPeer) -> Result<(), Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(super::uri(self.host.as_deref(), peer, "/grpc.health.v1.Health/Check"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", http::USER_AGENT)
            .body(())
            .map_err(Failure::protocol)?;
        verdict(&http2::exchange(stream, request, self.message.clone(), |_, _| false).await?)
    }
}

fn verdict(answer: &Answer) -> Result<(), Failure> {
    let status = answer.head.status.as_u16();
    if status != 200 {
        return Err(Failure::new(FailureKind::Status, format_args!("status {status}")));
    }
    // An answer without a message carries its trailers in the head.
    let trailer = |headers: &HeaderMap| headers.get("grpc-status").cloned();
    match trailer(&answer.trailers).or_else(|| trailer(&answer.head.headers)) {
        Some(code) if code == "0" => {}
        Some(code) => {
            let code = String::from_utf8_lossy(code.as_bytes()).into_owned();
            let known = if code == "5" { " (the service is not known there)" } else { "" };
            return Err(Failure::new(FailureKind::Status, format_args!("grpc-status {code}{known}")));
        }
        None => return Err(Failure::protocol("an answer without grpc-status")),
    }
    match serving_status(&answer.body) {
        Some(SERVING) => Ok(()),
        Some(other) => {
            let name = usize::try_from(other).ok().and_then(|other| NAMES.get(other));
            let name = name.copied().unwrap_or("another status");
            Err(Failure::new(FailureKind::Status, format_args!("the service is {name}")))
        }
        None => Err(Failure::protocol("an answer that is no HealthCheckResponse")),
    }
}

/// `HealthCheckRequest { service: string = 1 }` behind gRPC's prefix: not compressed, length.
fn message(service: &str) -> Bytes {
    let mut field = BytesMut::new();
    if !service.is_empty() {
        field.put_u8(0x0a);
        put_varint(&mut field, service.len() as u64);
        field.put_slice(service.as_bytes());
    }
    let mut message = BytesMut::with_capacity(5 + field.len());
    message.put_u8(0);
    message.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
    message.unsplit(field);
    message.freeze()
}

/// The field `status`, 1, of a `HealthCheckResponse` behind its prefix; a message without it says 0.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (prefix, message) = body.split_at_checked(5)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    if message.len() != usize::try_from(length).ok()? {
        return None;
    }
    let (mut rest, mut status) = (message, 0);
    while !rest.is_empty() {
        let tag = take_varint(&mut rest)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = take_varint(&mut rest)?,
            (_, 0) => drop(take_varint(&mut rest)?),
            (_, 1) => rest = rest.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            (_, 5) => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_names_its_service() {
        assert_eq!(&*message(""), [0, 0, 0, 0, 0]);
        assert_eq!(&*message("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(message(&"x".repeat(200))[5..8], [0x0a, 0xc8, 1]);
    }

    #[test]
    fn the_status_of_an_answer_is_read() {
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(serving_status(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(serving_status(&[0, 0, 0, 0, 6, 0x12, 2, 9, 9, 8, 2]), Some(2), "behind another field");
        for body in [&[] as &[u8], &[1, 0, 0, 0, 2, 8, 1], &[0, 0, 0, 0, 3, 8, 1], &[0, 0, 0, 0, 1, 8]] {
            assert_eq!(serving_status(body), None, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_an_end(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = serving_status(&body);
        }
    }
}
