//! How an origin reads the requests of a case, and what is noted of them.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

/// A connection, and what was read of it ahead.
pub struct Reading {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// The body of a request, as far as it was read.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    /// What the chunks hold, without what frames them: how a body is cut depends on timing.
    bytes: Vec<u8>,
    is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Reading {
    /// Of a connection nothing was read of.
    pub fn new(stream: TcpStream) -> Self {
        Reading { stream, buffer: Vec::new() }
    }

    /// The next head, without what ends it.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            if self.fill()? == 0 {
                return None;
            }
        }
    }

    /// Reads on until the body is whole, has `enough` bytes, or breaks off.
    pub fn body(&mut self, body: &mut Body, enough: usize) {
        while !body.is_whole && body.bytes.len() < enough {
            let moved = match body.framing {
                Framing::Length(length) => {
                    let here = self.buffer.len().min(length - body.bytes.len());
                    body.bytes.extend(self.buffer.drain(..here));
                    body.is_whole = body.bytes.len() == length;
                    here > 0
                }
                Framing::Chunked => self.chunk(body),
            };
            if !body.is_whole && !moved && self.fill().is_none_or(|count| count == 0) {
                return;
            }
        }
    }

    /// Takes a whole chunk, or the end, out of what is here.
    fn chunk(&mut self, body: &mut Body) -> bool {
        let Some(line) = find(&self.buffer, b"\r\n") else { return false };
        let size = String::from_utf8_lossy(&self.buffer[..line]).into_owned();
        let size = usize::from_str_radix(&size, 16).expect("a chunk size");
        if self.buffer.len() < line + 2 + size + 2 {
            return false;
        }
        body.bytes.extend_from_slice(&self.buffer[line + 2..line + 2 + size]);
        assert_eq!(&self.buffer[line + 2 + size..][..2], b"\r\n", "after a chunk");
        self.buffer.drain(..line + 2 + size + 2);
        body.is_whole = size == 0;
        true
    }

    /// Bytes read: 0 at the end, `None` when nothing came in time.
    pub fn fill(&mut self) -> Option<usize> {
        fill(&mut self.stream, &mut self.buffer)
    }
}

impl Body {
    /// The one a head announces.
    pub fn announced(head: &str) -> Body {
        let length = || field(head, "content-length").and_then(|length| length.parse().ok());
        let framing = match field(head, "transfer-encoding") {
            Some(_) => Framing::Chunked,
            None => Framing::Length(length().unwrap_or(0)),
        };
        Body { framing, bytes: Vec::new(), is_whole: matches!(framing, Framing::Length(0)) }
    }

    /// Whether all of it was read.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What is told of it. `races`: how much of it came is not the same twice.
    pub fn note(&self, races: bool) -> String {
        match (&self.framing, self.is_whole) {
            (Framing::Length(0), _) => String::new(),
            _ if races => "some of it".to_owned(),
            (_, true) => shown(&self.bytes),
            (_, false) => format!("broken off after {}", shown(&self.bytes)),
        }
    }
}

/// Bytes read: 0 at the end, `None` when nothing came in time.
pub fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    let mut chunk = [0; 64 << 10];
    match stream.read(&mut chunk) {
        Ok(count) => {
            buffer.extend_from_slice(&chunk[..count]);
            Some(count)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(_) => Some(0),
    }
}

/// Where `needle` is.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The value of a field.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// Short bodies as they are, long ones as length and checksum.
pub fn shown(body: &[u8]) -> String {
    match body.len() {
        0..=400 => format!("{} bytes: {}", body.len(), body.escape_ascii()),
        length => {
            let sum = body.iter().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
            format!("{length} bytes, checksum {sum:08x}")
        }
    }
}
