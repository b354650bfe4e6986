//! Requests the door refuses by itself, because their head never reaches a hook of the request path:
//! one that cannot be read, is too large to be read, or is not complete in time.
//!
//! The client gets the page of the rejection; who keeps the records is told through [`Recorder`].
//! What a record is, the door does not know.

use super::connection::Connection;
use super::head::Asked;
use crate::snapshot::{Cause, SnapshotStore};
use pingora::Error;
use std::sync::Arc;
use std::time::Duration;

/// Keeps records of refused requests.
pub trait Recorder: Send + Sync {
    /// Called once for each, on the worker's thread: it must not block.
    fn refused(&self, refused: &Refused<'_>);
}

/// A request without a head.
pub struct Refused<'a> {
    /// Where it came in.
    pub connection: &'a Connection,
    /// Why it was refused.
    pub cause: Cause,
    /// How long its head was waited for; zero when that decided nothing.
    pub waited: Duration,
    /// Bytes of the answer's body.
    pub sent: u64,
    /// What it asked for, where its first line says so.
    pub asked: Option<Asked<'a>>,
}

/// What the engine could not read of a head, in a word.
pub fn detail(error: &Error) -> Option<&'static str> {
    use httparse::Error as Fault;
    if let Some(fault) = error.root_cause().downcast_ref::<Fault>() {
        return match fault {
            Fault::HeaderName => Some("field_name"),
            Fault::HeaderValue => Some("field_value"),
            Fault::NewLine => Some("line_end"),
            Fault::Version => Some("version"),
            Fault::Token => Some("request_line"),
            Fault::Status | Fault::TooManyHeaders => None,
        };
    }
    let context = error.context.as_ref()?.as_str();
    // In the engine's own words, the most particular one first.
    let words = [
        ("Content-Length", "content_length"),
        ("Transfer-Encoding", "transfer_encoding"),
        ("Host", "host"),
        ("request target", "authority"),
        ("authority", "authority"),
        ("method", "request_line"),
    ];
    words.iter().find(|(word, _)| context.contains(word)).map(|(_, detail)| *detail)
}

/// Where pages come from and records go.
#[derive(Clone)]
pub struct Refusals {
    /// For the pages.
    pub snapshots: Arc<SnapshotStore>,
    /// For the records.
    pub recorder: Arc<dyn Recorder>,
}

impl Refusals {
    /// Records a refusal; gives the answer as it goes over the wire (HTTP/1.1, closing).
    pub fn refuse(
        &self,
        connection: &Connection,
        cause: Cause,
        waited: Duration,
        asked: Option<Asked<'_>>,
    ) -> Vec<u8> {
        let page = self.snapshots.load().pages.wire(cause.rejection);
        let body = memchr::memmem::find(&page, b"\r\n\r\n").map_or(0, |end| page.len() - end - 4);
        self.recorder.refused(&Refused { connection, cause, waited, sent: body as u64, asked });
        page
    }

    /// Records a refusal that was answered elsewhere, with `sent` bytes of body.
    pub fn record(&self, connection: &Connection, cause: Cause, waited: Duration, sent: u64) {
        self.recorder.refused(&Refused { connection, cause, waited, sent, asked: None });
    }
}
