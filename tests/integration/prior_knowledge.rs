//! HTTP/2 without TLS, by clients that know beforehand (RFC 9113 section 3.3).

use crate::support::frames::{self, Frames, get};
use crate::support::{Connection, Gateway, Origin};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const YAML: &str = "limits: { header_timeout: 3s }\nroutes: [{ upstream: [\"{ORIGIN}\"] }]\nlisteners:\n  \
    - { address: \"127.0.0.1:{PORT}\" }\n  - { address: \"127.0.0.1:{PORT2}\", tls: off }\n  \
    - { address: \"127.0.0.1:{PORT3}\", tls: off, http2: false }\n";

fn address(gateway: &Gateway, port: &str) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, gateway.value(port).parse().unwrap()).into()
}

#[test]
fn plain_listeners_speak_both_versions() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(YAML, &origin);
    for port in ["PORT", "PORT2"] {
        let mut client = Frames::open(address(&gateway, port));
        assert_eq!(client.first_status(&get("app.test", "/")), 200, "{port}");
        // A preface in pieces, as from a slow link.
        let mut client = Frames::silent(address(&gateway, port));
        for byte in frames::PREFACE {
            client.send([*byte]);
        }
        client.send(frames::frame(frames::kind::SETTINGS, 0, 0, b""));
        assert_eq!(client.first_status(&get("app.test", "/")), 200, "{port} in pieces");
        for method in ["GET", "POST", "PUT", "PATCH", "PROPFIND", "P", "PR", "PRIX"] {
            let mut client = Connection::open(address(&gateway, port));
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(client.request(&request).status, 200, "{port} {method}");
        }
    }
    let seen = origin.requests();
    assert!(seen.iter().all(|request| request.header("x-forwarded-proto") == Some("http")), "{seen:?}");
    let record = gateway.wait_record(|record| record["protocol"] == "HTTP/2");
    assert!(record["tls"].is_null() || record["tls"] == "", "{record}");
    gateway.wait_metric("portcullis_connections_total", &[("protocol", "http2")], 4.0);
}

#[test]
fn a_listener_without_http2_takes_the_preface_for_a_bad_request() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(YAML, &origin);
    let mut client = Connection::open(address(&gateway, "PORT3"));
    client.send(frames::PREFACE);
    assert!(matches!(client.response().status, 400 | 405));
    client.rest();
    assert!(origin.requests().is_empty());
}

#[test]
fn a_preface_that_is_not_completed_costs_its_deadline_and_nothing_else() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(YAML, &origin);
    for beginning in ["P", "PRI * HTTP/2.0\r\n\r\n"] {
        let mut client = Connection::open(address(&gateway, "PORT"));
        client.send(beginning);
        assert!(client.is_quiet_for(Duration::from_millis(100)));
        client.rest();
    }
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_preface")], 2.0);
}
