//! Streams: their states, numbers, dependencies and errors (RFC 9113 section 5).

use super::client::code::{CANCEL, PROTOCOL_ERROR, REFUSED_STREAM, STREAM_CLOSED};
use super::generic::{INITIAL_WINDOW, get, get_block, half_closed, head, post};
use super::{Case, case};
use crate::support::frames::{
    END_HEADERS, END_STREAM, PRIORITY, data, frame, kind, priority, reset, setting, window_update,
};

/// Of SETTINGS_MAX_CONCURRENT_STREAMS.
const MAX_STREAMS: u16 = 3;

fn continuation(stream: u32) -> Vec<u8> {
    frame(kind::CONTINUATION, END_HEADERS, stream, &get_block())
}

pub const CASES: &[Case] = &[
    case("5.1/1: DATA on an idle stream", |c| c.send(data(1, END_STREAM, b"test")).ends(&[PROTOCOL_ERROR])),
    case("5.1/2: RST_STREAM on an idle stream", |c| c.send(reset(1, CANCEL)).ends(&[PROTOCOL_ERROR])),
    case("5.1/3: WINDOW_UPDATE on an idle stream", |c| c.send(window_update(1, 100)).ends(&[PROTOCOL_ERROR])),
    case("5.1/4: CONTINUATION on an idle stream", |c| c.send(continuation(1)).ends(&[PROTOCOL_ERROR])),
    case("5.1/5: DATA on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(data(1, END_STREAM, b"test")).ends_instead(STREAM_CLOSED)
    }),
    case("5.1/6: HEADERS on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(get(1)).ends_instead(STREAM_CLOSED)
    }),
    case("5.1/7: CONTINUATION on a half-closed (remote) stream", |c| {
        half_closed(c)?.send(continuation(1)).ends(&[PROTOCOL_ERROR, STREAM_CLOSED])
    }),
    case("5.1/8: DATA after RST_STREAM", |c| {
        c.send([post(1), reset(1, CANCEL), data(1, END_STREAM, b"test")].concat()).resets(1, &[STREAM_CLOSED])
    }),
    case("5.1/9: HEADERS after RST_STREAM", |c| {
        c.send([post(1), reset(1, CANCEL), get(1)].concat()).ends_instead(STREAM_CLOSED)
    }),
    case("5.1/10: CONTINUATION after RST_STREAM", |c| {
        c.send([post(1), reset(1, CANCEL), continuation(1)].concat()).ends(&[PROTOCOL_ERROR, STREAM_CLOSED])
    }),
    case("5.1/11: DATA on a closed stream", |c| {
        c.exchange(1, get(1))?.send(data(1, END_STREAM, b"test")).resets(1, &[STREAM_CLOSED])
    }),
    case("5.1/12: HEADERS on a closed stream", |c| {
        c.exchange(1, get(1))?.send(get(1)).ends_unspecifically(STREAM_CLOSED)
    }),
    case("5.1/13: CONTINUATION on a closed stream", |c| {
        c.exchange(1, get(1))?.send(continuation(1)).ends(&[PROTOCOL_ERROR, STREAM_CLOSED])
    }),
    case("5.1.1/1: a stream with an even number", |c| c.send(get(2)).ends(&[PROTOCOL_ERROR])),
    case("5.1.1/2: a stream with a smaller number than one before", |c| {
        c.exchange(5, get(5))?.send(get(3)).ends(&[PROTOCOL_ERROR])
    }),
    case("5.1.2/1: more streams than allowed at a time", |c| {
        let most = c.setting(MAX_STREAMS).ok_or("no limit was set")?;
        // Nothing of an answer's body may leave, so every stream stays.
        c.send(setting(INITIAL_WINDOW, 0));
        c.send((0..=most).flat_map(|number| get(number * 2 + 1)).collect::<Vec<_>>());
        c.resets(most * 2 + 1, &[PROTOCOL_ERROR, REFUSED_STREAM])
    }),
    case("5.3.1/1: HEADERS that depend on themselves", |c| {
        let block = [&priority(1, 255)[..], &get_block()].concat();
        c.send(head(1, END_STREAM | PRIORITY, &block)).resets(1, &[PROTOCOL_ERROR])
    }),
    case("5.3.1/2: PRIORITY that depends on itself", |c| {
        c.send(frame(kind::PRIORITY, 0, 2, &priority(2, 255))).resets(2, &[PROTOCOL_ERROR])
    }),
    case("5.4.1/1: after an error of the connection it is closed", |c| {
        c.send(frame(kind::PING, 0, 3, b"h2spec-4")).closes()
    }),
    case("5.4.1/2: and GOAWAY has said why", |c| {
        c.send(frame(kind::PING, 0, 3, b"h2spec-5")).ends(&[PROTOCOL_ERROR])
    }),
    case("5.5/1: an unknown frame is ignored", |c| {
        c.send(frame(0x16, 0, 0, b"extended")).send(frame(0x16, 0, 7, b"extended")).lives()
    }),
    case("5.5/2: an unknown frame inside a header block", |c| {
        let first = frame(kind::HEADERS, END_STREAM, 1, &get_block());
        c.send([first, frame(0x16, 0, 1, b"extended")].concat()).ends(&[PROTOCOL_ERROR])
    }),
];
