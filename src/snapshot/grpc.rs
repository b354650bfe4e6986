//! What a gRPC client is told in place of a page: the protocol has statuses of its own, and takes an
//! HTTP status for a broken server.
//!
//! Knows nothing of calls that reach an upstream.

use super::rejection::Rejection;
use super::target::{FixedResponse, bare_head, put};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Says how a call ended.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: &[u8] = b"application/grpc";

/// Whether the request is a call: its type is `application/grpc`, by itself or with what its messages
/// are written in. gRPC-Web, whose clients read HTTP statuses, is none.
pub fn is_call(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.split_at_checked(GRPC.len()));
    rest.is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// The answer to a call that is refused: a head that ends the stream at once ("Trailers-Only" in the
/// protocol's words).
pub(super) fn trailers_only(rejection: Rejection, text: &'static str) -> FixedResponse {
    let mut head = bare_head(StatusCode::OK);
    put(&mut head, header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    put(&mut head, GRPC_STATUS, HeaderValue::from(status(rejection)));
    put(&mut head, GRPC_MESSAGE, HeaderValue::from_static(text));
    put(&mut head, header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    FixedResponse::of(head, Bytes::new())
}

/// What an HTTP status means to a call, by the protocol's own table (grpc.io, "HTTP to gRPC Status Code
/// Mapping"), which proxies follow; but a deadline that has passed is told as one.
fn status(rejection: Rejection) -> u16 {
    match (rejection, rejection.status()) {
        (Rejection::UpstreamTimeout | Rejection::ClientDeadline, _) => 4,
        (_, 400) => 13,
        (_, 401) => 16,
        (_, 403) => 7,
        (_, 404) => 12,
        (_, 429 | 502 | 503 | 504) => 14,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_type() {
        let is = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            is_call(&headers)
        };
        for call in ["application/grpc", "application/grpc+proto", "Application/gRPC; a=b"] {
            assert!(is(call), "{call}");
        }
        for other in ["application/grpc-web", "application/grpc-web+proto", "application/grp", "text/plain"] {
            assert!(!is(other), "{other}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }

    #[test]
    fn a_rejection_has_the_status_proxies_give() {
        for (rejection, expected) in [
            (Rejection::NoEndpoint, 14),
            (Rejection::UpstreamConnect, 14),
            (Rejection::UpstreamConnectTimeout, 14),
            (Rejection::UpstreamTimeout, 4),
            (Rejection::ClientDeadline, 4),
            (Rejection::AccessDenied, 7),
            (Rejection::NoRoute, 12),
            (Rejection::Malformed, 13),
            (Rejection::BodyTooLarge, 2),
        ] {
            assert_eq!(status(rejection), expected, "{}", rejection.reason());
        }
    }
}
