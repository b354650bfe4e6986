//! What the door sees of a connection that the engine does not tell: its frames, in both directions.

use super::PREFACE;
use super::flood::Flood;
use super::frames::{DATA, Frame, Frames, HEADERS, RST_STREAM};
use super::trailers::Trailers;
use h2::Reason;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::sync::Notify;

/// Heads that are remembered until more of their stream comes, or they are refused.
const HEADS: usize = 64;

/// What is known on either side of the engine: to the one that sees the frames, and to the one that serves.
#[derive(Default)]
pub struct Shared {
    /// Requests the engine has refused, and whose reset has not been seen yet.
    refused_by_engine: AtomicU32,
    ended: Mutex<Option<&'static str>>,
    told: Notify,
}

impl Shared {
    /// The engine has refused a request itself, and it was recorded.
    pub(super) fn refused_by_engine(&self) {
        self.refused_by_engine.fetch_add(1, Relaxed);
    }

    /// The reason to end the connection, once there is one.
    pub(super) async fn flooded(&self) -> &'static str {
        loop {
            let told = self.told.notified();
            if let Some(reason) = self.ended.lock().take() {
                return reason;
            }
            told.await;
        }
    }
}

/// Follows the frames of one connection.
pub struct Inspection {
    shared: Arc<Shared>,
    received: Frames,
    sent: Frames,
    trailers: Trailers,
    flood: Flood,
    is_over: bool,
    /// Streams of which nothing has come but a head.
    heads: VecDeque<u32>,
}

impl Inspection {
    /// From the first byte of a connection on.
    pub fn new(shared: Arc<Shared>) -> Self {
        Inspection {
            shared,
            received: Frames::behind(PREFACE.len()),
            sent: Frames::behind(0),
            trailers: Trailers::default(),
            flood: Flood::default(),
            is_over: false,
            heads: VecDeque::new(),
        }
    }

    /// Looks at what was read, before the engine does; trailers that are malformed are made so for it too.
    pub fn read(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(frame) = self.received.next(bytes, &mut at) {
            self.trailers.look(&frame, bytes);
            self.remember(&frame);
            if let Some(reason) = self.flood.received(&frame)
                && !self.is_over
            {
                self.is_over = true;
                *self.shared.ended.lock() = Some(reason);
                self.shared.told.notify_one();
            }
        }
    }

    /// Whether a flood has ended the connection: nothing more of it is read.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Looks at what is written. Gives how many requests were refused in it by the library, which tells nobody: those it
    /// resets for their head alone. One with more is served, and recorded by whoever serves it.
    pub fn wrote(&mut self, bytes: &[u8]) -> usize {
        let (mut at, mut refused) = (0, 0);
        while let Some(frame) = self.sent.next(bytes, &mut at) {
            self.flood.sent(&frame);
            if frame.kind == RST_STREAM && self.is_refusal(&frame, bytes) {
                refused += 1;
            }
        }
        refused
    }

    fn remember(&mut self, frame: &Frame) {
        match frame.kind {
            HEADERS | DATA | RST_STREAM => {}
            _ => return,
        }
        let known = self.heads.iter().rev().position(|head| *head == frame.stream);
        if let Some(from_back) = known {
            self.heads.remove(self.heads.len() - 1 - from_back);
        } else if frame.kind == HEADERS {
            if self.heads.len() == HEADS {
                self.heads.pop_front();
            }
            self.heads.push_back(frame.stream);
        }
    }

    fn is_refusal(&mut self, frame: &Frame, bytes: &[u8]) -> bool {
        // One that is written in pieces is not told from others.
        let code = frame.payload(bytes).and_then(|payload| payload.try_into().ok()).map(u32::from_be_bytes);
        let Some(at) = self.heads.iter().position(|head| *head == frame.stream) else { return false };
        self.heads.remove(at);
        if code != Some(Reason::PROTOCOL_ERROR.into()) {
            return false;
        }
        let one_less = |count: u32| count.checked_sub(1);
        self.shared.refused_by_engine.fetch_update(Relaxed, Relaxed, one_less).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{END_HEADERS, END_STREAM};
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("a short payload");
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    #[test]
    fn what_the_library_resets_for_its_head_is_told() {
        let shared = Arc::<Shared>::default();
        let mut inspection = Inspection::new(Arc::clone(&shared));
        let head = |stream, flags| frame(HEADERS, END_HEADERS | flags, stream, b"\x82");
        let reset = |stream, code| frame(RST_STREAM, 0, stream, &[0, 0, 0, code]);
        let mut read = [PREFACE, &head(1, END_STREAM), &head(3, 0), &frame(DATA, 0, 3, b"x")].concat();
        inspection.read(&mut read);
        assert_eq!(inspection.wrote(&reset(3, 1)), 0, "served, for all we know");
        assert_eq!(inspection.wrote(&[reset(1, 1), reset(1, 1)].concat()), 1);
        inspection.read(&mut [head(5, END_STREAM), head(7, END_STREAM), head(9, END_STREAM)].concat());
        assert_eq!(inspection.wrote(&reset(5, 8)), 0, "not for what it is");
        shared.refused_by_engine();
        assert_eq!(inspection.wrote(&reset(7, 1)), 0, "recorded already");
        assert_eq!(inspection.wrote(&reset(9, 1)), 1);
    }
}
