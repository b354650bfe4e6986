//! What an HTTP/2 client can make a server do without asking for anything: every flood has an end.

use crate::support::certificates::Authority;
use crate::support::eventually::{DEADLINE, holds, until};
use crate::support::frames::{self, END_HEADERS, END_STREAM, Frames, block, frame, get, headers, kind, post};
use crate::support::{Gate, Gateway, Origin, Reply};
use std::time::{Duration, Instant};

pub const ENHANCE_YOUR_CALM: u32 = 11;
const COMPRESSION_ERROR: u32 = 9;
const NO_ERROR: u32 = 0;
pub const REFUSED_STREAM: u32 = 7;

const ROUTES: &str = "routes:\n  - { name: own, path: /own, respond: { body: own } }\n  \
    - { name: app, upstream: [\"{ORIGIN}\"] }\ncertificates: [{ cert: app.pem, key: app.key }]\n";

pub fn start(further: &str, origin: &Origin) -> Gateway {
    start_with(&format!("{ROUTES}{further}"), origin)
}

fn start_with(yaml: &str, origin: &Origin) -> Gateway {
    let builder = Gateway::builder(yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    builder.origin(origin).start()
}

pub fn open(gateway: &Gateway) -> Frames {
    Frames::open_tls(gateway.address(), "app.test")
}

/// The connection ends for a flood too large to be listened to: the reset that follows unread frames may
/// overtake the word for it.
fn ends_calmly(client: &mut Frames) {
    let code = client.end();
    assert!(matches!(code, Some(ENHANCE_YOUR_CALM) | None), "{code:?}");
}

/// The gateway ended the connection for a flood, said so, counted it, and goes on.
fn ended_calmly(gateway: &Gateway, client: &mut Frames) {
    assert_eq!(client.end(), Some(ENHANCE_YOUR_CALM));
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_flood")], 1.0);
    until("nothing in flight", || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0);
    assert_eq!(open(gateway).first_status(&get("app.test", "/own")), 200);
}

#[test]
fn streams_reset_at_once_end_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    let reset = |stream| {
        [
            headers(stream, END_STREAM, &get("app.test", "/")),
            frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
        .concat()
    };
    // One write, so that the resets are there before the streams are served.
    let flood: Vec<u8> = (0..2000).flat_map(|number| reset(number * 2 + 1)).collect();
    let _ = client.try_send(&flood);
    ended_calmly(&gateway, &mut client);
    assert!(origin.requests().len() < 200, "{} requests upstream", origin.requests().len());
}

/// CVE-2025-8671: the client breaks its streams so that the server resets them.
#[test]
fn streams_broken_on_purpose_end_the_connection() {
    let held = Gate::closed();
    let gate = std::sync::Arc::clone(&held);
    let origin = Origin::script(move |_| Reply::ok("late").after(&gate));
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    let fields = [&post("app.test", "/")[..], &[("content-length", "1")]].concat();
    for number in 0..1000 {
        let stream = number * 2 + 1;
        // RFC 9113 section 8.1.1: more than was announced is an error of the stream.
        let broken = [headers(stream, 0, &fields), frame(kind::DATA, 0, stream, b"xx")].concat();
        if client.try_send(broken).is_err() {
            break;
        }
    }
    ended_calmly(&gateway, &mut client);
    held.open();
    assert!(origin.requests().len() <= 120, "{} requests upstream", origin.requests().len());
}

#[test]
fn a_head_without_an_end_ends_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    for piece in [&b""[..], &[0, 1, b'x', 1, b'y'][..], &block(&[("x", "y")]).repeat(2000)[..]] {
        let mut client = open(&gateway);
        client.send(frame(kind::HEADERS, END_STREAM, 1, &block(&get("app.test", "/"))));
        for _ in 0..1000 {
            if client.try_send(frame(kind::CONTINUATION, 0, 1, piece)).is_err() {
                break;
            }
        }
        ends_calmly(&mut client);
    }
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_flood")], 3.0);
    assert!(origin.requests().is_empty());
}

#[test]
fn empty_data_ends_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    client.send(headers(1, 0, &post("app.test", "/")));
    let _ = client.try_send(frame(kind::DATA, 0, 1, b"").repeat(500));
    ended_calmly(&gateway, &mut client);
}

/// Nobody reads the body while the origin takes nothing of it.
#[test]
fn a_body_in_crumbs_that_nobody_reads_ends_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { body_idle_timeout: 2s }", &origin);
    let mut client = open(&gateway);
    client.send(headers(1, 0, &[&post("app.test", "/own")[..], &[("content-length", "1000000")]].concat()));
    for _ in 0..5000 {
        if client.try_send(frame(kind::DATA, 0, 1, b"x")).is_err() {
            break;
        }
    }
    let code = client.end();
    assert!(matches!(code, Some(ENHANCE_YOUR_CALM | NO_ERROR) | None), "{code:?}");
}

/// Pings and settings are answered before more is read: a client that takes no answers stops
/// itself, costs no memory, and is idle.
#[test]
fn pings_and_settings_whose_answers_nobody_takes_cost_nothing_and_end() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { idle_timeout: 2s }", &origin);
    assert_eq!(open(&gateway).first_status(&get("app.test", "/own")), 200);
    let before = gateway.rss_kib();
    for flood in [frame(kind::PING, 0, 0, b"12345678"), frame(kind::SETTINGS, 0, 0, b"")] {
        let mut client = open(&gateway);
        client.set_write_timeout(Duration::from_millis(300));
        let flood = flood.repeat(1000);
        let begun = Instant::now();
        while client.try_send(&flood).is_ok() && begun.elapsed() < DEADLINE {}
        assert!(gateway.rss_kib() < before + 8 * 1024, "{} KiB before, {} now", before, gateway.rss_kib());
        until("the connection to be closed", || {
            client.try_send(&flood).is_err_and(|error| {
                !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            })
        });
    }
}

#[test]
fn a_client_that_never_opens_its_window_is_cut_by_the_write_timeout() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { body_idle_timeout: 500ms, idle_timeout: 60s }", &origin);
    let mut client = Frames::silent_tls(gateway.address(), "app.test");
    client.send([frames::PREFACE, &frames::setting(4, 0)].concat());
    for number in 0..20 {
        client.send(headers(number * 2 + 1, END_STREAM, &get("app.test", "/held")));
    }
    let mut ended = std::collections::HashSet::new();
    while ended.len() < 20 {
        ended.insert(client.wait(kind::RST_STREAM).stream);
    }
    until("nothing in flight", || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0);
    let record = gateway.wait_record_of("/held");
    assert_eq!(
        (record["protocol"].as_str(), record["status"].as_u64()),
        (Some("HTTP/2"), Some(200)),
        "{record}"
    );
    assert!(record["rejection"].is_string(), "{record}");
}

/// Zero is not the only way to take nothing: a byte now and then holds a response as well.
#[test]
fn a_client_that_opens_its_window_byte_by_byte_is_cut_by_the_write_timeout() {
    let origin = Origin::script(|_| Reply::ok(&"x".repeat(10_000)));
    let body = "o".repeat(10_000);
    let own = format!(
        "routes: [{{ name: own, path: /own, respond: {{ body: {body} }} }}, {{ name: app, upstream: [\"{{ORIGIN}}\"] }}]\n"
    );
    let further = "certificates: [{ cert: app.pem, key: app.key }]\nlimits: { body_idle_timeout: 1s, idle_timeout: 60s }";
    let gateway = start_with(&format!("{own}{further}"), &origin);
    // The window of the stream, then that of the connection, which is 65,535 at first.
    for (path, stream_window, narrow) in
        [("/", 0, 1), ("/own", 0, 1), ("/", 1 << 30, 0), ("/own", 1 << 30, 0)]
    {
        let mut client = Frames::silent_tls(gateway.address(), "app.test");
        client.send([frames::PREFACE, &frames::setting(4, stream_window)].concat());
        // Slowly enough to be no flood.
        client.set_read_timeout(Duration::from_millis(100));
        let begun = Instant::now();
        let streams: Vec<u32> = (0..8).map(|number| number * 2 + 1).collect();
        client.send(
            streams
                .iter()
                .flat_map(|stream| headers(*stream, END_STREAM, &get("app.test", path)))
                .collect::<Vec<_>>(),
        );
        let (mut cut, mut taken) = (std::collections::HashSet::new(), 0);
        // Seven of eight fit into the connection's window at once at most.
        let wanted = if narrow == 1 { 8 } else { 1 };
        while cut.len() < wanted {
            assert!(begun.elapsed() < DEADLINE, "{path}: {cut:?} were cut, {taken} bytes came");
            match client.next() {
                Ok(seen) if seen.kind == kind::RST_STREAM => drop(cut.insert(seen.stream)),
                Ok(seen) if seen.kind == kind::DATA => taken += seen.payload.len(),
                Ok(seen) => assert_ne!(seen.kind, kind::GOAWAY, "{seen:?}"),
                Err(error) if frames::timed_out(&error) => {
                    let windows = streams.iter().map(|stream| frames::window_update(*stream * narrow, 1));
                    client.send(windows.collect::<Vec<_>>().concat());
                }
                Err(error) => panic!("{path}: {error}"),
            }
        }
        assert!(begun.elapsed() >= Duration::from_secs(1), "cut after {:?}", begun.elapsed());
    }
    until("nothing in flight", || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0);
    let record = gateway.wait_record(|record| record["path"] == "/" && record["rejection"].is_string());
    assert_eq!((record["status"].as_u64(), record["rejection"].as_str()), (Some(200), Some("write_timeout")));
    let record = gateway.wait_record(|record| record["path"] == "/own" && record["rejection"].is_string());
    assert_eq!(record["rejection"].as_str(), Some("write_timeout"));
}

#[test]
fn streams_beyond_the_limit_are_refused_and_the_others_go_on() {
    let held = Gate::closed();
    let gate = std::sync::Arc::clone(&held);
    let origin = Origin::script(move |_| Reply::ok("late").after(&gate));
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    client.wait(kind::SETTINGS);
    for number in 0..140 {
        client.send(headers(number * 2 + 1, END_STREAM, &get("app.test", "/")));
    }
    let mut refused = 0;
    while refused < 12 {
        let reset = client.wait(kind::RST_STREAM);
        assert_eq!(reset.code(0), REFUSED_STREAM, "{reset:?}");
        refused += 1;
    }
    origin.wait_requests(128);
    held.open();
    let answered = (0..128).map(|_| client.wait(kind::HEADERS).stream).max();
    assert!(answered.is_some());
}

#[test]
fn a_head_above_the_limit_is_431_and_one_far_above_ends_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { headers: 4KiB }", &origin);
    let large = |size: usize| "x".repeat(size);
    let (above, far_above) = (large(5000), large(15_000));
    let mut client = open(&gateway);
    client.wait(kind::SETTINGS);
    client.send(frame(kind::SETTINGS, 1, 0, b""));
    assert_eq!(client.first_status(&[&get("app.test", "/")[..], &[("x", &above)]].concat()), 431);
    let refused = gateway.wait_record(|record| record["status"] == 431);
    assert_eq!(
        (refused["rejection"].as_str(), refused["path"].as_str()),
        (Some("headers_too_large"), Some("/"))
    );
    let mut client = open(&gateway);
    client.wait(kind::SETTINGS);
    client.send(frame(kind::SETTINGS, 1, 0, b""));
    let fields = [("x", far_above.as_str()); 3];
    let fields = [&get("app.test", "/")[..], &fields].concat();
    let bytes = block(&fields);
    let (first, rest) = bytes.split_at(16_000);
    client.send(frame(kind::HEADERS, END_STREAM, 1, first));
    for piece in rest.chunks(16_000) {
        let _ = client.try_send(frame(kind::CONTINUATION, 0, 1, piece));
    }
    let _ = client.try_send(frame(kind::CONTINUATION, END_HEADERS, 1, b""));
    assert!(matches!(client.end(), Some(ENHANCE_YOUR_CALM | COMPRESSION_ERROR) | None));
    assert!(origin.requests().is_empty());
}

#[test]
fn a_connection_ends_after_so_many_requests() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { requests_per_connection: 3 }", &origin);
    let mut client = open(&gateway);
    for number in 0..3 {
        client.send(headers(number * 2 + 1, END_STREAM, &get("app.test", "/own")));
    }
    let (mut answered, mut code) = (0, None);
    while let Ok(seen) = client.next() {
        match seen.kind {
            kind::HEADERS => answered += 1,
            kind::PING => client.send(frame(kind::PING, 1, 0, &seen.payload)),
            kind::GOAWAY => code = Some(seen.code(4)),
            _ => {}
        }
    }
    assert_eq!((answered, code), (3, Some(NO_ERROR)));
}

#[test]
fn refused_streams_are_recorded_and_too_many_end_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    let ambiguous =
        [&post("app.test", "/")[..], &[("content-length", "1"), ("content-length", "2")]].concat();
    for number in 0..200 {
        let _ = client.try_send(headers(number * 2 + 1, END_STREAM, &ambiguous));
    }
    client.end();
    assert!(origin.requests().is_empty());
    let mut client = open(&gateway);
    let elsewhere = [&get("app.test", "/")[..], &[("host", "evil.test")]].concat();
    for number in 0..200 {
        let _ = client.try_send(headers(number * 2 + 1, END_STREAM, &elsewhere));
    }
    ends_calmly(&mut client);
    let record = gateway.wait_record(|record| record["protocol"] == "HTTP/2" && record["status"] == 400);
    assert_eq!(
        (record["rejection"].as_str(), record["tls"].is_string()),
        (Some("malformed"), true),
        "{record}"
    );
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_refused_streams")], 1.0);
    assert!(origin.requests().is_empty());
}

#[test]
fn a_client_that_owes_its_preface_is_cut() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { header_timeout: 400ms, idle_timeout: 60s }", &origin);
    let mut silent = Frames::silent_tls(gateway.address(), "app.test");
    silent.end();
    let mut half = Frames::silent_tls(gateway.address(), "app.test");
    half.send(&frames::PREFACE[..10]);
    half.end();
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_preface")], 2.0);
}

#[test]
fn an_idle_connection_is_told_before_it_is_closed_at_the_timeout_that_serves() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { idle_timeout: 60s }", &origin);
    gateway.reload(&format!("{ROUTES}limits: {{ idle_timeout: 2s }}"));
    let mut client = open(&gateway);
    let begun = Instant::now();
    assert_eq!(client.first_status(&get("app.test", "/own")), 200);
    // Pings keep nothing open.
    while begun.elapsed() < Duration::from_secs(1)
        && client.try_send(frame(kind::PING, 0, 0, b"1234567 ")).is_ok()
    {
        client.wait(kind::PING);
        client.is_quiet_for(Duration::from_millis(50));
    }
    assert_eq!(client.end(), Some(NO_ERROR));
    assert!(begun.elapsed() >= Duration::from_secs(2), "closed after {:?}", begun.elapsed());
}

#[test]
fn a_request_that_runs_is_not_idle() {
    let held = Gate::closed();
    let gate = std::sync::Arc::clone(&held);
    let origin = Origin::script(move |_| Reply::ok("late").after(&gate));
    let gateway = start("limits: { idle_timeout: 2s }", &origin);
    let mut client = open(&gateway);
    client.wait(kind::SETTINGS);
    client.send(headers(1, END_STREAM, &get("app.test", "/")));
    origin.wait_requests(1);
    let in_flight = || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]);
    holds("the request", Duration::from_secs(4), || in_flight() == 1.0);
    held.open();
    client.wait(kind::HEADERS);
    assert_eq!(gateway.wait_record_of("/")["status"], 200);
}
