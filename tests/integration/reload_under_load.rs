//! Reloads under load: no request fails, no connection closes, nothing leaks.

use crate::support::certificates::Authority;
use crate::support::eventually::{DEADLINE, until, within};
use crate::support::http2::Http2;
use crate::support::websocket::Socket;
use crate::support::{Connection, Gateway, Origin, Reply};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

const YAML: &str = "routes:\n  - { name: chat, path: /chat, upstream: [\"{ORIGIN}\"] }\n  \
                    - { name: app, path: /app, upstream: app }\n  - { name: own, respond: { body: own } }\n\
                    upstreams: { app: { endpoints: [\"{ORIGIN}\"] } }\n\
                    certificates: [{ cert: app.pem, key: app.key }]\n\
                    access_log: { output: off }\nlimits: { requests_per_connection: 100000000 }\n";
const RELOADS: u64 = 200;

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    done: AtomicUsize,
}

fn keep_alive(mut connection: Connection, load: &Arc<Load>) -> JoinHandle<()> {
    let load = Arc::clone(load);
    std::thread::spawn(move || {
        while !load.stop.load(Ordering::Relaxed) {
            for (path, body) in [("/app", "hello"), ("/", "own")] {
                assert_eq!(connection.get("app.test", path, "").text(), body);
                load.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
}

fn http2(address: SocketAddr, load: &Arc<Load>) -> JoinHandle<()> {
    let load = Arc::clone(load);
    std::thread::spawn(move || {
        let mut client = Http2::open(address, "app.test");
        while !load.stop.load(Ordering::Relaxed) {
            assert_eq!(client.get("https://app.test/app").text(), "hello");
            load.done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn reloads(gateway: &Gateway, count: u64) {
    for _ in 0..count {
        let generation = gateway.generation();
        gateway.sighup();
        gateway.wait_generation(generation + 1);
    }
}

/// Ends the load; no client saw a failure, no reload failed, and memory and descriptors are as `before`.
fn nothing_was_lost(
    load: &Load,
    clients: [JoinHandle<()>; 3],
    socket: &mut Socket,
    gateway: &Gateway,
    before: (u64, usize),
) {
    until("some load", || load.done.load(Ordering::Relaxed) > 200);
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client saw no failure");
    }

    assert_eq!(socket.echo("still here"), "still here");
    let failures = gateway.metrics().get("portcullis_config_reloads_total", &[("result", "failure")]);
    assert_eq!(failures.unwrap_or(0.0), 0.0);
    let (rss, fds) = before;
    until("descriptors to be as before", || gateway.open_fds() <= fds + 4);
    let settled = within(DEADLINE, || (gateway.rss_kib() <= rss + 16 * 1024).then_some(()));
    assert!(settled.is_some(), "{rss} KiB became {} KiB", gateway.rss_kib());
}

#[test]
fn two_hundred_reloads_fail_no_request_and_leak_nothing() {
    let origin = Origin::script(|request| match request.target() {
        "/chat" => Reply::WebSocketEcho,
        _ => Reply::ok("hello"),
    });
    let builder = Gateway::builder(YAML);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/chat").unwrap();
    let load = Arc::new(Load::default());
    let clients = [
        keep_alive(gateway.connect(), &load),
        keep_alive(gateway.connect(), &load),
        http2(gateway.address(), &load),
    ];

    reloads(&gateway, 20);
    let before = (gateway.rss_kib(), gateway.open_fds());
    for round in 0..RELOADS / 20 {
        reloads(&gateway, 20);
        assert_eq!(socket.echo(&format!("round {round}")), format!("round {round}"));
    }
    nothing_was_lost(&load, clients, &mut socket, &gateway, before);
}

/// What changes: a listener that comes and goes, and what the kept one speaks and is called.
const SETS: [&str; 2] = [
    "listeners:\n  - { name: edge, address: \"127.0.0.1:{PORT}\" }\n  \
     - { name: old, address: \"127.0.0.1:{PORT2}\" }\n",
    "listeners:\n  - { name: edge, address: \"127.0.0.1:{PORT}\", redirect_http: true, http2: false }\n  \
     - { name: new, address: \"127.0.0.1:{PORT3}\" }\n",
];
const CHANGES: u64 = 1000;

#[test]
fn a_thousand_changes_of_listeners_fail_no_request_on_the_kept_one() {
    let origin = Origin::script(|request| match request.target() {
        "/chat" => Reply::WebSocketEcho,
        _ => Reply::ok("hello"),
    });
    let builder = Gateway::builder(&format!("{YAML}{}", SETS[0]));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/chat").unwrap();
    let load = Arc::new(Load::default());
    let clients = [
        keep_alive(gateway.connect(), &load),
        keep_alive(gateway.connect_tls("app.test"), &load),
        http2(gateway.address(), &load),
    ];

    let change = |count: u64| {
        for _ in 0..count {
            let generation = gateway.generation();
            gateway.write_config(&format!("{YAML}{}", SETS[generation as usize % 2]));
            gateway.sighup();
            gateway.wait_generation(generation + 1);
        }
    };
    change(100);
    let before = (gateway.rss_kib(), gateway.open_fds());
    for round in 1..CHANGES / 100 {
        change(100);
        assert_eq!(socket.echo(&format!("round {round}")), format!("round {round}"));
    }
    nothing_was_lost(&load, clients, &mut socket, &gateway, before);
}

#[test]
fn a_burst_of_hangups_is_survived() {
    let gateway = Gateway::start("routes: [{ respond: { body: hello } }]\n");
    let mut connection = gateway.connect();
    for _ in 0..200 {
        gateway.sighup();
        assert_eq!(connection.get("a", "/", "").text(), "hello");
    }
    gateway.wait_generation(2);
    gateway.wait_reload_successful();
}
