//! What is sent once more, to whom, and what is not.

use crate::support::client::Connection;
use crate::support::eventually;
use crate::support::{Gateway, Origin, Received, Reply};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ONE: &str = "workers: 1\nroutes: [{ upstream: app, timeouts: { response: 20s } }]\n";

fn with(settings: &str) -> String {
    format!("{ONE}upstreams: {{ app: {{ endpoints: [\"{{ORIGIN}}\"], {settings} }} }}\n")
}

/// Closes every connection at the moment its second request comes, as an origin does whose patience
/// ends just then.
fn closes_under_the_second(request: &Received, used: &Mutex<HashSet<usize>>) -> Reply {
    match used.lock().unwrap().insert(request.connection) {
        true => Reply::ok("served"),
        false => Reply::Close,
    }
}

fn retries(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().sum("portcullis_upstream_retries_total", &[("reason", reason)])
}

#[test]
fn a_connection_that_died_under_a_request_costs_the_client_nothing() {
    let used = Mutex::default();
    let origin = Origin::script(move |request| closes_under_the_second(request, &used));
    let gateway = Gateway::with_origin(&with("balance: round_robin"), &origin);
    let mut client = gateway.connect();
    for round in 0..50 {
        let (method, body) = if round % 2 == 0 { ("GET", "") } else { ("PUT", "order=1") };
        let length = body.len();
        let answer = client.request(&format!(
            "{method} /{round} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!((answer.status, answer.text()), (200, "served"), "{method} {round}");
    }
    assert!(retries(&gateway, "stale") >= 20.0);
    let puts: Vec<_> =
        origin.requests().into_iter().filter(|request| request.line().starts_with("PUT")).collect();
    assert!(puts.iter().all(|put| put.body == b"order=1"), "the body goes along");
    let record = gateway.wait_record(|record| record["attempts"] == 2);
    assert_eq!((&record["status"], &record["rejection"]), (&200.into(), &serde_json::Value::Null));
    assert_eq!(record["retries"], "stale");
    assert!(gateway.wait_record(|record| record["attempts"] == 1)["retries"].is_null());
}

#[test]
fn a_retry_after_a_dead_connection_takes_no_other_kept_one() {
    // All kept connections are dead: one attempt more must be enough.
    let (gate, origin) = pair_of_connections();
    let gateway = Gateway::with_origin(&with("retry: { attempts: 2 }"), &origin);
    let mut clients = [gateway.connect(), gateway.connect(), gateway.connect()];
    for client in &mut clients {
        // With a body, as the request below: others have kept connections of their own.
        client.send("PUT /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    }
    origin.wait_requests(3);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let answer = clients[0].request("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(answer.status, 200);
    assert_eq!(retries(&gateway, "stale"), 1.0);
}

fn pair_of_connections() -> (std::sync::Arc<crate::support::Gate>, Origin) {
    let gate = crate::support::Gate::closed();
    let (held, used) = (std::sync::Arc::clone(&gate), Mutex::default());
    let origin = Origin::script(move |request| {
        let reply = closes_under_the_second(request, &used);
        if request.target() == "/hold" { reply.after(&held) } else { reply }
    });
    (gate, origin)
}

#[test]
fn a_post_that_may_have_been_worked_on_is_not_repeated() {
    let gate = crate::support::Gate::closed();
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::script(move |request| match request.line().starts_with("POST") {
        true => Reply::Close.after(&held),
        false => Reply::ok("warm"),
    });
    let yaml = with("keepalive: 8");
    let gateway = Gateway::with_origin(&yaml, &origin);
    let mut client = gateway.connect();
    assert_eq!(client.get("a", "/", "").text(), "warm");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    origin.wait_requests(2);
    assert!(client.is_quiet_for(Duration::from_millis(1_200)));
    gate.open();
    assert_eq!(client.response().status, 502);
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(retries(&gateway, "stale"), 0.0);
}

/// Read whole, and then the connection closes at once, as that of a worker which crashes: by every way a body takes.
#[test]
fn a_post_that_was_read_whole_is_not_repeated_however_soon_its_connection_closes() {
    let origin = Origin::script(|request| match request.line().starts_with("POST") {
        true => Reply::Close,
        false => Reply::ok("warm"),
    });
    for further in ["", "proxy: { lane: off }\n"] {
        let gateway = Gateway::with_origin(&format!("{}{further}", with("keepalive: 8")), &origin);
        let mut client = gateway.connect();
        for framing in
            ["Content-Length: 2\r\n\r\nhi", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"]
        {
            assert_eq!(client.get("a", "/", "").text(), "warm");
            let seen = origin.requests().len();
            let answer = client.request(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
            assert_eq!((answer.status, origin.requests().len() - seen), (502, 1), "{framing:?} {further}");
            // After a failure the connection of the client may be gone.
            client = gateway.connect();
        }
        assert_eq!(retries(&gateway, "stale"), 0.0);
    }
}

#[test]
fn a_fresh_connection_that_ends_without_an_answer_is_followed_by_another() {
    let count = AtomicUsize::new(0);
    let origin = Origin::script(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 | 2 => Reply::Close,
        _ => Reply::status(200, "Connection: close\r\n", "served"),
    });
    let yaml = with("retry: { on: [closed] }, ejection: { failures: 100 }");
    let gateway = Gateway::with_origin(&yaml, &origin);
    assert_eq!(gateway.get("a", "/").text(), "served");
    assert_eq!((origin.requests().len(), retries(&gateway, "closed")), (2, 1.0));
    let post = gateway.connect().request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!((post.status, origin.requests().len(), retries(&gateway, "closed")), (502, 3, 1.0));
}

#[test]
fn a_connection_nobody_used_before_is_not_stale() {
    let origin = Origin::script(|_| Reply::Close);
    let gateway = Gateway::with_origin(&with("retry: { on: [stale] }"), &origin);
    assert_eq!(gateway.get("a", "/").status, 502);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_status_is_tried_again_at_another_endpoint() {
    let (bad, good) = (Origin::script(|_| Reply::status(503, "", "busy")), Origin::fixed("fine"));
    let yaml = with("retry: { on: [503] }").replace("\"{ORIGIN}\"", "\"{BAD}\", \"{GOOD}\"");
    let gateway = Gateway::builder(&yaml).set("BAD", bad.address()).set("GOOD", good.address()).start();
    for _ in 0..6 {
        assert_eq!(gateway.get("a", "/").text(), "fine");
    }
    let (tried, retried) = (bad.requests().len(), retries(&gateway, "503"));
    assert!(tried >= 2 && retried == tried as f64, "{tried} tried, {retried} retried");
    // What upstreams answered is counted, whoever got it.
    gateway.wait_metric_is("portcullis_upstream_requests_total", &[("code", "503")], retried);
}

#[test]
fn the_last_answer_passes_as_it_is() {
    let count = AtomicUsize::new(0);
    let origin = Origin::script(move |_| {
        let attempt = count.fetch_add(1, Ordering::SeqCst);
        Reply::status(502, &format!("X-Attempt: {attempt}\r\nRetry-After: 7\r\n"), "the origin's own page")
    });
    let gateway = Gateway::with_origin(&with("retry: { attempts: 3, on: [502] }"), &origin);
    let answer = gateway.get("a", "/");
    assert_eq!((answer.status, answer.text()), (502, "the origin's own page"));
    assert_eq!((answer.header("x-attempt"), answer.header("retry-after")), (Some("2"), Some("7")));
    let record = gateway.wait_record_of("/");
    assert_eq!((&record["attempts"], &record["rejection"]), (&3.into(), &serde_json::Value::Null));
    assert_eq!(record["retries"], "502,502");
}

#[test]
fn a_post_gets_the_error_of_its_origin() {
    let origin = Origin::script(|_| Reply::status(500, "X-Trace: 7\r\n", "stack"));
    let gateway =
        Gateway::with_origin(&with("retry: { attempts: 5, on: [connect, stale, timeout, 500] }"), &origin);
    let mut client = gateway.connect();
    let answer = client.request("POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!((answer.status, answer.header("x-trace"), answer.text()), (500, Some("7"), "stack"));
    assert_eq!(origin.requests().len(), 1);
    // Not even this must cost the connection.
    assert_eq!(client.get("a", "/", "").status, 500);
}

#[test]
fn all_methods_are_repeated_where_the_operator_says_so() {
    let count = AtomicUsize::new(0);
    let origin = Origin::script(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(503, "", "busy"),
        _ => Reply::ok("stored"),
    });
    let gateway = Gateway::with_origin(&with("retry: { on: [503], methods: all }"), &origin);
    let answer = gateway.connect().request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(answer.text(), "stored");
    assert!(origin.requests().iter().all(|request| request.body == b"hi"));
}

#[test]
fn a_timeout_is_tried_again_once() {
    let gate = crate::support::Gate::closed();
    let (held, count) = (std::sync::Arc::clone(&gate), AtomicUsize::new(0));
    let origin = Origin::script(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::ok("late").after(&held),
        _ => Reply::ok("in time"),
    });
    let yaml = with("retry: { on: [timeout] }").replace("20s", "2s");
    let gateway = Gateway::with_origin(&yaml, &origin);
    assert_eq!(gateway.get("a", "/").text(), "in time");
    assert_eq!(retries(&gateway, "timeout"), 1.0);
    gate.open();
}

#[test]
fn an_upstream_that_fails_as_a_whole_is_not_flooded() {
    let origin = Origin::script(|_| Reply::status(503, "", "busy"));
    let gateway = Gateway::with_origin(&with("retry: { on: [503], budget_percent: 10 }"), &origin);
    let mut client = gateway.connect();
    for _ in 0..100 {
        assert_eq!(client.get("a", "/", "").status, 503);
    }
    // Ten to begin with, and a tenth of the requests.
    assert_eq!(retries(&gateway, "503"), 20.0);
    assert_eq!(gateway.metrics().sum("portcullis_upstream_retries_denied_total", &[]), 80.0);
    assert_eq!(origin.requests().len(), 120);
}

#[test]
fn a_body_that_is_too_large_to_keep_is_not_repeated() {
    let origin = Origin::script(|_| Reply::status(503, "", "busy"));
    let gateway = Gateway::with_origin(&with("retry: { on: [503], methods: all }"), &origin);
    let body = "x".repeat(200_000);
    let mut client = gateway.connect();
    let answer =
        client.request(&format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{body}"));
    assert_eq!(answer.status, 503);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn an_endpoint_that_cannot_be_reached_is_left_for_another_with_any_method() {
    let good = Origin::fixed("fine");
    let yaml = with("retry: { on: [connect] }").replace("\"{ORIGIN}\"", "\"127.0.0.1:{CLOSED}\", \"{GOOD}\"");
    let closed = crate::support::ports::ClosedPort::new();
    let gateway = Gateway::builder(&yaml).set("CLOSED", &closed).set("GOOD", good.address()).start();
    for _ in 0..4 {
        let answer = gateway.connect().request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.text(), "fine");
    }
    assert!(retries(&gateway, "connect") >= 2.0);
    assert_eq!(gateway.wait_record(|record| record["attempts"] == 2)["retries"], "connect");
}

#[test]
fn nothing_is_tried_again_where_nothing_is_named() {
    let used = Mutex::default();
    let origin = Origin::script(move |request| closes_under_the_second(request, &used));
    let gateway = Gateway::with_origin(&with("retry: { on: [] }"), &origin);
    let mut client = gateway.connect();
    assert_eq!(client.get("a", "/", "").status, 200);
    assert_eq!(client.get("a", "/", "").status, 502);
}

#[test]
fn what_an_origin_says_of_its_patience_is_heeded() {
    for (said, closed) in [("Keep-Alive: timeout=1\r\n", true), ("Keep-Alive: timeout=30\r\n", false)] {
        let origin = Origin::script(move |_| Reply::status(200, said, "hi"));
        let gateway = Gateway::with_origin(&with("keepalive: 8"), &origin);
        let mut client: Connection = gateway.connect();
        // The first answer says it, the next connection that is kept knows it.
        for _ in 0..2 {
            assert_eq!(client.get("a", "/", "").header("keep-alive"), None);
        }
        let given_up = || origin.closed() == 1;
        match closed {
            true => eventually::until("an idle connection given up", given_up),
            false => {
                eventually::holds("an idle connection kept", Duration::from_millis(1_300), || !given_up())
            }
        }
    }
}
