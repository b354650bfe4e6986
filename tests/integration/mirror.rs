//! Copies for a second upstream, which must never be felt by the first or the client.

use crate::support::certificates::Authority;
use crate::support::eventually;
use crate::support::http2_origin::{Call, Http2Origin};
use crate::support::ports::ClosedPort;
use crate::support::{Gate, Gateway, Origin, Reply};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn yaml(mirror: &str) -> String {
    format!(
        "workers: 1\nroutes: [{{ upstream: app, mirror: {{ upstream: shadow{mirror} }} }}]\nupstreams:\n  \
         app: {{ endpoints: [\"{{ORIGIN}}\"] }}\n  shadow: {{ endpoints: [\"{{SHADOW}}\"] }}\n"
    )
}

fn copies(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().sum("portcullis_upstream_mirrored_requests_total", &[("result", result)])
}

#[test]
fn a_copy_is_the_request_itself() {
    let (origin, shadow) = (Origin::fixed("main"), Origin::script(|_| Reply::status(500, "", "shadow")));
    let gateway = Gateway::builder(&yaml("")).origin(&origin).set("SHADOW", shadow.address()).start();
    let mut client = gateway.connect();
    let answer =
        client.request("POST /a?b=1 HTTP/1.1\r\nHost: app.test\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(answer.text(), "main");
    assert_eq!(client.request("GET /c HTTP/1.1\r\nHost: app.test\r\n\r\n").text(), "main");
    let chunked =
        "PUT /d HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(client.request(chunked).text(), "main");
    shadow.wait_requests(3);
    let (seen, mut copied) = (origin.requests(), shadow.requests());
    copied.sort_by_key(|copy| copy.target().to_owned());
    for (request, copy) in seen.iter().zip(&copied) {
        assert_eq!((copy.line(), &copy.body), (request.line(), &request.body));
        for field in ["host", "x-a", "x-forwarded-for", "x-request-id"] {
            assert_eq!(copy.header(field), request.header(field), "{field} of {}", copy.line());
        }
    }
    gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", "sent")], 3.0);
    gateway.wait_metric(
        "portcullis_upstream_requests_total",
        &[("upstream", "shadow"), ("code", "500")],
        3.0,
    );
}

#[test]
fn the_share_is_exact() {
    let (origin, shadow) = (Origin::fixed("main"), Origin::fixed("shadow"));
    let gateway =
        Gateway::builder(&yaml(", percent: 10")).origin(&origin).set("SHADOW", shadow.address()).start();
    let mut client = gateway.connect();
    for _ in 0..100 {
        assert_eq!(client.get("a", "/", "").text(), "main");
    }
    gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", "sent")], 10.0);
    assert_eq!(shadow.requests().len(), 10);
}

#[test]
fn a_shadow_that_hangs_or_is_down_is_not_felt() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let (origin, shadow) = (Origin::fixed("main"), Origin::script(move |_| Reply::ok("late").after(&held)));
    let closed = ClosedPort::new();
    for address in [shadow.address(), format!("127.0.0.1:{closed}")] {
        let gateway = Gateway::builder(&yaml("")).origin(&origin).set("SHADOW", address).start();
        let mut client = gateway.connect();
        for _ in 0..300 {
            assert_eq!(client.get("a", "/", "").text(), "main");
        }
        let bounded = || copies(&gateway, "too_many") == 44.0 || copies(&gateway, "failed") == 300.0;
        eventually::until("copies dropped or failed", bounded);
    }
    gate.open();
}

#[test]
fn a_large_body_passes_and_is_not_copied() {
    let (origin, shadow) = (Origin::fixed("main"), Origin::fixed("shadow"));
    let gateway = Gateway::builder(&yaml("")).origin(&origin).set("SHADOW", shadow.address()).start();
    let body = "x".repeat(100_000);
    let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{body}");
    assert_eq!(gateway.connect().request(&request).text(), "main");
    gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", "body_too_large")], 1.0);
    assert_eq!(origin.only_request().body.len(), 100_000);
    assert!(shadow.requests().is_empty());
}

#[test]
fn the_shadow_may_speak_another_version() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let shadow = Http2Origin::plain(move |mut call: Call| {
        let counted = Arc::clone(&counted);
        async move {
            assert_eq!(call.request.uri().to_string(), "http://app.test/x");
            if call.body().await == b"hello" {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            call.ok("shadow");
        }
    });
    let origin = Origin::fixed("main");
    let yaml = yaml("").replace("[\"{SHADOW}\"]", "[\"{SHADOW}\"], protocol: h2c");
    let gateway = Gateway::builder(&yaml).origin(&origin).set("SHADOW", shadow.address()).start();
    let request = "POST /x HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(gateway.connect().request(request).text(), "main");
    gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", "sent")], 1.0);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_copy_over_tls_says_so() {
    let identity = Authority::new("root").issue(&["shadow.test"]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let shadow = Http2Origin::tls(&identity, move |mut call: Call| {
        heard.lock().unwrap().push(call.request.uri().to_string());
        let sent = call.respond.send_response(http::Response::new(()), true);
        async move { assert!(sent.is_ok()) }
    });
    let origin = Origin::fixed("main");
    let secure = yaml("").replace(
        "{SHADOW}\"]",
        "{SHADOW}\"], protocol: http2, tls: { server_name: shadow.test, verify: false }",
    );
    let gateway = Gateway::builder(&secure).origin(&origin).set("SHADOW", shadow.address()).start();
    assert_eq!(gateway.get("app.test", "/a?b=1").text(), "main");
    gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", "sent")], 1.0);
    assert_eq!(*asked.lock().unwrap(), ["https://app.test/a?b=1"]);
}

#[test]
fn copies_count_towards_the_limit_of_their_upstream() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let (origin, shadow) = (Origin::fixed("main"), Origin::script(move |_| Reply::ok("late").after(&held)));
    let yaml = yaml("").replace("[\"{SHADOW}\"]", "[\"{SHADOW}\"], max_requests: 2");
    let gateway = Gateway::builder(&yaml).origin(&origin).set("SHADOW", shadow.address()).start();
    let mut client = gateway.connect();
    for _ in 0..10 {
        assert_eq!(client.get("a", "/", "").text(), "main");
    }
    shadow.wait_requests(2);
    assert_eq!(copies(&gateway, "too_many"), 8.0);
    let in_flight = ("portcullis_upstream_requests_in_flight", [("upstream", "shadow")]);
    gateway.wait_metric_is(in_flight.0, &in_flight.1, 2.0);
    gate.open();
    eventually::until("copies that are over", || copies(&gateway, "sent") == 2.0);
    gateway.wait_metric_is(in_flight.0, &in_flight.1, 0.0);
}
