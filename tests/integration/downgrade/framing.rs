//! Lengths: what is announced, what DATA carries, and trailers (RFC 9113 section 8.1).

use super::{Case, GET, Must, POST};
use crate::support::frames::{END_STREAM, PADDED, data, frame, headers, kind, reset};

use Must::{Nothing, Pass, Refuse, Reset};

const CHUNKED: &str = "POST / HTTP/1.1|host: app.test|transfer-encoding: chunked";
const SMUGGLED: &[u8] = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n";

/// A `POST` that announces `length`, with this body in one DATA.
fn announced(length: &'static str, body: &[u8]) -> Vec<u8> {
    [headers(1, 0, &[&POST[..], &[("content-length", length)]].concat()), data(1, END_STREAM, body)].concat()
}

fn post(pieces: &[Vec<u8>]) -> Vec<u8> {
    [headers(1, 0, &POST), pieces.concat()].concat()
}

pub const CASES: &[Case] = &[
    Case {
        name: "a length that is DATA's",
        frames: || announced("5", b"hello"),
        must: Pass("POST / HTTP/1.1|content-length: 5|host: app.test", "hello"),
    },
    Case { name: "a length below DATA's", frames: || announced("4", b"hello"), must: Reset },
    Case { name: "a length above DATA's", frames: || announced("6", b"hello"), must: Reset },
    Case {
        name: "a length of nothing, and a request in DATA",
        frames: || announced("0", SMUGGLED),
        must: Reset,
    },
    Case {
        name: "a length of nothing, and an empty DATA",
        frames: || announced("0", b""),
        must: Pass("POST / HTTP/1.1|content-length: 0|host: app.test", ""),
    },
    Case {
        name: "a length of nothing, and trailers",
        frames: || {
            let head = headers(1, 0, &[&POST[..], &[("content-length", "0")]].concat());
            [head, headers(1, END_STREAM, &[("x", "y")])].concat()
        },
        must: Pass("POST / HTTP/1.1|content-length: 0|host: app.test", ""),
    },
    Case {
        name: "a length and no DATA at all",
        frames: || headers(1, END_STREAM, &[&POST[..], &[("content-length", "5")]].concat()),
        must: Reset,
    },
    Case {
        name: "a length of GET and no DATA",
        frames: || headers(1, END_STREAM, &[&GET[..], &[("content-length", "5")]].concat()),
        must: Reset,
    },
    Case { name: "two lengths that differ", frames: || twice("5", "6"), must: Reset },
    Case { name: "two lengths that agree", frames: || twice("5", "5"), must: Refuse(400, "malformed") },
    Case { name: "a list of lengths", frames: || announced("5, 5", b"hello"), must: Reset },
    Case { name: "an empty length", frames: || announced("", b"hello"), must: Reset },
    Case { name: "a signed length", frames: || announced("+5", b"hello"), must: Reset },
    Case { name: "a negative length", frames: || announced("-5", b"hello"), must: Reset },
    Case { name: "a hexadecimal length", frames: || announced("0x5", b"hello"), must: Reset },
    Case { name: "a length with a space", frames: || announced("5 ", b"hello"), must: Reset },
    Case {
        name: "a length of 64 bits and more",
        frames: || announced("18446744073709551621", b"hello"),
        must: Reset,
    },
    Case {
        name: "no length is written as chunks",
        frames: || post(&[data(1, 0, b"he"), data(1, END_STREAM, b"llo")]),
        must: Pass(CHUNKED, "hello"),
    },
    Case {
        name: "a request in DATA stays a body",
        frames: || post(&[data(1, END_STREAM, SMUGGLED)]),
        must: Pass(CHUNKED, "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"),
    },
    Case {
        name: "an empty body that ends by DATA",
        frames: || post(&[data(1, 0, b""), data(1, END_STREAM, b"")]),
        must: Pass(CHUNKED, ""),
    },
    Case {
        name: "an empty DATA that ends a body ends it once",
        frames: || post(&[data(1, 0, b"hello"), data(1, 0, b""), data(1, END_STREAM, b"")]),
        must: Pass(CHUNKED, "hello"),
    },
    Case {
        name: "a body given up is never whole upstream",
        frames: || {
            let ping = frame(kind::PING, 0, 0, b"are you?");
            post(&[data(1, 0, b"hello"), reset(1, 8), ping])
        },
        must: Nothing,
    },
    Case {
        name: "padding is not part of the body",
        frames: || post(&[frame(kind::DATA, PADDED | END_STREAM, 1, b"\x03hello\0\0\0")]),
        must: Pass(CHUNKED, "hello"),
    },
    Case {
        name: "a body of GET is a body",
        frames: || [headers(1, 0, &GET), data(1, END_STREAM, SMUGGLED)].concat(),
        must: Pass(
            "GET / HTTP/1.1|host: app.test|transfer-encoding: chunked",
            "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n",
        ),
    },
    Case {
        name: "a post without a body",
        frames: || headers(1, END_STREAM, &POST),
        must: Pass("POST / HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "trailers go no further",
        frames: || {
            let trailers =
                headers(1, END_STREAM, &[("x", "y"), ("content-length", "7"), ("host", "evil.test")]);
            post(&[data(1, 0, b"hello"), trailers])
        },
        must: Pass(CHUNKED, "hello"),
    },
    Case {
        name: "trailers behind a small body that says how long it is",
        frames: || {
            let head = headers(1, 0, &[&POST[..], &[("content-length", "5")]].concat());
            [head, data(1, 0, b"hello"), headers(1, END_STREAM, &[("x", "y")])].concat()
        },
        must: Pass("POST / HTTP/1.1|content-length: 5|host: app.test", "hello"),
    },
    Case {
        name: "trailers behind such a body in pieces, some of them empty",
        frames: || {
            let head = headers(1, 0, &[&POST[..], &[("content-length", "5")]].concat());
            let body = [data(1, 0, b"he"), data(1, 0, b""), data(1, 0, b"llo"), data(1, 0, b"")].concat();
            [head, body, headers(1, END_STREAM, &[("x", "y")])].concat()
        },
        must: Pass("POST / HTTP/1.1|content-length: 5|host: app.test", "hello"),
    },
    Case {
        name: "trailers with a field that frames",
        frames: || post(&[data(1, 0, b"hello"), headers(1, END_STREAM, &[("transfer-encoding", "chunked")])]),
        must: Reset,
    },
    Case {
        name: "trailers that come before the length is reached",
        frames: || {
            let head = headers(1, 0, &[&POST[..], &[("content-length", "9")]].concat());
            [head, data(1, 0, b"hello"), headers(1, END_STREAM, &[("x", "y")])].concat()
        },
        must: Reset,
    },
    Case {
        name: "an announced body over the limit",
        frames: || headers(1, 0, &[&POST[..], &[("content-length", "1025")]].concat()),
        must: Refuse(413, "body_too_large"),
    },
    Case {
        name: "a body over the limit is never whole upstream",
        frames: || post(&[data(1, 0, &[b'x'; 1024]), data(1, END_STREAM, b"x")]),
        must: Refuse(413, "body_too_large"),
    },
    Case {
        name: "an expectation is answered by the answer",
        frames: || {
            let head =
                headers(1, 0, &[&POST[..], &[("content-length", "5"), ("expect", "100-continue")]].concat());
            [head, data(1, END_STREAM, b"hello")].concat()
        },
        must: Pass("POST / HTTP/1.1|content-length: 5|expect: 100-continue|host: app.test", "hello"),
    },
];

/// Two lengths, and five bytes.
fn twice(first: &'static str, second: &'static str) -> Vec<u8> {
    let fields = [&POST[..], &[("content-length", first), ("content-length", second)]].concat();
    [headers(1, 0, &fields), data(1, END_STREAM, b"hello")].concat()
}
