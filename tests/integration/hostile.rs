//! What a hostile client tries with its head, and with the time it takes.

use crate::support::eventually::{DEADLINE, until};
use crate::support::{Gate, Gateway, Origin, Reply};
use std::time::{Duration, Instant};

const ROUTES: &str = "routes: [{ upstream: [\"{ORIGIN}\"] }]\n";

#[test]
fn a_target_that_is_neither_path_nor_url_is_400() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for target in [
        "admin",
        "?x",
        "*",
        "a:80",
        "ftp://a/x",
        "http:/admin",
        "http:a",
        "http://u@a/x",
        "/\\admin",
        "/x/..;/admin",
        "/x/.;a=b/admin",
        "/a%",
        "/a%2f..%2fx",
        "/x/.%00./admin",
    ] {
        let mut connection = gateway.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(connection.response().status, 400, "{target}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn every_form_of_a_target_goes_up_as_a_path() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for (method, target, expected) in [
        ("GET", "http://a", "/"),
        ("GET", "HTTP://a?x=1", "/?x=1"),
        ("GET", "http://a/x/../y?z=/../", "/y?z=/../"),
        ("GET", "http://a#@b/x", "/"),
        ("GET", "/a#/../../admin", "/a"),
        ("OPTIONS", "*", "*"),
        ("OPTIONS", "http://a", "*"),
        ("OPTIONS", "http://a/", "/"),
    ] {
        let answer = gateway.connect().request(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, 200, "{target}");
        assert_eq!(origin.last_request().target(), expected, "{target}");
    }
}

#[test]
fn a_length_that_is_said_twice_is_refused_with_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for (headers, status) in [
        ("Content-Length: 3\r\nContent-Length: 3", 400),
        ("Content-Length: 3, 3", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, chunked", 501),
    ] {
        let mut connection = gateway.connect();
        connection.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n"));
        connection.send("abcGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = connection.response();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{headers}");
        assert!(connection.rest().is_empty(), "{headers}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn an_upgrade_that_connection_does_not_speak_of_is_none() {
    let origin = Origin::fixed("plain");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for connection in ["", "Connection: keep-alive\r\n", "Connection: close, x-upgrade\r\n"] {
        let headers = format!("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n{connection}");
        assert_eq!(gateway.connect().get("a", "/", &headers).text(), "plain");
        let request = origin.last_request();
        assert_eq!((request.header("upgrade"), request.header("connection")), (None, None), "{connection}");
    }
}

#[test]
fn a_trusted_proxys_chain_cannot_be_nominated_away() {
    let origin = Origin::fixed("hello");
    let yaml = format!("{ROUTES}access: {{ trusted_proxies: [127.0.0.0/8], allow: [127.0.0.0/8] }}\n");
    let gateway = Gateway::with_origin(&yaml, &origin);
    for (field, value) in [("X-Forwarded-For", "203.0.113.7"), ("Forwarded", "for=203.0.113.7")] {
        for nominated in [format!("close, {field}"), field.to_ascii_lowercase()] {
            let headers = format!("{field}: {value}\r\nConnection: {nominated}\r\n");
            assert_eq!(gateway.connect().get("a", "/", &headers).status, 403, "{headers}");
        }
    }
}

#[test]
fn an_untrusted_peers_further_claims_do_not_pass() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let claims =
        ["X-Forwarded-Port", "X-Forwarded-Prefix", "X_Forwarded_Ssl", "X-Forwarded-Server", "X-Real-IP"];
    let headers: String = claims.iter().map(|name| format!("{name}: 1\r\n")).collect();
    gateway.connect().get("a", "/", &headers);
    for name in claims {
        assert_eq!(origin.last_request().header(name), None, "{name}");
    }
}

#[test]
fn a_dripped_body_does_not_hold_a_connection_that_was_answered() {
    let gateway = Gateway::start("routes: [{ hosts: [x.test], respond: { status: 200 } }]\n");
    for length in [1000, 1_000_000] {
        let mut connection = gateway.connect();
        connection.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert_eq!(connection.response().status, 404);
        let start = Instant::now();
        while connection.try_send("x").is_ok() && connection.is_quiet_for(Duration::from_millis(100)) {
            assert!(start.elapsed() < DEADLINE, "{length}: still listening");
        }
    }
}

#[test]
fn close_means_now_even_when_a_body_is_announced() {
    let yaml = "routes: [{ respond: { status: 200 } }]\naccess: { deny: [127.0.0.0/8], on_deny: close }\n";
    let gateway = Gateway::start(yaml);
    for length in [0, 5, 5_000_000] {
        let mut connection = gateway.connect();
        connection.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert!(connection.rest().is_empty(), "{length}");
        until("the end of the exchange", || {
            gateway.metrics().get("portcullis_http_requests_in_flight", &[]) == Some(0.0)
        });
    }
}

#[test]
fn a_body_sent_with_its_expectation_is_not_a_second_request() {
    let gateway = Gateway::start("routes: [{ hosts: [x.test], respond: { status: 200 } }]\n");
    let inner = "GET /smuggled HTTP/1.1\r\nHost: x.test\r\n\r\n";
    let mut connection = gateway.connect();
    let length = inner.len();
    connection.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n{inner}"
    ));
    assert_eq!(connection.response().status, 404);
    assert!(connection.rest().is_empty());
}

#[test]
fn broken_heads_do_not_fill_the_log() {
    let yaml = "routes: [{ respond: { status: 200 } }]\nlimits: { header_timeout: 100ms }\n";
    let gateway = Gateway::start(yaml);
    let before = gateway.log();
    for head in ["GET / HT", "GARBAGE\r\n\r\n"] {
        let mut connection = gateway.connect();
        connection.send(head);
        connection.rest();
    }
    let mut connection = gateway.connect();
    connection.send("GET / HT");
    drop(connection);
    gateway.wait_metric("portcullis_connections_total", &[], 3.0);
    assert_eq!(gateway.log(), before);
}

#[test]
fn a_request_behind_a_failed_one_is_answered_and_one_behind_a_refused_head_is_not() {
    let origin = Origin::script(|request| match request.target() {
        target if target.starts_with("/dies") => Reply::Close,
        target => Reply::ok(target),
    });
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let second = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut connection = gateway.connect();
    connection.send(format!("GET /dies%20x HTTP/1.1\r\nHost: a\r\n\r\n{second}"));
    assert_eq!(connection.response().status, 502);
    assert_eq!(connection.response().text(), "/second");
    assert_eq!(connection.get("a", "/third", "").text(), "/third", "the connection goes on");
    // What it would be escaped to is longer than what was sent.
    let mut connection = gateway.connect();
    connection.send(format!("GET /dies{}x HTTP/1.1\r\nHost: a\r\n\r\n{second}", " ".repeat(20)));
    assert_eq!(connection.response().status, 400);
    assert_eq!(connection.rest(), b"", "the connection ends there");
}

#[test]
fn exchanges_that_are_broken_off_leave_nothing_behind() {
    let origin = Origin::script(|request| match request.target() {
        "/held" => Reply::ok("never").after(&Gate::closed()),
        "/switch" => Reply::Raw(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n".to_vec(),
        ),
        _ => Reply::ok(&"x".repeat(1 << 20)),
    });
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let in_flight = || {
        let metrics = gateway.metrics();
        metrics.sum("portcullis_http_requests_in_flight", &[])
            + metrics.sum("portcullis_upstream_requests_in_flight", &[])
    };
    let round = || {
        for head in [
            "GET /held HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx",
            "POST /held HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "GET /switch HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "GET / HTTP/1.1\r\nHo",
        ] {
            for _ in 0..10 {
                gateway.connect().send(head);
            }
        }
        until("nothing in flight", || in_flight() == 0.0);
        until("no open connection", || gateway.metrics().sum("portcullis_connections_open", &[]) == 0.0);
    };
    round();
    let before = gateway.open_fds();
    round();
    round();
    until("no more descriptors than before", || gateway.open_fds() <= before + 2);
}
