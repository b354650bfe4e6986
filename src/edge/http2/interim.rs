//! Interim answers to clients of HTTP/2 (RFC 9110 section 15.2), which the engine's session cannot write.
//!
//! They are frames of our own between those of the library. A field block that adds nothing to the dynamic table means
//! the same wherever it stands, so only two things matter: that no frame is torn apart, and which stream it is. The
//! streams are served in the order in which they were opened, those left out that the library has refused; its word on
//! those has left when it flushes, and so a frame is put in then.

use super::frames::{END_HEADERS, HEADERS};
use super::inspection::Shared;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use pingora::http::RequestHeader;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Largest payload of a frame that every client takes (RFC 9113 section 4.2).
const FRAME: usize = 16 * 1024;

/// Stands in the head of a request, for whoever answers it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    /// How many streams of the connection were served before.
    pub(super) order: u64,
}

/// An interim answer on its way.
pub(super) struct Interim {
    pub(super) order: u64,
    block: Bytes,
    /// Dropped when it has left, or never will.
    _done: oneshot::Sender<()>,
}

impl Interim {
    /// The frame that carries it, on this stream.
    pub(super) fn frame(&self, stream: u32) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(self.block.len()).unwrap_or_default().to_be_bytes();
        [&[a, b, c, HEADERS, END_HEADERS][..], &stream.to_be_bytes(), &self.block].concat()
    }
}

/// Sends an interim answer to the request with this head, if it came over HTTP/2 and nothing final was sent; ends when it
/// has left. One that is too large for a frame is left out.
pub async fn send(request: &RequestHeader, status: StatusCode, fields: &HeaderMap) {
    let Some(Place { shared, order }) = request.extensions.get::<Place>().cloned() else { return };
    let block = block(status, fields);
    if block.len() > FRAME {
        return;
    }
    let (done, left) = oneshot::channel();
    shared.interim(Interim { order, block: block.into(), _done: done });
    // Fails, and that is how it ends.
    let _ = left.await;
}

/// Literals without indexing (RFC 7541 section 6.2.2), so that the client's table stays as the library knows it.
fn block(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    /// The index of `:status` in the static table.
    const STATUS: u8 = 8;
    let mut out = vec![STATUS];
    string(&mut out, status.as_str().as_bytes());
    for (name, value) in fields {
        out.push(0);
        string(&mut out, name.as_str().as_bytes());
        string(&mut out, value.as_bytes());
    }
    out
}

/// A string as it is (RFC 7541 section 5.2), its length with a prefix of seven bits.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    const MOST: usize = 0x7f;
    if text.len() < MOST {
        out.push(text.len() as u8);
    } else {
        out.push(MOST as u8);
        let mut rest = text.len() - MOST;
        while rest >= 0x80 {
            out.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_literal() {
        let mut fields = HeaderMap::new();
        fields.insert("link", "</a>".parse().expect("a value"));
        assert_eq!(block(StatusCode::EARLY_HINTS, &fields), b"\x08\x03103\x00\x04link\x04</a>");
        for (length, coded) in
            [(126, &[126][..]), (127, &[127, 0]), (254, &[127, 127]), (255, &[127, 128, 1])]
        {
            let mut out = Vec::new();
            string(&mut out, &vec![b'x'; length]);
            assert_eq!(out[..out.len() - length], *coded, "{length}");
        }
    }
}
