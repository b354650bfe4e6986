//! What active checks ask, and what they take for a good answer.

use crate::support::certificates::Authority;
use crate::support::eventually::{eventually, until};
use crate::support::grpc::GrpcHealth;
use crate::support::http2_origin::{Call, Http2Origin, send_all};
use crate::support::{Gateway, Origin, Reply};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// A check with the patience a busy machine needs, unless it says its own.
fn yaml(check: &str, more: &str) -> String {
    let patient = match check.contains("timeout") {
        true => check.to_owned(),
        false => check.replacen("{", "{ interval: 1m, timeout: 1m, ", 1),
    };
    format!(
        "routes: [{{ upstream: app }}]\nupstreams:\n  app: {{ endpoints: [\"{{ORIGIN}}\"], \
         health_check: {patient}{more} }}\n"
    )
}

/// Whether the endpoint is up once the gateway is ready, and what the log says of it.
fn verdict(gateway: &Gateway) -> (bool, String) {
    let line = eventually("a verdict in the log", || {
        gateway.log().lines().find(|line| line.contains("upstream app: ")).map(str::to_owned)
    });
    (verdict_of(gateway) == 1.0, line)
}

#[test]
fn a_good_answer_has_the_right_status_and_body() {
    let large = format!("{}needle", "x".repeat(64 * 1024));
    for (check, status, body, up, reason) in [
        ("{}", 200, "x", true, "is up"),
        ("{}", 204, "", false, "the first check failed: status 204"),
        ("{ status: [200, \"202-204\"] }", 204, "", true, "is up"),
        ("{ status: [301] }", 301, "", true, "is up"),
        ("{ status: [\"200-299\"] }", 302, "", false, "status 302"),
        ("{ body: ready }", 200, "all ready.", true, "is up"),
        ("{ body: ready }", 200, "starting", false, "\"ready\" is not in the body"),
        ("{ body: needle }", 200, large.as_str(), false, "\"needle\" is not in the first 64 KiB"),
        ("{ body: ready }", 503, "all ready.", false, "status 503"),
    ] {
        let body = body.to_owned();
        let origin = Origin::script(move |_| Reply::status(status, "", &body));
        let gateway = Gateway::with_origin(&yaml(check, ""), &origin);
        let (is_up, line) = verdict(&gateway);
        assert_eq!(is_up, up, "{check} {status}: {line}");
        assert!(line.contains(reason), "{check} {status}: {line}");
    }
}

#[test]
fn a_check_asks_what_is_configured_and_says_who_it_is() {
    let origin = Origin::fixed("well");
    Gateway::with_origin(
        &yaml("{ method: OPTIONS, path: \"/health?full=1\", host: app.internal }", ""),
        &origin,
    );
    let asked = origin.requests().remove(0);
    assert_eq!(asked.line(), "OPTIONS /health?full=1 HTTP/1.1");
    assert_eq!(asked.header("host"), Some("app.internal"));
    assert!(asked.header("user-agent").unwrap().starts_with("portcullis/"), "{asked:?}");
    let origin = Origin::fixed("well");
    let gateway = Gateway::with_origin(&yaml("{ method: HEAD }", ""), &origin);
    assert_eq!(origin.requests()[0].line(), "HEAD / HTTP/1.1");
    assert_eq!(origin.requests()[0].header("host"), Some(&*origin.address()));
    assert!(verdict(&gateway).0);
}

#[test]
fn odd_answers_are_failures_and_never_hang() {
    for (bytes, reason) in [
        (&b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], "is up"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the first check failed: "),
        (b"HTTP/1.1 200 O", "the first check failed: "),
        (b"", "the first check failed: "),
        (b"\x1b[31mHTTP\r\n\r\n", "the first check failed: "),
    ] {
        let origin = Origin::script(move |_| Reply::RawThenClose(bytes.to_vec()));
        let (_, line) = verdict(&Gateway::with_origin(&yaml("{}", ""), &origin));
        assert!(line.contains(reason) && !line.contains('\x1b'), "{bytes:?}: {line:?}");
    }
}

#[test]
fn a_connection_is_enough_for_tcp_and_may_be_at_another_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = Origin::script(|_| Reply::status(500, "", "sick"));
    let gateway = Gateway::with_origin(&yaml("{ type: tcp }", ""), &origin);
    assert!(verdict(&gateway).0);
    assert!(origin.connections() >= 1 && origin.requests().is_empty());
    let gateway = Gateway::with_origin(&yaml(&format!("{{ type: tcp, port: {port} }}"), ""), &origin);
    assert!(verdict(&gateway).0);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_ok(), "the other port was asked");
}

#[test]
fn a_check_over_tls_verifies_as_requests_do() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let origin = Origin::tls(&authority.issue(&["origin.test"]), |request| match request.header("host") {
        Some("origin.test") => Reply::ok("well"),
        _ => Reply::status(421, "", "who?"),
    });
    for (kind, tls, up) in [
        ("http", "{ server_name: origin.test, ca: ca.pem }", true),
        ("tcp", "{ server_name: origin.test, ca: ca.pem }", true),
        ("http", "{ server_name: origin.test, ca: stranger.pem }", false),
        ("tcp", "{ server_name: origin.test, ca: stranger.pem }", false),
        ("tcp", "{ server_name: other.test, ca: ca.pem }", false),
        ("tcp", "{ server_name: origin.test, verify: false }", true),
    ] {
        let check = yaml(&format!("{{ type: {kind} }}"), &format!(", tls: {tls}"));
        let builder = Gateway::builder(&check).origin(&origin);
        authority.write(builder.dir(), "ca.pem");
        stranger.write(builder.dir(), "stranger.pem");
        let (is_up, line) = verdict(&builder.start());
        assert_eq!(is_up, up, "{kind} {tls}: {line}");
    }
}

#[test]
fn grpc_services_are_asked_by_their_own_protocol() {
    let server = GrpcHealth::start();
    server.set("", 1);
    server.set("sick", 2);
    for (check, up, reason) in [
        ("{ type: grpc }", true, "is up"),
        ("{ type: grpc, service: sick }", false, "the service is NOT_SERVING"),
        ("{ type: grpc, service: nobody }", false, "grpc-status 5"),
    ] {
        let gateway = Gateway::builder(&yaml(check, "")).set("ORIGIN", server.address()).start();
        let (is_up, line) = verdict(&gateway);
        assert_eq!(is_up, up, "{check}: {line}");
        assert!(line.contains(reason), "{check}: {line}");
    }
    let fast = "{ type: grpc, service: sick, host: app.internal, interval: 500ms, timeout: 500ms }";
    let gateway = Gateway::builder(&yaml(fast, "")).set("ORIGIN", server.address()).start();
    server.set("sick", 1);
    until("the service to be up", || verdict_of(&gateway) == 1.0);
    let (uri, headers) = server.seen().pop().unwrap();
    assert_eq!(uri, "http://app.internal/grpc.health.v1.Health/Check");
    assert_eq!(headers["te"], "trailers");
    assert_eq!(headers["content-type"], "application/grpc");
    let origin = Origin::fixed("no HTTP/2 here");
    let (is_up, line) = verdict(&Gateway::with_origin(&yaml("{ type: grpc }", ""), &origin));
    assert!(!is_up, "{line}");
}

/// Answers 404 at `/absent`, else a body of 200 KiB with `needle` at its begin.
async fn well(mut call: Call) {
    let status = if call.request.uri().path() == "/absent" { 404 } else { 200 };
    let mut stream = call.answer(http::Response::builder().status(status).body(()).unwrap());
    send_all(&mut stream, format!("needle{}", "x".repeat(200 * 1024)).into()).await;
}

#[test]
fn http_checks_speak_what_requests_do() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let plain = Http2Origin::plain(move |call| {
        let head = (call.request.method().to_string(), call.request.uri().to_string());
        asked.lock().unwrap().push(head);
        well(call)
    });
    for (check, up, reason) in [
        ("{}", true, "is up"),
        ("{ path: /absent }", false, "status 404"),
        ("{ path: /absent, status: [404] }", true, "is up"),
        ("{ body: needle }", true, "is up"),
        ("{ body: nothing }", false, "\"nothing\" is not in the first 64 KiB of the body"),
        ("{ method: OPTIONS, path: \"/health?full=1\", host: app.internal }", true, "is up"),
    ] {
        let yaml = yaml(check, ", protocol: h2c");
        let (is_up, line) = verdict(&Gateway::builder(&yaml).set("ORIGIN", plain.address()).start());
        assert_eq!(is_up, up, "{check}: {line}");
        assert!(line.contains(reason), "{check}: {line}");
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], ("GET".to_owned(), format!("http://{}/", plain.address())));
    assert_eq!(seen[5], ("OPTIONS".to_owned(), "http://app.internal/health?full=1".to_owned()));
    let old = Origin::fixed("HTTP/1 alone");
    let (is_up, line) = verdict(&Gateway::with_origin(&yaml("{}", ", protocol: h2c"), &old));
    assert!(!is_up, "requests would fail there too: {line}");
}

#[test]
fn http_checks_over_tls_speak_what_the_endpoint_chooses() {
    let authority = Authority::new("root");
    let identity = authority.issue(&["origin.test"]);
    let (new, old) = (Http2Origin::tls(&identity, well), Origin::tls(&identity, |_| Reply::ok("well")));
    for (protocol, origin, up) in [
        ("http2", new.address(), true),
        ("auto", new.address(), true),
        ("auto", old.address(), true),
        ("http1", new.address(), false),
        ("http2", old.address(), false),
    ] {
        let tls = "tls: { server_name: origin.test, ca: ca.pem }";
        let builder = Gateway::builder(&yaml("{}", &format!(", protocol: {protocol}, {tls}")));
        let builder = builder.set("ORIGIN", &origin);
        authority.write(builder.dir(), "ca.pem");
        let (is_up, line) = verdict(&builder.start());
        assert_eq!(is_up, up, "{protocol} {origin}: {line}");
    }
}

fn verdict_of(gateway: &Gateway) -> f64 {
    gateway.metrics().get("portcullis_upstream_endpoint_up", &[]).expect("one endpoint")
}

#[test]
fn where_connections_are_announced_a_check_announces_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; 16];
        stream.read_exact(&mut header).unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        (header, request[..length].to_vec())
    });
    let gateway = Gateway::builder(&yaml("{}", ", proxy_protocol: v2")).set("ORIGIN", address).start();
    assert!(verdict(&gateway).0);
    let (header, request) = origin.join().unwrap();
    assert_eq!(header, *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    assert!(request.starts_with(b"GET / HTTP/1.1\r\n"));
}
