//! Access: the CIDR policy of every request, global and per route.

use crate::support::certificates::Authority;
use crate::support::http2::Http2;
use crate::support::websocket::Socket;
use crate::support::{Connection, Gateway, Origin, Reply};
use std::net::IpAddr;

const ROUTES: &str = "routes: [{ name: app, hosts: [app.test], respond: { body: hello } }]\n";

/// The status a client with this loopback address gets.
fn status_from(gateway: &Gateway, client: &str, path: &str) -> u16 {
    let source: IpAddr = client.parse().unwrap();
    Connection::open_from(source, gateway.address()).get("app.test", path, "").status
}

fn assert_statuses(access: &str, rows: &[(&str, u16)]) {
    let gateway = Gateway::start(&format!("{ROUTES}access: {access}"));
    for (client, expected) in rows {
        assert_eq!(status_from(&gateway, client, "/"), *expected, "{access} for {client}");
    }
}

#[test]
fn without_rules_everybody_may_come_in() {
    assert_statuses("{}", &[("127.0.0.1", 200)]);
}

#[test]
fn an_allow_list_denies_the_rest_and_an_empty_one_denies_all() {
    assert_statuses("{ allow: [127.0.0.2/32] }", &[("127.0.0.2", 200), ("127.0.0.1", 403)]);
    assert_statuses("{ allow: [] }", &[("127.0.0.1", 403)]);
}

#[test]
fn a_deny_list_lets_the_rest_in_unless_the_default_says_otherwise() {
    assert_statuses("{ deny: [127.0.0.2/32] }", &[("127.0.0.2", 403), ("127.0.0.1", 200)]);
    assert_statuses("{ deny: [127.0.0.2/32], default: deny }", &[("127.0.0.1", 403)]);
    assert_statuses("{ allow: [127.0.0.2/32], default: allow }", &[("127.0.0.1", 200)]);
}

#[test]
fn the_most_specific_prefix_decides_and_deny_wins_ties() {
    assert_statuses(
        "{ allow: [127.0.0.0/8, 127.0.1.7/32, 127.0.2.0/24], deny: [127.0.1.0/24, 127.0.2.0/24] }",
        &[("127.0.0.1", 200), ("127.0.1.1", 403), ("127.0.1.7", 200), ("127.0.2.1", 403)],
    );
}

#[test]
fn a_zero_prefix_holds_its_own_family_only() {
    assert_statuses("{ deny: [\"::/0\"] }", &[("127.0.0.1", 200)]);
    assert_statuses("{ deny: [0.0.0.0/0] }", &[("127.0.0.1", 403)]);
}

#[test]
fn the_policy_of_a_route_applies_after_the_global_one() {
    let gateway = Gateway::start(
        "routes:\n  - { name: inner, path: /inner, access: { allow: [127.0.0.3/32] }, respond: { body: inner } }\n  \
         - { name: outer, respond: { body: outer } }\n\
         access: { deny: [127.0.0.9/32] }\n",
    );
    let rows = [
        ("127.0.0.1", "/", 200),
        ("127.0.0.1", "/inner", 403),
        ("127.0.0.3", "/inner", 200),
        ("127.0.0.9", "/inner", 403),
        ("127.0.0.9", "/", 403),
    ];
    for (client, path, expected) in rows {
        assert_eq!(status_from(&gateway, client, path), expected, "{client} {path}");
    }
    gateway.wait_metric("portcullis_access_denied_total", &[("scope", "global"), ("reason", "listed")], 2.0);
    gateway.wait_metric("portcullis_access_denied_total", &[("scope", "route"), ("reason", "default")], 1.0);
}

#[test]
fn a_denied_client_does_not_learn_which_routes_exist() {
    let gateway = Gateway::start(&format!("{ROUTES}access: {{ deny: [127.0.0.0/8] }}"));
    assert_eq!(gateway.get("unknown.test", "/").status, 403);
    assert_eq!(gateway.get("app.test", "/").status, 403);
}

#[test]
fn lists_are_read_from_files() {
    let gateway = Gateway::builder(&format!("{ROUTES}access: {{ allow: [{{ file: lists/office.txt }}] }}"));
    std::fs::create_dir(gateway.dir().join("lists")).unwrap();
    let gateway =
        gateway.file("lists/office.txt", "# office\n127.0.0.2/32\n\n  127.0.3.0/24 # floor 3\n").start();
    for (client, expected) in [("127.0.0.2", 200), ("127.0.3.9", 200), ("127.0.0.1", 403)] {
        assert_eq!(status_from(&gateway, client, "/"), expected, "{client}");
    }
}

#[test]
fn a_bad_line_in_a_list_is_refused_with_its_place_and_the_old_list_stays() {
    let yaml = format!("{ROUTES}access: {{ deny: [{{ file: deny.txt }}] }}");
    let gateway = Gateway::builder(&yaml).file("deny.txt", "127.0.0.2/32\n").start();
    for bad in ["10.0.0.0/33", "10.0.0/8", "not-an-ip", "10.0.0.1/8", "010.0.0.0/8", "10.0.0.0/8 10.0.0.1"] {
        std::fs::write(gateway.dir().join("deny.txt"), format!("10.1.0.0/16\n{bad}\n")).unwrap();
        gateway.reload_refused(&yaml, &["deny.txt:2"]);
        assert_eq!(status_from(&gateway, "127.0.0.2", "/"), 403, "{bad}");
    }
}

#[test]
fn a_denied_connection_can_be_closed_without_an_answer() {
    let gateway = Gateway::start(&format!("{ROUTES}access: {{ deny: [127.0.0.0/8], on_deny: close }}"));
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert!(connection.rest().is_empty(), "an answer came");
    gateway.wait_metric("portcullis_access_denied_total", &[("scope", "global")], 1.0);
}

#[test]
fn a_closing_policy_closes_before_the_handshake_and_says_so() {
    let closing = format!("{ROUTES}access: {{ deny: [127.0.0.2/32], on_deny: close }}\n");
    let gateway = Gateway::start(&closing);
    let mut denied = Connection::open_from("127.0.0.2".parse().unwrap(), gateway.address());
    assert!(denied.rest().is_empty(), "closed without having said a word");
    let denial = [("scope", "global"), ("reason", "listed")];
    gateway.wait_metric("portcullis_access_denied_total", &denial, 1.0);
    let refused = [("listener", "edge"), ("reason", "access_denied")];
    gateway.wait_metric("portcullis_connections_refused_total", &refused, 1.0);
    assert_eq!(gateway.metrics().sum("portcullis_tls_handshakes_total", &[]), 0.0);
    assert_eq!(gateway.connect_tls("app.test").get("app.test", "/", "").status, 200);
    // A policy that answers has to hear the request first.
    gateway.reload(&closing.replace("close", "respond"));
    assert_eq!(status_from(&gateway, "127.0.0.2", "/"), 403);
    assert!(
        gateway
            .access_records()
            .iter()
            .all(|record| record["client"] != "127.0.0.2" || record["status"] == 403)
    );
}

#[test]
fn a_trusted_proxy_is_not_judged_before_its_client_is_known() {
    let gateway = Gateway::start(&format!(
        "{ROUTES}access: {{ trusted_proxies: [127.0.0.2/32], allow: [203.0.113.0/24], on_deny: close }}\n"
    ));
    let connect = || Connection::open_from("127.0.0.2".parse().unwrap(), gateway.address());
    assert_eq!(connect().get("app.test", "/", "X-Forwarded-For: 203.0.113.7\r\n").status, 200);
    for headers in ["", "X-Forwarded-For: 198.51.100.1\r\n"] {
        let mut connection = connect();
        connection.send(format!("GET /denied HTTP/1.1\r\nHost: app.test\r\n{headers}\r\n"));
        assert!(connection.rest().is_empty(), "{headers}");
    }
    assert_eq!(gateway.wait_record_of("/denied")["status"], 403);
    assert!(gateway.connect().rest().is_empty(), "another peer is judged at once");
}

#[test]
fn upgrade_requests_are_decided_like_all_others() {
    let origin = Origin::script(|_| Reply::WebSocketEcho);
    let yaml = "routes:\n  - { hosts: [app.test], access: { deny: [127.0.0.2/32] }, upstream: [\"{ORIGIN}\"] }\n\
                access: { deny: [127.0.0.3/32] }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    for client in ["127.0.0.2", "127.0.0.3"] {
        let source: IpAddr = client.parse().unwrap();
        for upgrade in ["Upgrade: x\r\n", "Connection: upgrade\r\nUpgrade: foo\r\n"] {
            let mut connection = Connection::open_from(source, gateway.address());
            assert_eq!(connection.get("app.test", "/", upgrade).status, 403, "{client} {upgrade}");
        }
        let handshake = Socket::open(Connection::open_from(source, gateway.address()), "app.test", "/");
        assert!(handshake.is_err_and(|error| error.to_string().contains("403")), "{client}");
    }
    assert!(origin.requests().is_empty());
    let (mut socket, _) = Socket::open(gateway.connect(), "app.test", "/").unwrap();
    assert_eq!(socket.echo("hello"), "hello");
}

#[test]
fn http2_requests_are_decided_like_all_others() {
    let builder = Gateway::builder(&format!(
        "{ROUTES}certificates: [{{ cert: app.pem, key: app.key }}]\naccess: {{ deny: [127.0.0.0/8] }}"
    ));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let mut client = Http2::open(gateway.address(), "app.test");
    assert_eq!(client.get("https://app.test/").status, 403);
    assert_eq!(client.get("https://unknown.test/").status, 403);
}
