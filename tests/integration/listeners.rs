//! Listeners: addresses, what a port speaks, ALPN, a bind that fails.

use crate::support::eventually::DEADLINE;
use crate::support::gateway::COULD_NOT_START;
use crate::support::tls::{TlsClient, TlsOptions};
use crate::support::{Connection, Gateway};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

const ROUTES: &str = "routes: [{ name: app, hosts: [app.test], respond: { body: hello } }]\n";

fn alpn(gateway: &Gateway, protocols: &'static [&'static str]) -> Option<String> {
    let client =
        TlsClient::new(TlsOptions { name: Some("app.test"), alpn: protocols, ..TlsOptions::default() });
    Connection::open_tls(gateway.address(), &client).expect("a handshake").tls().alpn
}

#[test]
fn one_port_speaks_http_and_https() {
    let gateway = Gateway::start(ROUTES);
    assert_eq!(gateway.get("app.test", "/").text(), "hello");
    assert_eq!(gateway.connect_tls("app.test").get("app.test", "/", "").text(), "hello");
}

#[test]
fn a_request_that_starts_with_a_single_byte_is_told_apart() {
    let gateway = Gateway::start(ROUTES);
    let mut connection = gateway.connect();
    connection.send("G");
    assert!(connection.is_quiet_for(Duration::from_millis(50)));
    connection.send("ET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(connection.response().text(), "hello");
}

#[test]
fn a_port_that_requires_tls_serves_no_plain_request() {
    let gateway =
        Gateway::start(&format!("{ROUTES}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", tls: required }}]"));
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let answer = String::from_utf8_lossy(&connection.rest()).into_owned();
    assert!(!answer.contains("hello") && !answer.contains(" 200 "), "{answer}");
    assert_eq!(gateway.connect_tls("app.test").get("app.test", "/", "").text(), "hello");
}

#[test]
fn a_port_with_tls_off_shakes_no_hands() {
    let gateway =
        Gateway::start(&format!("{ROUTES}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", tls: off }}]"));
    assert_eq!(gateway.get("app.test", "/").text(), "hello");
    assert!(Connection::open_tls(gateway.address(), &TlsClient::named("app.test")).is_err());
}

#[test]
fn plain_http_is_redirected_to_the_same_url_under_https() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", redirect_http: true }}]"
    ));
    let response = gateway.get("app.test", "/x?y=1");
    assert_eq!(response.status, 308);
    assert_eq!(response.header("location"), Some("https://app.test/x?y=1"));
    let port = gateway.address().port();
    let same_port = gateway.get(&format!("app.test:{port}"), "/x");
    assert_eq!(same_port.header("location"), Some(format!("https://app.test:{port}/x").as_str()));
    assert_eq!(gateway.connect_tls("app.test").get("app.test", "/", "").text(), "hello");
}

/// A load balancer that ends TLS would send its clients round for ever.
#[test]
fn a_client_that_spoke_tls_to_a_trusted_proxy_is_not_redirected() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}access: {{ trusted_proxies: [127.0.0.1/32] }}\n\
         listeners: [{{ address: \"127.0.0.1:{{PORT}}\", redirect_http: true }}]"
    ));
    let status = |headers| gateway.connect().get("app.test", "/", headers).status;
    assert_eq!(status("X-Forwarded-Proto: https\r\n"), 200);
    assert_eq!(status("X-Forwarded-Proto: http\r\n"), 308);
    assert_eq!(status(""), 308);
    let stranger = "127.0.0.2".parse().expect("an address");
    let mut stranger = Connection::open_from(stranger, gateway.address());
    assert_eq!(stranger.get("app.test", "/", "X-Forwarded-Proto: https\r\n").status, 308);
}

#[test]
fn http2_is_chosen_by_alpn_unless_switched_off() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}listeners:\n  - {{ address: \"127.0.0.1:{{PORT}}\", http2: true }}\n"
    ));
    assert_eq!(alpn(&gateway, &["h2", "http/1.1"]).as_deref(), Some("h2"));
    assert_eq!(alpn(&gateway, &["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(alpn(&gateway, &[]), None);
    let without =
        Gateway::start(&format!("{ROUTES}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", http2: false }}]"));
    assert_eq!(alpn(&without, &["h2", "http/1.1"]).as_deref(), Some("http/1.1"));
}

/// RFC 7301 section 3.2: who has no protocol in common with us is told so; names that are not ours do not matter beside one that is.
#[test]
fn a_client_that_asks_for_http_1_0_by_alpn_is_served_and_one_that_asks_for_nothing_of_ours_is_not() {
    for http2 in [true, false] {
        let gateway = Gateway::start(&format!(
            "{ROUTES}listeners: [{{ address: \"127.0.0.1:{{PORT}}\", http2: {http2} }}]"
        ));
        assert_eq!(alpn(&gateway, &["http/1.0"]).as_deref(), Some("http/1.0"));
        assert_eq!(alpn(&gateway, &["http/1.0", "http/1.1"]).as_deref(), Some("http/1.1"));
        assert_eq!(alpn(&gateway, &["acme", "http/1.0"]).as_deref(), Some("http/1.0"));
        let protocols =
            |alpn| TlsClient::new(TlsOptions { name: Some("app.test"), alpn, ..TlsOptions::default() });
        let old = protocols(&["http/1.0"]);
        let mut client = Connection::open_tls(gateway.address(), &old).expect("a handshake");
        assert_eq!(client.request("GET / HTTP/1.0\r\nHost: app.test\r\n\r\n").text(), "hello");
        assert!(Connection::open_tls(gateway.address(), &protocols(&["acme"])).is_err());
    }
}

#[test]
fn a_dual_stack_port_matches_mapped_clients_as_ipv4() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}listeners: [{{ address: \"[::]:{{PORT}}\" }}]\naccess: {{ allow: [127.0.0.0/8] }}"
    ));
    assert_eq!(gateway.get("app.test", "/").status, 200);
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, gateway.address().port()));
    assert_eq!(Connection::open(v6).get("app.test", "/", "").status, 403);
    assert_eq!(gateway.wait_record(|record| record["status"] == 200)["client"], "127.0.0.1");
    assert_eq!(gateway.wait_record(|record| record["status"] == 403)["client"], "::1");
}

#[test]
fn an_ipv4_port_and_an_ipv6_port_are_served_side_by_side() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}listeners:\n  - {{ name: four, address: \"127.0.0.1:{{PORT}}\", tls: off }}\n  \
         - {{ name: six, address: \"[::1]:{{PORT2}}\", tls: required }}\n"
    ));
    assert_eq!(gateway.get("app.test", "/").text(), "hello");
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, gateway.value("PORT2").parse().unwrap()));
    let mut connection = Connection::open_tls(six, &TlsClient::named("app.test")).unwrap();
    assert_eq!(connection.get("app.test", "/", "").text(), "hello");
    gateway.wait_metric("portcullis_connections_total", &[("listener", "four"), ("protocol", "http1")], 1.0);
    gateway.wait_metric("portcullis_connections_total", &[("listener", "six"), ("protocol", "http1")], 1.0);
    assert_eq!(gateway.wait_record(|record| record["listener"] == "six")["status"], 200);
}

#[test]
fn open_connections_are_counted_until_they_close() {
    let gateway = Gateway::start(ROUTES);
    let mut connection = gateway.connect();
    connection.get("app.test", "/", "");
    gateway.wait_metric("portcullis_connections_open", &[("listener", "edge")], 1.0);
    drop(connection);
    crate::support::eventually::until("no open connection", || {
        gateway.metrics().get("portcullis_connections_open", &[("listener", "edge")]) == Some(0.0)
    });
}

#[test]
fn a_taken_port_ends_the_start_with_a_sentence() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    for yaml in ["listeners: [{ address: \"{TAKEN}\" }]", "admin: { address: \"{TAKEN}\" }"] {
        let mut gateway = Gateway::builder(&format!("{ROUTES}{yaml}")).set("TAKEN", taken).spawn();
        assert_eq!(gateway.wait_exit(DEADLINE), COULD_NOT_START, "{yaml}");
        assert!(gateway.log().contains(&taken.to_string()), "{yaml}: {}", gateway.log());
    }
}

#[test]
fn two_gateways_cannot_share_a_port() {
    let first = Gateway::start(ROUTES);
    let yaml = format!("{ROUTES}listeners: [{{ address: \"{{TAKEN}}\" }}]");
    let mut second = Gateway::builder(&yaml).set("TAKEN", first.address()).spawn();
    assert_eq!(second.wait_exit(DEADLINE), COULD_NOT_START);
    assert_eq!(first.get("app.test", "/").text(), "hello");
}
