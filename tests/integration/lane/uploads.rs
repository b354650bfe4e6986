//! Bodies on the lane from clients of HTTP/2, with and without it; and what the lane notices that the engine does not.

use super::play::normal_request;
use super::play::{Act, Origin as Scripted};
use crate::support::certificates::Authority;
use crate::support::frames::{END_STREAM, Frames, data, headers, kind, post};
use crate::support::{Gate, Gateway, Origin, Reply};
use std::fmt::Display;

/// A gateway whose clients may be silent for so long in the middle of a body.
fn gateway(lane: &str, origin: impl Display, patience: &str) -> Gateway {
    let yaml = format!(
        "workers: 1\nproxy: {{ lane: {lane} }}\nlimits: {{ body_idle_timeout: {patience} }}\n\
         routes: [{{ upstream: [\"{{ORIGIN}}\"], limits: {{ body: 60KiB }} }}]\n\
         certificates: [{{ cert: app.pem, key: app.key }}]\n"
    );
    let builder = Gateway::builder(&yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    builder.set("ORIGIN", origin).start()
}

/// The frames of a request; the last one ends the stream.
fn frames(length: Option<&str>, pieces: &[&[u8]]) -> Vec<u8> {
    let fields: Vec<_> =
        post("app.test", "/up").into_iter().chain(length.map(|length| ("content-length", length))).collect();
    let mut bytes = headers(1, 0, &fields);
    for (number, piece) in pieces.iter().enumerate() {
        bytes.extend(data(1, if number + 1 == pieces.len() { END_STREAM } else { 0 }, piece));
    }
    bytes
}

/// Status, what the origin has got, and how many connections a request without a body before it shares.
fn seen(lane: &str, request: &[u8]) -> (u16, String, usize) {
    let origin = Origin::fixed("stored");
    let gateway = gateway(lane, origin.address(), "20s");
    assert_eq!(gateway.connect().get("app.test", "/warm", "").text(), "stored");
    let mut client = Frames::open_tls(gateway.address(), "app.test");
    client.send(request);
    let status = client.wait(kind::HEADERS).status();
    let uploads = origin.requests().into_iter().filter(|request| request.target() == "/up");
    let told = uploads.map(|upload| {
        let id = upload.header("x-request-id").unwrap_or_default();
        let head = normal_request(&upload.head.replace(id, "*"));
        format!("{head}\n{:?}", String::from_utf8_lossy(&upload.body))
    });
    (status, told.collect(), origin.connections())
}

#[test]
fn an_origin_cannot_tell_the_lane_from_the_engine_by_a_body_of_http2() {
    let large = vec![b'x'; 16_000];
    // No more than a stream's first window.
    let pieces: [&[u8]; 4] = [&large; 4];
    for (name, request, status) in [
        ("a length", frames(Some("5"), &[b"hello"]), 200),
        ("no length", frames(None, &[b"hello"]), 200),
        ("pieces", frames(None, &[b"h", b"", b"ell", b"o"]), 200),
        ("an end of its own", frames(Some("5"), &[b"hello", b""]), 200),
        ("nothing but an end", frames(None, &[b""]), 200),
        ("many pieces", frames(Some("48000"), &pieces[..3]), 200),
        ("too many pieces", frames(None, &pieces), 413),
    ] {
        let (on, off) = (seen("on", &request), seen("off", &request));
        assert_eq!((on.0, off.0), (status, status), "{name}");
        if status == 200 {
            assert_eq!(on.1, off.1, "{name}");
            assert_eq!((on.1.matches("POST /up").count(), on.2, off.2), (1, 1, 1), "{name}: {}", on.1);
        }
    }
}

#[test]
fn a_client_of_http2_that_begins_no_body_is_late() {
    let origin = Origin::fixed("never");
    let gateway = gateway("on", origin.address(), "300ms");
    let mut client = Frames::open_tls(gateway.address(), "app.test");
    client.send(headers(1, 0, &post("app.test", "/up")));
    assert_eq!(client.wait(kind::HEADERS).status(), 408);
    assert_eq!(gateway.wait_record_of("/up")["rejection"], "body_timeout");
}

#[test]
fn a_client_of_http2_that_ends_no_body_does_not_hold_an_exchange_that_was_answered() {
    let answer = Act::Send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno".to_vec());
    let origin = Scripted::start(vec![vec![Act::Early(0), answer]], false);
    let gateway = gateway("on", origin.address(), "2s");
    let mut client = Frames::open_tls(gateway.address(), "app.test");
    client.send(headers(1, 0, &post("app.test", "/up")));
    assert_eq!(client.wait(kind::HEADERS).status(), 403);
    assert_eq!(gateway.wait_record_of("/up")["status"], 403);
}

/// The engine may not look any more once its channel was full.
#[test]
fn a_client_that_leaves_behind_many_pieces_of_a_body_is_missed() {
    let origin = Origin::script(|_| Reply::ok("never").after(&Gate::closed()));
    let gateway = gateway("on", origin.address(), "20s");
    let mut client = gateway.connect();
    let chunks = "3e8\r\n".to_owned() + &"x".repeat(1000) + "\r\n";
    let head = "POST /up HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}{}0\r\n\r\n", chunks.repeat(60)));
    origin.wait_requests(1);
    drop(client);
    assert_eq!(gateway.wait_record_of("/up")["status"], 499);
}
