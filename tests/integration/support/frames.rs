//! HTTP/2 by hand: a client that sends exactly the frames it is told to, right or wrong.
//!
//! Heads are sent as literals (RFC 7541 section 6.2.2). Of what comes back only the status of the
//! first response on a connection can be read, because no table is kept.

use super::client::{self, Stream};
use super::eventually::DEADLINE;
use super::tls::{TlsClient, TlsOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// RFC 9113 section 3.4.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 section 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of HEADERS, DATA and CONTINUATION.
pub const END_STREAM: u8 = 1;
/// See [`END_STREAM`].
pub const END_HEADERS: u8 = 4;
/// See [`END_STREAM`].
pub const PADDED: u8 = 8;
/// See [`END_STREAM`].
pub const PRIORITY: u8 = 0x20;
/// Flag of SETTINGS and PING.
pub const ACK: u8 = 1;

/// A connection.
pub struct Frames {
    stream: Stream,
    buffer: Vec<u8>,
}

/// One frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// One of [`kind`].
    pub kind: u8,
    /// [`END_STREAM`] and the like.
    pub flags: u8,
    /// 0 for the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frames {
    /// Over TLS with ALPN; sends the preface and empty settings.
    pub fn open_tls(address: SocketAddr, name: &'static str) -> Self {
        let mut frames = Frames::silent_tls(address, name);
        frames.begin();
        frames
    }

    /// Over TLS with ALPN, and not a byte yet.
    pub fn silent_tls(address: SocketAddr, name: &'static str) -> Self {
        let client = TlsClient::new(TlsOptions { name: Some(name), alpn: &["h2"], ..TlsOptions::default() });
        let stream = client.connect(client::tcp(address)).expect("a handshake");
        Frames { stream: Stream::Tls(Box::new(stream)), buffer: Vec::new() }
    }

    /// Without TLS, and not a byte yet.
    pub fn silent(address: SocketAddr) -> Self {
        Frames { stream: Stream::Plain(client::tcp(address)), buffer: Vec::new() }
    }

    /// Without TLS; sends the preface and empty settings.
    pub fn open(address: SocketAddr) -> Self {
        let mut frames = Frames::silent(address);
        frames.begin();
        frames
    }

    /// Sends the preface and empty settings.
    pub fn begin(&mut self) {
        self.send([PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat());
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("bytes sent");
    }

    /// Sends these bytes; an error when the other side is gone.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// The next frame.
    pub fn next(&mut self) -> io::Result<Frame> {
        while self.buffer.len() < 9 {
            super::response::fill(&mut self.stream, &mut self.buffer)?;
        }
        let length = u32::from_be_bytes([0, self.buffer[0], self.buffer[1], self.buffer[2]]) as usize;
        while self.buffer.len() < 9 + length {
            super::response::fill(&mut self.stream, &mut self.buffer)?;
        }
        let bytes: Vec<u8> = self.buffer.drain(..9 + length).collect();
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        Ok(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() })
    }

    /// Skips frames until one of this type comes; panics when the connection ends before.
    pub fn wait(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().unwrap_or_else(|error| panic!("no frame of type {kind}: {error}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Waits for the end of the connection; gives the error code of the last GOAWAY, if one came.
    pub fn end(&mut self) -> Option<u32> {
        let mut code = None;
        loop {
            match self.next() {
                Ok(frame) if frame.kind == kind::GOAWAY => code = Some(frame.code(4)),
                Ok(_) => {}
                Err(error) => {
                    assert!(!timed_out(&error), "still open after {DEADLINE:?}");
                    return code;
                }
            }
        }
    }

    /// Sends a request on a stream and gives the status of the connection's first response.
    pub fn first_status(&mut self, fields: &[(&str, &str)]) -> u16 {
        self.send(headers(1, END_STREAM, fields));
        self.wait(kind::HEADERS).status()
    }

    /// Whether nothing is to be had for `span`, not even an end.
    pub fn is_quiet_for(&mut self, span: Duration) -> bool {
        self.tcp().set_read_timeout(Some(span)).expect("a read timeout");
        let outcome = self.next();
        self.tcp().set_read_timeout(Some(DEADLINE)).expect("a read timeout");
        outcome.is_err_and(|error| timed_out(&error))
    }

    /// Gives every read this long instead.
    pub fn set_read_timeout(&mut self, span: Duration) {
        self.tcp().set_read_timeout(Some(span)).expect("a read timeout");
    }

    /// Gives writes this long.
    pub fn set_write_timeout(&mut self, span: Duration) {
        self.tcp().set_write_timeout(Some(span)).expect("a write timeout");
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Frame {
    /// The 32 bits at `offset`: an error code.
    pub fn code(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.payload[offset..offset + 4].try_into().expect("four bytes"))
    }

    /// The status of a first response (RFC 7541: static table and three Huffman-coded digits).
    pub fn status(&self) -> u16 {
        const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match self.payload[0] {
            indexed @ 0x88..=0x8e => STATIC[usize::from(indexed - 0x88)],
            0x48 | 0x08 | 0x18 => digits(self.payload[1], &self.payload[2..]),
            other => panic!("a head that begins with {other:#x}"),
        }
    }
}

fn digits(length: u8, bytes: &[u8]) -> u16 {
    let length_in_bytes = usize::from(length & 0x7f);
    if length & 0x80 == 0 {
        return std::str::from_utf8(&bytes[..length_in_bytes]).unwrap().parse().unwrap();
    }
    let mut bits =
        bytes[..length_in_bytes].iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut take = |count| (0..count).fold(0u16, |value, _| value << 1 | u16::from(bits.next().unwrap()));
    (0..3).fold(0, |status, _| {
        // Appendix B: 0, 1, 2 have five bits, 3 to 9 six.
        let five = take(5);
        let digit = if five < 3 { five } else { (five << 1 | take(1)) - 0x19 + 3 };
        status * 10 + digit
    })
}

/// Whether nothing came in time.
pub fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A frame as it goes over the wire.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A whole head in one frame; `flags` may be [`END_STREAM`].
pub fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, flags | END_HEADERS, stream, &block(fields))
}

/// A head's fields, encoded.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            length(text.len(), &mut bytes);
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// RFC 7541 section 5.1, with a prefix of seven bits.
fn length(mut value: usize, bytes: &mut Vec<u8>) {
    if value < 0x7f {
        return bytes.push(value as u8);
    }
    bytes.push(0x7f);
    value -= 0x7f;
    while value >= 0x80 {
        bytes.push((value % 0x80) as u8 | 0x80);
        value /= 0x80;
    }
    bytes.push(value as u8);
}

/// A piece of a body; `flags` may be [`END_STREAM`].
pub fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

/// RFC 9113 section 6.3, as a frame of its own or the first bytes of HEADERS.
pub fn priority(depends_on: u32, weight: u8) -> [u8; 5] {
    let [a, b, c, d] = depends_on.to_be_bytes();
    [a, b, c, d, weight]
}

/// Resets a stream.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Opens a window; stream 0 is the connection's.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// Says goodbye, having seen no stream.
pub fn goaway(code: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[&[0; 4][..], &code.to_be_bytes()].concat())
}

/// Settings with one value.
pub fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// `GET` of a path of a host.
pub fn get<'a>(host: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path)]
}

/// `POST` to a path of a host.
pub fn post<'a>(host: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", "POST"), (":scheme", "https"), (":authority", host), (":path", path)]
}

#[test]
fn three_coded_digits_are_read() {
    let status = |payload: &[u8]| Frame { kind: 1, flags: 0, stream: 1, payload: payload.to_vec() }.status();
    // RFC 7541 appendix C.6.1: 302 as 0x6402.
    assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), 302);
    assert_eq!(status(&[0x08, 3, b'4', b'0', b'3']), 403);
    assert_eq!(status(&[0x8d]), 404);
}
