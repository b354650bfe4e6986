//! Leaving: what runs is finished, nothing new is taken, and nobody waits for nothing.

use crate::support::certificates::Authority;
use crate::support::eventually::DEADLINE;
use crate::support::http2::Http2;
use crate::support::websocket::Socket;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HELLO: &str = "routes: [{ respond: { body: hello } }]\nshutdown: { drain: 2m }\n";

/// What a busy machine may take to leave; a gateway that waited for nothing would take all of `shutdown.drain`.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn an_idle_gateway_leaves_at_once() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut gateway = Gateway::start(HELLO);
        gateway.get("a", "/");
        gateway.signal(signal);
        assert_eq!(gateway.wait_exit(SOON), 0);
    }
}

#[test]
fn connections_without_a_request_do_not_hold_it_up() {
    let mut gateway = Gateway::start(HELLO);
    let mut kept = gateway.connect();
    kept.get("a", "/", "");
    let mut fresh = gateway.connect();
    gateway.wait_metric("portcullis_connections_open", &[], 2.0);
    gateway.term();
    assert_eq!(gateway.wait_exit(SOON), 0);
    assert!(kept.rest().is_empty() && fresh.rest().is_empty());
}

#[test]
fn an_idle_http2_connection_is_said_goodbye_to() {
    let builder = Gateway::builder(&format!("{HELLO}certificates: [{{ cert: app.pem, key: app.key }}]"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let mut gateway = builder.start();
    let mut client = Http2::open(gateway.address(), "app.test");
    client.get("https://app.test/");
    gateway.term();
    client.wait_closed();
    assert_eq!(gateway.wait_exit(SOON), 0);
}

#[test]
fn a_running_request_is_finished_and_then_it_leaves_quickly() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| Reply::ok("late").after(&held));
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"] }]\nshutdown: { drain: 2m }\n";
    let mut gateway = Gateway::with_origin(yaml, &origin);
    let mut connection = gateway.connect();
    connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    gateway.term();
    let address = gateway.address();
    crate::support::eventually::until("no new connection", || TcpStream::connect(address).is_err());
    assert!(gateway.is_running(), "left with a request running");
    gate.open();
    let response = connection.response();
    assert_eq!((response.text(), response.header("connection")), ("late", Some("close")));
    assert_eq!(gateway.wait_exit(SOON), 0);
    assert_eq!(gateway.wait_record_of("/held")["status"], 200);
}

#[test]
fn what_does_not_finish_is_cut_at_the_limit() {
    let origin = Origin::script(|_| Reply::ok("never").after(&Gate::closed()));
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"] }]\nshutdown: { drain: 1s }\n";
    let mut gateway = Gateway::with_origin(yaml, &origin);
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    let start = Instant::now();
    gateway.term();
    gateway.wait_exit(SOON);
    assert!(start.elapsed() >= Duration::from_secs(1), "left after {:?}", start.elapsed());
}

#[test]
fn an_open_websocket_is_given_the_drain_time_only() {
    let origin = Origin::script(|_| Reply::WebSocketEcho);
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"] }]\nshutdown: { drain: 1s }\n";
    let mut gateway = Gateway::with_origin(yaml, &origin);
    let (mut socket, _) = Socket::open(gateway.connect(), "a", "/").unwrap();
    assert_eq!(socket.echo("hello"), "hello");
    let start = Instant::now();
    gateway.term();
    // It does not read, so it does not hear that the gateway leaves.
    gateway.wait_exit(SOON);
    assert!(start.elapsed() >= Duration::from_secs(1), "left after {:?}", start.elapsed());
    assert_eq!(gateway.wait_record_of("/")["status"], 101);
}

#[test]
fn websockets_are_told_that_the_gateway_leaves() {
    let origin = Origin::script(|_| Reply::WebSocketEcho);
    let builder = Gateway::builder(
        "routes: [{ upstream: [\"{ORIGIN}\"] }]\ncertificates: [{ cert: app.pem, key: app.key }]\n\
         shutdown: { drain: 2m }\n",
    );
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let mut gateway = builder.origin(&origin).start();
    let mut sockets: Vec<_> = [gateway.connect(), gateway.connect_tls("app.test")]
        .into_iter()
        .map(|connection| Socket::open(connection, "app.test", "/").unwrap().0)
        .collect();
    for socket in &mut sockets {
        assert_eq!(socket.echo(&"x".repeat(100_000)), "x".repeat(100_000));
    }
    gateway.term();
    for socket in &mut sockets {
        assert_eq!(socket.wait_close_code(), Some(1001));
    }
    assert_eq!(gateway.wait_exit(SOON), 0);
}

/// A gateway that may drain for an hour, with a request that never ends, told to leave.
fn draining(origin: &Origin) -> (Gateway, Connection) {
    let gateway = Gateway::with_origin(&format!("{HELD}shutdown: {{ drain: 1h }}\n"), origin);
    let mut connection = gateway.connect();
    connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    gateway.term();
    gateway.wait_log("draining for at most 3600s");
    (gateway, connection)
}

const HELD: &str = "routes: [{ upstream: [\"{ORIGIN}\"], timeouts: { response: 1h } }]\n";

#[test]
fn who_asks_once_more_does_not_wait_for_what_runs() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let origin = Origin::script(|_| Reply::ok("never").after(&Gate::closed()));
        let (mut gateway, _connection) = draining(&origin);
        gateway.signal(signal);
        assert_eq!(gateway.wait_exit(DEADLINE), 0);
        assert!(
            gateway.log().contains("asked to leave once more: 1 connections are cut"),
            "{}",
            gateway.log()
        );
        gateway.wait_record_of("/held");
    }
}

#[test]
fn who_asks_once_more_does_not_wait_for_load_balancers() {
    let mut gateway = Gateway::start("routes: [{ respond: { body: hello } }]\nshutdown: { delay: 1h }\n");
    gateway.term();
    gateway.wait_log("draining");
    gateway.signal(libc::SIGINT);
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}

#[test]
fn a_drain_that_runs_heeds_a_reload() {
    let origin = Origin::script(|_| Reply::ok("never").after(&Gate::closed()));
    let (mut gateway, _connection) = draining(&origin);
    gateway.write_config(&format!("{HELD}shutdown: {{ drain: 1s }}\n"));
    gateway.sighup();
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
    gateway.wait_record_of("/held");
}

#[test]
fn usr2_does_nothing_but_a_line_of_the_log() {
    let gateway = Gateway::start(HELLO);
    gateway.signal(libc::SIGUSR2);
    gateway.wait_log("USR2 has no meaning here");
    assert_eq!(gateway.get("a", "/").text(), "hello");
}
