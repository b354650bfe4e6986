//! The frames, type by type (RFC 9113 section 6).

use super::client::Client;
use super::client::code::{CANCEL, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, PROTOCOL_ERROR, STREAM_CLOSED};
use super::generic::{INITIAL_WINDOW, get, get_block, head, post};
use super::{Case, Outcome, case};
use crate::support::frames::{
    ACK, END_HEADERS, END_STREAM, PADDED, block, data, frame, kind, priority, reset, setting, window_update,
};

/// The greatest window (RFC 9113 section 6.9.1).
const MAX_WINDOW: u32 = i32::MAX as u32;

/// HEADERS that another frame must end.
fn begun(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END_STREAM, stream, &get_block())
}

/// A piece of a header block that is a whole field.
fn continuation(stream: u32, flags: u8) -> Vec<u8> {
    frame(kind::CONTINUATION, flags, stream, &block(&[("x-test", "ok")]))
}

pub const CASES: &[Case] = &[
    case("6.1/1: DATA of the connection", |c| c.send(data(0, END_STREAM, b"test")).ends(&[PROTOCOL_ERROR])),
    case("6.1/2: DATA on a stream that is not open", |c| {
        c.exchange(1, get(1))?.send(data(1, END_STREAM, b"test")).resets(1, &[STREAM_CLOSED])
    }),
    case("6.1/3: DATA with more padding than payload", |c| {
        c.send(post(1)).send(data(1, END_STREAM | PADDED, b"\x06test")).ends(&[PROTOCOL_ERROR])
    }),
    case("6.2/1: HEADERS without an end, then PRIORITY", |c| {
        c.send([begun(1), frame(kind::PRIORITY, 0, 1, &priority(0, 255))].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.2/2: HEADERS without an end, then HEADERS of another stream", |c| {
        c.send([begun(1), get(3)].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.2/3: HEADERS of the connection", |c| c.send(get(0)).ends(&[PROTOCOL_ERROR])),
    case("6.2/4: HEADERS with more padding than payload", |c| {
        let block = [&[0xff][..], &get_block()].concat();
        c.send(head(1, END_STREAM | PADDED, &block)).ends(&[PROTOCOL_ERROR])
    }),
    case("6.3/1: PRIORITY of the connection", |c| {
        c.send(frame(kind::PRIORITY, 0, 0, &priority(0, 255))).ends(&[PROTOCOL_ERROR])
    }),
    case("6.3/2: PRIORITY of another length than 5", |c| {
        c.send(post(1)).send(frame(kind::PRIORITY, 0, 1, &[0x80, 0, 0, 1])).ends_instead(FRAME_SIZE_ERROR)
    }),
    case("6.4/1: RST_STREAM of the connection", |c| c.send(reset(0, CANCEL)).ends(&[PROTOCOL_ERROR])),
    case("6.4/2: RST_STREAM on an idle stream", |c| c.send(reset(1, CANCEL)).ends(&[PROTOCOL_ERROR])),
    case("6.4/3: RST_STREAM of another length than 4", |c| {
        c.send(post(1)).send(frame(kind::RST_STREAM, 0, 1, &[0; 3])).ends_unspecifically(FRAME_SIZE_ERROR)
    }),
];

pub const SETTINGS_AND_PING: &[Case] = &[
    case("6.5/1: an acknowledgement of SETTINGS that carries something", |c| {
        c.send(frame(kind::SETTINGS, ACK, 0, &[0, 3, 0, 0, 0, 1])).ends_unspecifically(FRAME_SIZE_ERROR)
    }),
    case("6.5/2: SETTINGS of a stream", |c| {
        c.send(frame(kind::SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 1])).ends(&[PROTOCOL_ERROR])
    }),
    case("6.5/3: SETTINGS of a length that 6 does not divide", |c| {
        c.send(frame(kind::SETTINGS, 0, 0, &[0, 3, 0])).ends_unspecifically(FRAME_SIZE_ERROR)
    }),
    case("6.5.2/1: ENABLE_PUSH other than 0 and 1", |c| c.send(setting(2, 2)).ends(&[PROTOCOL_ERROR])),
    case("6.5.2/2: INITIAL_WINDOW_SIZE above the greatest window", |c| {
        c.send(setting(INITIAL_WINDOW, MAX_WINDOW + 1)).ends_unspecifically(FLOW_CONTROL_ERROR)
    }),
    case("6.5.2/3: MAX_FRAME_SIZE below the smallest", |c| {
        c.send(setting(5, 16_383)).ends(&[PROTOCOL_ERROR])
    }),
    case("6.5.2/4: MAX_FRAME_SIZE above the greatest", |c| {
        c.send(setting(5, 1 << 24)).ends(&[PROTOCOL_ERROR])
    }),
    case("6.5.2/5: an unknown setting is ignored", |c| c.send(setting(0xff, 1)).lives()),
    case("6.5.3/1: of two values of a setting the last one holds", |c| {
        let entry = |value: u8| [0, 4, 0, 0, 0, value];
        c.send(frame(kind::SETTINGS, 0, 0, &[entry(100), entry(1)].concat()));
        first_byte(c.send(get(1)))
    }),
    case("6.5.3/2: SETTINGS are acknowledged", |c| {
        let seen = c.send(setting(3, 1)).next(kind::SETTINGS)?;
        if (seen.flags, seen.payload.len()) == (ACK, 0) { Ok(()) } else { Err(format!("{seen:?}")) }
    }),
    case("6.7/1: PING is answered with what it carries", |c| {
        c.send(frame(kind::PING, 0, 0, b"h2spec-6")).next_ping(b"h2spec-6")
    }),
    case("6.7/2: an answer to no PING is not answered", |c| {
        c.send(frame(kind::PING, ACK, 0, b"invalid!")).lives()
    }),
    case("6.7/3: PING of a stream", |c| c.send(frame(kind::PING, 0, 1, b"h2spec-7")).ends(&[PROTOCOL_ERROR])),
    case("6.7/4: PING of another length than 8", |c| {
        c.send(frame(kind::PING, 0, 0, b"h2spec")).ends_unspecifically(FRAME_SIZE_ERROR)
    }),
    case("6.8/1: GOAWAY of a stream", |c| c.send(frame(kind::GOAWAY, 0, 1, &[0; 8])).ends(&[PROTOCOL_ERROR])),
];

pub const WINDOWS_AND_CONTINUATION: &[Case] = &[
    case("6.9/1: WINDOW_UPDATE of the connection by nothing", |c| {
        c.send(window_update(0, 0)).ends(&[PROTOCOL_ERROR])
    }),
    case("6.9/2: WINDOW_UPDATE of a stream by nothing", |c| {
        c.send(post(1)).send(window_update(1, 0)).ends_instead(PROTOCOL_ERROR)
    }),
    case("6.9/3: WINDOW_UPDATE of another length than 4", |c| {
        c.send(frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1])).ends_unspecifically(FRAME_SIZE_ERROR)
    }),
    case("6.9.1/1: no more DATA than the window allows", |c| {
        first_byte(c.send([setting(INITIAL_WINDOW, 1), get(1)].concat()))
    }),
    case("6.9.1/2: a window of the connection above the greatest", |c| {
        c.send(window_update(0, MAX_WINDOW).repeat(2)).ends(&[FLOW_CONTROL_ERROR])
    }),
    case("6.9.1/3: a window of a stream above the greatest", |c| {
        c.send(post(1)).send(window_update(1, MAX_WINDOW).repeat(2)).resets(1, &[FLOW_CONTROL_ERROR])
    }),
    case("6.9.2/1: settings change the windows of open streams", |c| {
        c.send([setting(INITIAL_WINDOW, 0), get(1)].concat()).next(kind::HEADERS)?;
        first_byte(c.send(setting(INITIAL_WINDOW, 1)))
    }),
    case("6.9.2/2: and may make them negative", |c| {
        first_bytes(c.send([setting(INITIAL_WINDOW, 3), get(1)].concat()), b"hel")?;
        // 3 sent of 2 allowed: the next two only get it above zero again.
        c.send([setting(INITIAL_WINDOW, 2), window_update(1, 2)].concat());
        first_bytes(c, b"l")
    }),
    case("6.9.2/3: INITIAL_WINDOW_SIZE above the greatest window", |c| {
        c.send(setting(INITIAL_WINDOW, MAX_WINDOW + 1)).ends_unspecifically(FLOW_CONTROL_ERROR)
    }),
    case("6.10/1: more than one CONTINUATION", |c| {
        c.send([begun(1), continuation(1, 0), continuation(1, END_HEADERS)].concat()).answered(1)
    }),
    case("6.10/2: CONTINUATION, then another frame", |c| {
        c.send([begun(1), continuation(1, 0), data(1, END_STREAM, b"test")].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.10/3: CONTINUATION of the connection", |c| {
        c.send([begun(1), continuation(0, END_HEADERS)].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.10/4: CONTINUATION after HEADERS that have ended", |c| {
        c.send([post(1), continuation(1, END_HEADERS)].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.10/5: CONTINUATION after one that has ended", |c| {
        let end = continuation(1, END_HEADERS);
        c.send([begun(1), end.clone(), end].concat()).ends(&[PROTOCOL_ERROR])
    }),
    case("6.10/6: CONTINUATION after DATA", |c| {
        c.send([post(1), data(1, 0, b"test"), continuation(1, END_HEADERS)].concat()).ends(&[PROTOCOL_ERROR])
    }),
];

/// A first DATA of one byte, because no more was allowed.
fn first_byte(client: &mut Client) -> Outcome {
    first_bytes(client, b"h")
}

fn first_bytes(client: &mut Client, wanted: &[u8]) -> Outcome {
    let seen = client.next(kind::DATA)?.payload;
    if seen == wanted { client.lives() } else { Err(format!("DATA of {seen:?}, not {wanted:?}")) }
}
