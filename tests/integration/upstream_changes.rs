//! Upstreams that change while they are used, and shapes of them that are odd but allowed.

use crate::support::eventually::until;
use crate::support::load::Load;
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [&str; 6] = [
    "round_robin",
    "random",
    "least_requests",
    "p2c",
    "{ hash: { by: { header: x-absent } } }",
    "{ hash: { by: { cookie: absent } } }",
];

fn upstream(name: &str, endpoints: &str, settings: &str) -> String {
    format!(
        "workers: 2\naccess_log: {{ output: off }}\nroutes: [{{ upstream: {name} }}]\n\
         upstreams: {{ {name}: {{ endpoints: [{endpoints}]{settings} }} }}\n"
    )
}

fn named() -> [Origin; 3] {
    [Origin::fixed("a"), Origin::fixed("b"), Origin::fixed("c")]
}

fn start(yaml: &str, origins: &[Origin; 3]) -> Gateway {
    let [a, b, c] = origins;
    let port = a.address().rsplit(':').next().expect("a port").to_owned();
    let builder = Gateway::builder(yaml).set("A", a.address()).set("B", b.address()).set("C", c.address());
    builder.set("PORT_A", port).set("CLOSED", 1).start()
}

fn nothing_in_flight(gateway: &Gateway) {
    until("nothing in flight", || {
        let shown = gateway.admin("/v1/upstreams").json();
        let upstreams = shown["upstreams"].as_array().expect("upstreams").iter();
        let mut endpoints =
            upstreams.flat_map(|upstream| upstream["endpoints"].as_array().expect("endpoints"));
        gateway.metrics().sum("portcullis_upstream_requests_in_flight", &[]) == 0.0
            && endpoints.all(|endpoint| endpoint["requests_in_flight"] == 0)
    });
}

/// Drains or enables an endpoint.
fn change(gateway: &Gateway, origin: &Origin, what: &str) {
    let host = gateway.admin_address();
    let path = format!("/v1/upstreams/app/endpoints/{}/{what}", origin.address());
    let request = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(Connection::open(host).request(&request).status, 200);
}

#[test]
fn every_kind_of_change_under_load_fails_no_request() {
    let origins = named();
    let (all, two) = ("\"{A}\", \"{B}\", \"{C}\"", "\"{C}\", \"{A}\"");
    let check = ", health_check: { interval: 1s, timeout: 1s }";
    let mut changes: Vec<String> =
        POLICIES.iter().map(|policy| upstream("app", all, &format!(", balance: {policy}"))).collect();
    changes.extend([
        upstream("app", two, ", balance: p2c, slow_start: 1h"),
        upstream("app", all, ", balance: p2c, slow_start: 1h"),
        upstream("app", "{ address: \"{A}\", weight: 1000 }, \"{B}\"", ""),
        upstream("app", "{ address: \"{A}\", backup: true }, \"{B}\"", ""),
        upstream("app", "\"{A}\", \"localhost:{PORT_A}\"", check),
        upstream("app", all, ", sticky: { cookie: sid }"),
        upstream("app", two, ", balance: p2c, sticky: { cookie: other }"),
        upstream("app", all, check),
        upstream("app", two, ""),
        upstream("renamed", two, check),
        upstream("renamed", all, ", ejection: { failures: 1, for: 1h }, max_requests: 1000"),
        upstream("app", all, ", retry: { attempts: 5, on: [connect, stale, timeout, 503] }, keepalive: 7"),
        upstream("app", two, check),
    ]);
    let gateway = start(&changes[0], &origins);
    let load = Load::start(gateway.address(), "/", 4, Duration::from_millis(1));
    let mut served = 0;
    for changed in &changes {
        gateway.reload(changed);
        let count = || origins.iter().map(|origin| origin.requests().len()).sum::<usize>();
        until("requests after a change", || count() > served + 20);
        served = count();
    }
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{} good, failed: {:?}", tally.good, tally.failures);
    nothing_in_flight(&gateway);
}

#[test]
fn a_request_in_flight_at_an_endpoint_that_is_removed_ends_well_and_is_counted_all_the_time() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let slow = Origin::script(move |_| Reply::ok("late").after(&held));
    let origins = [slow, Origin::fixed("b"), Origin::fixed("c")];
    let gateway = start(&upstream("app", "\"{A}\"", ", max_requests: 1"), &origins);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origins[0].wait_requests(1);
    gateway.reload(&upstream("app", "\"{B}\"", ", max_requests: 1"));
    assert_eq!(gateway.get("a", "/").status, 503, "it counts, wherever it is");
    gateway.reload(&upstream("app", "\"{B}\"", ""));
    assert_eq!(gateway.get("a", "/").text(), "b");
    gateway.reload(&upstream("app", "\"{A}\", \"{B}\"", ""));
    let shown = gateway.admin("/v1/upstreams").json()["upstreams"][0]["endpoints"][0].clone();
    assert_eq!(shown["requests_in_flight"], 1, "it is known again: {shown}");
    gateway.reload(&upstream("renamed", "\"{B}\"", ""));
    gate.open();
    assert_eq!(client.response().text(), "late");
    nothing_in_flight(&gateway);
}

#[test]
fn sticky_clients_stay_over_every_change_that_leaves_their_endpoint() {
    let origins = named();
    let all = "\"{A}\", \"{B}\", \"{C}\"";
    let gateway = start(&upstream("app", all, ", sticky: { cookie: sid }"), &origins);
    let cookie = |answer: &crate::support::response::Response| {
        let line = answer.header("set-cookie").expect("a cookie");
        format!("Cookie: {}\r\n", line.split(';').next().expect("a value"))
    };
    let mut ties: Vec<_> = Vec::new();
    until("a client for each endpoint", || {
        let answer = gateway.get("a", "/");
        ties.push((cookie(&answer), answer.text().to_owned()));
        ["a", "b", "c"].iter().all(|name| ties.iter().any(|(_, tied)| tied == name))
    });
    let ask = |cookie: &str| gateway.connect().get("a", "/", cookie);
    for policy in POLICIES {
        gateway.reload(&upstream("app", all, &format!(", balance: {policy}, sticky: {{ cookie: sid }}")));
        for (cookie, name) in &ties {
            assert_eq!(ask(cookie).text(), name, "{policy}");
        }
    }
    gateway.reload(&upstream("app", "\"{C}\", \"{A}\"", ", balance: p2c, sticky: { cookie: sid }"));
    for (tie, name) in &ties {
        let answer = ask(tie);
        match name.as_str() {
            "b" => assert_eq!(ask(&cookie(&answer)).text(), answer.text(), "tied anew"),
            name => assert_eq!((answer.text(), answer.header("set-cookie")), (name, None)),
        }
    }
    // Back, and known by the cookies of old.
    gateway.reload(&upstream("app", all, ", sticky: { cookie: sid }"));
    for (cookie, name) in &ties {
        assert_eq!(ask(cookie).text(), name);
    }
}

#[test]
fn odd_upstreams_serve_by_every_policy() {
    let origins = named();
    let twice = "\"{A}\", \"localhost:{PORT_A}\"";
    let backup = "{ address: \"{A}\", backup: true }, \"127.0.0.1:{CLOSED}\"";
    let twin =
        "{ address: \"localhost:{PORT_A}\", backup: true }, \"{A}\", { address: \"{B}\", backup: true }";
    let heavy = "{ address: \"{A}\", weight: 1000 }, \"127.0.0.1:{CLOSED}\"";
    let gateway = start(&upstream("app", "\"{C}\"", ""), &origins);
    for policy in POLICIES {
        for endpoints in [twice, backup, twin, heavy] {
            for settings in ["", ", sticky: { cookie: sid }", ", slow_start: 1h, ejection: { failures: 1 }"] {
                gateway.reload(&upstream("app", endpoints, &format!(", balance: {policy}{settings}")));
                let mut client = gateway.connect();
                for _ in 0..10 {
                    assert_eq!(client.get("a", "/", "").text(), "a", "{policy}: {endpoints}{settings}");
                }
            }
        }
    }
}

#[test]
fn drained_endpoints_get_nothing_by_any_policy_and_all_drained_is_503_until_one_is_enabled() {
    let origins = named();
    let all = "\"{A}\", \"{B}\", \"{C}\"";
    let gateway = start(&upstream("app", all, ""), &origins);
    change(&gateway, &origins[0], "drain");
    for policy in POLICIES {
        gateway.reload(&upstream("app", all, &format!(", balance: {policy}, panic_percent: 100")));
        let mut client = gateway.connect();
        for _ in 0..30 {
            assert_ne!(client.get("a", "/", "").text(), "a", "{policy}");
        }
        change(&gateway, &origins[1], "drain");
        change(&gateway, &origins[2], "drain");
        assert_eq!(client.get("a", "/", "").status, 503, "{policy}");
        change(&gateway, &origins[1], "enable");
        assert_eq!(client.get("a", "/", "").text(), "b", "{policy}");
        change(&gateway, &origins[2], "enable");
    }
    assert!(origins[0].requests().is_empty());
}

#[test]
fn a_newcomer_starts_slowly_where_the_faster_one_is_chosen() {
    let origins = named();
    let settings = ", balance: p2c, slow_start: 1h";
    let gateway = start(&upstream("app", "\"{A}\", \"{B}\"", settings), &origins);
    let ask = |requests: usize| {
        let mut client = gateway.connect();
        (0..requests).for_each(|_| assert_eq!(client.get("a", "/", "").status, 200));
    };
    ask(50);
    gateway.reload(&upstream("app", "\"{A}\", \"{B}\", \"{C}\"", settings));
    ask(300);
    let new = origins[2].requests().len();
    assert!((1..=90).contains(&new), "{new} of 300 went to the newcomer");
}

#[test]
fn an_ejected_endpoint_is_not_where_a_retry_goes() {
    let bad = || Origin::script(|_| Reply::status(503, "", "bad"));
    let origins = [bad(), bad(), Origin::fixed("c")];
    let settings = ", ejection: { failures: 1, for: 1h, max_percent: 100 }, panic_percent: 0, \
                    retry: { attempts: 3, on: [503], budget_percent: 100 }";
    let gateway = start(&upstream("app", "\"{A}\", \"{B}\", \"{C}\"", settings), &origins);
    let mut client = gateway.connect();
    for _ in 0..30 {
        assert_eq!(client.get("a", "/", "").text(), "c");
    }
    assert_eq!((origins[0].requests().len(), origins[1].requests().len()), (1, 1));
    assert_eq!(gateway.metrics().sum("portcullis_upstream_ejections_total", &[]), 2.0);
    nothing_in_flight(&gateway);
}
