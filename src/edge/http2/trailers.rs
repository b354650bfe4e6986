//! Pseudo-header fields among the trailers of an HTTP/2 request make it malformed (RFC 9113 section 8.1).
//! The engine's `h2` crate drops them without a word, so they are looked for on the way to it.
//!
//! Frames are stepped over by their headers; only a second HEADERS frame of a stream that has not ended is
//! looked into. Where it names a pseudo-header field its END_STREAM is cleared: trailers that end nothing
//! are malformed for `h2` too, which resets the stream. Names in the dynamic table are not known here,
//! nor are frames that come in pieces: there the fields are dropped, as they were.

use super::STREAMS;
use super::frames::{
    DATA, END_HEADERS, END_STREAM, FLAGS, Frame, HEADERS, PADDED, PRIORITY_FLAG as PRIORITY, RST_STREAM,
};

/// Entries of the static table that are pseudo-header fields (RFC 7541 appendix A).
const PSEUDO: std::ops::RangeInclusive<usize> = 1..=14;
/// `:` as RFC 7541 appendix B codes it, in the upper seven bits of a byte.
const CODED_COLON: u8 = 0x5c;

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    /// Those that have had a head and no end, oldest first.
    open: Vec<u32>,
}

impl Trailers {
    /// Looks at a frame that was read, before the engine does.
    pub(super) fn look(&mut self, frame: &Frame, bytes: &mut [u8]) {
        let ends = frame.flags & (END_STREAM | END_HEADERS) == END_STREAM | END_HEADERS;
        if self.follow(frame.kind, frame.flags, frame.stream)
            && ends
            && let Some(payload) = frame.payload(bytes)
            && names_pseudo(fragment(payload, frame.flags))
            && let Some(flags) = frame.start.and_then(|start| bytes.get_mut(start + FLAGS))
        {
            *flags &= !END_STREAM;
        }
    }

    /// Keeps account of the streams; gives whether the frame is trailers.
    fn follow(&mut self, kind: u8, flags: u8, stream: u32) -> bool {
        let ends = kind == RST_STREAM || flags & END_STREAM != 0;
        if !matches!(kind, DATA | HEADERS | RST_STREAM) || (!ends && kind == DATA) {
            return false;
        }
        let open = self.open.iter().position(|open| *open == stream);
        match open {
            Some(index) if ends => drop(self.open.remove(index)),
            None if kind == HEADERS && !ends => {
                if self.open.len() == STREAMS as usize {
                    self.open.remove(0);
                }
                self.open.push(stream);
            }
            _ => {}
        }
        kind == HEADERS && open.is_some()
    }
}

/// The fields of a HEADERS frame (RFC 9113 section 6.2).
fn fragment(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (padding, rest) = match payload {
        [padding, rest @ ..] if flags & PADDED != 0 => (usize::from(*padding), rest),
        _ => (0, payload),
    };
    let rest = rest.get(..rest.len().checked_sub(padding)?)?;
    if flags & PRIORITY != 0 { rest.get(5..) } else { Some(rest) }
}

/// Whether these fields have a pseudo-header field among them; what cannot be read has none.
fn names_pseudo(fragment: Option<&[u8]>) -> bool {
    let mut block = fragment;
    while let Some([first, ..]) = block {
        let (bits, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let Some((index, rest)) = integer(block.unwrap_or_default(), bits) else { return false };
        let sizes_table = bits == 5;
        if !sizes_table && PSEUDO.contains(&index) {
            return true;
        }
        block = Some(rest);
        if literal && index == 0 {
            match rest {
                [1..=0x7f, b':', ..] => return true,
                [0x81..=0xff, coded, ..] if coded >> 1 == CODED_COLON => return true,
                _ => block = after_string(rest),
            }
        }
        if literal {
            block = block.and_then(after_string);
        }
    }
    false
}

/// RFC 7541 section 5.1; no number that matters here needs more than two bytes behind the prefix.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        for shift in [0, 7, 14] {
            let (byte, further) = rest.split_first()?;
            rest = further;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value, rest));
            }
        }
        return None;
    }
    Some((value, rest))
}

/// What follows a string (RFC 7541 section 5.2).
fn after_string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = integer(bytes, 7)?;
    rest.get(length..)
}

#[cfg(test)]
mod tests {
    use super::super::PREFACE;
    use super::super::frames::Frames;
    use super::*;

    fn look(frames: &mut Frames, trailers: &mut Trailers, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(frame) = frames.next(bytes, &mut at) {
            trailers.look(&frame, bytes);
        }
    }

    fn look_at_all(bytes: &mut [u8]) {
        look(&mut Frames::behind(PREFACE.len()), &mut Trailers::default(), bytes);
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let [a, b] = u16::try_from(payload.len()).expect("a short payload").to_be_bytes();
        [&[0, a, b, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// Whether trailers with this payload lose their END_STREAM.
    fn ends_nothing(flags: u8, payload: &[u8]) -> bool {
        let before = [PREFACE, &frame(HEADERS, END_HEADERS, 1, b"\x82"), &frame(0, 0, 1, b"test")].concat();
        let trailers = frame(HEADERS, flags | END_STREAM | END_HEADERS, 1, payload);
        let mut bytes = [&before[..], &trailers].concat();
        look_at_all(&mut bytes);
        assert_eq!(bytes[..before.len()], before);
        bytes[before.len() + FLAGS] & END_STREAM == 0
    }

    #[test]
    fn pseudo_header_fields_of_every_form_are_found() {
        let long = [&b"\x00\x7f\x81\x01"[..], &[b'x'; 256], b"\x00\x84"].concat();
        for payload in [
            &b"\x82"[..],
            b"\x44\x01/",
            b"\x04\x01/",
            b"\x14\x01/",
            b"\x00\x05:path\x01/",
            b"\x40\x84\xb9\x58\xd3\x3f\x01/",
            b"\x20\x00\x01x\x01y\x82",
            &long,
        ] {
            assert!(ends_nothing(0, payload), "{payload:?}");
        }
        assert!(ends_nothing(PADDED, b"\x02\x82\0\0"));
        assert!(ends_nothing(PRIORITY, b"\0\0\0\0\0\x82"));
    }

    #[test]
    fn other_trailers_are_left_alone() {
        for payload in [
            &b""[..],
            b"\x00\x01x\x01:",
            b"\x8f",
            b"\xbe",
            b"\x5f\x00",
            b"\x24",
            b"\x00\x7f",
            b"\x00\xff\xff\xff\xff\xff\xff\x01",
            b"\x7f",
        ] {
            assert!(!ends_nothing(0, payload), "{payload:?}");
        }
        assert!(!ends_nothing(PADDED, b"\x09\x82\0\0"));
        assert!(!ends_nothing(PADDED, b""));
        assert!(!ends_nothing(PRIORITY, b"\x82"));
    }

    #[test]
    fn heads_streams_that_have_ended_and_pieces_pass_as_they_are() {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82");
        let begun = frame(HEADERS, END_HEADERS, 3, b"\x82");
        let ended = frame(HEADERS, END_STREAM | END_HEADERS, 3, b"\x82");
        let body = frame(DATA, END_STREAM, 3, &head);
        let reset = frame(RST_STREAM, 0, 3, b"\0\0\0\x08");
        for frames in [vec![&head, &head], vec![&begun, &body, &ended], vec![&begun, &reset, &ended]] {
            let mut bytes = [PREFACE, &frames.into_iter().flatten().copied().collect::<Vec<_>>()].concat();
            let sent = bytes.clone();
            look_at_all(&mut bytes);
            assert_eq!(bytes, sent);
        }
        let (mut frames, mut trailers) = (Frames::behind(PREFACE.len()), Trailers::default());
        for byte in [PREFACE, &begun, &ended].concat() {
            let mut read = [byte];
            look(&mut frames, &mut trailers, &mut read);
            assert_eq!(read, [byte]);
        }
        assert!(trailers.open.is_empty());
    }

    #[test]
    fn streams_that_never_end_are_not_kept_without_bound() {
        let mut trailers = Trailers::default();
        for stream in 0..1000 {
            trailers.follow(HEADERS, END_HEADERS, stream * 2 + 1);
        }
        assert_eq!(trailers.open.len(), STREAMS as usize);
        assert!(trailers.follow(HEADERS, END_STREAM, 1999));
    }
}
