//! How many connections there may be: of a listener, of one client.

use crate::support::certificates::Authority;
use crate::support::eventually;
use crate::support::{Connection, Gateway};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const ROUTES: &str = "routes: [{ name: app, respond: { body: hello } }]\n";

fn yaml(limits: &str) -> String {
    format!("{ROUTES}listeners:\n  - {{ name: edge, address: \"[::]:{{PORT}}\", {limits} }}\n")
}

fn from(gateway: &Gateway, source: &str) -> Connection {
    let source: IpAddr = source.parse().unwrap();
    let address = match source {
        IpAddr::V4(_) => gateway.address(),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, gateway.address().port())),
    };
    Connection::open_from(source, address)
}

/// Whether a request on the connection is answered; a connection that is refused is closed.
fn is_served(connection: &mut Connection) -> bool {
    match connection.try_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n") {
        Ok(response) => response.text() == "hello",
        Err(_) => false,
    }
}

fn wait_refused(gateway: &Gateway, reason: &str, wanted: f64) {
    let labels = [("listener", "edge"), ("reason", reason)];
    gateway.wait_metric("portcullis_connections_refused_total", &labels, wanted);
}

fn wait_served(gateway: &Gateway, source: &str) -> Connection {
    eventually::eventually("room for one more", || {
        let mut connection = from(gateway, source);
        is_served(&mut connection).then_some(connection)
    })
}

#[test]
fn a_full_listener_closes_more_and_takes_one_when_one_leaves() {
    let gateway = Gateway::start(&yaml("max_connections: 3"));
    let mut open: Vec<_> = (0..3).map(|n| from(&gateway, &format!("127.0.0.{}", n + 1))).collect();
    assert!(open.iter_mut().all(is_served));
    for _ in 0..5 {
        assert!(from(&gateway, "127.0.0.9").rest().is_empty());
    }
    wait_refused(&gateway, "max_connections", 5.0);
    assert!(open.iter_mut().all(is_served), "those inside notice nothing");
    open.pop();
    open.push(wait_served(&gateway, "127.0.0.9"));
    assert!(open.iter_mut().all(is_served));
    gateway.wait_metric("portcullis_connections_open", &[("listener", "edge")], 3.0);
}

#[test]
fn a_client_has_so_many_connections_and_others_have_theirs() {
    let gateway = Gateway::start(&yaml("max_connections_per_client: 2"));
    // Workers share the count; a silent connection counts like any other.
    let mut open = [from(&gateway, "127.0.0.1"), from(&gateway, "127.0.0.1")];
    assert!(is_served(&mut open[0]) && is_served(&mut open[1]));
    for _ in 0..6 {
        assert!(from(&gateway, "127.0.0.1").rest().is_empty());
    }
    wait_refused(&gateway, "max_connections_per_client", 6.0);
    let mut others = [from(&gateway, "127.0.0.2"), from(&gateway, "::1"), from(&gateway, "::1")];
    assert!(others.iter_mut().all(is_served));
    assert!(from(&gateway, "::1").rest().is_empty());
    let [first, _second] = open;
    drop(first);
    wait_served(&gateway, "127.0.0.1");
}

#[test]
fn refusals_come_before_the_handshake() {
    let builder = Gateway::builder(&format!(
        "{}certificates: [{{ cert: app.pem, key: app.key }}]",
        yaml("max_connections_per_client: 1")
    ));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let mut first = gateway.connect_tls("app.test");
    assert_eq!(first.get("app.test", "/", "").text(), "hello");
    assert!(gateway.connect().rest().is_empty());
    wait_refused(&gateway, "max_connections_per_client", 1.0);
    assert_eq!(gateway.metrics().sum("portcullis_tls_handshakes_total", &[]), 1.0);
}

#[test]
fn clients_that_say_nothing_hold_a_place_whatever_is_waited_for() {
    for mode in ["off", "accept"] {
        let gateway = Gateway::start(&format!(
            "{}access: {{ trusted_proxies: [127.0.0.9/32] }}",
            yaml(&format!("proxy_protocol: {mode}, max_connections_per_client: 2"))
        ));
        // Workers take them in any order: which of the three is refused is chance.
        let silent: Vec<_> = (0..3).map(|_| from(&gateway, "127.0.0.1")).collect();
        wait_refused(&gateway, "max_connections_per_client", 1.0);
        gateway.wait_metric("portcullis_connections_open", &[("listener", "edge")], 2.0);
        drop(silent);
        wait_served(&gateway, "127.0.0.1");
    }
}

#[test]
fn limits_change_with_a_reload_and_close_nobody() {
    let gateway = Gateway::start(&yaml("max_connections_per_client: 0"));
    let mut open: Vec<_> = (0..4).map(|_| from(&gateway, "127.0.0.1")).collect();
    assert!(open.iter_mut().all(is_served));
    // Those that came without a limit are counted.
    gateway.reload(&yaml("max_connections_per_client: 4"));
    assert!(from(&gateway, "127.0.0.1").rest().is_empty());
    assert!(is_served(&mut from(&gateway, "127.0.0.2")));
    gateway.reload(&yaml("max_connections: 2"));
    assert!(from(&gateway, "127.0.0.2").rest().is_empty());
    wait_refused(&gateway, "max_connections", 1.0);
    assert!(open.iter_mut().all(is_served), "above a lowered limit, and open");
    gateway.reload(&yaml("max_connections: 100"));
    assert!(is_served(&mut from(&gateway, "127.0.0.1")));
}

#[test]
fn the_client_is_the_one_a_proxy_header_names() {
    let gateway = Gateway::start(&format!(
        "{}access: {{ trusted_proxies: [127.0.0.1/32] }}",
        yaml("proxy_protocol: accept, max_connections_per_client: 1")
    ));
    let proxied = |client: &str| {
        let mut connection = from(&gateway, "127.0.0.1");
        connection.send(format!("PROXY TCP6 {client} ::1 1 2\r\n"));
        connection
    };
    let mut open: Vec<_> =
        ["2001:db8:0:1::1", "2001:db8:0:2::1", "::ffff:203.0.113.7"].into_iter().map(proxied).collect();
    assert!(open.iter_mut().all(is_served));
    for taken in ["2001:db8:0:1::2", "2001:db8:0:2:ffff::", "::ffff:203.0.113.7"] {
        assert!(proxied(taken).rest().is_empty(), "{taken}");
    }
    wait_refused(&gateway, "max_connections_per_client", 3.0);
    // The load balancer itself speaks for many.
    let mut own: Vec<_> = (0..3).map(|_| from(&gateway, "127.0.0.1")).collect();
    assert!(own.iter_mut().all(is_served));
}
