//! Limits: what a client may send, and how long it may take.

use crate::support::certificates::Authority;
use crate::support::eventually::DEADLINE;
use crate::support::http2::Http2;
use crate::support::ports::ClosedPort;
use crate::support::{Gateway, Origin, Reply};
use std::time::{Duration, Instant};

const HELLO: &str = "routes: [{ name: app, respond: { body: hello } }]\n";

fn with_limits(limits: &str) -> Gateway {
    Gateway::start(&format!("{HELLO}limits: {limits}"))
}

#[test]
fn a_long_request_line_is_414_a_large_header_431() {
    let gateway = with_limits("{ request_line: 1KiB, headers: 4KiB, header_count: 20 }");
    let rows = [
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(900)), 200),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1100)), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(3500)), 200),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(4500)), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(19)), 200),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(30)), 431),
    ];
    for (request, status) in rows {
        let response = gateway.connect().request(&request);
        assert_eq!(response.status, status, "{:.60}…", request);
    }
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "headers_too_large")], 1.0);
}

#[test]
fn a_huge_header_is_refused_at_the_default_limits() {
    let gateway = Gateway::start(HELLO);
    for size in [64 << 10, 900 << 10] {
        let mut connection = gateway.connect();
        let _ = connection.try_send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(size)));
        let answer = connection.try_response();
        assert!(answer.map_or(true, |answer| answer.status == 431), "{size}");
    }
    assert_eq!(gateway.get("a", "/").text(), "hello");
}

#[test]
fn http2_headers_have_the_same_limit() {
    let builder = Gateway::builder(&format!("{HELLO}certificates: [{{ cert: app.pem, key: app.key }}]"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let mut client = Http2::open(gateway.address(), "app.test");
    let request = http::Request::get("https://app.test/").header("x", "y".repeat(64 << 10)).body(()).unwrap();
    let outcome = client.request(request, b"");
    assert!(outcome.as_ref().map_or(true, |response| response.status == 431), "{outcome:?}");
    assert_eq!(Http2::open(gateway.address(), "app.test").get("https://app.test/").text(), "hello");
}

#[test]
fn a_large_body_is_413_whether_announced_or_not() {
    let origin = Origin::fixed("hello");
    let yaml = "routes:\n  - { path: /more, limits: { body: 2KiB }, upstream: [\"{ORIGIN}\"] }\n  \
                - { upstream: [\"{ORIGIN}\"] }\nlimits: { body: 1KiB }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    for (path, size, status) in
        [("/", 1024, 200), ("/", 1025, 413), ("/more", 2048, 200), ("/more", 2049, 413)]
    {
        let body = "x".repeat(size);
        let announced = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{body}");
        assert_eq!(gateway.connect().request(&announced).status, status, "{path} {size}");
        let chunked = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"
        );
        assert_eq!(gateway.connect().request(&chunked).status, status, "{path} {size} chunked");
    }
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "body_too_large")], 2.0);
}

/// What is refused, or answered by the gateway itself, while its client still sends.
fn refused_while_it_sends() -> Vec<(String, u16)> {
    let length = "Content-Length: 3000000\r\n\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    [
        ("/a b", String::new(), length, 400),
        ("/", "Host : app.test\r\n".to_owned(), length, 400),
        ("/", "Host: app.test\r\n".to_owned(), length, 400),
        ("/", format!("X: {}", "x".repeat(20_000)), "", 431),
        ("/", String::new(), "", 408),
        ("/", String::new(), length, 200),
        ("/", "Expect: x\r\n".to_owned(), length, 417),
        ("/", "Expect: 100-continue\r\n".to_owned(), length, 200),
        ("/%", "Expect: 100-continue\r\n".to_owned(), length, 400),
        ("/", "Content-Length: 1\r\n".to_owned(), length, 400),
        ("/", "Content-Length: x\r\n".to_owned(), length, 400),
        ("/", String::new(), "Content-Length: 18446744073709551615\r\n\r\n", 400),
        ("/", String::new(), "Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("/", String::new(), "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 200),
        ("/up", String::new(), "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("/up", String::new(), "Transfer-Encoding: chunked\r\n\r\n1\r\nxzz\r\n", 400),
        ("/closed", String::new(), length, 502),
        ("/closed", String::new(), chunked, 502),
    ]
    .map(|(path, fields, body, status)| {
        (format!("POST {path} HTTP/1.1\r\nHost: app.test\r\n{fields}{body}"), status)
    })
    .into()
}

/// A socket that is closed with unread bytes is reset, and the reset takes the answer with it.
#[test]
fn whoever_is_refused_is_listened_to_while_it_still_sends() {
    let (origin, closed) = (Origin::fixed("hi"), ClosedPort::new());
    for lane in ["on", "off"] {
        let builder = Gateway::builder(&format!(
            "routes: [{{ path: /up, upstream: [\"{{ORIGIN}}\"] }}, \
             {{ path: /closed, upstream: [\"127.0.0.1:{{CLOSED}}\"] }}, {{ respond: {{ body: hello }} }}]\n\
             proxy: {{ lane: {lane} }}\ncertificates: [{{ cert: app.pem, key: app.key }}]\n\
             limits: {{ headers: 4KiB, header_timeout: 1s }}"
        ));
        Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
        let gateway = builder.origin(&origin).set("CLOSED", &closed).start();
        for (begun, status) in refused_while_it_sends() {
            for mut client in [gateway.connect(), gateway.connect_tls("app.test")] {
                client.send(&begun);
                client.wait_bytes(b"\r\n\r\n");
                for piece in 0..64 {
                    let sent = client.try_send([b'x'; 16 << 10]);
                    assert!(sent.is_ok(), "lane {lane}: {sent:?} at piece {piece} behind {begun:?}");
                }
                assert_eq!(client.response().status, status, "lane {lane}: {begun:.60}");
            }
        }
    }
}

#[test]
fn a_slow_header_is_cut_at_a_total_deadline() {
    let gateway = with_limits("{ header_timeout: 400ms }");
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n");
    let start = Instant::now();
    // One byte at a time, each well within any timeout between two reads.
    while connection.is_quiet_for(Duration::from_millis(40)) && connection.try_send("x").is_ok() {
        assert!(start.elapsed() < DEADLINE, "a byte now and then keeps it open");
    }
    let answer = String::from_utf8_lossy(&connection.rest()).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "header_timeout")], 1.0);
}

/// Pausing inside a head is not being idle: the client is told, whatever the idle timeout is.
#[test]
fn a_head_that_pauses_longer_than_the_idle_timeout_is_told_so() {
    let gateway = with_limits("{ header_timeout: 2s, idle_timeout: 1s }");
    let mut connection = gateway.connect();
    for begun in ["GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHo"] {
        connection.send(begun);
        if begun.contains("\r\n\r\n") {
            assert_eq!(connection.response().status, 200);
        }
        assert_eq!(connection.response().status, 408, "{begun:?}");
        connection = gateway.connect();
    }
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "header_timeout")], 2.0);
}

/// Nothing of the head can be read from a part of a record, and it is begun all the same.
#[test]
fn a_head_in_a_tls_record_that_comes_byte_by_byte_is_cut_at_the_same_deadline() {
    let gateway = with_limits("{ header_timeout: 2s, idle_timeout: 60s }");
    for requests_before in [0, 1] {
        let mut connection = gateway.connect_tls("app.test");
        for _ in 0..requests_before {
            assert_eq!(connection.get("a", "/", "").status, 200);
        }
        let start = Instant::now();
        let mut record = b"\x17\x03\x03\x40\x00".iter().chain(std::iter::repeat(&b'x'));
        while connection.is_quiet_for(Duration::from_millis(40)) {
            assert!(start.elapsed() < DEADLINE, "a byte now and then keeps it open");
            let byte = record.next().expect("no end");
            if connection.send_beneath_tls(&[*byte]).is_err() {
                break;
            }
        }
        assert_eq!(connection.response().status, 408, "after {requests_before}");
    }
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "header_timeout")], 2.0);
}

#[test]
fn a_slow_tls_handshake_is_cut_too() {
    let gateway = with_limits("{ header_timeout: 400ms }");
    let mut connection = gateway.connect();
    connection.send([0x16, 3, 1]);
    connection.rest();
}

#[test]
fn an_idle_connection_is_closed() {
    let gateway = with_limits("{ idle_timeout: 2s }");
    let mut connection = gateway.connect();
    let start = Instant::now();
    connection.get("a", "/", "");
    assert!(connection.rest().is_empty(), "closed without a word");
    assert!(start.elapsed() >= Duration::from_secs(2), "not at once");
    let mut fresh = gateway.connect();
    assert!(fresh.rest().is_empty(), "a connection that never asks is closed as well");
}

#[test]
fn a_connection_serves_so_many_requests() {
    let gateway = with_limits("{ requests_per_connection: 3 }");
    let mut connection = gateway.connect();
    for _ in 0..2 {
        assert_ne!(connection.get("a", "/", "").header("connection"), Some("close"));
    }
    assert_eq!(connection.get("a", "/", "").header("connection"), Some("close"));
    connection.rest();
}

#[test]
fn a_body_that_stalls_is_408() {
    let origin = Origin::script(|_| Reply::ok("hello"));
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"] }]\nlimits: { body_idle_timeout: 300ms }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    let mut connection = gateway.connect();
    connection.send("POST /stall HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(connection.response().status, 408);
    assert_eq!(gateway.wait_record_of("/stall")["status"], 408);
}
