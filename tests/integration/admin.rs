//! Port 7998: live, ready, and what operators may ask.

use crate::support::eventually::{DEADLINE, until};
use crate::support::response::Response;
use crate::support::{Connection, Gateway, Origin};

const YAML: &str = "routes:\n  - { name: app, hosts: [app.test], path: /x, upstream: app }\n  \
                    - { name: own, respond: { body: hello } }\n\
                    upstreams: { app: { endpoints: [\"{ORIGIN}\", { address: \"127.0.0.9:9\", weight: 2 }] } }\n";

/// Asks for `/v1/status`.
fn ask(gateway: &Gateway, method: &str, host: &str) -> Response {
    let request = format!("{method} /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Connection::open(gateway.admin_address()).request(&request)
}

fn gateway() -> Gateway {
    Gateway::with_origin(YAML, &Origin::fixed("hello"))
}

#[test]
fn live_and_ready_answer_200_with_their_parts() {
    let gateway = gateway();
    assert_eq!(gateway.admin("/livez").status, 200);
    let ready = gateway.admin("/readyz");
    assert_eq!(ready.status, 200);
    let report = ready.json();
    assert_eq!((report["ready"].as_bool(), report["generation"].as_u64()), (Some(true), Some(1)), "{report}");
    assert!(report["state"].is_string(), "{report}");
    for check in ["configuration", "listeners", "workers", "upstreams"] {
        assert!(report["checks"][check].is_object(), "{check} in {report}");
    }
}

#[test]
fn the_running_configuration_can_be_read() {
    let gateway = gateway();
    for path in ["/v1/status", "/v1/routes", "/v1/upstreams", "/v1/certificates"] {
        let response = gateway.admin(path);
        assert_eq!(response.status, 200, "{path}");
        assert!(response.header("content-type").unwrap().contains("application/json"), "{path}");
        response.json();
    }
    let routes = gateway.admin("/v1/routes").text().to_owned();
    assert!(
        routes.contains("\"app\"") && routes.contains("\"own\"") && routes.contains("app.test"),
        "{routes}"
    );
    let upstreams = gateway.admin("/v1/upstreams").text().to_owned();
    assert!(upstreams.contains("127.0.0.9:9"), "{upstreams}");
    let status = gateway.admin("/v1/status").json();
    assert_eq!(status["generation"], 1, "{status}");
}

#[test]
fn errors_are_problem_documents() {
    let gateway = gateway();
    let missing = gateway.admin("/v1/nosuch");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert_eq!(missing.json()["status"], 404);
    let wrong = ask(&gateway, "DELETE", &gateway.admin_address().to_string());
    assert_eq!(wrong.status, 405);
}

#[test]
fn a_page_of_a_browser_that_was_tricked_into_asking_learns_nothing() {
    // DNS rebinding: the name is the attacker's, the address is ours.
    let gateway = gateway();
    assert_eq!(ask(&gateway, "GET", "evil.test").status, 421);
}

#[test]
fn draining_is_not_ready_but_live() {
    let mut gateway =
        Gateway::start("routes: [{ respond: { body: hello } }]\nshutdown: { delay: 10s, drain: 5s }\n");
    gateway.term();
    until("not ready", || gateway.admin("/readyz").status == 503);
    assert_eq!(gateway.admin("/livez").status, 200);
    assert_eq!(gateway.admin("/readyz").json()["ready"], false);
    assert_eq!(gateway.get("a", "/").text(), "hello", "the listeners stay for the delay");
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}

#[test]
fn traffic_cannot_starve_the_admin_port() {
    let gateway = gateway();
    // Idle connections by the hundred occupy the workers' loops, not the admin's.
    let idle: Vec<_> = (0..300).map(|_| gateway.connect()).collect();
    assert_eq!(gateway.admin("/readyz").status, 200);
    drop(idle);
}

#[test]
fn the_traffic_port_does_not_speak_admin() {
    let gateway = Gateway::start("routes: [{ hosts: [app.test], respond: { body: hello } }]\n");
    for path in ["/metrics", "/readyz", "/v1/status"] {
        assert_eq!(gateway.get("app.test", path).text(), "hello");
        assert_eq!(gateway.get("other.test", path).status, 404);
    }
}

#[test]
fn an_upstream_that_is_down_does_not_make_the_gateway_unready() {
    let yaml = "routes: [{ upstream: [\"127.0.0.1:{CLOSED}\"] }]\n";
    let closed = crate::support::ports::ClosedPort::new();
    let gateway = Gateway::builder(yaml).set("CLOSED", &closed).start();
    assert_eq!(gateway.get("a", "/").status, 502);
    assert_eq!(gateway.admin("/readyz").status, 200);
}
