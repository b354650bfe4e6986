//! How many requests an upstream works on at once.

use crate::support::eventually::until;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::sync::Arc;

const YAML: &str = "workers: 2\nroutes:\n  - { name: free, path: /free, upstream: free }\n  - { name: app, upstream: app }\n\
                    upstreams:\n  app: { endpoints: [\"{ORIGIN}\"], max_requests: 2 }\n  free: { endpoints: [\"{ORIGIN}\"] }\n";

/// An origin that holds on to what is asked under `/held`.
fn holding() -> (Origin, Arc<Gate>) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |request| match request.target() {
        "/held" => Reply::ok("late").after(&held),
        _ => Reply::ok("soon"),
    });
    (origin, gate)
}

fn hold(gateway: &Gateway) -> Connection {
    let mut connection = gateway.connect();
    connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    connection
}

fn gauge(gateway: &Gateway, name: &str, upstream: &str) -> f64 {
    gateway.metrics().get(&format!("portcullis_upstream_{name}"), &[("upstream", upstream)]).expect("a gauge")
}

#[test]
fn above_the_limit_requests_are_refused_at_once_and_the_circuit_shows_open() {
    let (origin, gate) = holding();
    let gateway = Gateway::with_origin(YAML, &origin);
    assert_eq!(gateway.get("a", "/").text(), "soon");
    // Its answer may be here before its place is free.
    until("a free place", || gauge(&gateway, "requests_in_flight", "app") == 0.0);
    let mut held = [hold(&gateway), hold(&gateway)];
    origin.wait_requests(3);
    let refused = gateway.connect().get("a", "/", "Accept: application/json\r\n");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json()["reason"], "upstream_limit");
    let record = gateway.wait_record(|record| record["rejection"] == "upstream_limit");
    assert_eq!((record["upstream"].as_str(), record["attempts"].as_u64()), (Some("app"), Some(0)));
    assert_eq!(gauge(&gateway, "circuit_open", "app"), 1.0);
    assert_eq!(gauge(&gateway, "requests_in_flight", "app"), 2.0);
    assert_eq!(gauge(&gateway, "requests_refused_total", "app"), 1.0);
    assert_eq!(gauge(&gateway, "circuit_open", "free"), 0.0);
    let shown = gateway.admin("/v1/upstreams").json()["upstreams"][0].clone();
    assert_eq!((shown["circuit"].as_str(), shown["requests_in_flight"].as_u64()), (Some("open"), Some(2)));
    assert_eq!(gateway.get("a", "/free").text(), "soon", "another upstream has its own limit");

    gateway.reload(&format!("{YAML}log: {{ level: debug }}"));
    gateway.reload(&YAML.replace("max_requests: 2", "keepalive: 7, max_requests: 2"));
    assert_eq!(gateway.get("a", "/").status, 503, "those in flight count after a reload too");

    gate.open();
    for connection in &mut held {
        assert_eq!(connection.response().text(), "late");
    }
    until("a closed circuit", || gauge(&gateway, "circuit_open", "app") == 0.0);
    assert_eq!(gateway.get("a", "/").text(), "soon");
}

#[test]
fn a_client_that_goes_away_makes_room() {
    let (origin, gate) = holding();
    let gateway = Gateway::with_origin(YAML, &origin);
    let held = [hold(&gateway), hold(&gateway)];
    origin.wait_requests(2);
    assert_eq!(gateway.get("a", "/").status, 503);
    drop(held);
    until("room", || gateway.get("a", "/").status == 200);
    gate.open();
    until("nothing in flight", || gauge(&gateway, "requests_in_flight", "app") == 0.0);
}

#[test]
fn failed_requests_leave_no_trace_in_the_count() {
    let origin = Origin::script(|request| match request.target() {
        "/close" => Reply::Close,
        "/bad" => Reply::RawThenClose(b"garbage\r\n\r\n".to_vec()),
        _ => Reply::ok("hello"),
    });
    let gateway = Gateway::with_origin(YAML, &origin);
    for path in ["/close", "/bad", "/close", "/bad", "/close", "/bad"] {
        assert_eq!(gateway.get("a", path).status, 502);
    }
    assert_eq!(gateway.get("a", "/").text(), "hello");
    until("nothing in flight", || gauge(&gateway, "requests_in_flight", "app") == 0.0);
}
