//! Field lines as HTTP/2 brings them: what HTTP/1 could not say is refused, what it says in one line is joined.
//!
//! The library takes names and values that are none in HTTP/1. An upstream of HTTP/1 would read another field than the one
//! that was decided on, or a line of its own making.

use crate::snapshot::{Cause, Rejection};
use http::{HeaderValue, Version, header};
use pingora::http::RequestHeader;

/// Joins Cookie, and refuses names that are no token and values with blanks around them. Does nothing to HTTP/1.
///
/// # Errors
/// What the head is refused for.
pub fn settle(head: &mut RequestHeader) -> Result<(), Cause> {
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    for (name, value) in &head.headers {
        if !name.as_str().bytes().all(is_token_byte) {
            return Err(Rejection::Malformed.because("field_name"));
        }
        let ends = [value.as_bytes().first(), value.as_bytes().last()];
        if ends.into_iter().flatten().any(|byte| matches!(byte, b' ' | b'\t')) {
            // RFC 9113 section 8.2.1.
            return Err(Rejection::Malformed.because("field_blanks"));
        }
    }
    join_cookies(head)
}

/// RFC 9110 section 5.6.2, as far as the library leaves it open: names come in small letters, without control bytes.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A client of HTTP/2 may send Cookie in pieces, and HTTP/1 knows one line of it (RFC 9113 section 8.2.3).
fn join_cookies(head: &mut RequestHeader) -> Result<(), Cause> {
    if head.headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return Ok(());
    }
    let pieces: Vec<&[u8]> = head.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let cookie = pieces.join(&b"; "[..]);
    head.insert_header(header::COOKIE, cookie).map_err(|_| Rejection::Malformed.into())
}
