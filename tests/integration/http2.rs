//! HTTP/2 from the client, HTTP/1.1 to the origin.

use crate::support::certificates::Authority;
use crate::support::eventually::until;
use crate::support::http2::Http2;
use crate::support::{Gate, Gateway, Origin, Reply};
use http::Request;
use std::time::{Duration, Instant};

const ROUTES: &str = "routes: [{ name: app, hosts: [app.test], upstream: [\"{ORIGIN}\"] }]\n\
                      certificates: [{ cert: app.pem, key: app.key }]\n";

fn start(further: &str) -> (Gateway, Origin) {
    start_with(&format!("{ROUTES}{further}"))
}

fn start_with(yaml: &str) -> (Gateway, Origin) {
    let origin = Origin::script(|request| Reply::ok(std::str::from_utf8(&request.body).unwrap()));
    let builder = Gateway::builder(yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    (builder.origin(&origin).start(), origin)
}

#[test]
fn a_request_becomes_a_well_formed_http1_request() {
    let (gateway, origin) = start("");
    let mut client = Http2::open(gateway.address(), "app.test");
    let request = Request::post("https://App.test:7999/x/../y?z=1").header("cookie", "a=b").body(()).unwrap();
    let response = client.request(request, b"hello").unwrap();
    assert_eq!((response.status, response.text()), (200, "hello"));
    let seen = origin.only_request();
    assert_eq!(seen.line(), "POST /y?z=1 HTTP/1.1");
    assert!(seen.header("host").unwrap().eq_ignore_ascii_case("app.test:7999"), "{}", seen.head);
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert!(!seen.head.contains("\n:"), "no pseudo header: {}", seen.head);
    let record = gateway.wait_record_of("/y");
    assert_eq!(
        (record["protocol"].as_str(), record["host"].as_str()),
        (Some("HTTP/2"), Some("app.test")),
        "{record}"
    );
    gateway.wait_metric("portcullis_connections_total", &[("protocol", "http2")], 1.0);
}

#[test]
fn an_authority_and_a_host_that_disagree_are_refused_or_settled_alike_everywhere() {
    let (gateway, origin) = start("");
    let mut client = Http2::open(gateway.address(), "app.test");
    let request = Request::get("https://app.test/").header("host", "evil.test").body(()).unwrap();
    let outcome = client.request(request, b"");
    for seen in origin.requests() {
        assert_eq!(seen.all("host"), ["app.test"], "{}", seen.head);
    }
    assert!(!matches!(outcome, Ok(ref response) if response.status >= 500), "{outcome:?}");
}

#[test]
fn many_requests_share_a_connection_and_refusals_do_not_end_it() {
    let (gateway, _origin) = start("limits: { body: 1KiB }");
    let mut client = Http2::open(gateway.address(), "app.test");
    for _ in 0..3 {
        assert_eq!(client.get("https://app.test/").status, 200);
        assert_eq!(client.get("https://unknown.test/").status, 404);
        let large = Request::post("https://app.test/").body(()).unwrap();
        let outcome = client.request(large, &[b'x'; 4096]);
        assert_eq!(outcome.unwrap().status, 413);
    }
    assert_eq!(gateway.metrics().sum("portcullis_connections_total", &[("protocol", "http2")]), 1.0);
}

#[test]
fn an_idle_connection_is_closed() {
    let (gateway, _origin) = start("limits: { idle_timeout: 2s }");
    let mut client = Http2::open(gateway.address(), "app.test");
    let start = Instant::now();
    assert_eq!(client.get("https://app.test/").status, 200);
    client.wait_closed();
    assert!(start.elapsed() >= Duration::from_secs(2), "closed after {:?}", start.elapsed());
}

#[test]
fn a_stream_that_is_given_up_is_499_and_frees_the_upstream() {
    let origin = Origin::script(|request| match request.target() {
        "/held" => Reply::ok("never").after(&Gate::closed()),
        _ => Reply::ok("hello"),
    });
    let builder = Gateway::builder(ROUTES);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let mut client = Http2::open(gateway.address(), "app.test");
    client.abandon("https://app.test/held", || !origin.requests().is_empty());
    assert_eq!(client.get("https://app.test/").text(), "hello", "the connection goes on");
    assert_eq!(gateway.wait_record_of("/held")["status"], 499);
}

#[test]
fn a_body_that_stalls_holds_no_connection() {
    let routes = ROUTES.replace("upstream:", "timeouts: { response: 300ms }, upstream:");
    let limits = "limits: { idle_timeout: 2s, body_idle_timeout: 1s }";
    let (gateway, _origin) = start_with(&format!("{routes}{limits}"));
    let mut client = Http2::open(gateway.address(), "app.test");
    // Both streams stay open on the client's side.
    let (refused, proxied) = (client.stall("https://unknown.test/"), client.stall("https://app.test/"));
    assert_eq!((refused.0, proxied.0), (404, 408));
    client.wait_closed();
    until("nothing in flight", || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0);
}

#[test]
fn refusals_before_any_route_never_name_the_engine() {
    let (gateway, origin) = start("");
    let mut client = Http2::open(gateway.address(), "app.test");
    let mut connect = Request::connect("app.test:443").body(()).unwrap();
    connect.headers_mut().insert("x-forwarded-for", "10.0.0.1".parse().unwrap());
    let trace = Request::trace("https://app.test/").body(()).unwrap();
    let disagreeing = Request::get("https://app.test/").header("host", "other.test").body(()).unwrap();
    let user = Request::get("https://u@app.test/").body(()).unwrap();
    for (request, status) in [(trace, 405), (connect, 405), (disagreeing, 400), (user, 400)] {
        let shown = format!("{request:?}");
        let answer = client.request(request, b"").expect("an answer");
        assert_eq!((answer.status, answer.header("server")), (status, None), "{shown}");
    }
    assert!(origin.requests().is_empty());
    gateway.wait_metric_is("portcullis_rejections_total", &[("reason", "method")], 2.0);
    assert_eq!(gateway.wait_record(|record| record["method"] == "CONNECT")["rejection"], "method");
}
