//! Where one request of an HTTP/1 connection ends and the next begins (RFC 9112 sections 6 and 7).
//!
//! The engine is given the bytes of one request at a time; what came with them waits here for its turn.
//! So it never holds what belongs to the next request, every head begins with a read of its own and every
//! body is followed from its first byte. Bodies are not copied: only what came along with a head, or with
//! the end of a request, is held for the next read.

use super::connection::{Body, Connection, Phase};
use super::head::{Head, Taken};
use crate::http1::chunks::{Chunks, Fault};
use crate::snapshot::Cause;
use std::fmt;
use std::io;
use tokio::io::ReadBuf;

/// Follows one connection.
#[derive(Default)]
pub struct Framing {
    /// The requests before the one whose body is being read.
    heads: u32,
    body: Rest,
    /// How far its head has come.
    pub head: Head,
    held: Vec<u8>,
    /// How much of it was given away.
    given: usize,
}

/// What is to come of a body.
#[derive(Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Nothing,
    Length(u64),
    Chunked(Chunks),
    /// Nobody can say where it ends, so nothing that follows is a request.
    Broken,
}

/// Why bytes do not go to the engine.
#[derive(Debug)]
pub enum Refused {
    /// A head is answered without it.
    Head(Cause),
    /// A body breaks off.
    Body(BadChunk),
}

/// A chunked body that breaks the grammar of RFC 9112 section 7.1, in an [`io::Error`].
#[derive(Debug, Clone, Copy)]
pub struct BadChunk(pub Fault);

impl fmt::Display for BadChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed chunked body ({})", self.0)
    }
}

impl std::error::Error for BadChunk {}

impl From<BadChunk> for io::Error {
    fn from(bad: BadChunk) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, bad)
    }
}

impl Framing {
    /// Whether bytes wait for their turn.
    pub fn holds(&self) -> bool {
        self.given < self.held.len()
    }

    /// Whether a body has broken off: what comes from now on belongs to nobody.
    pub fn is_broken(&self) -> bool {
        self.body == Rest::Broken
    }

    /// Whether nothing of the last request is left to read.
    pub fn awaits_head(&mut self, connection: &Connection) -> bool {
        self.begin_body(connection);
        self.body == Rest::Nothing
    }

    /// Gives as much of what waits as belongs to the request being read. Whether that ended it, or
    /// its head, or more still waits: then no more is to be read for now.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn give(&mut self, connection: &Connection, buf: &mut ReadBuf<'_>) -> Result<bool, Refused> {
        if !self.holds() {
            return Ok(false);
        }
        let mut held = std::mem::take(&mut self.held);
        if connection.phase() == Phase::Head
            && let Some(encoded) =
                self.head.encoded(connection.heads(), held.get(self.given..).unwrap_or_default())
        {
            held = encoded;
            self.given = 0;
        }
        let waiting = held.get(self.given..).unwrap_or_default();
        let waiting = waiting.get(..buf.remaining()).unwrap_or(waiting);
        let taken = self.take(connection, waiting)?;
        buf.put_slice(waiting.get(..taken.bytes).unwrap_or_default());
        self.given += taken.bytes;
        if self.given < held.len() {
            self.held = held;
            return Ok(true);
        }
        self.given = 0;
        Ok(taken.ended)
    }

    /// Keeps back what of the bytes behind `start` belongs to no request yet.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn cut(
        &mut self,
        connection: &Connection,
        buf: &mut ReadBuf<'_>,
        start: usize,
    ) -> Result<(), Refused> {
        let read = buf.filled().get(start..).unwrap_or_default();
        if connection.phase() == Phase::Head
            && let Some(encoded) = self.head.encoded(connection.heads(), read)
        {
            // It is longer, and may have no room: what has none waits, as what belongs to the next request does.
            self.held = encoded;
            buf.set_filled(start);
            return self.give(connection, buf).map(drop);
        }
        let taken = self.take(connection, read)?;
        if let Some(next) = read.get(taken.bytes..).filter(|next| !next.is_empty()) {
            self.held.extend_from_slice(next);
            buf.set_filled(start + taken.bytes);
        }
        Ok(())
    }

    /// How many of the bytes that come next belong to the request being read.
    fn take(&mut self, connection: &Connection, bytes: &[u8]) -> Result<Taken, Refused> {
        if matches!(connection.phase(), Phase::Tunnel | Phase::Multiplexed) {
            return Ok(Taken { bytes: bytes.len(), ended: false });
        }
        self.begin_body(connection);
        let bytes = match &mut self.body {
            Rest::Nothing if connection.phase() == Phase::Head => {
                let taken = self.head.take(connection.heads(), bytes).map_err(Refused::Head)?;
                connection.handed(self.head.bytes());
                return Ok(taken);
            }
            Rest::Nothing | Rest::Broken => 0,
            Rest::Length(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                here as usize
            }
            Rest::Chunked(chunks) => match chunks.follow(bytes) {
                Ok(taken) => taken,
                Err(fault) => {
                    self.body = Rest::Broken;
                    return Err(Refused::Body(BadChunk(fault)));
                }
            },
        };
        if matches!(self.body, Rest::Length(0) | Rest::Chunked(Chunks::Done)) {
            self.body = Rest::Nothing;
        }
        Ok(Taken { bytes, ended: self.body == Rest::Nothing })
    }

    /// A head was read whole since: its body begins.
    fn begin_body(&mut self, connection: &Connection) {
        if self.heads != connection.heads() {
            self.heads = connection.heads();
            self.body = match connection.body() {
                Body::Length(0) => Rest::Nothing,
                Body::Length(length) => Rest::Length(length),
                Body::Chunked => Rest::Chunked(Chunks::START),
            };
        }
    }
}
