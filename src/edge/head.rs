//! A head that is still being read: how large it is, where it ends, and whether its first line may go to
//! the engine at all.
//!
//! The engine takes up to a MiB before it gives up, parses what is there again at every read, and says
//! the same whether a head is too large or makes no sense. The stream counts along, so that a head
//! without an end is refused as soon as it is over the limits, and for what it is; and it stops at the
//! end, so that the engine holds nothing of the next request.

use super::request_line::RequestLine;
use crate::snapshot::{Cause, Limits, Rejection};
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Below this nothing is compared: what is complete is measured by the request path.
const HARMLESS: usize = 4 * 1024;
/// The engine reads this many fields.
const FIELDS: usize = 256;
/// A line of a field has three bytes at least, so fewer bytes have no more fields than that.
const FEW: usize = 3 * FIELDS;

/// Behind the last field. Without the return before it, which would match at the end of every line.
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\n\r\n"));

/// Follows one connection's heads, one after the other.
#[derive(Debug, Default)]
pub struct Head {
    heads: u32,
    bytes: usize,
    lines: usize,
    line: RequestLine,
    line_ended: bool,
    /// The last two bytes, in which its end may have begun.
    tail: [u8; 2],
}

/// How much of a read is for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The head's bytes, and those of a body whose length it gives.
    pub bytes: usize,
    /// The head ended among them.
    pub ended: bool,
}

impl Head {
    /// Follows it through what was read while the connection waits for its end, after so many `heads`.
    ///
    /// # Errors
    /// The head must not go to the engine.
    pub fn take(&mut self, heads: u32, read: &[u8]) -> Result<Taken, Cause> {
        if self.heads != heads {
            *self = Head { heads, ..Head::default() };
        }
        let end = self.end(read);
        let head = end.and_then(|end| read.get(..end)).unwrap_or(read);
        if !self.line_ended {
            self.line_ended = self.line.follow(head)?;
        }
        if let Some([second, last]) = head.last_chunk() {
            self.tail = [*second, *last];
        } else if let [last] = head {
            self.tail = [self.tail[1], *last];
        }
        // What was in an earlier read is not searched again: the body waits until the engine has said
        // how long it is.
        let body = if self.bytes == 0 && head.len() < read.len() { declared_length(head) } else { 0 };
        let bytes = read.len().min(head.len().saturating_add(body));
        self.bytes += bytes;
        if self.bytes > FEW {
            self.lines += memchr::memchr_iter(b'\n', head).count();
        }
        Ok(Taken { bytes, ended: end.is_some() })
    }

    /// How much of it, and of what came along, went to the engine.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Why a head that is still not complete is refused; asked before more of it is read.
    pub fn exceeds(&self, heads: u32, limits: impl FnOnce() -> Limits) -> Option<Rejection> {
        if self.bytes < HARMLESS || self.heads != heads {
            return None;
        }
        let limits = limits();
        if !self.line_ended && self.bytes > limits.request_line {
            return Some(Rejection::RequestLine);
        }
        (self.bytes > limits.request_line.saturating_add(limits.headers))
            .then_some(Rejection::HeadersTooLarge)
    }

    /// Whether it has more fields than the engine reads.
    pub fn has_too_many_fields(&self) -> bool {
        self.lines > FIELDS
    }

    /// Where the head ends in `read`, which follows what was read before.
    fn end(&self, read: &[u8]) -> Option<usize> {
        match (self.tail, read) {
            ([b'\n', b'\r'], [b'\n', ..]) => Some(1),
            ([_, b'\n'], [b'\r', b'\n', ..]) => Some(2),
            _ => END.find(read).map(|at| at + END.needle().len()),
        }
    }
}

/// What a head says of the length of its body; 0 when it is chunked or says nothing that is sure. Only
/// how much goes to the engine along with the head depends on it, not where the body ends.
fn declared_length(head: &[u8]) -> usize {
    let mut length = 0;
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = value.get(1..).and_then(|value| std::str::from_utf8(value).ok());
            length = value.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return 0;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a head takes of `bytes`, given as two reads; what it leaves is not given again.
    fn taken(bytes: &[u8], cut: usize) -> (usize, bool) {
        let mut head = Head::default();
        let first = head.take(0, &bytes[..cut]).expect("a head");
        if first.ended {
            return (first.bytes, true);
        }
        let second = head.take(0, &bytes[cut..]).expect("a head");
        (first.bytes + second.bytes, second.ended)
    }

    #[test]
    fn a_head_ends_at_the_empty_line_wherever_it_is_cut() {
        for head in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\r\n"] {
            let bytes = format!("{head}GET /2 HTTP/1.1\r\n\r\n");
            for cut in 0..bytes.len() {
                assert_eq!(taken(bytes.as_bytes(), cut), (head.len(), true), "{head:?} cut at {cut}");
                let part = &bytes.as_bytes()[..cut.min(head.len() - 1)];
                assert_eq!(taken(part, cut / 2), (part.len(), false), "{part:?}");
            }
        }
    }

    #[test]
    fn a_body_of_known_length_comes_along_and_no_other() {
        for (field, along) in [
            ("Content-Length: 5", 5),
            ("content-length:5", 5),
            ("Content-Length: 100", 9),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", 0),
            ("transfer-encoding: chunked\r\nContent-Length: 5", 0),
            ("Content-Length: 5, 5", 0),
            ("X-Content-Length: 5", 0),
            ("Content-Length: 18446744073709551621", 0),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{field}\r\nHost: a\r\n\r\n");
            let bytes = format!("{head}hello\r\n\r\n");
            assert_eq!(taken(bytes.as_bytes(), bytes.len()), (head.len() + along, true), "{field}");
            let cut = taken(bytes.as_bytes(), 20);
            assert_eq!(cut, (head.len(), true), "what came before is not searched again: {field}");
        }
    }
}
