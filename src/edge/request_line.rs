//! What the first line of a head must not have, however it is cut into reads.
//!
//! The engine escapes spaces and control characters in a request target when the whole line is there at
//! once, and refuses them when it is not. Here they are refused always (RFC 9112 section 3.2), so that
//! what is decided on has the bytes that were sent. Everything else about the line is the engine's.

use crate::snapshot::{Cause, Rejection};

/// Follows one line.
#[derive(Debug, Default)]
pub struct RequestLine {
    begun: bool,
    /// A carriage return was the last byte: only a line feed may follow.
    returned: bool,
    spaces: usize,
}

impl RequestLine {
    /// Follows it through the next bytes of a head; whether its end is among them.
    ///
    /// # Errors
    /// The line must not go to the engine.
    pub fn follow(&mut self, read: &[u8]) -> Result<bool, Cause> {
        let Some(read) = read.get(self.before(read)..).filter(|read| !read.is_empty()) else {
            return Ok(false);
        };
        self.begun = true;
        let (part, ended) = match memchr::memchr(b'\n', read) {
            Some(end) => (read.get(..end).unwrap_or_default(), true),
            None => (read, false),
        };
        if self.returned && !part.is_empty() {
            return Err(self.control(&[]));
        }
        let line = part.strip_suffix(b"\r");
        self.returned |= line.is_some();
        let line = line.unwrap_or(part);
        // Without a branch for each byte, which the compiler makes a few wide instructions of.
        let odd = line.iter().fold(false, |odd, byte| odd | (*byte < b' ') | (*byte == 0x7F));
        if odd {
            return Err(self.control(line));
        }
        self.spaces += line.iter().filter(|byte| **byte == b' ').count();
        match self.spaces > 2 {
            true => Err(Rejection::Target.because("space")),
            false => Ok(ended),
        }
    }

    /// These bytes with what a client forgot to encode in the target (RFC 3986 section 2), encoded: quotes, angle brackets
    /// and back quotes, which browsers and scripts send as they are. `None`: there is none of them.
    pub fn encoded(&self, read: &[u8]) -> Option<Vec<u8>> {
        let (before, rest) = read.split_at_checked(self.before(read))?;
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest.get(..end)?;
        // Without a branch for each byte, as below.
        let plain = !line.iter().fold(false, |found, byte| found | code(*byte).is_some());
        if plain {
            return None;
        }
        let (mut out, mut spaces) = (before.to_vec(), self.spaces);
        for byte in line {
            spaces += usize::from(*byte == b' ');
            match code(*byte).filter(|_| spaces == 1) {
                Some(code) => out.extend_from_slice(code),
                None => out.push(*byte),
            }
        }
        out.extend_from_slice(rest.get(end..)?);
        Some(out)
    }

    /// Whether any of it was read.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// How many bytes of `read` are empty lines before it, which are ignored (RFC 9112 section 2.2).
    pub fn before(&self, read: &[u8]) -> usize {
        if self.begun {
            return 0;
        }
        read.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
    }

    /// Before the first space it is no method, and probably no HTTP.
    fn control(&self, line: &[u8]) -> Cause {
        let method =
            self.spaces == 0 && line.iter().take_while(|byte| **byte >= b' ').all(|byte| *byte != b' ');
        if method { Rejection::Malformed.into() } else { Rejection::Target.because("control") }
    }
}

fn code(byte: u8) -> Option<&'static [u8; 3]> {
    match byte {
        b'"' => Some(b"%22"),
        b'<' => Some(b"%3C"),
        b'>' => Some(b"%3E"),
        b'`' => Some(b"%60"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a line, in one piece and cut at every place.
    fn outcome(line: &[u8]) -> Result<bool, Cause> {
        let whole = RequestLine::default().follow(line);
        for cut in 0..line.len() {
            let mut cut_line = RequestLine::default();
            let first = cut_line.follow(&line[..cut]);
            let both = first.and_then(|ended| Ok(ended | cut_line.follow(&line[cut..])?));
            assert_eq!(both, whole, "{:?} cut at {cut}", line.escape_ascii().to_string());
        }
        whole
    }

    #[test]
    fn ordinary_lines_pass() {
        for line in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\r\n\r\nGET / HTTP/1.1\r\n",
            b"GET / HTTP/1.0\n",
            b"GET /caf\xc3\xa9?a=<\"b\"> HTTP/1.1\r\n",
            b"GET /\r\n",
        ] {
            assert_eq!(outcome(line), Ok(true));
        }
        assert_eq!(outcome(b"GET /a"), Ok(false));
    }

    #[test]
    fn what_a_client_forgot_to_encode_is_encoded_in_the_target_alone() {
        let encoded = |line: &[u8]| RequestLine::default().encoded(line);
        let line = b"\r\nGET /\"<>`?\"<>` HTTP/1.1\r\nX: <\"`>\r\n\r\n";
        let wanted = b"\r\nGET /%22%3C%3E%60?%22%3C%3E%60 HTTP/1.1\r\nX: <\"`>\r\n\r\n";
        assert_eq!(encoded(line).as_deref(), Some(&wanted[..]));
        assert_eq!(encoded(b"GET / HTTP/1.1\r\nX: <\"`>\r\n\r\n"), None);
        assert_eq!(encoded(b"G<T / HTTP/1.1\r\n").as_deref(), Some(&b"G<T / HTTP/1.1\r\n"[..]));
        let mut begun = RequestLine::default();
        assert_eq!(begun.follow(b"GET /a"), Ok(false));
        assert_eq!(begun.encoded(b"<b").as_deref(), Some(&b"%3Cb"[..]));
    }

    #[test]
    fn what_the_engine_would_escape_is_refused() {
        for (line, cause) in [
            (&b"GET /a b HTTP/1.1\r\n"[..], Rejection::Target.because("space")),
            (b"GET  /a HTTP/1.1\r\n", Rejection::Target.because("space")),
            (b"GET /a HTTP/1.1 HTTP/1.1\r\n", Rejection::Target.because("space")),
            (b"GET /a\tb HTTP/1.1\r\n", Rejection::Target.because("control")),
            (b"GET /a\rb HTTP/1.1\r\n", Rejection::Target.because("control")),
            (b"GET /a\x7f HTTP/1.1\r\n", Rejection::Target.because("control")),
            (b"GET /a HTTP/1.1\r\r\n", Rejection::Target.because("control")),
            (b"GE\tT / HTTP/1.1\r\n", Rejection::Malformed.into()),
            (b"\x16\x03\x01\x02\n", Rejection::Malformed.into()),
        ] {
            assert_eq!(outcome(line), Err(cause), "{:?}", line.escape_ascii().to_string());
        }
    }
}
