//! However a request ends, nothing of it stays in a count.

use crate::support::eventually::until;
use crate::support::http2_origin::{Call, Http2Origin, client, fields};
use crate::support::ports::ClosedPort;
use crate::support::websocket::Socket;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use bytes::Bytes;
use http::Request;
use std::sync::Arc;
use std::time::Duration;

/// `max_requests` is what runs at once in no test: whatever is left behind would close an upstream for good.
const YAML: &str = "workers: 2\nroutes:\n  \
    - { path: /h2, upstream: h2, timeouts: { response: 2s } }\n  \
    - { path: /gone, upstream: gone }\n  \
    - { path: /copied, upstream: app, mirror: { upstream: shadow } }\n  \
    - { upstream: app, timeouts: { response: 2s, idle: 2s }, limits: { body: 100KiB } }\n\
    upstreams:\n  \
    app: { endpoints: [\"{ORIGIN}\"], max_requests: 4, retry: { attempts: 3, on: [connect, stale, timeout, 503], budget_percent: 100 } }\n  \
    h2: { endpoints: [\"{H2}\"], protocol: h2c, max_requests: 4, retry: { on: [connect, stale, 503] } }\n  \
    gone: { endpoints: [\"127.0.0.1:{CLOSED}\"], max_requests: 4 }\n  \
    shadow: { endpoints: [\"{SHADOW}\"], max_requests: 4, balance: p2c }\n";

struct Room {
    gateway: Gateway,
    gate: Arc<Gate>,
    origin: Origin,
    _h2: Http2Origin,
    _shadow: Origin,
    _closed: ClosedPort,
}

impl Room {
    fn new() -> Room {
        let gate = Gate::closed();
        let held = Arc::clone(&gate);
        let origin = Origin::script(move |request| match request.target() {
            "/held" => Reply::ok("late").after(&held),
            "/partly" => Reply::Partly(
                b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun".to_vec(),
                Arc::clone(&held),
                Box::new(Reply::Close),
            ),
            "/short" => Reply::RawThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
            "/close" => Reply::Close,
            "/garbage" => Reply::RawThenClose(b"garbage\r\n\r\n".to_vec()),
            "/busy" => Reply::status(503, "", "busy"),
            "/socket" => Reply::WebSocketEcho,
            _ => Reply::ok("hello"),
        });
        let h2 = Http2Origin::plain(|mut call: Call| async move {
            match call.request.uri().path() {
                "/h2/reset" => call.respond.send_reset(h2::Reason::INTERNAL_ERROR),
                "/h2/refused" => call.respond.send_reset(h2::Reason::REFUSED_STREAM),
                "/h2/held" => std::future::pending().await,
                "/h2/half" => {
                    let mut stream = call.answer(http::Response::new(()));
                    stream.send_data(Bytes::from_static(b"half"), false).expect("an open stream");
                    stream.send_reset(h2::Reason::CANCEL);
                }
                _ => call.ok("hello"),
            }
        });
        let shadow = Origin::script(|request| match request.target() {
            "/copied/close" => Reply::Close,
            _ => Reply::ok("shadow"),
        });
        let closed = ClosedPort::new();
        let gateway = Gateway::builder(YAML)
            .origin(&origin)
            .set("H2", h2.address())
            .set("SHADOW", shadow.address())
            .set("CLOSED", &closed)
            .start();
        Room { gateway, gate, origin, _h2: h2, _shadow: shadow, _closed: closed }
    }

    /// Whether every count is at nothing, and the first sixteen requests after that are served.
    fn is_empty_after(&self, what: &str) {
        until(&format!("nothing in flight after {what}"), || {
            let metrics = self.gateway.metrics();
            let shown = self.gateway.admin("/v1/upstreams").json();
            let upstreams = shown["upstreams"].as_array().expect("upstreams").iter();
            let mut endpoints =
                upstreams.flat_map(|upstream| upstream["endpoints"].as_array().expect("endpoints"));
            metrics.sum("portcullis_upstream_requests_in_flight", &[]) == 0.0
                && metrics.sum("portcullis_http_requests_in_flight", &[]) == 0.0
                && metrics.sum("portcullis_upstream_circuit_open", &[]) == 0.0
                && endpoints.all(|endpoint| endpoint["requests_in_flight"] == 0)
        });
    }

    fn send(&self, request: &str) -> Connection {
        let mut connection = self.gateway.connect();
        connection.send(request);
        connection
    }

    fn get(&self, path: &str) -> Connection {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }
}

#[test]
fn nothing_stays_of_requests_that_upstreams_end() {
    let room = Room::new();
    for _ in 0..6 {
        for path in
            ["/", "/short", "/close", "/garbage", "/busy", "/gone", "/h2/reset", "/h2/refused", "/h2/half"]
        {
            let _ = room.get(path).try_response();
        }
        let body = "POST /close HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(room.send(body).response().status, 502);
    }
    room.is_empty_after("answers, resets and broken connections");
    let late: Vec<_> = (0..3).map(|_| room.get("/held")).collect();
    let late_h2: Vec<_> = (0..3).map(|_| room.get("/h2/held")).collect();
    for mut connection in late.into_iter().chain(late_h2) {
        assert_eq!(connection.response().status, 504);
    }
    let mut partly = room.get("/partly");
    assert!(partly.try_response().is_err(), "the rest never came");
    room.is_empty_after("timeouts");
    room.gate.open();
}

#[test]
fn nothing_stays_of_requests_that_clients_give_up() {
    let room = Room::new();
    for _ in 0..3 {
        let asked = room.origin.requests().len();
        let waiting = [room.get("/held"), room.get("/partly")];
        room.origin.wait_requests(asked + 2);
        drop(waiting);
        drop(room.get("/h2/held"));
        let mut upload = room.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nthe beginning");
        assert!(upload.is_quiet_for(Duration::from_millis(50)));
        drop(upload);
        let body = "x".repeat(200 * 1024);
        let large = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        assert_eq!(room.send(&large).response().status, 413);
        let chunked = format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
            body.len()
        );
        let mut connection = room.gateway.connect();
        let _ = connection.try_send(&chunked);
        let _ = connection.try_response();
        let broken = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        let _ = room.send(broken).try_response();
        room.is_empty_after("clients that gave up");
    }
    room.gate.open();
}

#[test]
fn nothing_stays_of_http2_streams_that_are_reset() {
    let room = Room::new();
    client(room.gateway.address(), |send| async move {
        for round in 0..3 {
            for path in ["/held", "/partly", "/h2/held", "/h2/half", "/h2/reset", "/"] {
                let mut send = send.clone().ready().await.expect("an open connection");
                let mut request =
                    Request::post(format!("http://app.test{path}")).body(()).expect("a request");
                request
                    .headers_mut()
                    .extend(fields(&[("content-type", "application/grpc"), ("te", "trailers")]));
                let (response, mut stream) = send.send_request(request, false).expect("a stream");
                stream.send_data(Bytes::from_static(b"message"), round == 1).expect("an open stream");
                if round == 2 {
                    let _ = tokio::time::timeout(Duration::from_millis(50), response).await;
                }
                stream.send_reset(h2::Reason::CANCEL);
            }
        }
    });
    room.is_empty_after("resets");
    room.gate.open();
}

#[test]
fn nothing_stays_of_tunnels_and_copies() {
    let room = Room::new();
    for _ in 0..5 {
        let (mut socket, _) = Socket::open(room.gateway.connect(), "a", "/socket").expect("a handshake");
        assert_eq!(socket.echo("hello"), "hello");
        let shown = room.gateway.metrics().sum("portcullis_upstream_requests_in_flight", &[]);
        assert_eq!(shown, 1.0, "a tunnel counts while it lives");
        drop(socket);
        room.is_empty_after("a tunnel");
    }
    for path in ["/copied", "/copied/close", "/copied", "/copied/close", "/copied", "/copied"] {
        assert_eq!(room.get(path).response().text(), "hello");
        room.is_empty_after("a copy");
    }
    let copies = "portcullis_upstream_mirrored_requests_total";
    room.gateway.wait_metric_is(copies, &[("result", "sent")], 4.0);
    room.gateway.wait_metric_is(copies, &[("result", "failed")], 2.0);
}
