//! Whole answers: head and body of a fixed response in one piece, as HTTP/1 has them on the wire.
//!
//! What the gateway answers by itself differs from one request to the next only in its date. So each worker
//! keeps the pieces it wrote last and makes them anew when the second changes: such an answer costs no head of
//! its own and no copy of its body. Knows nothing of requests.

use crate::snapshot::FixedResponse;
use bytes::{BufMut, Bytes, BytesMut};
use http::header;
use pingora::http::ResponseHeader;
use pingora_core::protocols::http::date::get_cached_date;
use std::cell::RefCell;

/// With its head it fits one TLS record (RFC 8446 section 5.1); a larger body is not worth another copy.
const LARGEST_BODY: usize = 15 * 1024;
/// Pieces kept by each worker.
const KEPT: usize = 16;

thread_local! {
    static PIECES: RefCell<[Option<Piece>; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

/// One answer, and what it is the answer for.
struct Piece {
    response: u64,
    second: u64,
    keep_alive: bool,
    bytes: Bytes,
}

/// `response` in one piece, of the `second` since 1970 in which it is asked for. `None` when it is to be written
/// the ordinary way: it has no body, or a large one.
pub fn of(response: &FixedResponse, second: u64, keep_alive: bool) -> Option<Bytes> {
    if response.body.is_empty() || response.body.len() > LARGEST_BODY {
        return None;
    }
    PIECES.with_borrow_mut(|pieces| {
        let place = pieces.get_mut(response.id as usize % KEPT)?;
        let fits = |piece: &&mut Piece| {
            (piece.response, piece.second, piece.keep_alive) == (response.id, second, keep_alive)
        };
        if let Some(piece) = place.as_mut().filter(fits) {
            return Some(piece.bytes.clone());
        }
        let bytes = render(response, keep_alive)?;
        *place = Some(Piece { response: response.id, second, keep_alive, bytes: bytes.clone() });
        Some(bytes)
    })
}

/// As the engine writes it.
fn render(response: &FixedResponse, keep_alive: bool) -> Option<Bytes> {
    let mut head: ResponseHeader = response.head.clone();
    head.insert_header(header::DATE, get_cached_date()).ok()?;
    head.insert_header(header::CONNECTION, if keep_alive { "keep-alive" } else { "close" }).ok()?;
    let mut bytes = BytesMut::with_capacity(1024 + response.body.len());
    bytes.put_slice(b"HTTP/1.1 ");
    bytes.put_slice(head.status.as_str().as_bytes());
    bytes.put_u8(b' ');
    bytes.put_slice(head.get_reason_phrase().unwrap_or_default().as_bytes());
    bytes.put_slice(b"\r\n");
    head.header_to_h1_wire(&mut bytes);
    bytes.put_slice(b"\r\n");
    bytes.put_slice(&response.body);
    Some(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn page(body: &'static str) -> FixedResponse {
        FixedResponse::new(StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn a_piece_is_a_whole_response() {
        let piece = of(&page("nothing"), 0, true).expect("small enough");
        let text = std::str::from_utf8(&piece).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body, "nothing");
        assert!(head.starts_with(
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 7\r\nDate: "
        ));
        assert!(head.ends_with(" GMT\r\nConnection: keep-alive"), "{head}");
    }

    #[test]
    fn a_piece_lasts_for_its_second_and_serves_only_its_own() {
        let (one, other) = (page("one"), page("other"));
        let first = of(&one, 7, true).expect("a piece");
        assert_eq!(of(&one, 7, true).expect("a piece").as_ptr(), first.as_ptr());
        assert_ne!(of(&one, 8, true).expect("a piece").as_ptr(), first.as_ptr());
        assert!(of(&one, 8, false).expect("a piece").windows(17).any(|part| part == b"Connection: close"));
        assert!(of(&other, 8, false).expect("a piece").ends_with(b"other"));
    }

    #[test]
    fn what_has_no_body_or_a_large_one_is_written_the_ordinary_way() {
        assert!(of(&page(""), 0, true).is_none());
        let large = Bytes::from(vec![b'x'; LARGEST_BODY + 1]);
        assert!(of(&FixedResponse::new(StatusCode::OK, "text/plain", large), 0, true).is_none());
    }
}
