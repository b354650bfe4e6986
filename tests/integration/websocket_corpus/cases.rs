//! Which frames: the groups of the Autobahn suite, allowed and forbidden ones alike.

use std::sync::Arc;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// The last frame of a message.
const FIN: u8 = 0x80;
/// Reserved bit 1: compressed (RFC 7692 section 6).
const RSV1: u8 = 0x40;

/// Frames, in order.
#[derive(Clone)]
pub struct Case {
    /// What is special.
    pub name: String,
    up: Arc<[u8]>,
    down: Arc<[u8]>,
}

/// First byte (bits and opcode) and payload.
type Frame = (u8, Vec<u8>);

impl Case {
    fn new(name: String, frames: &[Frame]) -> Self {
        let wire = |mask| frames.iter().map(|frame| encode(frame, mask)).collect::<Vec<_>>().concat().into();
        Case { name, up: wire(Some([0x37, 0xfa, 0x21, 0x3d])), down: wire(None) }
    }

    /// What the client sends, masked (RFC 6455 section 5.3).
    pub fn up(&self) -> &[u8] {
        &self.up
    }

    /// The same frames as the origin sends them.
    pub fn down(&self) -> &[u8] {
        &self.down
    }
}

/// RFC 6455 section 5.2.
fn encode((first, payload): &Frame, mask: Option<[u8; 4]>) -> Vec<u8> {
    let bit = if mask.is_some() { 0x80 } else { 0 };
    let mut wire = vec![*first];
    match payload.len() {
        length @ 0..=125 => wire.push(bit | length as u8),
        length @ 126..=0xffff => {
            wire.push(bit | 126);
            wire.extend((length as u16).to_be_bytes());
        }
        length => {
            wire.push(bit | 127);
            wire.extend((length as u64).to_be_bytes());
        }
    }
    match mask {
        None => wire.extend_from_slice(payload),
        // Zeros are a mask too: so many bytes take an unoptimized test seconds.
        Some(_) if payload.len() > 1 << 17 => {
            wire.extend([0; 4]);
            wire.extend_from_slice(payload);
        }
        Some(mask) => {
            wire.extend(mask);
            wire.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        }
    }
    wire
}

/// The cases of a group of the suite.
pub fn group(number: u8) -> Vec<Case> {
    match number {
        1 => sizes(),
        2 => pings(),
        3 => reserved_bits(),
        4 => opcodes(),
        5 => fragments(),
        6 => utf8(),
        7 => closing(),
        9 => large(),
        10 => vec![case("KiB in fragments of 1,300", &fragmented(1 << 16, 1300))],
        12 => compressed(),
        _ => panic!("no group {number}"),
    }
}

fn case(name: impl std::fmt::Display, frames: &[Frame]) -> Case {
    let mut frames = frames.to_vec();
    // A case that does not close says goodbye, so that a frame always stands behind what it is about.
    if !frames.iter().any(|(first, _)| first & 0xf == CLOSE) {
        frames.push(close(1000));
    }
    Case::new(name.to_string(), &frames)
}

fn close(code: u16) -> Frame {
    (FIN | CLOSE, code.to_be_bytes().to_vec())
}

fn sizes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, opcode) in [("text", TEXT), ("binary", BINARY)] {
        for size in [0, 1, 125, 126, 127, 128, 65_535, 65_536] {
            cases.push(case(format!("{kind} of {size}"), &[(FIN | opcode, vec![b'*'; size])]));
        }
    }
    cases
}

fn pings() -> Vec<Case> {
    let ping = |payload: &[u8]| (FIN | PING, payload.to_vec());
    let pong = |payload: &[u8]| (FIN | PONG, payload.to_vec());
    let ten: Vec<Frame> = (0..10).map(|number| ping(format!("payload-{number}").as_bytes())).collect();
    vec![
        case("ping without payload", &[ping(b"")]),
        case("ping with text", &[ping(b"Hello, world!")]),
        case("ping with bytes", &[ping(b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff")]),
        case("ping of 125", &[ping(&[0xfe; 125])]),
        case("ping of 126, one too many", &[ping(&[0xfe; 126])]),
        case("pong without ping, empty", &[pong(b"")]),
        case("pong without ping", &[pong(b"unsolicited")]),
        case("pong without ping, then a ping", &[pong(b"unsolicited"), ping(b"ping")]),
        case("ten pings", &ten),
        case("ping without FIN", &[(PING, b"x".to_vec())]),
        case("ping between texts", &[(FIN | TEXT, b"a".to_vec()), ping(b"b"), (FIN | TEXT, b"c".to_vec())]),
    ]
}

fn reserved_bits() -> Vec<Case> {
    let text = |bits: u8| (FIN | bits | TEXT, b"Hello".to_vec());
    let mut cases: Vec<Case> = (1..8)
        .map(|bits| case(format!("reserved bits {bits:03b} of a text"), &[text(0), text(bits << 4)]))
        .collect();
    for (name, opcode) in [("binary", BINARY), ("ping", PING), ("close", CLOSE)] {
        cases.push(case(format!("all reserved bits of a {name}"), &[(0xf0 | opcode, b"\x03\xe8".to_vec())]));
    }
    cases
}

fn opcodes() -> Vec<Case> {
    let reserved = [3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf];
    let cases = reserved.iter().flat_map(|opcode| {
        let first = (FIN | TEXT, b"Hello".to_vec());
        [
            case(format!("opcode {opcode:x}, empty"), &[(FIN | opcode, Vec::new())]),
            case(
                format!("4 opcode {opcode:x} behind a text"),
                &[first, (FIN | opcode, b"reserved".to_vec())],
            ),
        ]
    });
    cases.collect()
}

fn fragments() -> Vec<Case> {
    let frame = |first: u8, payload: &str| (first, payload.as_bytes().to_vec());
    let (start, next, last) =
        (frame(TEXT, "one"), frame(CONTINUATION, "two"), frame(FIN | CONTINUATION, "three"));
    let ping = frame(FIN | PING, "ping");
    let whole = frame(FIN | TEXT, "whole");
    let rows: [(&str, &[Frame]); 20] = [
        ("ping in two fragments", &[frame(PING, "a"), last.clone()]),
        ("pong in two fragments", &[frame(PONG, "a"), last.clone()]),
        ("text in two", &[start.clone(), last.clone()]),
        ("text in three", &[start.clone(), next.clone(), last.clone()]),
        ("binary in two", &[frame(BINARY, "one"), last.clone()]),
        ("ping between two", &[start.clone(), ping.clone(), last.clone()]),
        ("pong between two", &[start.clone(), frame(FIN | PONG, "x"), last.clone()]),
        ("pings between three", &[start.clone(), ping.clone(), next.clone(), ping.clone(), last.clone()]),
        ("continuation of nothing", std::slice::from_ref(&last)),
        ("continuation of nothing, without end", std::slice::from_ref(&next)),
        ("continuation of nothing, then a text", &[last.clone(), whole.clone()]),
        ("continuation of nothing, without end, then a text", &[next.clone(), whole.clone()]),
        ("continuation of a whole text", &[whole.clone(), last.clone()]),
        ("a text inside a text", &[start.clone(), whole.clone(), last.clone()]),
        ("a second beginning", &[start.clone(), frame(TEXT, "again"), last.clone()]),
        ("a binary inside a text", &[start.clone(), frame(FIN | BINARY, "x"), last.clone()]),
        ("empty fragments only", &[frame(TEXT, ""), frame(CONTINUATION, ""), frame(FIN | CONTINUATION, "")]),
        ("an empty fragment between", &[start.clone(), frame(CONTINUATION, ""), last.clone()]),
        ("a close between two", &[start.clone(), close(1000), last.clone()]),
        ("a message without end", &[start.clone(), next.clone()]),
    ];
    rows.iter().map(|(name, frames)| case(name, frames)).collect()
}

/// Sequences of the suite's chapter 6: whole, and cut after each byte.
fn utf8() -> Vec<Case> {
    let sequences: [&[u8]; 24] = [
        b"Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbfbom",
        b"\xef\xbf\xbe\xef\xbf\xbf",
        b"\x00",
        b"\x7f\xc2\x80\xdf\xbf",
        b"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\x80",
        b"\xbf\x80\xbf",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\xed\xbf\xbf",
        b"\xfe",
        b"\xff\xff",
        b"\xc3 \xe2\x82 \xf0\x9f\x92",
    ];
    let both = sequences.iter().enumerate().flat_map(|(number, bytes)| {
        let last = bytes.len() - 1;
        let cut: Vec<Frame> = bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                let opcode = if at == 0 { TEXT } else { CONTINUATION };
                (if at == last { FIN | opcode } else { opcode }, vec![*byte])
            })
            .collect();
        let whole = (FIN | TEXT, bytes.to_vec());
        [case(format!("sequence {number}"), &[whole]), case(format!("sequence {number}, bytewise"), &cut)]
    });
    both.collect()
}

fn closing() -> Vec<Case> {
    let valid = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];
    let invalid = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535];
    let mut cases: Vec<Case> =
        valid.iter().chain(&invalid).map(|code| case(format!("code {code}"), &[close(*code)])).collect();
    let reason = |bytes: &[u8]| (FIN | CLOSE, [&1000_u16.to_be_bytes()[..], bytes].concat());
    let text = (FIN | TEXT, b"late".to_vec());
    let rows: [(&str, &[Frame]); 10] = [
        ("without a code", &[(FIN | CLOSE, Vec::new())]),
        ("with one byte", &[(FIN | CLOSE, vec![3])]),
        ("with a reason", &[reason(b"goodbye")]),
        ("with a reason of 123", &[reason(&[b'*'; 123])]),
        ("with a reason of 124, one too many", &[reason(&[b'*'; 124])]),
        ("with a reason that is not UTF-8", &[reason(b"\xce\xba\xf4\x90\x80\x80")]),
        ("twice", &[close(1000), close(1000)]),
        ("and a ping behind it", &[close(1000), (FIN | PING, Vec::new())]),
        ("and a text behind it", &[close(1000), text.clone()]),
        ("without FIN", &[text, (CLOSE, b"\x03\xe8".to_vec())]),
    ];
    cases.extend(rows.iter().map(|(name, frames)| case(format!("close {name}"), frames)));
    cases
}

fn large() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, opcode) in [("text", TEXT), ("binary", BINARY)] {
        for size in [1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24] {
            cases.push(case(format!("{kind} of {size}"), &[(FIN | opcode, pattern(size))]));
        }
    }
    for fragment in [64, 1 << 10, 1 << 16] {
        cases.push(case(format!("4 MiB in fragments of {fragment}"), &fragmented(1 << 22, fragment)));
    }
    let small: Vec<Frame> = (0..1000).map(|number| (FIN | BINARY, pattern(number % 300))).collect();
    cases.push(case("a thousand small messages", &small));
    cases
}

fn fragmented(size: usize, fragment: usize) -> Vec<Frame> {
    let message = pattern(size);
    let last = message.chunks(fragment).count() - 1;
    let frames = message.chunks(fragment).enumerate().map(|(number, part)| {
        let opcode = if number == 0 { BINARY } else { CONTINUATION };
        (if number == last { FIN | opcode } else { opcode }, part.to_vec())
    });
    frames.collect()
}

/// Bytes that a lost or doubled piece would show in: a block whose length no buffer has, again and again.
fn pattern(size: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..size.min(10_007)).map(|at| (at ^ (at >> 8)) as u8).collect();
    let mut bytes = block.repeat(size / block.len().max(1) + 1);
    bytes.truncate(size);
    bytes
}

/// To the gateway a compressed message is a reserved bit and bytes; the first is RFC 7692's own example.
fn compressed() -> Vec<Case> {
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    let first = |opcode: u8, part: &[u8]| (RSV1 | opcode, part.to_vec());
    let mut cases = vec![
        case("hello", &[first(FIN | TEXT, hello)]),
        case(
            "12 hello twice, the context kept",
            &[first(FIN | TEXT, hello), first(FIN | TEXT, b"\xf2\x00\x11\x00\x00")],
        ),
        case(
            "12 hello in two fragments",
            &[first(TEXT, &hello[..3]), (FIN | CONTINUATION, hello[3..].to_vec())],
        ),
        case(
            "12 a ping inside",
            &[first(TEXT, &hello[..3]), (FIN | PING, vec![1]), (FIN | CONTINUATION, hello[3..].to_vec())],
        ),
        case("an empty message", &[first(FIN | TEXT, b"\x00")]),
        case("bytes that cannot be inflated", &[first(FIN | BINARY, b"\xff\xff\xff\xff")]),
        case("the bit in a continuation", &[first(TEXT, hello), first(FIN | CONTINUATION, hello)]),
    ];
    for size in [1 << 10, 1 << 17] {
        cases.push(case(format!("binary of {size}"), &[first(FIN | BINARY, &pattern(size))]));
    }
    cases
}
