//! One connection of a case: sends frames, and says what came of them.

use super::Outcome;
use crate::support::frames::{self, ACK, END_STREAM, Frame, Frames, frame, kind};
use std::net::SocketAddr;

/// Error codes (RFC 9113 section 7).
pub mod code {
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
}

/// See the module documentation.
pub struct Client {
    frames: Frames,
    /// The settings the gateway sent.
    settings: Vec<u8>,
}

impl Client {
    /// Over TLS; `shaken`: preface and settings are exchanged and acknowledged.
    pub fn over_tls(address: SocketAddr, shaken: bool) -> Self {
        Client::new(Frames::silent_tls(address, "app.test"), shaken)
    }

    /// Without TLS.
    pub fn by_prior_knowledge(address: SocketAddr, shaken: bool) -> Self {
        Client::new(Frames::silent(address), shaken)
    }

    fn new(mut frames: Frames, shaken: bool) -> Self {
        let mut settings = Vec::new();
        if shaken {
            frames.begin();
            settings = frames.wait(kind::SETTINGS).payload;
            frames.send(frame(kind::SETTINGS, ACK, 0, b""));
            assert_eq!(frames.wait(kind::SETTINGS).flags, ACK);
        }
        Client { frames, settings }
    }

    /// Sends frames. That the other side has gone shows in what is read after it.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.frames.try_send(bytes);
        self
    }

    /// Sends a request and takes its whole answer.
    pub fn exchange(&mut self, stream: u32, bytes: impl AsRef<[u8]>) -> Result<&mut Self, String> {
        self.send(bytes).answered(stream)?;
        Ok(self)
    }

    /// A value the gateway has set (RFC 9113 section 6.5.2).
    pub fn setting(&self, id: u16) -> Option<u32> {
        let entries = self.settings.chunks_exact(6);
        let mut named = entries.filter(|entry| entry[..2] == id.to_be_bytes());
        named.next().map(|entry| u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
    }

    /// The next frame of a type; what comes before it is passed over, unless it is an error.
    pub fn next(&mut self, kind: u8) -> Result<Frame, String> {
        loop {
            let frame = self.frames.next().map_err(|error| format!("no frame of type {kind}: {error}"))?;
            if frame.kind == kind {
                return Ok(frame);
            }
            if matches!(frame.kind, kind::GOAWAY | kind::RST_STREAM) {
                return Err(format!("no frame of type {kind} but {frame:?}"));
            }
        }
    }

    /// The stream is answered with 200 and some body, in full.
    pub fn answered(&mut self, stream: u32) -> Outcome {
        let body = self.answer(stream)?;
        if body.is_empty() { Err("an answer without a body".to_owned()) } else { Ok(()) }
    }

    /// The same, with this body.
    pub fn answered_with(&mut self, stream: u32, wanted: &str) -> Outcome {
        let body = self.answer(stream)?;
        let body = String::from_utf8_lossy(&body);
        if body == wanted { Ok(()) } else { Err(format!("answered with {body:?}, not {wanted:?}")) }
    }

    /// The same, without a body (to HEAD).
    pub fn answered_without_body(&mut self, stream: u32) -> Outcome {
        let body = self.answer(stream)?;
        if body.is_empty() { Ok(()) } else { Err(format!("a body of {} bytes", body.len())) }
    }

    fn answer(&mut self, stream: u32) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let frame = self.frames.next().map_err(|error| format!("no answer: {error}"))?;
            match frame.kind {
                kind::GOAWAY => return Err(format!("no answer but {frame:?}")),
                _ if frame.stream != stream => continue,
                kind::RST_STREAM => return Err(format!("no answer but {frame:?}")),
                kind::HEADERS if frame.payload.first() != Some(&0x88) => {
                    return Err(format!("answered, but not with 200: {frame:?}"));
                }
                kind::DATA => body.extend(&frame.payload),
                _ => {}
            }
            if frame.flags & END_STREAM != 0 && matches!(frame.kind, kind::HEADERS | kind::DATA) {
                return Ok(body);
            }
        }
    }

    /// Error of the stream: RST_STREAM with one of these codes, and the connection goes on.
    pub fn resets(&mut self, stream: u32, codes: &[u32]) -> Outcome {
        loop {
            let frame = self.frames.next().map_err(|error| format!("no RST_STREAM: {error}"))?;
            match frame.kind {
                kind::RST_STREAM if frame.stream == stream => {
                    if !codes.contains(&frame.code(0)) {
                        return Err(format!("RST_STREAM with {}, not {codes:?}", frame.code(0)));
                    }
                    return self.lives();
                }
                kind::GOAWAY => return Err(format!("no RST_STREAM but GOAWAY with {}", frame.code(4))),
                _ => {}
            }
        }
    }

    /// Error of the connection: GOAWAY with one of these codes, then the end.
    pub fn ends(&mut self, codes: &[u32]) -> Outcome {
        let mut told = None;
        loop {
            match self.frames.next() {
                Ok(frame) if frame.kind == kind::GOAWAY => told = Some(frame.code(4)),
                Ok(_) => {}
                Err(error) if frames::timed_out(&error) => {
                    return Err(format!("still open; GOAWAY: {told:?}, wanted {codes:?}"));
                }
                Err(_) => break,
            }
        }
        match told {
            Some(code) if codes.contains(&code) => Ok(()),
            _ => Err(format!("ended with {told:?}, not {codes:?}")),
        }
    }

    /// Error of the connection with this code, for which the gateway has another word: its HTTP/2 crate says
    /// PROTOCOL_ERROR of every frame and header block it cannot read. Public suites ask for the end only.
    pub fn ends_unspecifically(&mut self, code: u32) -> Outcome {
        assert_ne!(code, code::PROTOCOL_ERROR, "this is no deviation");
        self.ends(&[code::PROTOCOL_ERROR])
    }

    /// Error of the stream with this code, which the gateway's HTTP/2 crate takes for one of the
    /// connection. Public suites ask for either.
    pub fn ends_instead(&mut self, _stream_error: u32) -> Outcome {
        self.ends(&[code::PROTOCOL_ERROR])
    }

    /// The connection is ended, whether a word of HTTP/2 is said or not.
    pub fn closes(&mut self) -> Outcome {
        loop {
            match self.frames.next() {
                Ok(_) => {}
                Err(error) if frames::timed_out(&error) => return Err("still open".to_owned()),
                Err(_) => return Ok(()),
            }
        }
    }

    /// The connection goes on: a ping is answered, and a request is.
    pub fn lives(&mut self) -> Outcome {
        self.send(frame(kind::PING, 0, 0, b"are you?")).next_ping(b"are you?")
    }

    /// This ping is answered, and no other one.
    pub fn next_ping(&mut self, payload: &[u8]) -> Outcome {
        loop {
            let frame = self.frames.next().map_err(|error| format!("no PING: {error}"))?;
            match frame.kind {
                kind::PING if frame.flags == ACK && frame.payload == payload => return Ok(()),
                kind::PING | kind::GOAWAY => return Err(format!("no answer to a ping but {frame:?}")),
                _ => {}
            }
        }
    }
}
