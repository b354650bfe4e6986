//! The access log: one record a request, its forms, and when it reaches its file.

use crate::support::eventually::{DEADLINE, eventually, until};
use crate::support::gateway::COULD_NOT_START;
use crate::support::{Gateway, Origin};
use std::path::Path;

const ROUTES: &str = "routes:\n  - { name: app, hosts: [app.test], upstream: [\"{ORIGIN}\"] }\n  \
                      - { name: own, hosts: [own.test], respond: { body: hello } }\n";

fn start(further: &str) -> (Gateway, Origin) {
    let origin = Origin::fixed("hello");
    (Gateway::with_origin(&format!("{ROUTES}{further}"), &origin), origin)
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_record_tells_the_whole_story_of_a_proxied_request() {
    let (gateway, origin) = start("");
    let mut connection = gateway.connect();
    let request = "POST /a/b?x=1&y=2 HTTP/1.1\r\nHost: App.Test:7999\r\nContent-Length: 3\r\n\
                   User-Agent: test/1\r\nReferer: http://from.test/\r\n\r\nabc";
    assert_eq!(connection.request(request).status, 200);
    let record = gateway.wait_record_of("/a/b");
    for (key, expected) in [
        ("client", "127.0.0.1"),
        ("listener", "edge"),
        ("method", "POST"),
        ("host", "app.test"),
        ("query", "x=1&y=2"),
        ("protocol", "HTTP/1.1"),
        ("endpoint", origin.address().as_str()),
        ("route", "app"),
        ("user_agent", "test/1"),
        ("referer", "http://from.test/"),
    ] {
        assert_eq!(record[key], expected, "{key} in {record}");
    }
    assert_eq!(record["peer"], connection.local_addr().to_string());
    for (key, expected) in [("status", 200), ("attempts", 1), ("generation", 1)] {
        assert_eq!(record[key], expected, "{key} in {record}");
    }
    assert!(
        record["bytes_out"].as_u64().unwrap() >= 5 && record["bytes_in"].as_u64().unwrap() >= 3,
        "{record}"
    );
    for key in ["duration_ms", "upstream_ms"] {
        assert!(record[key].as_f64().is_some_and(|ms| ms > 0.0 && ms < 60_000.0), "{key} in {record}");
    }
    for key in ["time", "request_id", "upstream"] {
        assert!(record[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {record}");
    }
    assert!(record["tls"].is_null() && record["rejection"].is_null(), "{record}");
}

#[test]
fn a_record_of_our_own_answer_names_no_upstream() {
    let (gateway, _origin) = start("");
    gateway.connect_tls("own.test").get("own.test", "/own", "");
    let record = gateway.wait_record_of("/own");
    assert!(record["tls"].as_str().is_some_and(|version| version.contains("1.3")), "{record}");
    assert!(record["upstream"].is_null() && record["endpoint"].is_null(), "{record}");
    gateway.get("unknown.test", "/unknown");
    let record = gateway.wait_record_of("/unknown");
    assert_eq!((record["status"].as_u64(), record["route"].as_str()), (Some(404), Some("none")), "{record}");
}

#[test]
fn no_request_can_forge_a_line() {
    let (gateway, _origin) = start("access_log: { format: combined, output: \"{DIR}/access.log\" }");
    let file = gateway.dir().join("access.log");
    let mut connection = gateway.connect();
    connection.get("own.test", "/a", "User-Agent: x\" 200 \t\\\u{202e}evil\u{85}\r\n");
    connection.get("own.test", "/b%0a127.0.0.1%20-%20-", "Referer: \u{2028}y\r\n");
    until("two lines", || lines(&file).len() >= 2);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    let forbidden = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}')
    };
    assert!(!text.contains(forbidden), "{text:?}");
    assert!(!text.contains("x\" 200"), "an unescaped quote: {text}");
}

#[test]
fn json_records_stay_one_line_whatever_comes() {
    let (gateway, _origin) = start("");
    gateway.connect().get("own.test", "/a", "User-Agent: \"},{\\\u{202e}\u{85}\t\r\n");
    let record = gateway.wait_record_of("/a");
    assert_eq!(record["status"], 200, "{record}");
    let raw = gateway.output();
    assert!(!raw.contains(['\u{202e}', '\u{85}']), "{raw}");
}

#[test]
fn a_template_shows_the_keys_it_names() {
    let (gateway, _origin) = start("access_log: { format: \"{client} {method} {path} {status} {route}\" }");
    gateway.get("own.test", "/shown?hidden=1");
    until("the line", || gateway.output().contains("127.0.0.1 GET /shown 200 own\n"));
}

#[test]
fn excluded_requests_leave_no_record_but_are_counted() {
    let (gateway, _origin) =
        start("access_log: { exclude: { clients: [127.0.0.2/32], paths: [/healthz], status: [404] } }");
    let mut other = crate::support::Connection::open_from("127.0.0.2".parse().unwrap(), gateway.address());
    other.get("own.test", "/other", "");
    gateway.get("own.test", "/healthz");
    gateway.get("unknown.test", "/unknown");
    gateway.get("own.test", "/last");
    gateway.wait_record_of("/last");
    assert_eq!(gateway.access_records().len(), 1, "{}", gateway.output());
    gateway.wait_metric("portcullis_access_log_lines_total", &[("result", "excluded")], 3.0);
    gateway.wait_metric("portcullis_access_log_lines_total", &[("result", "written")], 1.0);
}

#[test]
fn secrets_are_redacted_in_every_format() {
    for format in ["json", "combined", "'{path} {query} {referer} {user_agent}'"] {
        let (gateway, _origin) = start(&format!(
            "access_log: {{ format: {format}, redact: {{ query: [token], headers: [referer, user-agent] }} }}"
        ));
        gateway.connect().get(
            "own.test",
            "/a?token=secret1&x=plain&TOKEN=secret2&token=secret3",
            "Referer: http://x.test/?secret4\r\nUser-Agent: secret5\r\n",
        );
        until("a line", || gateway.output().contains("plain"));
        for secret in ["secret1", "secret3", "secret4", "secret5"] {
            assert!(!gateway.output().contains(secret), "{format}: {}", gateway.output());
        }
    }
}

#[test]
fn a_file_is_reopened_on_usr1() {
    let (gateway, _origin) = start("access_log: { output: \"{DIR}/access.log\" }");
    let (file, rotated) = (gateway.dir().join("access.log"), gateway.dir().join("access.log.1"));
    gateway.get("own.test", "/before");
    until("a line", || lines(&file).len() == 1);
    std::fs::rename(&file, &rotated).unwrap();
    gateway.signal(libc::SIGUSR1);
    eventually("a new file", || file.exists().then_some(()));
    gateway.get("own.test", "/after");
    until("a line in the new file", || lines(&file).iter().any(|line| line.contains("/after")));
    assert_eq!(lines(&rotated).len(), 1);
}

#[test]
fn the_output_can_change_at_a_reload() {
    let (gateway, _origin) = start("");
    gateway.get("own.test", "/stdout");
    gateway.wait_record_of("/stdout");
    gateway.reload(&format!("{ROUTES}access_log: {{ output: second.log }}"));
    gateway.get("own.test", "/file");
    let file = gateway.dir().join("second.log");
    until("a line in the file", || lines(&file).iter().any(|line| line.contains("/file")));
    assert_eq!(gateway.access_records().len(), 1);
}

#[test]
fn the_last_lines_are_flushed_when_the_gateway_leaves() {
    let (mut gateway, _origin) = start("access_log: { output: \"{DIR}/access.log\" }");
    let mut connection = gateway.connect();
    for index in 0..500 {
        connection.get("own.test", &format!("/{index}"), "");
    }
    gateway.term();
    gateway.wait_exit(DEADLINE);
    assert_eq!(lines(&gateway.dir().join("access.log")).len(), 500);
}

#[test]
fn a_full_disk_costs_lines_and_not_requests() {
    let (gateway, _origin) = start("access_log: { output: /dev/full }");
    let mut connection = gateway.connect();
    for _ in 0..100 {
        assert_eq!(connection.get("own.test", "/", "").status, 200);
    }
    gateway.wait_metric("portcullis_access_log_lines_total", &[("result", "dropped")], 100.0);
    assert_eq!(gateway.metrics().sum("portcullis_access_log_lines_total", &[("result", "written")]), 0.0);
}

#[test]
fn a_log_that_cannot_be_opened_ends_the_start_with_a_sentence() {
    for (output, code, sentence) in [
        ("./", COULD_NOT_START, "cannot open the access log: {DIR}/"),
        ("no-such/access.log", 1, ":2: access_log.output: cannot be opened: {DIR}/no-such is not a folder"),
    ] {
        let yaml = format!("routes: [{{ respond: {{}} }}]\naccess_log: {{ output: {output} }}\n");
        let mut gateway = Gateway::builder(&yaml).spawn();
        assert_eq!(gateway.wait_exit(DEADLINE), code, "{output}");
        let sentence = sentence.replace("{DIR}", &gateway.dir().display().to_string());
        assert!(gateway.log().contains(&sentence), "{}", gateway.log());
    }
}

#[test]
fn a_log_that_is_off_writes_nothing() {
    let (mut gateway, _origin) = start("access_log: { output: off }");
    gateway.get("own.test", "/");
    gateway.term();
    gateway.wait_exit(DEADLINE);
    assert_eq!(gateway.output(), "");
}
