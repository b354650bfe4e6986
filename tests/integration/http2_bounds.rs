//! What an HTTP/2 client can do without an end, unless somebody counts: frames that serve nothing, streams taken back,
//! requests behind GOAWAY, heads that only the library sees.

use crate::http2_floods::{ENHANCE_YOUR_CALM, REFUSED_STREAM, open, start};
use crate::support::eventually::until;
use crate::support::frames::{self, END_STREAM, Frames, frame, get, headers, kind};
use crate::support::{Gate, Origin, Reply};
use std::time::Duration;

/// Sends frames in small lots, and takes what comes back, until the connection ends.
fn flood(client: &mut Frames, frames: &[u8]) -> Option<u32> {
    for _ in 0..10_000 {
        if client.try_send(frames.repeat(50)).is_err() {
            break;
        }
        // The answer to a ping says that the frames before it were seen.
        if client.try_send(frame(kind::PING, 0, 0, b"in order")).is_err() {
            break;
        }
        loop {
            match client.next() {
                Ok(frame) if frame.kind == kind::GOAWAY => return Some(frame.code(4)),
                Ok(frame) if frame.kind == kind::PING => break,
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
    panic!("half a million frames, and the connection still stands");
}

#[test]
fn frames_that_serve_nothing_end_the_connection() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    for (reason, frames) in [
        ("http2_pings", frame(kind::PING, 0, 0, b"12345678")),
        ("http2_settings", frame(kind::SETTINGS, 0, 0, b"")),
        ("http2_priorities", frame(2, 0, 3, &frames::priority(0, 1))),
        ("http2_window_updates", frames::window_update(0, 1)),
        ("http2_unknown_frames", frame(0x42, 0, 0, b"x")),
    ] {
        let mut client = open(&gateway);
        let code = flood(&mut client, &frames);
        assert!(matches!(code, Some(ENHANCE_YOUR_CALM) | None), "{reason}: {code:?}");
        // The ping behind each lot may be the one too many.
        until("the end to be counted", || {
            let metrics = gateway.metrics();
            let count = |reason| metrics.sum("portcullis_connections_refused_total", &[("reason", reason)]);
            count(reason) >= 1.0 || count("http2_pings") >= 2.0
        });
    }
    assert_eq!(open(&gateway).first_status(&get("app.test", "/own")), 200);
}

/// What a call that lives needs: pings, and window updates for what it is sent.
#[test]
fn pings_between_answers_are_no_flood() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    for number in 0..500 {
        let stream = number * 2 + 1;
        client.send(headers(stream, END_STREAM, &get("app.test", "/own")));
        client.send(frames::window_update(0, 3));
        client.send(frame(kind::PING, 0, 0, b"12345678"));
        while client.wait(kind::PING).flags & 1 == 0 {}
    }
    assert!(client.is_quiet_for(Duration::from_millis(100)) || client.wait(kind::DATA).kind == kind::DATA);
}

/// Streams that are taken back once they are served, and not before: each costs a request and more.
#[test]
fn streams_reset_while_they_are_served_end_the_connection() {
    let held = Gate::closed();
    let gate = std::sync::Arc::clone(&held);
    let origin = Origin::script(move |_| Reply::ok("late").after(&gate));
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    let mut served = 0;
    'flood: for number in 0..3000 {
        let stream = number * 2 + 1;
        let begun =
            [headers(stream, END_STREAM, &get("app.test", "/")), frame(kind::PING, 0, 0, b"in order")];
        if client.try_send(begun.concat()).is_err() {
            break;
        }
        loop {
            match client.next() {
                Ok(frame) if frame.kind == kind::PING => break,
                Ok(frame) if frame.kind == kind::GOAWAY => {
                    assert_eq!(frame.code(4), ENHANCE_YOUR_CALM);
                    break 'flood;
                }
                Ok(_) => {}
                Err(_) => break 'flood,
            }
        }
        served = number;
        let _ = client.try_send(frames::reset(stream, 8));
    }
    assert!(served < 2000, "{served} streams");
    until("nothing in flight", || gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0);
    held.open();
}

/// `h2` serves what comes between its first GOAWAY and the answer to the ping behind it: for ever, if none comes.
#[test]
fn a_client_that_does_not_hear_of_the_end_is_not_served_for_ever() {
    let origin = Origin::fixed("hello");
    let gateway = start("limits: { requests_per_connection: 5 }", &origin);
    let mut client = open(&gateway);
    let mut answered = 0;
    for number in 0..3000 {
        if client.try_send(headers(number * 2 + 1, END_STREAM, &get("app.test", "/own"))).is_err() {
            break;
        }
        let answer = loop {
            match client.next() {
                Ok(frame) if matches!(frame.kind, kind::HEADERS | kind::RST_STREAM) => break Some(frame),
                Ok(_) => {}
                Err(_) => break None,
            }
        };
        match answer {
            Some(frame) if frame.kind == kind::HEADERS => answered += 1,
            Some(frame) => assert_eq!(frame.code(0), REFUSED_STREAM),
            None => break,
        }
    }
    assert!((5..=5 + 129).contains(&answered), "{answered} answers");
    gateway.wait_metric("portcullis_connections_refused_total", &[("reason", "http2_refused_streams")], 1.0);
}

/// The library resets the stream and tells nobody.
#[test]
fn a_head_the_library_refuses_leaves_a_record() {
    let origin = Origin::fixed("hello");
    let gateway = start("", &origin);
    let mut client = open(&gateway);
    let connection = [&get("app.test", "/")[..], &[("connection", "close")]].concat();
    let method_missing = &get("app.test", "/")[1..];
    for (number, fields) in [&connection[..], method_missing].into_iter().enumerate() {
        let stream = u32::try_from(number).expect("few") * 2 + 1;
        client.send(headers(stream, END_STREAM, fields));
        let reset = client.wait(kind::RST_STREAM);
        assert_eq!((reset.stream, reset.code(0)), (stream, 1));
        let count = f64::from(stream / 2 + 1);
        gateway.wait_metric_is("portcullis_rejections_total", &[("reason", "malformed")], count);
    }
    let record = gateway.wait_record(|record| record["protocol"] == "HTTP/2");
    assert_eq!((record["status"].as_u64(), record["rejection"].as_str()), (Some(400), Some("malformed")));
    client.send(headers(5, END_STREAM, &get("app.test", "/own")));
    client.wait(kind::HEADERS);
    assert!(origin.requests().is_empty());
}
