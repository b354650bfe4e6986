//! Answers the gateway gives itself: their form, keep-alive, and telling failures apart.

use crate::support::eventually::until;
use crate::support::ports::ClosedPort;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const NOTHING: &str = "routes: [{ name: app, hosts: [app.test], respond: { body: hello } }]\n";

/// The reason of the access record with this status.
fn reason(gateway: &Gateway, status: u16) -> String {
    let record = gateway.wait_record(|record| record["status"] == status);
    record["rejection"].as_str().unwrap_or_else(|| panic!("no reason in {record}")).to_owned()
}

#[test]
fn a_page_comes_in_the_form_the_client_accepts() {
    let gateway = Gateway::start(NOTHING);
    let rows = [
        ("", "text/html"),
        ("Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", "text/html"),
        ("Accept: application/json\r\n", "json"),
        ("Accept: application/problem+json\r\n", "json"),
        ("Accept: application/json, text/html;q=0.5\r\n", "json"),
    ];
    let mut connection = gateway.connect();
    for (accept, form) in rows {
        let response = connection.get("unknown.test", "/", accept);
        assert_eq!(response.status, 404);
        assert!(response.header("content-type").unwrap().contains(form), "{accept}: {:?}", response.headers);
        if form == "json" {
            assert_eq!(response.json()["status"], 404);
        }
        assert!(!response.text().is_empty());
    }
}

#[test]
fn no_answer_names_the_engine() {
    let gateway = Gateway::start(&format!("{NOTHING}access: {{ deny: [127.0.0.2/32] }}"));
    let mut answers = vec![gateway.get("unknown.test", "/"), gateway.get("app.test", "/")];
    answers.push(
        Connection::open_from("127.0.0.2".parse().unwrap(), gateway.address()).get("app.test", "/", ""),
    );
    answers.push(gateway.connect().request("GET / HTTP/1.1\r\nHost: u@x\r\n\r\n"));
    answers.push(gateway.connect().request("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n"));
    for answer in answers {
        assert!(answer.status_line.starts_with("HTTP/1.1 "), "{answer:?}");
        assert!(!format!("{answer:?}").to_lowercase().contains("pingora"), "{answer:?}");
    }
}

#[test]
fn our_own_answers_keep_the_connection_alive() {
    let gateway = Gateway::start(
        "routes:\n  - { path: /moved, redirect: { to: \"https://x.test/\" } }\n  \
         - { path: /closed, access: { deny: [0.0.0.0/0] }, respond: { body: x } }\n  \
         - { path: /ok, respond: { body: hello } }\n",
    );
    let mut connection = gateway.connect();
    for (path, status) in
        [("/ok", 200), ("/none", 404), ("/moved", 308), ("/closed", 403), ("/none", 404), ("/ok", 200)]
    {
        assert_eq!(connection.get("a", path, "").status, status, "{path}");
        let post = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nGET /nosuch");
        assert_eq!(connection.request(&post).status, status, "POST {path}");
        let chunked = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        assert_eq!(connection.request(&chunked).status, status, "chunked POST {path}");
    }
}

#[test]
fn an_unread_body_beyond_the_cap_closes_instead_of_being_taken_for_a_request() {
    let gateway = Gateway::start(NOTHING);
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: unknown.test\r\nContent-Length: 1073741824\r\n\r\n");
    assert_eq!(connection.response().status, 404);
    let _ = connection.try_send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n".repeat(20_000));
    let rest = String::from_utf8_lossy(&connection.rest()).into_owned();
    assert!(!rest.contains("hello"), "{rest}");
}

#[test]
fn the_page_for_unknown_names_can_be_a_file() {
    let gateway = Gateway::builder(&format!("{NOTHING}not_found: {{ body_file: 404.html }}"))
        .file("404.html", "<p>lost</p>");
    let gateway = gateway.start();
    let response = gateway.get("unknown.test", "/");
    assert_eq!((response.status, response.text()), (404, "<p>lost</p>"));
    let head = gateway.connect().request("HEAD / HTTP/1.1\r\nHost: unknown.test\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (404, Some("11")));
}

#[test]
fn upstream_failures_are_told_apart() {
    let silent = Gate::closed();
    let held = Arc::clone(&silent);
    let origin = Origin::script(move |request| match request.target() {
        "/closes" => Reply::Close,
        "/garbage" => Reply::RawThenClose(b"SSH-2.0-OpenSSH_9\r\n\r\n".to_vec()),
        _ => Reply::ok("late").after(&held),
    });
    let yaml = "routes:\n  - { path: /refused, upstream: [\"127.0.0.1:{CLOSED}\"] }\n  \
                - { upstream: [\"{ORIGIN}\"], timeouts: { response: 2s } }\n";
    let closed = ClosedPort::new();
    let gateway = Gateway::builder(yaml).origin(&origin).set("CLOSED", &closed).start();
    let mut reasons = Vec::new();
    for (path, status) in [("/refused", 502), ("/closes", 502), ("/garbage", 502), ("/slow", 504)] {
        let response = gateway.get("a", path);
        assert_eq!(response.status, status, "{path}");
        let record = gateway.wait_record_of(path);
        assert_eq!(record["status"], status);
        let reason =
            record["rejection"].as_str().unwrap_or_else(|| panic!("no reason in {record}")).to_owned();
        gateway.wait_metric("portcullis_rejections_total", &[("reason", &reason)], 1.0);
        reasons.push(reason);
    }
    silent.open();
    reasons.sort();
    reasons.dedup();
    assert!(reasons.len() >= 3, "{reasons:?}");
}

#[test]
fn an_upstream_that_takes_no_connection_is_504_with_a_reason_of_its_own() {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        waiting.push(stream);
    }
    let yaml = "routes: [{ upstream: [\"{FULL}\"], timeouts: { connect: 1s } }]\n";
    let gateway = Gateway::builder(yaml).set("FULL", address).start();
    assert_eq!(gateway.get("a", "/").status, 504);
    assert_eq!(reason(&gateway, 504), "upstream_connect_timeout");
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "upstream_connect_timeout")], 1.0);
}

/// An outage of the upstream must not become a storm of handshakes.
#[test]
fn an_upstream_failure_does_not_cost_the_client_its_connection() {
    let held = Gate::closed();
    let gate = Arc::clone(&held);
    let origin = Origin::script(move |request| match request.target() {
        "/closes" => Reply::Close,
        "/garbage" => Reply::RawThenClose(b"SSH-2.0-OpenSSH_9\r\n\r\n".to_vec()),
        "/slow" => Reply::ok("late").after(&gate),
        _ => Reply::ok("fine"),
    });
    let yaml = "routes:\n  - { path: /refused, upstream: [\"127.0.0.1:{CLOSED}\"] }\n  \
                - { upstream: [\"{ORIGIN}\"], timeouts: { response: 2s } }\n";
    let closed = ClosedPort::new();
    let gateway = Gateway::builder(yaml).origin(&origin).set("CLOSED", &closed).start();
    let mut connections = [gateway.connect(), gateway.connect_tls("a")];
    for connection in &mut connections {
        for (path, status) in
            [("/refused", 502), ("/closes", 502), ("/x", 200), ("/garbage", 502), ("/slow", 504), ("/x", 200)]
        {
            let response = connection.get("a", path, "");
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.header("connection"), Some("keep-alive"), "{path}: {response:?}");
        }
    }
    held.open();
    gateway.wait_metric("portcullis_connections_total", &[("protocol", "http1")], 2.0);
}

#[test]
fn a_failure_before_the_request_was_read_closes_the_connection_after_the_answer() {
    let closed = ClosedPort::new();
    let yaml = "routes: [{ upstream: [\"127.0.0.1:{CLOSED}\"] }]\n";
    let gateway = Gateway::builder(yaml).set("CLOSED", &closed).start();
    let mut connection = gateway.connect();
    let response = connection.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!((response.status, response.header("connection")), (502, Some("close")));
    connection.send("world");
    assert!(connection.rest().is_empty());
}

#[test]
fn an_origin_that_breaks_off_never_looks_complete() {
    let origin = Origin::script(|request| match request.target() {
        "/length" => Reply::RawThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec()),
        _ => Reply::RawThenClose(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec(),
        ),
    });
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    for path in ["/length", "/chunked"] {
        let mut connection = gateway.connect();
        let outcome = connection.try_request(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(outcome.is_err(), "{path}: {outcome:?}");
    }
}

#[test]
fn a_client_that_went_away_is_499() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| Reply::ok("late").after(&held));
    let gateway = Gateway::with_origin("routes: [{ name: app, upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    connection.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    drop(connection);
    assert_eq!(gateway.wait_record_of("/gone")["status"], 499);
    gateway.wait_metric("portcullis_http_requests_total", &[("route", "app"), ("code", "499")], 1.0);
    gate.open();
    until("the upstream connection to be given up", || origin.closed() >= 1);
}

#[test]
fn heads_that_cannot_be_read_are_counted() {
    let gateway = Gateway::start(NOTHING);
    let before = gateway.metrics().sum("portcullis_rejections_total", &[]);
    for head in
        ["GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", "\0\r\n\r\n"]
    {
        assert_eq!(gateway.connect().request(head).status, 400, "{head:?}");
    }
    gateway.wait_metric("portcullis_rejections_total", &[], before + 3.0);
}

#[test]
fn what_is_refused_before_routing_is_counted_and_recorded() {
    let gateway = Gateway::start(NOTHING);
    gateway.connect().request("GET / HTTP/1.1\r\nHost: a..b:x\r\n\r\n");
    let reason = reason(&gateway, 400);
    gateway.wait_metric("portcullis_rejections_total", &[("reason", &reason)], 1.0);
    gateway.get("unknown.test", "/");
    gateway.wait_metric("portcullis_http_requests_total", &[("route", "rejected"), ("code", "400")], 1.0);
    gateway.wait_metric("portcullis_http_requests_total", &[("route", "none"), ("code", "404")], 1.0);
}

#[test]
fn records_of_heads_that_cannot_be_read_say_what_was_asked_for_and_what_was_wrong() {
    let gateway = Gateway::start(NOTHING);
    for (path, head, rejection, detail) in [
        ("/name", "GET /name?q=1 HTTP/1.1\r\nHost : a\r\n\r\n", "malformed", Some("field_name")),
        ("/value", "GET /value?q=1 HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", "malformed", Some("field_value")),
        ("/twice", "GET /twice?q=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "malformed", Some("host")),
        (
            "/length",
            "GET /length?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
            "malformed",
            Some("content_length"),
        ),
        (
            "/old",
            "GET /old?q=1 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "malformed",
            Some("transfer_encoding"),
        ),
        ("/version", "GET /version?q=1 HTTP/3.7\r\nHost: a\r\n\r\n", "malformed", Some("version")),
        ("/space", "GET /space?q=1 b HTTP/1.1\r\nHost: a\r\n\r\n", "target", Some("space")),
        ("/control", "GET /control?q=1 HTTP/1.1\x01\r\nHost: a\r\n\r\n", "target", Some("control")),
    ] {
        let mut client = gateway.connect();
        client.send(head);
        assert_eq!(client.response().status, 400, "{path}");
        let record = gateway.wait_record_of(path);
        assert_eq!((&record["method"], &record["query"]), (&"GET".into(), &"q=1".into()), "{record}");
        assert_eq!((&record["rejection"], record["rejection_detail"].as_str()), (&rejection.into(), detail));
    }
}
