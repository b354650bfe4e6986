//! The gateway's own answers as HTTP/1 clients get them: in one piece, and as they should be all the same.

use crate::support::frames::timed_out;
use crate::support::{Connection, Gateway, Origin, Reply, eventually};
use std::time::{Duration, Instant};

const YAML: &str = "workers: 1\nlimits: { body_idle_timeout: 1s }\n\
    routes: [{ name: own, path: /own, respond: { body: \"{BODY}\" } }]\n";

fn gateway(body: &str) -> Gateway {
    Gateway::builder(YAML).set("BODY", body).start()
}

/// What is asked, and what must come back: status, Connection, body.
fn ask(connection: &mut Connection, request: &str) -> (u16, String, String) {
    let response = connection.request(request);
    assert_eq!(response.header_all("date").len(), 1, "{request}");
    let end = response.header("connection").unwrap_or_default().to_owned();
    (response.status, end, response.text().to_owned())
}

#[test]
fn every_form_of_a_request_gets_its_form_of_the_answer() {
    let gateway = gateway("hello");
    let (kept, closed) = ("keep-alive", "close");
    for (request, end, body) in [
        ("GET /own HTTP/1.1\r\nHost: a\r\n\r\n", kept, "hello"),
        ("HEAD /own HTTP/1.1\r\nHost: a\r\n\r\n", kept, ""),
        ("GET /own HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", kept, "hello"),
        ("POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", kept, "hello"),
        ("GET /own HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", closed, "hello"),
        ("GET /own HTTP/1.0\r\n\r\n", closed, "hello"),
    ] {
        for mut connection in [gateway.connect(), gateway.connect_tls("a")] {
            // The second is what was kept of the first.
            for _ in 0..if end == kept { 2 } else { 1 } {
                let expected = (200, end.to_owned(), body.to_owned());
                assert_eq!(ask(&mut connection, request), expected, "{request}");
            }
            if end == closed {
                assert_eq!(connection.rest(), b"", "{request}");
            }
        }
    }
    let records = || gateway.access_records();
    crate::support::eventually::until("all records", || records().len() == 20);
    for record in records() {
        let sent = if record["method"] == "HEAD" { 0 } else { 5 };
        assert_eq!((&record["status"], &record["bytes_out"]), (&200.into(), &sent.into()), "{record}");
    }
}

#[test]
fn requests_sent_together_get_their_answers_in_turn() {
    let gateway = gateway("hello");
    let mut connection = gateway.connect();
    let (own, unknown) = ("GET /own HTTP/1.1\r\nHost: a\r\n\r\n", "GET /no HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.send([own, unknown, own, own].concat());
    for status in [200, 404, 200, 200] {
        assert_eq!(connection.response().status, status);
    }
}

#[test]
fn a_reload_is_seen_within_the_second() {
    let gateway = gateway("one");
    let mut connection = gateway.connect();
    for body in ["two", "six", "ten"] {
        assert_eq!(connection.get("a", "/own", "").status, 200);
        gateway.reload(&YAML.replace("{BODY}", body));
        assert_eq!(connection.get("a", "/own", "").text(), body);
    }
}

/// Heads that no body follows, heads that leave before their body, and a tunnel: what each of them holds is let go.
#[test]
fn a_client_that_takes_no_heads_is_cut_by_the_write_timeout() {
    let origin = Origin::script(|request| {
        let fill = format!("X-Fill: {}\r\n", "f".repeat(4_000));
        match request.target() {
            "/head" => Reply::Raw(format!("HTTP/1.1 200 OK\r\n{fill}Content-Length: 5\r\n\r\n").into_bytes()),
            "/none" => Reply::Raw(format!("HTTP/1.1 204 No Content\r\n{fill}\r\n").into_bytes()),
            _ => Reply::chunked(&[&"x".repeat(4_000)]),
        }
    });
    let yaml = "limits: { body_idle_timeout: 1s }\nroutes:\n  \
                - { path: /r, redirect: { to: 'https://b.test{path_and_query}' } }\n  \
                - { upstream: app }\nupstreams: { app: { endpoints: [\"{ORIGIN}\"], max_requests: 1 } }\n";
    for further in ["", "proxy: { lane: off }\n"] {
        let gateway = Gateway::with_origin(&format!("{yaml}{further}"), &origin);
        let redirect = format!("GET /r/{}", "p".repeat(4_000));
        for request in [redirect.as_str(), "HEAD /head", "GET /none", "GET /chunked"] {
            let recorded = gateway.access_records().len();
            let mut connection = gateway.connect();
            // More answers than any pair of sockets holds.
            let requests = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(9_000);
            if let Err(error) = connection.try_send(requests) {
                assert!(!timed_out(&error), "{request}: {error}");
            }
            let of_this = |records: Vec<serde_json::Value>| {
                records.into_iter().skip(recorded).find(|record| record["rejection"].is_string())
            };
            let record = eventually::within(eventually::DEADLINE, || of_this(gateway.access_records()));
            assert_eq!(record.expect("a record")["rejection"], "write_timeout", "{request} {further}");
            gateway.wait_metric_is("portcullis_http_requests_in_flight", &[], 0.0);
            gateway.wait_metric_is("portcullis_connections_open", &[], 0.0);
        }
    }
}

#[test]
fn a_client_that_takes_no_answers_is_cut_by_the_write_timeout() {
    for tls in [false, true] {
        let gateway = gateway(&"x".repeat(12_000));
        let mut connection = if tls { gateway.connect_tls("a") } else { gateway.connect() };
        // 48 MB of answers, which no pair of sockets holds.
        let requests = "GET /own HTTP/1.1\r\nHost: a\r\n\r\n".repeat(4_000);
        let begun = Instant::now();
        if let Err(error) = connection.try_send(requests) {
            assert!(!timed_out(&error), "{error}");
        }
        let record = gateway.wait_record(|record| record["rejection"].is_string());
        assert_eq!(record["rejection"], "write_timeout", "{record}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "cut after {:?}", begun.elapsed());
        gateway.wait_metric_is("portcullis_http_requests_in_flight", &[], 0.0);
    }
}
