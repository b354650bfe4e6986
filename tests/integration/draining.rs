//! Taking an endpoint out by hand, through port 7998.

use crate::support::response::Response;
use crate::support::{Connection, Gateway, Origin};

const YAML: &str = "routes: [{ upstream: app }]\naccess_log: { output: off }\n\
                    upstreams: { app: { endpoints: [\"{A}\", \"{B}\"] } }\n";

fn start(origins: &[Origin; 2]) -> Gateway {
    Gateway::builder(YAML).set("A", origins[0].address()).set("B", origins[1].address()).start()
}

fn post(gateway: &Gateway, path: &str, headers: &str) -> Response {
    let host = gateway.admin_address();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n");
    Connection::open(host).request(&format!("{head}{headers}\r\n"))
}

fn change(gateway: &Gateway, origin: &Origin, what: &str) -> Response {
    post(gateway, &format!("/v1/upstreams/app/endpoints/{}/{what}", origin.address()), "")
}

fn ask(gateway: &Gateway, requests: usize) {
    let mut connection = gateway.connect();
    for _ in 0..requests {
        assert_eq!(connection.get("a", "/", "").status, 200);
    }
}

#[test]
fn a_drained_endpoint_gets_nothing_through_reloads_until_it_is_enabled() {
    let origins = [Origin::fixed("a"), Origin::fixed("b")];
    let gateway = start(&origins);
    let drained = change(&gateway, &origins[0], "drain");
    assert_eq!((drained.status, drained.json()["mode"].as_str()), (200, Some("drained")));
    assert_eq!(drained.json()["address"], origins[0].address());
    ask(&gateway, 20);
    let changed = YAML.replace("] }", "], balance: p2c }");
    gateway.reload(&changed);
    ask(&gateway, 20);
    assert_eq!((origins[0].requests().len(), origins[1].requests().len()), (0, 40));
    let labels = [("upstream", "app"), ("endpoint", &origins[0].address())];
    assert_eq!(gateway.metrics().get("portcullis_upstream_endpoint_up", &labels), Some(0.0));
    let shown = gateway.admin("/v1/upstreams").json()["upstreams"][0]["endpoints"][0].clone();
    assert_eq!((shown["mode"].as_str(), shown["up"].as_bool()), (Some("drained"), Some(false)));

    gateway.reload(YAML);
    assert_eq!(change(&gateway, &origins[0], "enable").json()["mode"], "enabled");
    ask(&gateway, 20);
    assert_eq!(origins[0].requests().len(), 10);
    gateway.wait_log("is enabled by the admin API");
}

#[test]
fn with_all_endpoints_drained_the_answer_is_503() {
    let origins = [Origin::fixed("a"), Origin::fixed("b")];
    let gateway = start(&origins);
    for origin in &origins {
        assert_eq!(change(&gateway, origin, "drain").status, 200);
    }
    let answer = gateway.connect().get("a", "/", "Accept: application/json\r\n");
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (503, Some("no_endpoint")));
    assert_eq!(gateway.admin("/v1/upstreams").json()["upstreams"][0]["serving"], "nobody");
    assert_eq!(change(&gateway, &origins[1], "enable").status, 200);
    assert_eq!(gateway.get("a", "/").text(), "b");
}

#[test]
fn what_is_not_there_cannot_be_drained_and_says_so() {
    let origins = [Origin::fixed("a"), Origin::fixed("b")];
    let gateway = start(&origins);
    let address = origins[0].address();
    for (path, detail) in [
        (format!("/v1/upstreams/nosuch/endpoints/{address}/drain"), "no upstream is named `nosuch`"),
        ("/v1/upstreams/app/endpoints/127.0.0.1:1/drain".to_owned(), "`app` has no endpoint `127.0.0.1:1`"),
        (format!("/v1/upstreams/app/endpoints/{address}/explode"), "is not an endpoint"),
    ] {
        let answer = post(&gateway, &path, "");
        assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{}", answer.text());
    }
    let path = format!("/v1/upstreams/app/endpoints/{address}/drain");
    assert_eq!(gateway.admin(&path).status, 405, "GET changes nothing");
    ask(&gateway, 10);
    assert_eq!(origins[0].requests().len(), 5);
}

#[test]
fn a_web_page_cannot_drain() {
    let origins = [Origin::fixed("a"), Origin::fixed("b")];
    let gateway = start(&origins);
    let path = format!("/v1/upstreams/app/endpoints/{}/drain", origins[0].address());
    for origin in ["https://evil.test", "null"] {
        let answer = post(&gateway, &path, &format!("Origin: {origin}\r\n"));
        assert_eq!((answer.status, answer.header("content-type")), (403, Some("application/problem+json")));
    }
    ask(&gateway, 10);
    assert_eq!(origins[0].requests().len(), 5);
}
