//! The preface, the frame header and header blocks (RFC 9113 sections 3.4 and 4).

use super::client::code::{COMPRESSION_ERROR, FRAME_SIZE_ERROR, PROTOCOL_ERROR};
use super::generic::{get, get_block, head, post};
use super::{Case, bare, case};
use crate::support::frames::{END_STREAM, PREFACE, data, frame, kind, priority};

/// What a frame may carry at most unless settings say otherwise (RFC 9113 section 4.2).
const MAX_FRAME: usize = 16_384;

pub const CASES: &[Case] = &[
    bare("3.5/1: a preface is answered with settings", |c| {
        c.send([PREFACE, &frame(kind::SETTINGS, 0, 0, b"")].concat()).next(kind::SETTINGS).map(drop)
    }),
    bare("3.5/2: a broken preface ends the connection", |c| {
        c.send("INVALID CONNECTION PREFACE\r\n\r\n").closes()
    }),
    case("4.1/1: a frame of an unknown type is ignored", |c| c.send(frame(0xff, 0, 0, b"????")).lives()),
    case("4.1/2: an unknown flag is ignored", |c| {
        c.send(frame(kind::PING, 0x16, 0, b"h2spec-2")).next_ping(b"h2spec-2")
    }),
    case("4.1/3: the reserved bit of a stream is ignored", |c| {
        c.send(frame(kind::PING, 0, 1 << 31, b"h2spec-3")).next_ping(b"h2spec-3")
    }),
    case("4.2/1: DATA of the greatest size", |c| {
        c.send(post(1)).send(data(1, END_STREAM, &[b'x'; MAX_FRAME])).answered_with(1, &"x".repeat(MAX_FRAME))
    }),
    case("4.2/2: DATA above it", |c| {
        c.send(post(1)).send(data(1, END_STREAM, &[b'x'; MAX_FRAME + 1])).ends(&[FRAME_SIZE_ERROR])
    }),
    case("4.2/3: HEADERS above it", |c| {
        let field = [b"\0\x01x\x7f\x90\x7f".to_vec(), vec![b'x'; 127 + 0x10 + (0x7f << 7)]].concat();
        c.send(head(1, END_STREAM, &[get_block(), field].concat())).ends(&[FRAME_SIZE_ERROR])
    }),
    case("4.3/1: a header block that cannot be decoded", |c| {
        // A string that would be longer than the block.
        c.send(head(1, END_STREAM, b"\x00\x7f")).ends_unspecifically(COMPRESSION_ERROR)
    }),
    case("4.3/2: PRIORITY inside a header block", |c| {
        let first = frame(kind::HEADERS, END_STREAM, 1, &get_block());
        c.send([first, frame(kind::PRIORITY, 0, 1, &priority(0, 255))].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("4.3/3: HEADERS of another stream inside a header block", |c| {
        let first = frame(kind::HEADERS, END_STREAM, 1, &get_block());
        c.send([first, get(3)].concat()).ends(&[PROTOCOL_ERROR])
    }),
];
