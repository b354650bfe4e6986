//! Error codes, requests and their fields (RFC 9113 sections 7 and 8).

use super::client::Client;
use super::client::code::PROTOCOL_ERROR;
use super::generic::{get, head, post};
use super::{Case, Outcome, case};
use crate::support::frames::{END_HEADERS, END_STREAM, block, data, frame, goaway, kind, reset};

type Field = (&'static str, &'static str);

const METHOD: Field = (":method", "GET");
const SCHEME: Field = (":scheme", "https");
const AUTHORITY: Field = (":authority", "app.test");
const PATH: Field = (":path", "/");

pub const CASES: &[Case] = &[
    case("7/1: GOAWAY with an unknown code", |c| c.exchange(1, get(1))?.send(goaway(0xff)).closes()),
    case("7/2: RST_STREAM with an unknown code", |c| c.send(post(1)).send(reset(1, 0xff)).lives()),
    case("8.1/1: a second HEADERS that does not end the stream", |c| {
        let trailers = head(1, 0, &block(&[("x-test", "ok")]));
        c.send([post(1), data(1, 0, b"test"), trailers].concat()).resets(1, &[PROTOCOL_ERROR])
    }),
    case("8.1.2/1: a field name in capitals", |c| {
        malformed_name(c, &[METHOD, SCHEME, AUTHORITY, PATH, ("X-TEST", "ok")])
    }),
    case("8.1.2.1/1: an unknown pseudo-header", |c| {
        malformed_name(c, &[METHOD, SCHEME, AUTHORITY, PATH, (":test", "ok")])
    }),
    case("8.1.2.1/2: a pseudo-header of responses", |c| {
        malformed(c, &[METHOD, SCHEME, AUTHORITY, PATH, (":status", "200")])
    }),
    case("8.1.2.1/3: a pseudo-header among trailers", |c| {
        let trailers = head(1, END_STREAM, &block(&[METHOD]));
        c.send([post(1), data(1, 0, b"test"), trailers].concat()).resets(1, &[PROTOCOL_ERROR])
    }),
    case("8.1.2.1/4: a pseudo-header after a field", |c| {
        malformed(c, &[METHOD, SCHEME, AUTHORITY, ("x-test", "ok"), PATH])
    }),
    case("8.1.2.2/1: a field of the connection", |c| {
        malformed(c, &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "keep-alive")])
    }),
    case("8.1.2.2/2: TE with anything but trailers", |c| {
        malformed(c, &[METHOD, SCHEME, AUTHORITY, PATH, ("te", "trailers, deflate")])
    }),
    case("8.1.2.3/1: an empty path", |c| malformed(c, &[METHOD, SCHEME, AUTHORITY, (":path", "")])),
    case("8.1.2.3/2: no method", |c| malformed(c, &[SCHEME, AUTHORITY, PATH])),
    case("8.1.2.3/3: no scheme", |c| malformed(c, &[METHOD, AUTHORITY, PATH])),
    case("8.1.2.3/4: no path", |c| malformed(c, &[METHOD, SCHEME, AUTHORITY])),
    case("8.1.2.3/5: two methods", |c| malformed(c, &[METHOD, METHOD, SCHEME, AUTHORITY, PATH])),
    case("8.1.2.3/6: two schemes", |c| malformed(c, &[METHOD, SCHEME, SCHEME, AUTHORITY, PATH])),
    case("8.1.2.3/7: two paths", |c| malformed(c, &[METHOD, SCHEME, AUTHORITY, PATH, PATH])),
    case("8.1.2.6/1: a content-length that is not DATA's", |c| {
        c.send([announced("1"), data(1, END_STREAM, b"test")].concat()).resets(1, &[PROTOCOL_ERROR])
    }),
    case("8.1.2.6/2: a content-length that is not all DATA's", |c| {
        let pieces = [data(1, 0, b"test"), data(1, END_STREAM, b"test")].concat();
        c.send([announced("1"), pieces].concat()).resets(1, &[PROTOCOL_ERROR])
    }),
    case("8.2/1: PUSH_PROMISE by a client", |c| {
        let promise = [&[0, 0, 0, 2][..], &block(&[METHOD, SCHEME, AUTHORITY, PATH])].concat();
        let promise = frame(kind::PUSH_PROMISE, END_HEADERS, 1, &promise);
        c.send([post(1), promise].concat()).ends(&[PROTOCOL_ERROR])
    }),
];

fn malformed(client: &mut Client, fields: &[Field]) -> Outcome {
    client.send(head(1, END_STREAM, &block(fields))).resets(1, &[PROTOCOL_ERROR])
}

/// The same, where it is the name of a field that no HTTP/2 can have.
fn malformed_name(client: &mut Client, fields: &[Field]) -> Outcome {
    client.send(head(1, END_STREAM, &block(fields))).ends_instead(PROTOCOL_ERROR)
}

/// The head of a `POST` with this content-length.
fn announced(length: &str) -> Vec<u8> {
    head(1, 0, &block(&[(":method", "POST"), SCHEME, AUTHORITY, PATH, ("content-length", length)]))
}
