//! Whose fault an end was: endpoints are ejected, and requests sent once more, for what the upstream has done or
//! left undone, not for a client's haste or silence.

use crate::support::{Gate, Gateway, Origin, Reply};
use std::net::TcpListener;
use std::time::Duration;

/// Two failures eject, and what the upstream is late with is tried again.
fn yaml(more: &str, settings: &str) -> String {
    format!(
        "workers: 1\nroutes: [{{ upstream: app, timeouts: {{ connect: 20s, response: 20s, idle: 20s }} }}]\n\
         upstreams: {{ app: {{ endpoints: [\"{{ORIGIN}}\"], ejection: {{ failures: 2, max_percent: 100 }}, \
         panic_percent: 0, retry: {{ on: [connect, timeout, stale, closed], attempts: 3 }}, {settings} }} }}\n{more}"
    )
}

/// The only endpoint is as it was: not ejected, nothing learned of its latency, nothing sent once more.
fn assert_unblamed(gateway: &Gateway, case: &str) {
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("portcullis_upstream_ejections_total", &[]), 0.0, "{case}");
    assert_eq!(metrics.sum("portcullis_upstream_retries_total", &[]), 0.0, "{case}");
    let shown = gateway.admin("/v1/upstreams").json()["upstreams"][0]["endpoints"][0].clone();
    assert!(shown["latency_ms"].is_null() && shown["up"] == true, "{case}: {shown}");
}

#[test]
fn the_deadline_a_call_brings_along_is_nobodys_failure() {
    // Takes connections and requests, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for (case, more, settings) in [
        ("lane", "", ""),
        ("engine", "proxy: { lane: off }\n", ""),
        ("HTTP/2", "", "protocol: h2c"),
        ("handshake on the lane", "", "tls: { verify: false }"),
        ("handshake of the engine", "proxy: { lane: off }\n", "tls: { verify: false }"),
        ("handshake of HTTP/2", "", "protocol: http2, tls: { verify: false }"),
    ] {
        let gateway = Gateway::builder(&yaml(more, settings)).set("ORIGIN", address).start();
        let mut client = gateway.connect();
        for call in 0..4 {
            let fields = "Content-Type: application/grpc\r\nGrpc-Timeout: 300m\r\n";
            let answer = client.get("a", &format!("/{call}"), fields);
            assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("4")), "{case}");
            let record = gateway.wait_record_of(&format!("/{call}"));
            assert_eq!((&record["status"], &record["rejection"]), (&504.into(), &"client_deadline".into()));
        }
        gateway.wait_metric("portcullis_rejections_total", &[("reason", "client_deadline")], 4.0);
        assert_unblamed(&gateway, case);
    }
}

#[test]
fn what_is_no_call_has_no_deadline_of_its_own() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::script(move |_| Reply::ok("in its own time").after(&held));
    let gateway = Gateway::with_origin(&yaml("", ""), &origin);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nGrpc-Timeout: 1m\r\n\r\n");
    assert!(client.is_quiet_for(Duration::from_millis(300)), "it waits as long as the route does");
    gate.open();
    assert_eq!(client.response().text(), "in its own time");
}
