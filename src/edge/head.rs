//! A head that is still being read: how large it is, where it ends, and whether its first line may go to
//! the engine at all.
//!
//! The engine takes up to a MiB before it gives up, parses what is there again at every read, and says
//! the same whether a head is too large or makes no sense. The stream counts along, so that a head
//! without an end is refused as soon as it is over the limits, and for what it is; and it stops at the
//! end, so that the engine holds nothing of the body or the next request.

use super::request_line::RequestLine;
use crate::snapshot::{Cause, Limits, Rejection};

/// Below this nothing is compared: what is complete is measured by the request path.
const HARMLESS: usize = 4 * 1024;
/// The engine reads this many fields.
const FIELDS: usize = 256;
/// A line of a field has three bytes at least, so fewer bytes have no more fields than that.
const FEW: usize = 3 * FIELDS;

/// How much of a first line is kept, for the record of a refusal.
const KEPT: usize = 1024;

/// What a head asks for, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The first word of its first line.
    pub method: &'a str,
    /// The second one, which may be cut off.
    pub target: &'a str,
}

/// Follows one connection's heads, one after the other.
#[derive(Debug, Default)]
pub struct Head {
    heads: u32,
    bytes: usize,
    lines: usize,
    line: RequestLine,
    line_ended: bool,
    /// The beginning of the first line.
    first: Vec<u8>,
    /// The last two bytes, in which its end may have begun.
    tail: [u8; 2],
}

/// How much of a read is for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The head's bytes.
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
            let mut first = std::mem::take(&mut self.first);
            first.clear();
            *self = Head { heads, first, ..Head::default() };
        }
        let end = self.end(read);
        let head = end.and_then(|end| read.get(..end)).unwrap_or(read);
        if !self.line_ended {
            self.keep(head);
            self.line_ended = self.line.follow(head)?;
        }
        if let Some([second, last]) = head.last_chunk() {
            self.tail = [*second, *last];
        } else if let [last] = head {
            self.tail = [self.tail[1], *last];
        }
        self.bytes += head.len();
        if self.bytes > FEW {
            self.lines += memchr::memchr_iter(b'\n', head).count();
        }
        Ok(Taken { bytes: head.len(), ended: end.is_some() })
    }

    /// See [`RequestLine::encoded`], of the head after so many.
    pub fn encoded(&self, heads: u32, read: &[u8]) -> Option<Vec<u8>> {
        match self.heads == heads {
            true if self.line_ended => None,
            true => self.line.encoded(read),
            false => RequestLine::default().encoded(read),
        }
    }

    /// How much of it went to the engine.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// What the head behind so many others asks for.
    pub fn asked(&self, heads: u32) -> Option<Asked<'_>> {
        if self.heads != heads {
            return None;
        }
        let mut words = self.first.trim_ascii_end().split(|byte| *byte == b' ');
        let method = words.next().filter(|method| method.iter().all(u8::is_ascii_graphic))?;
        let target = words.find(|word| !word.is_empty())?;
        Some(Asked { method: std::str::from_utf8(method).ok()?, target: std::str::from_utf8(target).ok()? })
    }

    fn keep(&mut self, read: &[u8]) {
        let line = read.get(self.line.before(read)..).unwrap_or_default();
        let end = memchr::memchr(b'\n', line).unwrap_or(line.len());
        let room = KEPT.saturating_sub(self.first.len());
        self.first.extend_from_slice(line.get(..end.min(room)).unwrap_or_default());
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
        let begun = match self.tail {
            // Empty lines before it do not end it.
            _ if !self.line.has_begun() => None,
            [b'\n', b'\r'] if read.first() == Some(&b'\n') => Some(1),
            [_, b'\n'] => empty_line(read),
            _ => None,
        };
        let before = self.line.before(read);
        let lines = memchr::memchr_iter(b'\n', read.get(before..).unwrap_or_default());
        let mut lines = lines.map(|at| before + at + 1);
        begun.or_else(|| lines.find_map(|line| Some(line + empty_line(read.get(line..)?)?)))
    }
}

/// How long the empty line is that `read` begins with, if it does. RFC 9112 section 2.2 lets a line end
/// without a return, and the engine reads it so.
fn empty_line(read: &[u8]) -> Option<usize> {
    match read {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        _ => None,
    }
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
        for head in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "\n\r\n\nGET / HTTP/1.1\r\n\r\n",
        ] {
            let bytes = format!("{head}GET /2 HTTP/1.1\r\n\r\n");
            for cut in 0..bytes.len() {
                assert_eq!(taken(bytes.as_bytes(), cut), (head.len(), true), "{head:?} cut at {cut}");
                let part = &bytes.as_bytes()[..cut.min(head.len() - 1)];
                assert_eq!(taken(part, cut / 2), (part.len(), false), "{part:?}");
            }
        }
    }

    #[test]
    fn what_a_head_asks_for_is_known_however_it_is_cut() {
        let asked = |bytes: &[u8], cut: usize| {
            let mut head = Head::default();
            let _ = head.take(0, &bytes[..cut]).and_then(|_| head.take(0, &bytes[cut..]));
            head.asked(0).map(|asked| (asked.method.to_owned(), asked.target.to_owned()))
        };
        for line in ["GET /a?b HTTP/1.1\r\nHo st", "\r\nGET /a?b\n", "GET /a?b c d\r\n"] {
            for cut in 0..line.len() {
                assert_eq!(
                    asked(line.as_bytes(), cut),
                    Some(("GET".into(), "/a?b".into())),
                    "{line:?} at {cut}"
                );
            }
        }
        for nothing in [&b"\x16\x03\x01 /\n"[..], b"GET\r\n", b"", b"GET /\xff HTTP/1.1\r\n"] {
            assert_eq!(asked(nothing, 0), None);
        }
        let long = format!("GET /{}", "x".repeat(5000));
        assert_eq!(asked(long.as_bytes(), 7).expect("a line").1.len(), KEPT - "GET ".len());
    }

    #[test]
    fn empty_lines_before_a_head_are_taken_all_at_once() {
        for line in ["\n", "\r\n"] {
            let lines = line.repeat(500);
            assert_eq!(
                taken(lines.as_bytes(), 3),
                (lines.len(), false),
                "one at a time each would be a read"
            );
        }
    }
}
