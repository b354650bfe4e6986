//! Targets: upstream, split, redirect, respond.

use crate::support::eventually::holds;
use crate::support::{Gate, Gateway, Origin, Reply};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn endpoints_share_the_traffic_by_weight() {
    let (heavy, light) = (Origin::fixed("heavy"), Origin::fixed("light"));
    let yaml = "routes: [{ upstream: app }]\nupstreams:\n  app:\n    endpoints:\n      \
                - { address: \"{HEAVY}\", weight: 2 }\n      - \"{LIGHT}\"\n";
    let gateway = Gateway::builder(yaml).set("HEAVY", heavy.address()).set("LIGHT", light.address()).start();
    let mut connection = gateway.connect();
    for _ in 0..30 {
        connection.get("a", "/", "");
    }
    let (heavy, light) = (heavy.requests().len(), light.requests().len());
    assert_eq!(heavy + light, 30);
    assert!((18..=22).contains(&heavy), "{heavy} to {light}");
}

#[test]
fn a_split_sends_a_share_to_each_upstream() {
    let (old, new) = (Origin::fixed("old"), Origin::fixed("new"));
    let yaml = "routes: [{ name: app, upstream: [{ app: 80 }, { app-next: 20 }] }]\nupstreams:\n  \
                app: { endpoints: [\"{OLD}\"] }\n  app-next: { endpoints: [\"{NEW}\"] }\n";
    let gateway = Gateway::builder(yaml).set("OLD", old.address()).set("NEW", new.address()).start();
    let mut connection = gateway.connect();
    for _ in 0..200 {
        connection.get("a", "/", "");
    }
    let (old, new) = (old.requests().len(), new.requests().len());
    assert_eq!(old + new, 200);
    assert!((10..=80).contains(&new), "{old} to {new}");
    gateway.wait_metric("portcullis_upstream_requests_total", &[("upstream", "app-next")], new as f64);
}

#[test]
fn upstream_connections_are_kept() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin("workers: 1\nroutes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    for _ in 0..20 {
        assert_eq!(gateway.get("a", "/").text(), "hello");
    }
    assert_eq!(origin.connections(), 1);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("portcullis_upstream_connections_total", &[("reused", "true")]), 19.0);
}

#[test]
fn responses_of_every_shape_pass() {
    let origin = Origin::script(|request| match request.target() {
        "/chunked" => Reply::chunked(&["he", "llo"]),
        "/empty" => Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        "/unchanged" => Reply::Raw(b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n".to_vec()),
        "/until-close" => Reply::RawThenClose(b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec()),
        "/old" => Reply::RawThenClose(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec()),
        "/error" => Reply::status(503, "X-Reason: busy\r\n", "busy"),
        _ => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec()),
    });
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    for (path, status, body) in [
        ("/chunked", 200, "hello"),
        ("/empty", 204, ""),
        ("/unchanged", 304, ""),
        ("/old", 200, "hello"),
        ("/error", 503, "busy"),
    ] {
        let response = connection.get("a", path, "");
        assert_eq!((response.status, response.text()), (status, body), "{path}");
    }
    let head = connection.request("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
    assert_eq!(gateway.get("a", "/until-close").text(), "hello");
}

#[test]
fn request_bodies_arrive_whole() {
    let origin = Origin::script(|request| Reply::ok(&request.body.len().to_string()));
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    let body = "x".repeat(3 << 20);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    assert_eq!(connection.request(&(head + &body)).text(), body.len().to_string());
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(connection.request(chunked).text(), "5");
    assert_eq!(origin.last_request().body, b"hello");
    assert_eq!(connection.get("a", "/", "").text(), "0", "the connection goes on");
}

#[test]
fn an_expectation_is_answered_before_the_body() {
    let origin = Origin::script(|request| Reply::ok(std::str::from_utf8(&request.body).unwrap()));
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    connection.send("hi");
    assert_eq!(connection.response().text(), "hi");
}

#[test]
fn redirects_fill_their_template() {
    let gateway = Gateway::start(
        "routes:\n  - { path: /moved, redirect: { to: \"https://{host}{path_and_query}\" } }\n  \
         - { path: /parts, redirect: { to: \"{scheme}://new.test{path}?from={host}&{query}\", status: 302 } }\n",
    );
    let mut connection = gateway.connect();
    let moved = connection.get("App.test:81", "/moved/x?y=1", "");
    assert_eq!((moved.status, moved.header("location")), (308, Some("https://app.test/moved/x?y=1")));
    let parts = connection.get("app.test", "/parts?y=1", "");
    assert_eq!(
        (parts.status, parts.header("location")),
        (302, Some("http://new.test/parts?from=app.test&y=1"))
    );
}

#[test]
fn a_redirect_never_takes_a_line_break_from_the_request() {
    let gateway = Gateway::start("routes: [{ redirect: { to: \"https://x.test{path_and_query}\" } }]");
    let response = gateway.get("a", "/%0d%0aSet-Cookie:%20a=b");
    assert_eq!(response.status, 308);
    assert!(response.header("set-cookie").is_none());
}

#[test]
fn fixed_answers_carry_their_status_headers_and_body() {
    let gateway = Gateway::builder(
        "routes:\n  - { path: /text, respond: { status: 201, body: made, headers: { content-type: text/plain, x-a: b } } }\n  \
         - { path: /file, respond: { body_file: page.html } }\n  - { path: /none, respond: { status: 204 } }\n",
    )
    .file("page.html", "<p>hello</p>")
    .start();
    let mut connection = gateway.connect();
    let text = connection.get("a", "/text", "");
    assert_eq!((text.status, text.text(), text.header("content-length")), (201, "made", Some("4")));
    assert_eq!((text.header("content-type"), text.header("x-a")), (Some("text/plain"), Some("b")));
    assert_eq!(connection.get("a", "/file", "").text(), "<p>hello</p>");
    let none = connection.get("a", "/none", "");
    assert_eq!((none.status, none.body.len()), (204, 0));
    let head = connection.request("HEAD /text HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (201, Some("4")));
    assert_eq!(connection.get("a", "/text", "").text(), "made", "the connection goes on");
}

#[test]
fn pieces_arrive_as_the_origin_sends_them() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| {
        let first = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        Reply::Partly(
            first.to_vec(),
            Arc::clone(&held),
            Box::new(Reply::Raw(b"6\r\nsecond\r\n0\r\n\r\n".to_vec())),
        )
    });
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br, zstd, gzip\r\n\r\n");
    connection.wait_bytes(b"first");
    gate.open();
    assert_eq!(connection.response().text(), "firstsecond");
}

#[test]
fn a_kept_connection_that_the_origin_has_closed_costs_no_request() {
    // The origin promises keep-alive and closes after every answer.
    let origin = Origin::script(|_| {
        Reply::RawThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec())
    });
    let gateway = Gateway::with_origin("workers: 1\nroutes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    let mut connection = gateway.connect();
    for _ in 0..50 {
        assert_eq!(connection.get("a", "/", "").text(), "hello");
    }
}

#[test]
fn another_endpoint_is_tried_when_one_refuses() {
    let origin = Origin::fixed("hello");
    let yaml = "routes: [{ upstream: app }]\nupstreams: { app: { endpoints: [\"127.0.0.1:{CLOSED}\", \"{ORIGIN}\"] } }\n";
    let closed = crate::support::ports::ClosedPort::new();
    let gateway = Gateway::builder(yaml).origin(&origin).set("CLOSED", &closed).start();
    let mut connection = gateway.connect();
    for _ in 0..20 {
        assert_eq!(connection.get("a", "/", "").text(), "hello");
    }
    let retried = gateway.wait_record(|record| record["attempts"] == 2);
    assert_eq!(retried["endpoint"], origin.address(), "{retried}");
    gateway.wait_metric(
        "portcullis_upstream_retries_total",
        &[("upstream", "app"), ("reason", "connect")],
        1.0,
    );
}

#[test]
fn a_slow_upload_is_not_cut_while_it_moves() {
    let origin = Origin::script(|request| Reply::ok(&request.body.len().to_string()));
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"], timeouts: { response: 2s, idle: 1m } }]";
    let gateway = Gateway::with_origin(yaml, &origin);
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 25\r\n\r\n");
    for _ in 0..5 {
        connection.send("piece");
        holds("the upstream connection", Duration::from_millis(600), || origin.closed() == 0);
    }
    assert_eq!(connection.response().text(), "25", "longer than `response` in all");
}

#[test]
fn an_inline_list_and_an_upstream_of_the_same_name_stay_apart() {
    let (named, inline) = (Origin::fixed("named"), Origin::fixed("inline"));
    let yaml = "routes:\n  - { hosts: [first.test], upstream: app }\n  \
                - { name: app, hosts: [inline.test], upstream: [\"{INLINE}\"] }\n  \
                - { hosts: [second.test], upstream: app }\n\
                upstreams: { app: { endpoints: [\"{NAMED}\"] } }\n";
    let gateway =
        Gateway::builder(yaml).set("NAMED", named.address()).set("INLINE", inline.address()).start();
    for (host, body) in [("first.test", "named"), ("inline.test", "inline"), ("second.test", "named")] {
        assert_eq!(gateway.get(host, "/").text(), body, "{host}");
    }
    gateway.wait_metric("portcullis_upstream_requests_total", &[("upstream", "app")], 2.0);
    gateway.wait_metric("portcullis_upstream_requests_total", &[("upstream", "route:app")], 1.0);

    // What was the inline list's stays its own when it goes and the other one takes its server.
    let moved = "routes: [{ name: app, upstream: app }]\nupstreams: { app: { endpoints: [\"{INLINE}\"] } }\n";
    gateway.reload(&moved.replace("{INLINE}", &inline.address()));
    assert_eq!(gateway.get("a", "/").text(), "inline");
    gateway.wait_metric("portcullis_upstream_requests_total", &[("upstream", "app")], 3.0);
    let names = gateway.metrics().label_values("portcullis_upstream_requests_total", "upstream");
    assert!(!names.contains(&"route:app".to_owned()), "{names:?}");
}
