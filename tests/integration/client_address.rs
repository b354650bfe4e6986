//! Who the client is behind trusted proxies, and what spoofing gets.

use crate::support::{Connection, Gateway, Origin};

const ROUTES: &str = "routes: [{ name: app, upstream: [\"{ORIGIN}\"] }]\n";
const TRUSTED: &str = "access: { trusted_proxies: [127.0.0.0/8, 192.0.2.0/24] }\n";

/// The client the gateway names to its origin for a request with these header lines.
fn client_seen(gateway: &Gateway, headers: &str) -> String {
    let path = "/client";
    let before = gateway.access_records().len();
    assert_eq!(gateway.connect().get("app.test", path, headers).status, 200, "{headers}");
    let record = gateway.wait_record(|_| gateway.access_records().len() > before);
    drop(record);
    let latest = gateway.access_records().pop().unwrap();
    assert_eq!(latest["path"], path);
    latest["client"].as_str().unwrap().to_owned()
}

#[test]
fn an_untrusted_peer_cannot_name_another_client() {
    let origin = Origin::fixed("hello");
    let yaml = format!("{ROUTES}access: {{ allow: [10.0.0.0/8] }}");
    let gateway = Gateway::with_origin(&yaml, &origin);
    for headers in [
        "X-Forwarded-For: 10.0.0.1\r\n",
        "Forwarded: for=10.0.0.1\r\n",
        "X-Real-IP: 10.0.0.1\r\n",
        "X_Forwarded_For: 10.0.0.1\r\n",
    ] {
        assert_eq!(gateway.connect().get("app.test", "/", headers).status, 403, "{headers}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn the_right_most_untrusted_hop_is_the_client() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(&format!("{ROUTES}{TRUSTED}"), &origin);
    let rows = [
        ("", "127.0.0.1"),
        ("X-Forwarded-For: 6.6.6.6, 203.0.113.7\r\n", "203.0.113.7"),
        ("X-Forwarded-For: 203.0.113.7, 192.0.2.1\r\n", "203.0.113.7"),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 203.0.113.7,192.0.2.1\r\n", "203.0.113.7"),
        ("x-forwarded-for: 203.0.113.7:4711\r\n", "203.0.113.7"),
        ("X-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7"),
        ("X-Forwarded-For: [2001:db8::7]:4711\r\n", "2001:db8::7"),
        ("X-Forwarded-For: ::ffff:203.0.113.7\r\n", "203.0.113.7"),
        ("Forwarded: for=6.6.6.6, for=203.0.113.7;proto=https\r\n", "203.0.113.7"),
        ("Forwarded: For=\"[2001:db8::7]:4711\"\r\n", "2001:db8::7"),
    ];
    for (headers, expected) in rows {
        assert_eq!(client_seen(&gateway, headers), expected, "{headers}");
    }
}

#[test]
fn a_hop_that_is_no_address_never_lets_an_earlier_one_through() {
    let origin = Origin::fixed("hello");
    let yaml = format!("{ROUTES}access: {{ trusted_proxies: [127.0.0.0/8], allow: [10.0.0.0/8] }}");
    let gateway = Gateway::with_origin(&yaml, &origin);
    for hop in ["garbage", "unknown", "_hidden", "10.0.0.1/8", "10.0.0.256"] {
        let headers = format!("X-Forwarded-For: 10.0.0.1, {hop}\r\n");
        assert_eq!(gateway.connect().get("app.test", "/", &headers).status, 403, "{hop:?}");
    }
    assert_eq!(gateway.connect().get("app.test", "/", "X-Forwarded-For: 10.0.0.1\r\n").status, 200);
}

#[test]
fn trust_follows_the_peer_not_the_header() {
    let origin = Origin::fixed("hello");
    let yaml = format!("{ROUTES}access: {{ trusted_proxies: [127.0.0.2/32], allow: [203.0.113.0/24] }}");
    let gateway = Gateway::with_origin(&yaml, &origin);
    let header = "X-Forwarded-For: 203.0.113.7\r\n";
    let from = |source: &str| {
        Connection::open_from(source.parse().unwrap(), gateway.address()).get("app.test", "/", header).status
    };
    assert_eq!(from("127.0.0.2"), 200);
    assert_eq!(from("127.0.0.3"), 403);
}
