//! How large a head is that is still being read.
//!
//! The engine takes up to a MiB before it gives up, parses what is there again at every read, and says
//! the same whether a head is too large or makes no sense. The stream counts along, so that a head
//! without an end is refused as soon as it is over the limits, and for what it is.

use super::connection::Connection;
use crate::snapshot::{Limits, Rejection};

/// Below this nothing is compared: what is complete is measured by the request path.
const HARMLESS: usize = 4 * 1024;
/// The engine reads this many fields.
const FIELDS: usize = 256;
/// A line of a field has three bytes at least, so fewer bytes have no more fields than that.
const FEW: usize = 3 * FIELDS;

/// Counts one connection's heads, one after the other.
#[derive(Debug, Default)]
pub struct HeadSize {
    heads: u32,
    bytes: usize,
    lines: usize,
    line_ended: bool,
}

impl HeadSize {
    /// Notes what was read while the connection waited for the end of a head. What the engine still
    /// had of an earlier read is not seen, so a pipelined head may count for less than it is.
    pub fn add(&mut self, connection: &Connection, read: &[u8]) {
        if self.heads != connection.heads() {
            *self = HeadSize { heads: connection.heads(), ..HeadSize::default() };
        }
        self.bytes += read.len();
        self.line_ended = self.line_ended || memchr::memchr(b'\n', read).is_some();
        if self.bytes > FEW {
            let head = memchr::memmem::find(read, b"\r\n\r\n").map_or(read, |end| &read[..end]);
            self.lines += memchr::memchr_iter(b'\n', head).count();
        }
    }

    /// Why a head that is still not complete is refused; asked before more of it is read.
    pub fn exceeds(&self, connection: &Connection, limits: impl FnOnce() -> Limits) -> Option<Rejection> {
        if self.bytes < HARMLESS || self.heads != connection.heads() {
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
}
