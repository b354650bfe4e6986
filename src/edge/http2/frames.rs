//! The frames of one direction of a connection (RFC 9113 section 4.1), stepped over by their headers.

/// A frame's header.
pub(super) const HEADER: usize = 9;
/// Where it has the flags.
pub(super) const FLAGS: usize = 4;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY_FLAG: u8 = 0x20;

/// Where the bytes of a direction stand.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface or a payload that are still to come.
    skip: usize,
    /// A frame's header that has come in part.
    begun: [u8; HEADER],
    begun_len: usize,
}

/// A frame whose header has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Of its payload.
    pub(super) length: usize,
    /// Where its header begins among the bytes at hand, if all of it is there.
    pub(super) start: Option<usize>,
}

impl Frame {
    /// Its payload, if it is whole among these bytes.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.start? + HEADER;
        bytes.get(start..start + self.length)
    }
}

impl Frames {
    /// Behind so many bytes that are no frames.
    pub(super) fn behind(skip: usize) -> Self {
        Frames { skip, begun: [0; HEADER], begun_len: 0 }
    }

    /// The next frame whose header ends among `bytes` from `at` on, which is moved behind it; `None` when they are over.
    pub(super) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Option<Frame> {
        let rest = bytes.get(*at..).unwrap_or_default();
        let skipped = self.skip.min(rest.len());
        self.skip -= skipped;
        let start = *at + skipped;
        let missing = (HEADER - self.begun_len).min(rest.len() - skipped);
        *at = start + missing;
        let whole = missing == HEADER;
        for (own, read) in self.begun.iter_mut().skip(self.begun_len).zip(bytes.get(start..*at)?) {
            *own = *read;
        }
        self.begun_len += missing;
        if self.begun_len < HEADER {
            return None;
        }
        self.begun_len = 0;
        let [a, b, c, kind, flags, stream @ ..] = self.begun;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Some(Frame { kind, flags, stream, length: self.skip, start: whole.then_some(start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_their_bytes_come() {
        let bytes = b"PRI\0\0\x04\x08\0\0\0\0\x05\0\0\0\x01\0\0\0\x04\x01\0\0\0\0";
        let found = |cut: usize| {
            let (mut frames, mut found) = (Frames::behind(3), Vec::new());
            for piece in [&bytes[..cut], &bytes[cut..]] {
                let mut at = 0;
                while let Some(frame) = frames.next(piece, &mut at) {
                    found.push((frame.kind, frame.flags, frame.stream, frame.length));
                }
                assert_eq!(at, piece.len(), "all of it was looked at");
            }
            found
        };
        for cut in 0..=bytes.len() {
            assert_eq!(found(cut), [(WINDOW_UPDATE, 0, 5, 4), (SETTINGS, ACK, 0, 0)], "{cut}");
        }
        let frame = Frames::behind(3).next(bytes, &mut 0).expect("a frame");
        assert_eq!(frame.payload(bytes), Some(&b"\0\0\0\x01"[..]));
        assert_eq!(frame.payload(&bytes[..14]), None);
    }
}
