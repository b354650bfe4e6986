//! Fields and pseudo-header fields (RFC 9113 sections 8.2 and 8.3).

use super::{Case, GET, Must, get_with, whole};
use crate::support::frames::{END_STREAM, frame, headers, kind};

use Must::{Empty400, End, Pass, Refuse, Reset};

/// 60 of them in one line.
const COOKIES: &str = "GET / HTTP/1.1|cookie: a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; \
    a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; \
    a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1; a=1|host: app.test";

const PLAIN: Must = Pass("GET / HTTP/1.1|host: app.test", "");

pub const CASES: &[Case] = &[
    Case { name: "the plainest request", frames: || whole(&GET), must: PLAIN },
    Case {
        name: "cookies in pieces become one line",
        frames: || get_with(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")]),
        must: Pass("GET / HTTP/1.1|cookie: a=1; b=2; c=3|host: app.test|x: y", ""),
    },
    Case {
        name: "a cookie stays as it is",
        frames: || get_with(&[("cookie", "a=1; b=2;c")]),
        must: Pass("GET / HTTP/1.1|cookie: a=1; b=2;c|host: app.test", ""),
    },
    Case {
        name: "who asks is the peer, whatever it says",
        frames: || {
            get_with(&[
                ("x-forwarded-for", "10.0.0.1"),
                ("forwarded", "for=10.0.0.1"),
                ("x-real-ip", "10.0.0.1"),
                ("x-forwarded-host", "evil.test"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-port", "1"),
                ("x-request-id", "mine"),
            ])
        },
        must: PLAIN,
    },
    Case {
        name: "aliases of these fields are dropped",
        frames: || {
            get_with(&[
                ("x_forwarded_for", "10.0.0.1"),
                ("x-forwarded_for", "10.0.0.1"),
                ("x.forwarded.proto", "https"),
                ("x_real_ip", "10.0.0.1"),
                ("x_forwarded_port", "1"),
            ])
        },
        must: PLAIN,
    },
    Case {
        name: "aliases of fields that frame are dropped",
        frames: || {
            get_with(&[("content_length", "5"), ("transfer_encoding", "chunked"), ("transfer.encoding", "x")])
        },
        must: PLAIN,
    },
    Case { name: "transfer-encoding", frames: || get_with(&[("transfer-encoding", "chunked")]), must: Reset },
    Case { name: "connection", frames: || get_with(&[("connection", "x-forwarded-for")]), must: Reset },
    Case { name: "an empty connection", frames: || get_with(&[("connection", "")]), must: Reset },
    Case { name: "keep-alive", frames: || get_with(&[("keep-alive", "timeout=5")]), must: Reset },
    Case { name: "proxy-connection", frames: || get_with(&[("proxy-connection", "close")]), must: Reset },
    Case { name: "upgrade", frames: || get_with(&[("upgrade", "websocket")]), must: Reset },
    Case { name: "te with trailers", frames: || get_with(&[("te", "trailers")]), must: PLAIN },
    Case { name: "te with a coding", frames: || get_with(&[("te", "gzip")]), must: Reset },
    Case {
        name: "te with more than trailers",
        frames: || get_with(&[("te", "trailers, gzip")]),
        must: Reset,
    },
    Case {
        name: "fields for proxies go no further",
        frames: || get_with(&[("http2-settings", "AAMAAABkAAQAAP__"), ("proxy-authorization", "x")]),
        must: PLAIN,
    },
    Case {
        name: "trailer goes no further",
        frames: || get_with(&[("trailer", "content-length")]),
        must: PLAIN,
    },
    Case { name: "a line break in a value", frames: || get_with(&[("x", "a\r\nx-evil: 1")]), must: End },
    Case { name: "a line feed in a value", frames: || get_with(&[("x", "a\nx-evil: 1")]), must: End },
    Case { name: "a carriage return in a value", frames: || get_with(&[("x", "a\rb")]), must: End },
    Case { name: "a NUL in a value", frames: || get_with(&[("x", "a\0b")]), must: End },
    Case { name: "an escape in a value", frames: || get_with(&[("x", "a\x1bb")]), must: End },
    Case { name: "a DEL in a value", frames: || get_with(&[("x", "a\x7fb")]), must: End },
    Case {
        name: "a request in a value",
        frames: || get_with(&[("x", "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n")]),
        must: End,
    },
    Case { name: "a line break in a name", frames: || get_with(&[("x\r\nx-evil", "1")]), must: End },
    Case {
        name: "a colon in a name",
        frames: || get_with(&[("transfer-encoding: chunked\r\nx", "1")]),
        must: End,
    },
    Case {
        name: "a colon at the end of a name",
        frames: || get_with(&[("content-length:", "5")]),
        must: End,
    },
    Case { name: "a space in a name", frames: || get_with(&[("content-length ", "5")]), must: End },
    Case {
        name: "a tab before a name",
        frames: || get_with(&[("\ttransfer-encoding", "chunked")]),
        must: End,
    },
    Case { name: "a name in capitals", frames: || get_with(&[("Content-Length", "5")]), must: End },
    Case { name: "an empty name", frames: || get_with(&[("", "x")]), must: End },
    Case { name: "a NUL in a name", frames: || get_with(&[("x\0", "x")]), must: End },
    Case { name: "bytes above ASCII in a name", frames: || get_with(&[("caf\u{e9}", "x")]), must: End },
    Case {
        name: "bytes above ASCII in a value pass",
        frames: || get_with(&[("x", "caf\u{e9}")]),
        must: Pass("GET / HTTP/1.1|host: app.test|x: caf\u{e9}", ""),
    },
    Case {
        name: "white space around a value",
        frames: || get_with(&[("x", " \ty ")]),
        must: Refuse(400, "malformed"),
    },
    Case {
        name: "a name HTTP/1 does not have",
        frames: || get_with(&[("x\"y", "z")]),
        must: Refuse(400, "malformed"),
    },
    Case {
        name: "cookies in more pieces than a head may have fields",
        frames: || get_with(&[("cookie", "a=1"); 60]),
        must: Pass(COOKIES, ""),
    },
    Case {
        name: "fields of one name stay apart and in order",
        frames: || get_with(&[("accept", "a"), ("accept", "b")]),
        must: Pass("GET / HTTP/1.1|accept: a|accept: b|host: app.test", ""),
    },
    Case {
        name: "a head above the limit",
        frames: || get_with(&[("x", LONG)]),
        must: Refuse(431, "headers_too_large"),
    },
    Case {
        name: "more fields than the limit",
        frames: || get_with(&[("x", "y"); 51]),
        must: Refuse(431, "header_count"),
    },
    Case {
        name: "a head in pieces",
        frames: || {
            let block = crate::support::frames::block(&GET);
            let pieces = block.chunks(block.len().div_ceil(5));
            let last = pieces.len() - 1;
            let frames = pieces.enumerate().map(|(index, piece)| match index {
                0 => frame(kind::HEADERS, END_STREAM, 1, piece),
                _ => frame(kind::CONTINUATION, if index == last { 4 } else { 0 }, 1, piece),
            });
            frames.collect::<Vec<_>>().concat()
        },
        must: PLAIN,
    },
];

const LONG: &str = match std::str::from_utf8(&[b'x'; 5000]) {
    Ok(text) => text,
    Err(_) => "",
};

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const AUTHORITY: (&str, &str) = (":authority", "app.test");
const PATH: (&str, &str) = (":path", "/");

pub const PSEUDO_HEADERS: &[Case] = &[
    Case { name: "an unknown one", frames: || get_with(&[(":x", "y")]), must: End },
    Case {
        name: "one of responses",
        frames: || whole(&[METHOD, SCHEME, AUTHORITY, PATH, (":status", "200")]),
        must: Reset,
    },
    Case {
        name: "one behind a field",
        frames: || whole(&[METHOD, SCHEME, AUTHORITY, ("x", "y"), PATH]),
        must: Reset,
    },
    Case {
        name: "two paths",
        frames: || whole(&[METHOD, SCHEME, AUTHORITY, PATH, (":path", "/admin")]),
        must: Reset,
    },
    Case {
        name: "two authorities",
        frames: || whole(&[METHOD, SCHEME, AUTHORITY, (":authority", "b.test"), PATH]),
        must: Reset,
    },
    Case {
        name: "two methods",
        frames: || whole(&[METHOD, (":method", "POST"), SCHEME, AUTHORITY, PATH]),
        must: Reset,
    },
    Case { name: "no scheme", frames: || whole(&[METHOD, AUTHORITY, PATH]), must: Reset },
    Case { name: "no method", frames: || whole(&[SCHEME, AUTHORITY, PATH]), must: Reset },
    Case {
        name: "a scheme with a line break",
        frames: || whole(&[METHOD, (":scheme", "http\r\nx: y"), AUTHORITY, PATH]),
        must: Reset,
    },
    Case {
        name: "a scheme that is a URL",
        frames: || whole(&[METHOD, (":scheme", "http://evil.test/?"), AUTHORITY, PATH]),
        must: Reset,
    },
    Case {
        name: "the other scheme says nothing",
        frames: || whole(&[METHOD, (":scheme", "https"), AUTHORITY, PATH]),
        must: PLAIN,
    },
    Case {
        name: "another scheme says nothing",
        frames: || whole(&[METHOD, (":scheme", "ftp"), AUTHORITY, PATH]),
        must: PLAIN,
    },
    Case {
        name: "a method with a space",
        frames: || whole(&[(":method", "GET /admin"), SCHEME, AUTHORITY, PATH]),
        must: End,
    },
    Case {
        name: "a method with a request",
        frames: || {
            whole(&[(":method", "GET / HTTP/1.1\r\nHost: app.test\r\n\r\nGET"), SCHEME, AUTHORITY, PATH])
        },
        must: End,
    },
    Case {
        name: "an empty method",
        frames: || whole(&[(":method", ""), SCHEME, AUTHORITY, PATH]),
        must: End,
    },
    Case {
        name: "a method in small letters is another method",
        frames: || whole(&[(":method", "get"), SCHEME, AUTHORITY, PATH]),
        must: Pass("get / HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "TRACE",
        frames: || whole(&[(":method", "TRACE"), SCHEME, AUTHORITY, PATH]),
        must: Refuse(405, "method"),
    },
    Case {
        name: "CONNECT",
        frames: || whole(&[(":method", "CONNECT"), (":authority", "app.test:80")]),
        must: Refuse(405, "method"),
    },
    Case {
        name: "CONNECT with a path",
        frames: || whole(&[(":method", "CONNECT"), SCHEME, AUTHORITY, PATH]),
        must: Reset,
    },
    Case {
        name: "extended CONNECT, which was not offered",
        frames: || whole(&[(":method", "CONNECT"), (":protocol", "websocket"), SCHEME, AUTHORITY, PATH]),
        must: Reset,
    },
    Case {
        name: "a protocol without CONNECT",
        frames: || whole(&[METHOD, (":protocol", "websocket"), SCHEME, AUTHORITY, PATH]),
        must: Reset,
    },
    Case { name: "a host that agrees", frames: || get_with(&[("host", "app.test")]), must: PLAIN },
    Case {
        name: "a host alone",
        frames: || whole(&[METHOD, SCHEME, PATH, ("host", "app.test")]),
        must: PLAIN,
    },
    Case { name: "neither", frames: || whole(&[METHOD, SCHEME, PATH]), must: Empty400 },
    Case { name: "a host that disagrees", frames: || get_with(&[("host", "evil.test")]), must: Empty400 },
    Case { name: "a host in capitals", frames: || get_with(&[("host", "APP.test")]), must: Empty400 },
    Case { name: "a host with another port", frames: || get_with(&[("host", "app.test:1")]), must: Empty400 },
    Case {
        name: "two hosts",
        frames: || get_with(&[("host", "app.test"), ("host", "app.test")]),
        must: Empty400,
    },
    Case {
        name: "two hosts alone",
        frames: || whole(&[METHOD, SCHEME, PATH, ("host", "app.test"), ("host", "b.test")]),
        must: Empty400,
    },
    Case {
        name: "a list of hosts",
        frames: || whole(&[METHOD, SCHEME, PATH, ("host", "app.test, b.test")]),
        must: Refuse(400, "host"),
    },
    Case { name: "user information", frames: || authority("u@app.test"), must: Empty400 },
    Case { name: "an authority with a path", frames: || authority("app.test/admin"), must: Reset },
    Case { name: "an authority with a query", frames: || authority("app.test?x"), must: Reset },
    Case { name: "an authority with a space", frames: || authority("app.test x"), must: Reset },
    Case {
        name: "an authority with a line break",
        frames: || authority("app.test\r\nx-evil: 1"),
        must: Reset,
    },
    Case { name: "an authority with a NUL", frames: || authority("app.test\0"), must: Reset },
    Case {
        name: "an authority with a list",
        frames: || authority("app.test,b.test"),
        must: Refuse(400, "host"),
    },
    Case { name: "an empty authority", frames: || authority(""), must: Reset },
    Case { name: "a port that is no number", frames: || authority("app.test:x"), must: Refuse(400, "host") },
    Case { name: "a port above 65535", frames: || authority("app.test:65536"), must: Refuse(400, "host") },
    Case { name: "two ports", frames: || authority("app.test:1:2"), must: Reset },
    Case { name: "an empty label", frames: || authority("app..test"), must: Refuse(400, "host") },
    Case {
        name: "a port does not matter to the route",
        frames: || authority("app.test:1234"),
        must: Pass("GET / HTTP/1.1|host: app.test:1234", ""),
    },
    Case {
        name: "nor do capitals",
        frames: || authority("APP.test"),
        must: Pass("GET / HTTP/1.1|host: APP.test", ""),
    },
    Case {
        name: "nor does a trailing dot",
        frames: || authority("app.test."),
        must: Pass("GET / HTTP/1.1|host: app.test.", ""),
    },
    Case {
        name: "an IPv6 literal",
        frames: || authority("[::1]:80"),
        must: Pass("GET / HTTP/1.1|host: [::1]:80", ""),
    },
    Case {
        name: "a host that is nobody's",
        frames: || authority("unknown.test"),
        must: Refuse(404, "no_route"),
    },
    Case {
        name: "a pseudo-header among trailers",
        frames: || [post_begun(), headers(1, END_STREAM, &[(":path", "/admin")])].concat(),
        must: Reset,
    },
];

fn authority(value: &'static str) -> Vec<u8> {
    whole(&[METHOD, SCHEME, (":authority", value), PATH])
}

fn post_begun() -> Vec<u8> {
    [headers(1, 0, &super::POST), frame(kind::DATA, 0, 1, b"x")].concat()
}
