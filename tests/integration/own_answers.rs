//! The gateway's own answers as HTTP/1 clients get them: in one piece, and as they should be all the same.

use crate::support::frames::timed_out;
use crate::support::{Connection, Gateway};
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
