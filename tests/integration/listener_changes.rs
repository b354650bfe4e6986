//! Listeners that come, go and change at a reload, while others serve.

use crate::support::certificates::Authority;
use crate::support::eventually::until;
use crate::support::http2::Http2;
use crate::support::tls::TlsClient;
use crate::support::websocket::Socket;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUTES: &str = "routes: [{ name: app, respond: { body: hello } }]\n";
const PROXIED: &str = "routes: [{ name: app, upstream: [\"{ORIGIN}\"] }]\n";
const ONE: &str = "listeners:\n  - { name: edge, address: \"127.0.0.1:{PORT}\" }\n";
const TWO: &str = "listeners:\n  - { name: edge, address: \"127.0.0.1:{PORT}\" }\n  \
                   - { name: second, address: \"127.0.0.1:{PORT2}\" }\n";

fn second(gateway: &Gateway) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.value("PORT2").parse().expect("a port")))
}

fn wait_closed(address: SocketAddr) {
    until("the port to be closed", || TcpStream::connect(address).is_err());
}

#[test]
fn a_listener_comes_and_goes_while_another_serves() {
    let gateway = Gateway::start(&format!("{ROUTES}{ONE}"));
    let mut kept = gateway.connect();
    kept.get("a", "/", "");
    assert!(TcpStream::connect(second(&gateway)).is_err());
    for _ in 0..3 {
        gateway.reload(&format!("{ROUTES}{TWO}"));
        assert_eq!(crate::support::client::get(second(&gateway), "a", "/").text(), "hello");
        let status = gateway.admin("/v1/status");
        assert!(status.text().contains("\"second\""), "{}", status.text());
        gateway.wait_metric("portcullis_connections_total", &[("listener", "second")], 1.0);
        gateway.reload(&format!("{ROUTES}{ONE}"));
        wait_closed(second(&gateway));
        assert!(!gateway.admin("/v1/status").text().contains("\"second\""));
        let labels = gateway.metrics().label_values("portcullis_connections_open", "listener");
        assert_eq!(labels, ["edge"]);
    }
    assert_eq!(kept.get("a", "/", "").text(), "hello");
    assert_eq!(gateway.wait_record(|record| record["listener"] == "second")["status"], 200);
}

#[test]
fn a_port_that_is_taken_refuses_the_whole_reload() {
    let gateway = Gateway::start(&format!("{ROUTES}{ONE}"));
    let taken = SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.value("PORT3").parse().unwrap()));
    let holder = TcpListener::bind(taken).unwrap();
    let yaml = format!("routes: [{{ respond: {{ body: new }} }}]\n{TWO}  - {{ address: \"{taken}\" }}\n");
    let problem = "portcullis.yaml:5: listeners[2].address: cannot be listened on";
    gateway.reload_refused(&yaml, &[problem, "in use"]);
    assert_eq!(gateway.get("a", "/").text(), "hello");
    assert!(TcpStream::connect(second(&gateway)).is_err(), "half of it was applied");
    let labels = gateway.metrics().label_values("portcullis_connections_open", "listener");
    assert_eq!(labels, ["edge"]);
    drop(holder);
    gateway.reload(&yaml);
    assert_eq!(crate::support::client::get(taken, "a", "/").text(), "new");
}

#[test]
fn a_port_of_a_listener_that_would_go_is_refused_with_a_hint() {
    let gateway = Gateway::start(&format!("{ROUTES}{ONE}"));
    let everywhere = format!("{ROUTES}listeners: [{{ address: \"0.0.0.0:{{PORT}}\" }}]\n");
    gateway.reload_refused(&everywhere, &["listeners[0].address", "remove it in a reload of its own first"]);
    assert_eq!(gateway.get("a", "/").text(), "hello");
}

#[test]
fn new_settings_hold_for_new_connections_and_close_no_old_one() {
    let origin = Origin::script(|request| match request.target() {
        "/chat" => Reply::WebSocketEcho,
        _ => Reply::ok("hello"),
    });
    let certificate = "certificates: [{ cert: app.pem, key: app.key }]\n";
    let builder = Gateway::builder(&format!("{PROXIED}{certificate}{ONE}"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let (mut plain, mut tls) = (gateway.connect(), gateway.connect_tls("app.test"));
    let mut http2 = Http2::open(gateway.address(), "app.test");
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/chat").unwrap();
    let mut check_old = || {
        assert_eq!(plain.get("app.test", "/", "").text(), "hello");
        assert_eq!(tls.get("app.test", "/", "").text(), "hello");
        assert_eq!(http2.get("https://app.test/").text(), "hello");
        assert_eq!(socket.echo("still"), "still");
    };
    check_old();
    let with = |settings: &str| {
        format!("{PROXIED}{certificate}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", {settings} }}]\n")
    };
    gateway.reload(&with("name: edge, tls: off"));
    assert!(Connection::open_tls(gateway.address(), &TlsClient::named("app.test")).is_err());
    check_old();
    gateway.reload(&with("name: edge, tls: required, http2: false"));
    let mut refused = gateway.connect();
    refused.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert!(!String::from_utf8_lossy(&refused.rest()).contains("200"));
    check_old();
    gateway.reload(&with("name: door, redirect_http: true"));
    assert_eq!(gateway.get("app.test", "/").status, 308);
    gateway.wait_metric("portcullis_connections_total", &[("listener", "door")], 1.0);
    check_old();
}

#[test]
fn a_removed_listener_finishes_what_runs_and_closes_what_is_idle() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |request| match request.target() {
        "/held" => Reply::ok("late").after(&held),
        _ => Reply::ok("hello"),
    });
    let certificate = "certificates: [{ cert: app.pem, key: app.key }]\n";
    let builder = Gateway::builder(&format!("{PROXIED}{certificate}{TWO}"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let address = second(&gateway);
    let (mut idle, mut fresh, mut running) =
        (Connection::open(address), Connection::open(address), Connection::open(address));
    let mut http2 = Http2::open(address, "app.test");
    http2.get("https://app.test/");
    let mut other = gateway.connect();
    idle.get("app.test", "/", "");
    running.send("GET /held HTTP/1.1\r\nHost: app.test\r\n\r\n");
    origin.wait_requests(3);
    gateway.wait_metric("portcullis_connections_open", &[("listener", "second")], 4.0);
    gateway.reload(&format!("{PROXIED}{certificate}{ONE}"));
    wait_closed(address);
    assert!(idle.rest().is_empty() && fresh.rest().is_empty());
    http2.wait_closed();
    gate.open();
    let answer = running.response();
    assert_eq!((answer.text(), answer.header("connection")), ("late", Some("close")));
    assert_eq!(other.get("app.test", "/", "").text(), "hello");
}

#[test]
fn a_request_on_its_way_when_its_listener_goes_is_still_answered() {
    let gateway = Gateway::start(&format!("{ROUTES}{TWO}"));
    // Only a request sent within the half second is promised an answer: until this machine is so fast.
    until("a request in time", || {
        gateway.reload(&format!("{ROUTES}{TWO}"));
        let mut connection = Connection::open(second(&gateway));
        gateway.write_config(&format!("{ROUTES}{ONE}"));
        let begun = Instant::now();
        gateway.sighup();
        wait_closed(second(&gateway));
        let sent = connection.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if begun.elapsed() > Duration::from_millis(450) {
            return false;
        }
        let answer = sent.and_then(|()| connection.try_response()).expect("an answer");
        assert_eq!((answer.text(), answer.header("connection")), ("hello", Some("close")));
        true
    });
}

#[test]
fn what_a_removed_listener_cannot_finish_is_cut_at_the_limit() {
    let origin = Origin::script(|request| match request.target() {
        "/chat" => Reply::WebSocketEcho,
        _ => Reply::ok("never").after(&Gate::closed()),
    });
    let yaml = format!("{PROXIED}shutdown: {{ drain: 700ms }}\n");
    let gateway = Gateway::with_origin(&format!("{yaml}{TWO}"), &origin);
    let mut running = Connection::open(second(&gateway));
    running.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    let (mut kept, _) = Socket::open(gateway.connect(), "a", "/chat").unwrap();
    let (mut socket, _) = Socket::open(Connection::open(second(&gateway)), "a", "/chat").unwrap();
    let begun = Instant::now();
    gateway.reload(&format!("{yaml}{ONE}"));
    assert!(running.rest().is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(700), "cut after {:?}", begun.elapsed());
    socket.wait_closed();
    assert_eq!(kept.echo("still"), "still");
    gateway.wait_record_of("/never");
    assert_eq!(gateway.wait_record_of("/chat")["listener"], "second");
}
