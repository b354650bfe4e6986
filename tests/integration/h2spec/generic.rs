//! What every client relies on: messages and frames that are right are answered.

use super::client::{Client, code};
use super::{Case, bare, case};
use crate::support::frames::{
    ACK, END_HEADERS, END_STREAM, PADDED, PREFACE, PRIORITY, block, data, frame, goaway, kind, priority,
    reset, setting, window_update,
};

/// Static table entries (RFC 7541 appendix A): GET, https, and the path `/`.
const GET_ROOT: &[u8] = &[0x82, 0x87, 0x84];
/// POST, https, and the path `/`.
const POST_ROOT: &[u8] = &[0x83, 0x87, 0x84];
/// `:authority: app.test`, not to be remembered.
const AUTHORITY: &[u8] = b"\x01\x08app.test";

/// Of SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW: u16 = 4;

/// The fields of a `GET` of `/`.
pub fn get_block() -> Vec<u8> {
    [GET_ROOT, AUTHORITY].concat()
}

/// The fields of a `POST` to `/`.
pub fn post_block() -> Vec<u8> {
    [POST_ROOT, AUTHORITY].concat()
}

/// HEADERS with these flags besides END_HEADERS.
pub fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags | END_HEADERS, stream, block)
}

/// A whole `GET` of `/`.
pub fn get(stream: u32) -> Vec<u8> {
    head(stream, END_STREAM, &get_block())
}

/// The head of a `POST` to `/`.
pub fn post(stream: u32) -> Vec<u8> {
    head(stream, 0, &post_block())
}

/// Leaves stream 1 half-closed (remote) for sure: its answer has begun and waits for a window.
pub fn half_closed(client: &mut Client) -> Result<&mut Client, String> {
    client.send([setting(INITIAL_WINDOW, 0), get(1)].concat()).next(kind::HEADERS)?;
    Ok(client)
}

/// Frames with `length` bytes of padding: `payload` between its length and zeros.
pub fn padded(length: u8, payload: &[u8]) -> Vec<u8> {
    [&[length][..], payload, &vec![0; usize::from(length)]].concat()
}

pub const MESSAGES: &[Case] = &[
    bare("1/1: a preface is answered with settings", |c| {
        c.send(PREFACE).send(frame(kind::SETTINGS, 0, 0, b"")).next(kind::SETTINGS).map(drop)
    }),
    case("2/1: PRIORITY on an idle stream", |c| {
        c.send(frame(kind::PRIORITY, 0, 1, &priority(0, 0))).send(get(1)).answered(1)
    }),
    case("2/2: WINDOW_UPDATE on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(window_update(1, 100)).answered_with(1, "hello")
    }),
    case("2/3: PRIORITY on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(frame(kind::PRIORITY, 0, 1, &priority(0, 0)));
        c.send(window_update(1, 100)).answered_with(1, "hello")
    }),
    case("2/4: RST_STREAM on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(reset(1, code::CANCEL)).lives()
    }),
    case("2/5: PRIORITY on a closed stream", |c| {
        c.exchange(1, get(1))?.send(frame(kind::PRIORITY, 0, 1, &priority(0, 0))).lives()
    }),
    case("3.1/1: DATA", |c| c.send(post(1)).send(data(1, END_STREAM, b"test")).answered_with(1, "test")),
    case("3.1/2: more than one DATA", |c| {
        c.send(post(1)).send(data(1, 0, b"te")).send(data(1, END_STREAM, b"st")).answered_with(1, "test")
    }),
    case("3.1/3: padded DATA", |c| {
        c.send(post(1)).send(data(1, END_STREAM | PADDED, &padded(6, b"test"))).answered_with(1, "test")
    }),
    case("3.2/1: HEADERS", |c| c.send(get(1)).answered(1)),
    case("3.2/2: padded HEADERS", |c| {
        c.send(head(1, END_STREAM | PADDED, &padded(6, &get_block()))).answered(1)
    }),
    case("3.2/3: HEADERS with a priority", |c| {
        c.send(head(1, END_STREAM | PRIORITY, &[&priority(0, 255)[..], &get_block()].concat())).answered(1)
    }),
    case("3.3/1: PRIORITY with the weight 1", |c| prioritized(c, 1, 0, 0)),
    case("3.3/2: PRIORITY with the weight 256", |c| prioritized(c, 1, 0, 255)),
    case("3.3/3: PRIORITY that depends on another stream", |c| prioritized(c, 3, 1, 255)),
    case("3.3/4: PRIORITY that depends on another stream alone", |c| prioritized(c, 3, 1 | 1 << 31, 255)),
    case("3.3/5: PRIORITY on an idle stream, then a request on a lower one", |c| {
        c.send(frame(kind::PRIORITY, 0, 5, &priority(0, 255))).send(get(3)).answered(3)
    }),
    case("3.4/1: RST_STREAM", |c| c.send(post(1)).send(reset(1, code::CANCEL)).lives()),
    case("3.5/1: SETTINGS are acknowledged", |c| {
        let seen = c.send(setting(3, 100)).next(kind::SETTINGS)?;
        if (seen.flags, seen.payload.len()) == (ACK, 0) { Ok(()) } else { Err(format!("{seen:?}")) }
    }),
    case("3.7/1: PING is answered with what it carries", |c| {
        c.send(frame(kind::PING, 0, 0, b"h2spec-1")).next_ping(b"h2spec-1")
    }),
    case("3.8/1: GOAWAY is answered by a good end", |c| {
        c.exchange(1, get(1))?.send(goaway(code::NO_ERROR)).ends(&[code::NO_ERROR])
    }),
    case("3.9/1: WINDOW_UPDATE of the connection", |c| c.send(window_update(0, 1)).lives()),
    case("3.9/2: WINDOW_UPDATE of a stream", |c| {
        c.send(post(1)).send(window_update(1, 1)).send(data(1, END_STREAM, b"x")).answered_with(1, "x")
    }),
    case("3.10/1: CONTINUATION", |c| c.send(continued(2)).answered(1)),
    case("3.10/2: more than one CONTINUATION", |c| c.send(continued(3)).answered(1)),
    case("4/1: GET", |c| c.send(get(1)).answered_with(1, "hello")),
    case("4/2: HEAD", |c| {
        let block = [b"\x02\x04HEAD", &GET_ROOT[1..], AUTHORITY].concat();
        c.send(head(1, END_STREAM, &block)).answered_without_body(1)
    }),
    case("4/3: POST", |c| c.send(post(1)).send(data(1, END_STREAM, b"body")).answered_with(1, "body")),
    case("4/4: POST with trailers", |c| {
        c.send(post(1)).send(data(1, 0, b"body"));
        c.send(head(1, END_STREAM, &block(&[("x-test", "ok")]))).answered_with(1, "body")
    }),
];

fn prioritized(client: &mut Client, stream: u32, depends_on: u32, weight: u8) -> Result<(), String> {
    client.send(frame(kind::PRIORITY, 0, stream, &priority(depends_on, weight)));
    client.send(get(stream)).answered(stream)
}

/// A `GET` in HEADERS and CONTINUATIONs, `pieces` together.
fn continued(pieces: usize) -> Vec<u8> {
    let block = get_block();
    let size = block.len().div_ceil(pieces);
    let frames = block.chunks(size).enumerate().map(|(index, piece)| match index {
        0 => frame(kind::HEADERS, END_STREAM, 1, piece),
        last if last + 1 == pieces => frame(kind::CONTINUATION, END_HEADERS, 1, piece),
        _ => frame(kind::CONTINUATION, 0, 1, piece),
    });
    frames.collect::<Vec<_>>().concat()
}

/// Huffman-coded as in RFC 7541 appendix C.4.3.
const KEY_CODED: &[u8] = b"\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f";
/// The same: `custom-value`.
const VALUE_CODED: &[u8] = b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
const KEY: &[u8] = b"\x0acustom-key";
const VALUE: &[u8] = b"\x0ccustom-value";
/// A field that puts the name `custom-key` where index 62 finds it.
const REMEMBERED: &[u8] = b"\x40\x0acustom-key\x05first";

/// Every form a field may have (RFC 7541 section 6). The origin says what it got.
pub const BLOCKS: &[Case] = &[
    case("5/1: an indexed field", |c| {
        c.exchange(1, head(1, END_STREAM, &[&get_block()[..], &[0x40], KEY, VALUE].concat()))?;
        c.send(head(3, END_STREAM, &[&get_block()[..], &[0xbe]].concat())).answered_with(3, "custom-value")
    }),
    case("5/2: remembered, name indexed", |c| carries(c, &[&[0x7e], VALUE], true)),
    case("5/3: remembered, name indexed, coded", |c| carries(c, &[&[0x7e], VALUE_CODED], true)),
    case("5/4: remembered, new name", |c| carries(c, &[&[0x40], KEY, VALUE], false)),
    case("5/5: remembered, new name, coded", |c| carries(c, &[&[0x40], KEY_CODED, VALUE_CODED], false)),
    case("5/6: not remembered, name indexed", |c| carries(c, &[&[0x0f, 0x2f], VALUE], true)),
    case("5/7: not remembered, name indexed, coded", |c| carries(c, &[&[0x0f, 0x2f], VALUE_CODED], true)),
    case("5/8: not remembered, new name", |c| carries(c, &[&[0], KEY, VALUE], false)),
    case("5/9: not remembered, new name, coded", |c| carries(c, &[&[0], KEY_CODED, VALUE_CODED], false)),
    case("5/10: never indexed, name indexed", |c| carries(c, &[&[0x1f, 0x2f], VALUE], true)),
    case("5/11: never indexed, name indexed, coded", |c| carries(c, &[&[0x1f, 0x2f], VALUE_CODED], true)),
    case("5/12: never indexed, new name", |c| carries(c, &[&[0x10], KEY, VALUE], false)),
    case("5/13: never indexed, new name, coded", |c| carries(c, &[&[0x10], KEY_CODED, VALUE_CODED], false)),
    case("5/14: an update of the table's size", |c| {
        c.send(head(1, END_STREAM, &[&[0x20][..], &get_block()].concat())).answered(1)
    }),
    case("5/15: two updates of the table's size", |c| {
        c.send(head(1, END_STREAM, &[&[0x20, 0x3f, 0xe1, 0x1f][..], &get_block()].concat())).answered(1)
    }),
];

/// Sends a `GET` with this field; with `named`, after a request that made its name known.
fn carries(client: &mut Client, field: &[&[u8]], named: bool) -> Result<(), String> {
    let mut stream = 1;
    if named {
        client.exchange(1, head(1, END_STREAM, &[&get_block()[..], REMEMBERED].concat()))?;
        stream = 3;
    }
    let block = [&get_block()[..], &field.concat()].concat();
    client.send(head(stream, END_STREAM, &block)).answered_with(stream, "custom-value")
}
