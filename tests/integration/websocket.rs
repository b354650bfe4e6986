//! Websockets: echo, patience, reload, and upgrades the origin does not grant.

use crate::support::certificates::Authority;
use crate::support::client::Connection;
use crate::support::eventually::{DEADLINE, holds};
use crate::support::frames::timed_out;
use crate::support::tls::TlsClient;
use crate::support::websocket::Socket;
use crate::support::{Gateway, Origin, Reply};
use std::time::{Duration, Instant};

const ROUTES: &str = "routes: [{ name: chat, hosts: [app.test], upstream: [\"{ORIGIN}\"] }]\n";

fn echo_origin() -> Origin {
    Origin::script(|_| Reply::WebSocketEcho)
}

#[test]
fn messages_go_both_ways_with_and_without_tls() {
    let origin = echo_origin();
    let builder = Gateway::builder(&format!("{ROUTES}certificates: [{{ cert: app.pem, key: app.key }}]"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let tls = Connection::open_tls(gateway.address(), &TlsClient::named("app.test")).unwrap();
    for connection in [gateway.connect(), tls] {
        let (mut socket, response) = Socket::open(connection, "app.test", "/chat?room=1").unwrap();
        assert_eq!(response.status(), 101);
        for text in ["hello", "", &"x".repeat(100_000)] {
            assert_eq!(socket.echo(text), text);
        }
    }
    let request = origin.last_request();
    assert_eq!(request.line(), "GET /chat?room=1 HTTP/1.1");
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(gateway.wait_record_of("/chat")["status"], 101);
    let of_route = [("route", "chat")];
    gateway.wait_metric("portcullis_websocket_duration_seconds_count", &of_route, 2.0);
    assert_eq!(gateway.metrics().sum("portcullis_http_request_duration_seconds_count", &of_route), 0.0);
}

#[test]
fn silence_does_not_end_a_websocket_before_its_own_limit() {
    let origin = echo_origin();
    let yaml = ROUTES.replace(" }]", ", timeouts: { response: 1s, idle: 1s } }]")
        + "limits: { idle_timeout: 1s, header_timeout: 1s, body_idle_timeout: 1s }";
    let gateway = Gateway::with_origin(&yaml, &origin);
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/").unwrap();
    assert_eq!(socket.echo("before"), "before");
    holds("the upstream connection", Duration::from_secs(4), || origin.closed() == 0);
    assert_eq!(socket.echo("after"), "after");
}

/// The echo waits to be taken, and so does what the client still sends: neither side may wait for the other without an end.
#[test]
fn a_client_that_stops_reading_ends_its_websocket_at_the_same_limit() {
    let origin = echo_origin();
    let yaml = ROUTES.replace(" }]", ", timeouts: { websocket_idle: 2s } }]");
    let gateway = Gateway::with_origin(&yaml, &origin);
    let mut client = gateway.connect();
    client.send(
        "GET / HTTP/1.1\r\nHost: app.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    // Binary, masked by zeros, 16 KiB each: more than all sockets on the way hold.
    let frame = [&b"\x82\xfe\x40\x00\0\0\0\0"[..], &[b'x'; 16_384]].concat();
    let ended = (0..8_000).find_map(|_| client.try_send(&frame).err());
    assert!(!timed_out(&ended.expect("an end")), "the gateway cuts it");
    let record = gateway.wait_record(|record| record["status"] == 101);
    assert_eq!(record["rejection"], "write_timeout", "{record}");
    gateway.wait_metric_is("portcullis_connections_open", &[], 0.0);
}

#[test]
fn silence_ends_a_websocket_at_its_own_limit() {
    let origin = echo_origin();
    let yaml = ROUTES.replace(" }]", ", timeouts: { websocket_idle: 2s } }]");
    let gateway = Gateway::with_origin(&yaml, &origin);
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/").unwrap();
    let start = Instant::now();
    assert_eq!(socket.echo("before"), "before");
    socket.wait_closed();
    assert!(start.elapsed() >= Duration::from_secs(2), "cut after {:?}", start.elapsed());
    assert!(start.elapsed() < DEADLINE, "it is the client that gives up");
}

#[test]
fn an_upgrade_the_origin_does_not_grant_smuggles_nothing() {
    let origin = Origin::fixed("plain");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let mut connection = gateway.connect();
    connection.send(
        "GET /u HTTP/1.1\r\nHost: app.test\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: unknown.test\r\n\r\n",
    );
    assert_eq!(connection.response().text(), "plain");
    // Either the second request is answered as a request of its own (no route), or the connection closes.
    if let Ok(second) = connection.try_response() {
        assert_eq!(second.status, 404);
    }
    assert!(origin.requests().iter().all(|request| request.target() != "/smuggled"));
}
