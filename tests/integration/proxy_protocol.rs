//! The PROXY protocol: which client a load balancer speaks for, and what lies get.

use crate::support::certificates::Authority;
use crate::support::commands::curl;
use crate::support::http2::Http2;
use crate::support::tls::TlsClient;
use crate::support::{Connection, Gateway, Origin};
use std::net::SocketAddr;
use std::time::Duration;

const TRUSTED: &str = "access: { trusted_proxies: [127.0.0.1/32, 192.0.2.0/24] }\n";
const TEXT: &str = "PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn listener(mode: &str) -> String {
    format!("listeners:\n  - {{ name: edge, address: \"127.0.0.1:{{PORT}}\", proxy_protocol: {mode} }}\n")
}

fn yaml(mode: &str) -> String {
    format!("routes: [{{ name: app, respond: {{ body: hello }} }}]\n{TRUSTED}{}", listener(mode))
}

fn gateway(mode: &str) -> Gateway {
    Gateway::start(&yaml(mode))
}

/// A binary header with this command, family and variable part.
fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, block].concat()
}

fn v4_block(source: [u8; 4]) -> Vec<u8> {
    [&source[..], &[127, 0, 0, 1, 0x12, 0x67, 0, 80]].concat()
}

fn v6_block(source: &str) -> Vec<u8> {
    let source: std::net::Ipv6Addr = source.parse().unwrap();
    [&source.octets()[..], &[0; 16], &[0x12, 0x67, 0, 80]].concat()
}

/// Waits until exactly so many connections were refused for this reason.
fn wait_refused(gateway: &Gateway, reason: &str, wanted: f64) {
    let labels = [("listener", "edge"), ("reason", reason)];
    gateway.wait_metric("portcullis_connections_refused_total", &labels, wanted);
    assert_eq!(gateway.metrics().get("portcullis_connections_refused_total", &labels), Some(wanted));
}

/// Opens a connection, sends these bytes and checks that it is closed without an answer.
fn assert_closed(gateway: &Gateway, bytes: &[u8]) {
    let mut connection = gateway.connect();
    // The gateway may close before everything was taken.
    let _ = connection.try_send(bytes);
    let answer = connection.rest();
    assert!(answer.is_empty(), "{:?} got {:?}", bytes, String::from_utf8_lossy(&answer));
}

#[test]
fn every_form_of_header_names_its_client() {
    let gateway = gateway("require");
    let tlvs = [v4_block([203, 0, 113, 7]), vec![4, 0, 1, 0, 0xea, 0, 3, 1, 2, 3]].concat();
    let large = [v4_block([203, 0, 113, 7]), vec![0xee; 4096 - 12]].concat();
    let rows: Vec<(Vec<u8>, &str)> = vec![
        (TEXT.into(), "203.0.113.7"),
        ("PROXY TCP6 2001:db8::7 ::1 4711 80\r\n".into(), "2001:db8::7"),
        ("PROXY TCP6 ::ffff:203.0.113.7 ::1 4711 80\r\n".into(), "203.0.113.7"),
        ("PROXY UNKNOWN\r\n".into(), "127.0.0.1"),
        (format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).into(), "127.0.0.1"),
        (binary(0x21, 0x11, &v4_block([203, 0, 113, 7])), "203.0.113.7"),
        (binary(0x21, 0x11, &tlvs), "203.0.113.7"),
        (binary(0x21, 0x11, &large), "203.0.113.7"),
        (binary(0x21, 0x21, &v6_block("2001:db8::7")), "2001:db8::7"),
        (binary(0x21, 0x21, &v6_block("::ffff:203.0.113.7")), "203.0.113.7"),
        (binary(0x21, 0x31, &[0; 216]), "127.0.0.1"),
        (binary(0x21, 0x00, &[1; 20]), "127.0.0.1"),
        (binary(0x20, 0x00, &[]), "127.0.0.1"),
        (binary(0x20, 0x11, &v4_block([6, 6, 6, 6])), "127.0.0.1"),
    ];
    for (index, (header, client)) in rows.iter().enumerate() {
        let path = format!("/{index}");
        let mut connection = gateway.connect();
        // One write: the request comes with the header.
        connection.send([&header[..], format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()].concat());
        assert_eq!(connection.response().text(), "hello", "{header:?}");
        let record = gateway.wait_record_of(&path);
        assert_eq!(record["client"], *client, "{header:?}");
        let peer: SocketAddr = record["peer"].as_str().unwrap().parse().unwrap();
        assert_eq!(peer, connection.local_addr(), "the peer stays the other end of the socket");
    }
}

#[test]
fn a_header_may_come_byte_by_byte() {
    let gateway = gateway("require");
    for header in [TEXT.as_bytes().to_vec(), binary(0x21, 0x11, &v4_block([203, 0, 113, 7]))] {
        let mut connection = gateway.connect();
        for byte in [&header[..], GET.as_bytes()].concat() {
            connection.send([byte]);
        }
        assert_eq!(connection.response().text(), "hello", "{header:?}");
        // The header stands for the connection, not for one request.
        assert_eq!(connection.get("app.test", "/again", "").text(), "hello");
    }
    assert!(gateway.wait_record_of("/again")["client"] == "203.0.113.7");
}

#[test]
fn lies_close_the_connection_and_are_counted() {
    let gateway = gateway("require");
    let good = v4_block([203, 0, 113, 7]);
    let mut wrong_signature = binary(0x21, 0x11, &good);
    wrong_signature[11] = b'\r';
    let rows: Vec<(Vec<u8>, &str)> = vec![
        ("PROXY TCP4 2001:db8::7 ::1 1 2\r\n".into(), "malformed"),
        ("PROXY TCP6 203.0.113.7 127.0.0.1 1 2\r\n".into(), "malformed"),
        ("PROXY TCP4 203.0.113.7 127.0.0.1 1 65536\r\n".into(), "malformed"),
        ("PROXY TCP4 203.0.113.7 127.0.0.1 1 2\n".into(), "malformed"),
        ("PROXY / HTTP/1.1\r\nHost: a\r\n\r\n".into(), "malformed"),
        (binary(0x11, 0x11, &good), "malformed"),
        (binary(0x22, 0x11, &good), "malformed"),
        (binary(0x21, 0x12, &good), "malformed"),
        (binary(0x21, 0x51, &good), "malformed"),
        (binary(0x21, 0x11, &good[..11]), "malformed"),
        (binary(0x21, 0x21, &good), "malformed"),
        (format!("PROXY TCP4 {}\r\n", "1".repeat(120)).into(), "oversized"),
        ("PROXY ".repeat(18).into(), "oversized"),
        (binary(0x21, 0x11, &[0; 4097]), "oversized"),
        ([SIGNATURE, &[0x20, 0x00, 0xff, 0xff]].concat(), "oversized"),
        (GET.into(), "missing"),
        (wrong_signature, "missing"),
        (b"\x16\x03\x01\x02\x00\x01".to_vec(), "missing"),
        (b"\0\0\0\0\0\0".to_vec(), "missing"),
    ];
    let mut seen = std::collections::HashMap::new();
    for (bytes, reason) in rows {
        assert_closed(&gateway, &[&bytes[..], GET.as_bytes()].concat());
        let count = seen.entry(reason).or_insert(0.0);
        *count += 1.0;
        wait_refused(&gateway, &format!("proxy_{reason}"), *count);
    }
    assert_eq!(gateway.access_records().len(), 0);
    let mut connection = gateway.connect();
    connection.send(format!("{TEXT}{GET}"));
    assert_eq!(connection.response().text(), "hello");
}

#[test]
fn a_header_that_ends_too_soon_is_malformed() {
    let gateway = gateway("require");
    let parts = [&b"P"[..], b"PROXY TCP4 203.0.113.7", &SIGNATURE[..5], &binary(0x21, 0x11, &[0; 12])[..20]];
    for (index, part) in parts.iter().enumerate() {
        let mut connection = gateway.connect();
        connection.send(part);
        drop(connection);
        wait_refused(&gateway, "proxy_malformed", index as f64 + 1.0);
    }
}

#[test]
fn a_header_has_a_deadline() {
    let gateway = Gateway::start(&format!("{}limits: {{ header_timeout: 300ms }}\n", yaml("require")));
    let mut length_lies = binary(0x21, 0x11, &v4_block([203, 0, 113, 7]));
    length_lies[14..16].copy_from_slice(&500u16.to_be_bytes());
    for (index, bytes) in [&b""[..], b"P", &TEXT.as_bytes()[..30], &length_lies].iter().enumerate() {
        let mut connection = gateway.connect();
        connection.send(bytes);
        assert!(connection.rest().is_empty(), "{bytes:?}");
        wait_refused(&gateway, "proxy_timeout", index as f64 + 1.0);
    }
    let mut dripping = gateway.connect();
    dripping.send([SIGNATURE, &[0x20, 0, 0x0f, 0xff]].concat());
    // An extension, a byte at a time, each well within the deadline.
    while dripping.is_quiet_for(Duration::from_millis(20)) && dripping.try_send("x").is_ok() {}
    dripping.rest();
    wait_refused(&gateway, "proxy_timeout", 5.0);
}

#[test]
fn nobody_but_a_trusted_proxy_is_believed() {
    let gateway = gateway("accept");
    let from = |source: &str| Connection::open_from(source.parse().unwrap(), gateway.address());
    let mut count = 0.0;
    for header in [TEXT.as_bytes().to_vec(), binary(0x21, 0x11, &v4_block([203, 0, 113, 7]))] {
        let mut connection = from("127.0.0.2");
        connection.send([&header[..], GET.as_bytes()].concat());
        assert!(connection.rest().is_empty());
        count += 1.0;
        wait_refused(&gateway, "proxy_untrusted", count);
    }
    assert_eq!(from("127.0.0.2").get("app.test", "/direct", "").text(), "hello");
    assert_eq!(gateway.wait_record_of("/direct")["client"], "127.0.0.2");
    let tls = Connection::open_tls(gateway.address(), &TlsClient::named("app.test"));
    assert_eq!(tls.unwrap().get("app.test", "/", "").text(), "hello", "a trusted proxy without a header");
}

#[test]
fn where_it_is_required_others_cannot_connect() {
    let gateway = gateway("require");
    for (index, bytes) in [format!("{TEXT}{GET}"), GET.to_owned(), String::new()].iter().enumerate() {
        let mut connection = Connection::open_from("127.0.0.2".parse().unwrap(), gateway.address());
        let _ = connection.try_send(bytes);
        assert!(connection.rest().is_empty(), "{bytes:?}");
        wait_refused(&gateway, "proxy_untrusted", index as f64 + 1.0);
    }
}

#[test]
fn requests_that_look_like_a_header_at_first_are_served() {
    let gateway = gateway("accept");
    for request in
        ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n"]
    {
        let mut connection = gateway.connect();
        connection.send(&request[..3]);
        assert!(connection.is_quiet_for(Duration::from_millis(30)));
        connection.send(&request[3..]);
        assert_eq!(connection.response().text(), "hello", "{request}");
    }
    let mut connection = gateway.connect();
    connection.send("\r\n");
    assert!(connection.is_quiet_for(Duration::from_millis(30)));
    connection.send(GET);
    assert_eq!(connection.response().text(), "hello");
}

#[test]
fn off_parses_nothing() {
    let gateway = gateway("off");
    for header in [TEXT.as_bytes().to_vec(), binary(0x21, 0x11, &v4_block([203, 0, 113, 7]))] {
        let mut connection = gateway.connect();
        connection.send([&header[..], GET.as_bytes()].concat());
        assert_eq!(connection.response().status, 400);
    }
}

#[test]
fn a_second_header_is_a_bad_request() {
    let gateway = gateway("require");
    let text = TEXT.as_bytes().to_vec();
    let second = binary(0x21, 0x11, &v4_block([6, 6, 6, 6]));
    for pair in [[&text, &text], [&text, &second], [&second, &text], [&second, &second]] {
        let mut connection = gateway.connect();
        connection.send([pair[0], pair[1], GET.as_bytes()].concat());
        assert_eq!(connection.response().status, 400, "{pair:?}");
    }
}

#[test]
fn tls_and_http2_follow_a_header() {
    let builder =
        Gateway::builder(&format!("{}certificates: [{{ cert: app.pem, key: app.key }}]", yaml("require")));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    for header in [TEXT.as_bytes().to_vec(), binary(0x21, 0x21, &v6_block("2001:db8::7"))] {
        let client = TlsClient::named("app.test");
        let mut connection = Connection::open_tls_after(&header, gateway.address(), &client).unwrap();
        assert_eq!(connection.get("app.test", "/one", "").text(), "hello");
        assert_eq!(connection.get("app.test", "/one", "").text(), "hello");
    }
    let mut h2 = Http2::open_after(TEXT.as_bytes(), gateway.address(), "app.test");
    assert_eq!(h2.get("https://app.test/two").text(), "hello");
    assert_eq!(gateway.wait_record_of("/one")["client"], "203.0.113.7");
    assert_eq!(gateway.wait_record_of("/two")["client"], "203.0.113.7");
    // In one write with the first record of the handshake, which is then no header's part.
    assert_closed(&gateway, &[TEXT.as_bytes(), b"\x16\x03\x01\x00\x02xx"].concat());
}

#[test]
fn policy_route_upstream_and_forwarding_see_the_same_client() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(
        &format!(
            "routes:\n  - {{ name: office, client: [203.0.113.7/32], upstream: [\"{{ORIGIN}}\"] }}\n  \
             - {{ name: all, upstream: [\"{{ORIGIN}}\"] }}\n\
             access: {{ trusted_proxies: [127.0.0.1/32, 192.0.2.0/24], deny: [203.0.113.66/32] }}\n{}",
            listener("require")
        ),
        &origin,
    );
    let status = |source: &str, headers: &str| {
        let header = format!("PROXY TCP4 {source} 127.0.0.1 4711 80\r\n");
        let mut connection = gateway.connect();
        connection.send(format!("{header}GET /{source} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
        connection.response().status
    };
    assert_eq!(status("203.0.113.7", ""), 200);
    assert_eq!(gateway.wait_record_of("/203.0.113.7")["route"], "office");
    assert_eq!(status("203.0.113.66", ""), 403);
    // Believed from the address the header names, not from the load balancer's.
    assert_eq!(status("203.0.113.8", "X-Forwarded-For: 203.0.113.66\r\n"), 200);
    assert_eq!(gateway.wait_record_of("/203.0.113.8")["client"], "203.0.113.8");
    assert_eq!(status("192.0.2.1", "X-Forwarded-For: 203.0.113.66\r\n"), 403);
    let requests = origin.requests();
    let forwarded: Vec<_> = requests.iter().map(|request| request.header("x-forwarded-for")).collect();
    assert_eq!(forwarded, [Some("203.0.113.7"), Some("203.0.113.8")]);
}

#[test]
fn a_reload_changes_the_mode_for_new_connections() {
    let gateway = gateway("off");
    let mut kept = gateway.connect();
    assert_eq!(kept.get("app.test", "/", "").text(), "hello");
    gateway.reload(&yaml("require"));
    assert_eq!(kept.get("app.test", "/", "").text(), "hello", "what is open stays");
    assert_closed(&gateway, GET.as_bytes());
    let mut connection = gateway.connect();
    connection.send(format!("{TEXT}{GET}"));
    assert_eq!(connection.response().text(), "hello");
    gateway.reload(&yaml("off"));
    assert_eq!(gateway.get("app.test", "/").text(), "hello");
}

#[test]
fn curl_speaks_it() {
    let gateway = gateway("require");
    let url = format!("http://{}/curl", gateway.address());
    assert_eq!(curl(&["--haproxy-protocol", &url]), "hello");
    assert_eq!(gateway.wait_record_of("/curl")["client"], "127.0.0.1");
}
