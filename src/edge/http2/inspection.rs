//! What the door sees of a connection that the engine does not tell: its frames, in both directions.

use super::PREFACE;
use super::flood::Flood;
use super::frames::{DATA, END_STREAM, Frame, Frames, HEADERS, RST_STREAM};
use super::interim::Interim;
use super::trailers::Trailers;
use atomic_waker::AtomicWaker;
use h2::Reason;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::Context;
use tokio::sync::Notify;

/// Heads that are remembered until more of their stream comes, or they are refused.
const HEADS: usize = 256;

/// Streams whose place is remembered: more than can be open at once.
const OPENED: usize = 512;

/// What is known on either side of the engine: to the one that sees the frames, and to the one that serves.
#[derive(Default)]
pub struct Shared {
    /// Requests the engine has refused, and whose reset has not been seen yet.
    refused_by_engine: AtomicU32,
    /// Interim answers that wait for the library to have written what it has.
    interims: Mutex<Vec<Interim>>,
    /// Nobody writes them any more.
    is_closed: AtomicBool,
    /// Of the task that reads and writes.
    task: AtomicWaker,
    ended: Mutex<Option<&'static str>>,
    told: Notify,
}

impl Shared {
    /// The engine has refused a request itself, and it was recorded.
    pub(super) fn refused_by_engine(&self) {
        self.refused_by_engine.fetch_add(1, Relaxed);
    }

    /// Has an interim answer written.
    pub(super) fn interim(&self, interim: Interim) {
        let mut waiting = self.interims.lock();
        if !self.is_closed.load(Relaxed) {
            waiting.push(interim);
            self.task.wake();
        }
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
    /// Streams that were opened, less those the library has refused, of which the first is number `first`.
    opened: VecDeque<u32>,
    first: u64,
    /// Streams that were answered, the last of them.
    answered: VecDeque<u32>,
    newest: u32,
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
            opened: VecDeque::new(),
            first: 0,
            answered: VecDeque::new(),
            newest: 0,
        }
    }

    /// Looks at what was read, before the engine does; trailers that are malformed are made so for it too.
    pub fn read(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(frame) = self.received.next(bytes, &mut at) {
            self.trailers.look(&frame, bytes);
            self.remember(&frame);
            if let Some(reason) = self.flood.received(&frame, bytes)
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
            match frame.kind {
                RST_STREAM => refused += usize::from(self.reset(&frame, bytes)),
                HEADERS => {
                    self.answered_by_engine(&frame, bytes);
                    push(&mut self.answered, frame.stream);
                }
                _ => {}
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
            push(&mut self.heads, frame.stream);
            if frame.stream > self.newest {
                self.newest = frame.stream;
                if self.opened.len() == OPENED {
                    self.opened.pop_front();
                    self.first += 1;
                }
                self.opened.push_back(frame.stream);
            }
        }
    }

    /// What is to be written between two frames of the library, which has flushed. Asks to be woken for more.
    pub fn interims(&mut self, cx: &Context<'_>) -> Vec<u8> {
        self.shared.task.register(cx.waker());
        let waiting = std::mem::take(&mut *self.shared.interims.lock());
        let mut out = Vec::new();
        for interim in waiting {
            let place = interim.order.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            let stream = place.and_then(|place| self.opened.get(place));
            // One that is not known any more, or was answered, gets none.
            if let Some(stream) = stream.filter(|stream| !self.answered.contains(stream)) {
                out.extend(interim.frame(*stream));
            }
        }
        out
    }

    /// The stream is reset by us. Gives whether that is a refusal nobody else knows of.
    fn reset(&mut self, frame: &Frame, bytes: &[u8]) -> bool {
        let Some(at) = self.heads.iter().position(|head| *head == frame.stream) else { return false };
        self.heads.remove(at);
        // One that is written in pieces is not told from others.
        let code = frame.payload(bytes).and_then(|payload| payload.try_into().ok()).map(u32::from_be_bytes);
        let is_malformed = code == Some(Reason::PROTOCOL_ERROR.into());
        let is_too_much = code == Some(Reason::REFUSED_STREAM.into());
        if is_too_much || (is_malformed && !self.known_refusal()) {
            // It is never served, and has no place among those that are.
            self.opened.retain(|opened| *opened != frame.stream);
            return is_malformed;
        }
        false
    }

    /// The engine answers some of what it refuses, with an empty 400.
    fn answered_by_engine(&self, frame: &Frame, bytes: &[u8]) {
        /// `:status: 400` in the static table (RFC 7541 appendix A).
        const BAD_REQUEST: u8 = 0x8c;
        let is_empty = frame.flags & END_STREAM != 0;
        if is_empty && frame.payload(bytes).and_then(<[u8]>::first) == Some(&BAD_REQUEST) {
            // Its own 400 have a page.
            self.known_refusal();
        }
    }

    /// Whether the engine has said of a refusal that is seen now; asked once for each.
    fn known_refusal(&self) -> bool {
        let one_less = |count: u32| count.checked_sub(1);
        self.shared.refused_by_engine.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }
}

impl Drop for Inspection {
    /// Whoever waits for an interim answer to leave is not left waiting.
    fn drop(&mut self) {
        let mut waiting = self.shared.interims.lock();
        self.shared.is_closed.store(true, Relaxed);
        waiting.clear();
    }
}

/// Keeps the last of them.
fn push(streams: &mut VecDeque<u32>, stream: u32) {
    if streams.len() == HEADS {
        streams.pop_front();
    }
    streams.push_back(stream);
}

#[cfg(test)]
mod tests {
    use super::super::frames::END_HEADERS;
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
        inspection.read(&mut [head(11, END_STREAM), head(13, END_STREAM), head(15, END_STREAM)].concat());
        shared.refused_by_engine();
        let answer = frame(HEADERS, END_HEADERS | END_STREAM, 11, b"\x8c");
        assert_eq!(inspection.wrote(&[answer, reset(13, 7), reset(15, 1)].concat()), 1);
        let places: Vec<u32> = inspection.opened.iter().copied().collect();
        assert_eq!(places, [3, 5, 7, 11], "of those that were served, or refused by the engine");
    }
}
