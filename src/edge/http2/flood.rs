//! What a client sends that serves nothing: pings, settings, priorities, windows opened by crumbs, streams taken back.
//!
//! Each such frame spends of a credit, and what is of use earns it back: an answer that begins, data in either
//! direction, and time. So the pings of a gRPC client, one for each message it gets, the window updates of a download and a browser that gives up
//! what it has scrolled past never come to its end, and a flood does after some hundreds of frames.

use super::frames::{ACK, DATA, Frame, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use std::time::Instant;

/// Most credit there is, and what a connection begins with.
const CREDIT: u32 = 500;
/// What a second earns. Read when the credit is spent only.
const PER_SECOND: u32 = 100;
/// What an answer that begins earns.
const PER_ANSWER: u32 = 4;
/// Bytes of data that earn one.
const PER_DATA: usize = 1024;
/// What a piece of an answer earns, however small: a client may answer each with a ping, to measure the way, and with
/// updates of two windows.
const PER_PIECE: u32 = 3;
/// What a window update costs that opens next to nothing: it has us send a piece of that size.
const CRUMB: u32 = 5;
/// Most that such an update opens a window by.
const CRUMB_SIZE: u32 = 64;
/// What a stream costs that the client takes back: an upstream may be at work on it.
const RESET: u32 = 2;

/// The credit of one connection.
#[derive(Debug)]
pub(super) struct Flood {
    credit: u32,
    since: Instant,
    /// Bytes of data that have earned nothing yet.
    data: usize,
}

impl Default for Flood {
    fn default() -> Self {
        Flood { credit: CREDIT, since: Instant::now(), data: 0 }
    }
}

impl Flood {
    /// A frame of the client. The reason to end the connection, where it is one too many.
    pub(super) fn received(&mut self, frame: &Frame, bytes: &[u8]) -> Option<&'static str> {
        let (cost, reason) = match frame.kind {
            DATA => {
                self.earn_data(frame.length);
                return None;
            }
            PING if frame.flags & ACK == 0 => (1, "http2_pings"),
            SETTINGS if frame.flags & ACK == 0 => (1, "http2_settings"),
            PRIORITY => (1, "http2_priorities"),
            WINDOW_UPDATE if opens_crumb(frame, bytes) => (CRUMB, "http2_window_updates"),
            WINDOW_UPDATE => (1, "http2_window_updates"),
            RST_STREAM => (RESET, "http2_resets"),
            // Nothing anybody has defined for this connection (RFC 9113 section 5.5).
            10.. => (1, "http2_unknown_frames"),
            _ => return None,
        };
        (!self.spend(cost)).then_some(reason)
    }

    /// A frame of ours.
    pub(super) fn sent(&mut self, frame: &Frame) {
        match frame.kind {
            DATA => {
                self.earn(if frame.length > 0 { PER_PIECE } else { 0 });
                self.earn_data(frame.length);
            }
            HEADERS => self.earn(PER_ANSWER),
            _ => {}
        }
    }

    fn earn_data(&mut self, length: usize) {
        self.data += length;
        self.earn(u32::try_from(self.data / PER_DATA).unwrap_or(CREDIT));
        self.data %= PER_DATA;
    }

    fn earn(&mut self, credit: u32) {
        self.credit = self.credit.saturating_add(credit).min(CREDIT);
    }

    fn spend(&mut self, cost: u32) -> bool {
        if self.credit < cost {
            let now = Instant::now();
            let seconds = now.duration_since(self.since).as_secs_f64();
            self.since = now;
            // No more than fits: the longest time is cut to what it can earn.
            self.earn((seconds * f64::from(PER_SECOND)).min(f64::from(CREDIT)) as u32);
        }
        let enough = self.credit >= cost;
        self.credit = self.credit.saturating_sub(cost);
        enough
    }
}

/// Whether an update opens a window by a crumb; one that comes in pieces is not looked into.
fn opens_crumb(frame: &Frame, bytes: &[u8]) -> bool {
    let increment = frame.payload(bytes).and_then(|payload| payload.try_into().ok()).map(u32::from_be_bytes);
    increment.is_some_and(|increment| increment <= CRUMB_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Frame {
        Frame { kind, flags, stream: 1, length, start: None }
    }

    /// Frames until there is one too many.
    fn until_ended(flood: &mut Flood, kind: u8, most: usize) -> Option<(usize, &'static str)> {
        (1..=most).find_map(|count| flood.received(&frame(kind, 0, 4), &[]).map(|reason| (count, reason)))
    }

    #[test]
    fn a_flood_of_any_kind_ends_after_hundreds() {
        for (kind, wanted) in [
            (PING, "http2_pings"),
            (SETTINGS, "http2_settings"),
            (PRIORITY, "http2_priorities"),
            (WINDOW_UPDATE, "http2_window_updates"),
            (RST_STREAM, "http2_resets"),
            (0x42, "http2_unknown_frames"),
        ] {
            let (count, reason) = until_ended(&mut Flood::default(), kind, 100_000).expect("an end");
            assert!(count < 1000, "{count} frames of {reason}");
            assert_eq!(reason, wanted);
        }
    }

    #[test]
    fn a_window_opened_byte_by_byte_ends_though_each_byte_is_sent() {
        let update = Frame { start: Some(0), ..frame(WINDOW_UPDATE, 0, 4) };
        let bytes = [&[0; 9][..], &1_u32.to_be_bytes()].concat();
        let mut flood = Flood::default();
        let ended = (0..100_000).find(|_| {
            flood.sent(&frame(DATA, 0, 1));
            flood.received(&update, &bytes).is_some()
        });
        assert!(ended.is_some_and(|count| count < 1000), "{ended:?}");
    }

    #[test]
    fn what_is_of_use_earns_what_it_takes() {
        let mut flood = Flood::default();
        for _ in 0..100_000 {
            // A download in frames of 16 KiB, with a window update each for stream and connection.
            flood.sent(&frame(DATA, 0, 16 * 1024));
            assert_eq!(until_ended(&mut flood, WINDOW_UPDATE, 2), None);
        }
        for _ in 0..100_000 {
            // A call that is answered, and then given up, with a ping.
            flood.sent(&frame(HEADERS, 0, 10));
            assert_eq!(until_ended(&mut flood, RST_STREAM, 1), None);
            assert_eq!(until_ended(&mut flood, PING, 1), None);
        }
        for _ in 0..100_000 {
            // A small message of a call that goes on, each answered with a ping and two window updates.
            flood.sent(&frame(DATA, 0, 50));
            assert_eq!(until_ended(&mut flood, PING, 1), None);
            assert_eq!(until_ended(&mut flood, WINDOW_UPDATE, 2), None);
        }
        for kind in [PING, SETTINGS] {
            assert_eq!(flood.received(&frame(kind, ACK, 8), &[]), None, "an answer to us");
        }
    }
}
