//! What clients of every age write in a head, and what the upstream reads: Host, Connection, Expect, lengths, targets
//! that were not encoded, and the way a request has come.

use crate::support::eventually::until;
use crate::support::frames::{END_STREAM, Frames, get, headers, kind};
use crate::support::http2::Http2;
use crate::support::http2_origin::{Call, Http2Origin};
use crate::support::{Gateway, Origin, Reply};

/// Both ways of forwarding over HTTP/1.
const WAYS: [&str; 2] = ["on", "off"];

fn gateway(lane: &str, origin: &Origin) -> Gateway {
    let yaml = format!("proxy: {{ lane: {lane} }}\nroutes: [{{ upstream: [\"{{ORIGIN}}\"] }}]\n");
    Gateway::with_origin(&yaml, origin)
}

/// The status of the answer to these bytes, on a connection of their own.
fn status(gateway: &Gateway, bytes: &str) -> u16 {
    let mut client = gateway.connect();
    client.send(bytes);
    client.response().status
}

#[test]
fn an_upstream_is_always_told_a_host() {
    for lane in WAYS {
        let origin = Origin::script(|request| Reply::ok(request.header("host").unwrap_or("none")));
        let gateway = gateway(lane, &origin);
        let address = origin.address();
        for (request, host) in [
            ("GET / HTTP/1.0\r\n\r\n", &*address),
            ("GET http://named.test:81/x HTTP/1.0\r\n\r\n", "named.test:81"),
            ("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", &*address),
            ("GET http://named.test/x HTTP/1.1\r\nHost: named.test\r\n\r\n", "named.test"),
        ] {
            let mut client = gateway.connect();
            client.send(request);
            assert_eq!(client.response().text(), host, "lane: {lane}, {request:?}");
        }
    }
}

#[test]
fn close_counts_in_every_line_of_connection() {
    for lane in WAYS {
        let origin = Origin::fixed("hi");
        let gateway = gateway(lane, &origin);
        for lines in [
            "Connection: x-a\r\nConnection: close\r\n",
            "Connection: keep-alive\r\nConnection: x-a, CLOSE\r\n",
        ] {
            let mut client = gateway.connect();
            let answer = client.get("a", "/", lines);
            assert_eq!(answer.header("connection"), Some("close"), "lane: {lane}, {lines:?}");
            assert!(client.rest().is_empty());
        }
    }
}

#[test]
fn lengths_nobody_can_count_and_expectations_nobody_knows_are_refused() {
    let origin = Origin::fixed("hi");
    let gateway = gateway("on", &origin);
    let post = |field: &str| status(&gateway, &format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
    for length in ["18446744073709551615", "9223372036854775808"] {
        assert_eq!(post(&format!("Content-Length: {length}")), 400, "{length}");
    }
    let record = gateway.wait_record(|record| record["rejection_detail"] == "content_length_range");
    assert_eq!(record["rejection"], "malformed");
    for expectation in ["200-ok", "100-continue, 200-ok"] {
        assert_eq!(post(&format!("Expect: {expectation}")), 417, "{expectation}");
    }
    assert_eq!(post("Expect: 100-continue\r\nExpect: x"), 417);
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "expectation")], 3.0);
    assert_eq!(status(&gateway, "GET / HTTP/1.0\r\nExpect: x\r\n\r\n"), 200, "HTTP/1.0 expects nothing");
    assert_eq!(origin.only_request().header("expect"), None, "nor does the upstream hear of it");
    let mut client = Frames::open(gateway.address());
    client.send(headers(1, END_STREAM, &[&get("a", "/")[..], &[("expect", "x")]].concat()));
    client.wait(kind::HEADERS);
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "expectation")], 4.0);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn what_a_client_forgot_to_encode_is_encoded() {
    for lane in WAYS {
        let origin = Origin::script(|request| Reply::ok(request.target()));
        let gateway = gateway(lane, &origin);
        let request = "GET /\"<>`?\"<>` HTTP/1.1\r\nHost: a\r\nX: <\"`>\r\n\r\n";
        let wanted = "/%22%3C%3E%60?%22%3C%3E%60";
        let mut client = gateway.connect();
        for _ in 0..2 {
            client.send(request.repeat(2));
            assert_eq!(client.response().text(), wanted, "lane: {lane}");
            assert_eq!(client.response().text(), wanted, "lane: {lane}, behind another");
        }
        for byte in request.as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.response().text(), wanted, "lane: {lane}, byte by byte");
        assert_eq!(gateway.wait_record(|record| record["path"] == "/%22%3C%3E%60")["status"], 200);
        // A line that has no room in what the engine reads at once.
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "\"".repeat(2000));
        client.send(&long);
        assert_eq!(client.response().text(), format!("/{}", "%22".repeat(2000)));
    }
}

#[test]
fn an_upstream_hears_which_way_a_request_has_come() {
    for lane in WAYS {
        let origin = Origin::script(|request| Reply::ok(&request.all("via").join(", ")));
        let gateway = gateway(lane, &origin);
        let mut client = gateway.connect();
        assert_eq!(client.get("a", "/", "").text(), "1.1 portcullis");
        assert_eq!(
            client.get("a", "/", "Via: 1.0 fred\r\nVIA: 1.1 p (x)\r\n").text(),
            "1.0 fred, 1.1 p (x), 1.1 portcullis"
        );
        let nominated = client.get("a", "/", "Via: 1.0 fred\r\nConnection: via\r\n");
        assert_eq!(nominated.text(), "1.0 fred, 1.1 portcullis", "it cannot be nominated away");
        let mut old = gateway.connect();
        old.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(old.response().text(), "1.0 portcullis");
        let new = Http2::open(gateway.address(), "a").get("https://a/");
        assert_eq!(new.text(), "2.0 portcullis");
        let yaml =
            format!("proxy: {{ lane: {lane}, via: off }}\nroutes: [{{ upstream: [\"{{ORIGIN}}\"] }}]\n");
        gateway.reload(&yaml);
        assert_eq!(client.get("a", "/", "Via: 1.0 fred\r\n").text(), "1.0 fred");
    }
}

/// Each pass makes a request of its own, so that few are enough for all connections and descriptors.
#[test]
fn a_gateway_that_is_its_own_upstream_notices() {
    for lane in WAYS {
        let yaml = format!("proxy: {{ lane: {lane} }}\nroutes: [{{ upstream: [\"localhost:{{PORT}}\"] }}]\n");
        let gateway = Gateway::start(&yaml);
        assert_eq!(gateway.get("a", "/").status, 508, "lane: {lane}");
        gateway.wait_metric_is("portcullis_rejections_total", &[("reason", "loop")], 1.0);
        until("all passes to be over", || {
            gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0
        });
        assert_eq!(gateway.metrics().sum("portcullis_http_requests_total", &[]), 6.0);
        assert_eq!(gateway.metrics().sum("portcullis_upstream_ejections_total", &[]), 0.0);
    }
}

#[test]
fn a_client_may_ask_how_far_its_options_go() {
    let origin = Origin::script(|request| Reply::ok(request.header("max-forwards").unwrap_or("none")));
    let gateway = gateway("on", &origin);
    let ask = |field: &str| {
        let mut client = gateway.connect();
        client.send(format!("OPTIONS * HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        client.response()
    };
    assert_eq!(ask("").text(), "none");
    assert_eq!(ask("Max-Forwards: 2\r\n").text(), "1");
    let here = ask("Max-Forwards: 0\r\n");
    assert_eq!((here.status, here.text()), (200, ""));
    assert!(here.header("allow").is_some_and(|allow| allow.contains("OPTIONS")));
    assert_eq!(ask("Max-Forwards: many\r\n").text(), "many");
    let mut client = gateway.connect();
    assert_eq!(client.get("a", "/", "Max-Forwards: 0\r\n").text(), "0", "of no meaning for GET");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn an_origin_of_http2_gets_an_authority_and_hears_which_way_a_request_has_come() {
    let origin = Http2Origin::plain(|mut call: Call| async move {
        let authority = call.request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let mut head = http::Response::builder().header("x-authority", authority);
        for via in call.request.headers().get_all("via") {
            head = head.header("x-via", via);
        }
        let head = head.body(()).unwrap();
        call.respond.send_response(head, true).unwrap();
    });
    let yaml = "routes: [{ upstream: app }]\nupstreams: { app: { protocol: h2c, endpoints: [\"{APP}\"] } }\n";
    let gateway = Gateway::builder(yaml).set("APP", origin.address()).start();
    for (head, host) in
        [("GET /x HTTP/1.0", origin.address()), ("GET http://a.test/x HTTP/1.0", "a.test".to_owned())]
    {
        let mut connection = gateway.connect();
        connection.send(format!("{head}\r\n\r\n"));
        let answer = connection.response();
        assert_eq!((answer.status, answer.header("x-authority")), (200, Some(host.as_str())), "{head}");
        assert_eq!(answer.header("x-via"), Some("1.0 portcullis"), "{head}");
    }
    let answer = gateway.connect().get("a", "/", "Via: 1.0 fred\r\n");
    assert_eq!(answer.header("x-via"), Some("1.0 fred, 1.1 portcullis"));
    let mut five = "Via: 1.1 portcullis\r\n".repeat(4);
    assert_eq!(gateway.connect().get("a", "/", &five).status, 200);
    five.push_str("Via: 1.1 Portcullis\r\n");
    assert_eq!(gateway.connect().get("a", "/", &five).status, 508);
}

#[test]
fn the_host_of_a_url_decides_on_the_route() {
    let gateway =
        Gateway::start("routes: [{ hosts: [a.test], respond: { body: a } }, { respond: { body: other } }]\n");
    for (head, body) in [
        ("GET http://A.test/ HTTP/1.0", "a"),
        ("GET http://b.test/ HTTP/1.0", "other"),
        ("GET / HTTP/1.0", "other"),
    ] {
        let mut connection = gateway.connect();
        connection.send(format!("{head}\r\n\r\n"));
        assert_eq!(connection.response().text(), body, "{head}");
    }
}

#[test]
fn close_counts_for_own_answers_too() {
    let gateway = Gateway::start("routes: [{ path: /own, respond: { body: own } }]\n");
    for path in ["/own", "/none", "/%"] {
        for lines in ["Connection: x-a\r\nConnection: close\r\n", "Connection: x-a , CLOSE\r\n"] {
            let mut client = gateway.connect();
            let answer = client.get("a", path, lines);
            assert_eq!(answer.header("connection"), Some("close"), "{path} {lines:?}");
            assert!(client.rest().is_empty());
        }
        let mut client = gateway.connect();
        for lines in ["Connection: x-close\r\n", "Connection: x-a\r\nConnection: keep-alive\r\n", ""] {
            assert_ne!(client.get("a", path, lines).header("connection"), Some("close"), "{path} {lines:?}");
        }
    }
}

#[test]
fn a_small_body_behind_a_refused_expectation_costs_no_connection() {
    let gateway = Gateway::start("routes: [{ respond: { body: own } }]\n");
    let mut client = gateway.connect();
    for _ in 0..3 {
        let refused = "POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(client.request(refused).status, 417);
        assert_eq!(client.get("a", "/", "").text(), "own");
    }
}
