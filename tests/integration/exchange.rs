//! The exchange with the upstream in its odder courses: slow uploads, early and interim answers, heads
//! that make no sense.

use crate::support::certificates::Authority;
use crate::support::client::Connection;
use crate::support::eventually::{DEADLINE, holds};
use crate::support::{Gate, Gateway, Origin, Reply};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROUTES: &str = "routes: [{ upstream: [\"{ORIGIN}\"] }]\n";

fn with_timeouts(timeouts: &str) -> String {
    ROUTES.replace(" }]", &format!(", timeouts: {{ {timeouts} }} }}]"))
}

/// An origin for what the scripted one does not do: it gets each connection as it is.
fn bare_origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

#[test]
fn an_upload_may_take_longer_than_any_timeout() {
    let origin = Origin::fixed("stored");
    for timeouts in ["response: 2s, idle: 60s", "response: 60s, idle: 2s", "response: 2s, idle: 2s"] {
        let gateway = Gateway::with_origin(&with_timeouts(timeouts), &origin);
        let mut connection = gateway.connect();
        connection.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
        for _ in 0..9 {
            connection.send("x");
            assert!(connection.is_quiet_for(Duration::from_millis(300)), "{timeouts}: answered early");
        }
        connection.send("x");
        let answer = connection.response();
        assert_eq!((answer.status, answer.text()), (200, "stored"), "{timeouts}");
    }
}

#[test]
fn the_client_is_to_blame_when_its_upload_stalls() {
    let origin = Origin::fixed("stored");
    let yaml = with_timeouts("response: 200ms, idle: 200ms")
        + "limits: { body_idle_timeout: 600ms }\ncertificates: [{ cert: app.pem, key: app.key }]\n";
    let builder = Gateway::builder(&yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let mut connection = gateway.connect();
    connection.send("POST /http1 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(connection.response().status, 408);
    let mut client = crate::support::http2::Http2::open(gateway.address(), "app.test");
    assert_eq!(client.stall("https://app.test/http2").0, 408);
    for path in ["/http1", "/http2"] {
        assert_eq!(gateway.wait_record_of(path)["rejection"], "body_timeout");
    }
}

#[test]
fn the_upstream_is_to_blame_when_it_takes_no_body() {
    let held = Gate::closed();
    let gate = Arc::clone(&held);
    let address = bare_origin(move |stream| {
        gate.wait();
        drop(stream);
    });
    let yaml = with_timeouts("response: 30s, idle: 500ms");
    let gateway = Gateway::builder(&yaml).set("ORIGIN", address).start();
    let mut connection = gateway.connect();
    connection.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    while connection.try_send([b'x'; 1 << 16]).is_ok() {}
    assert_eq!(gateway.wait_record_of("/up")["rejection"], "upstream_timeout");
    held.open();
}

#[test]
fn a_client_that_pauses_does_not_make_the_upstream_late() {
    let body: &'static str = "x".repeat(20_000_000).leak();
    let origin = Origin::fixed(body);
    // Longer than a busy machine keeps the origin from its turn: it would be late indeed.
    let gateway = Gateway::with_origin(&with_timeouts("response: 60s, idle: 4s"), &origin);
    let mut connection = gateway.connect();
    connection.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.wait_bytes(b"\r\n\r\n");
    holds("the upstream connection", Duration::from_secs(6), || origin.closed() == 0);
    assert_eq!(connection.response().body.len(), body.len());
}

#[test]
fn a_client_that_takes_no_answer_is_let_go() {
    let body: &'static str = "x".repeat(12_000).leak();
    let origin = Origin::script(move |request| match request.target() {
        "/chunked" => Reply::chunked(&[body]),
        _ => Reply::ok(body),
    });
    let yaml = format!(
        "routes:\n  - {{ path: /own, respond: {{ status: 200, body: \"{body}\" }} }}\n  \
         - {{ upstream: [\"{{ORIGIN}}\"] }}\nlimits: {{ body_idle_timeout: 500ms }}\n"
    );
    let gateway = Gateway::with_origin(&yaml, &origin);
    for path in ["/own", "/length", "/chunked"] {
        let mut connection = gateway.connect();
        let requests = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(1000);
        let start = Instant::now();
        while connection.try_send(&requests).is_ok() {}
        assert!(start.elapsed() < DEADLINE, "{path}: it is the client that gives up");
    }
}

#[test]
fn an_origin_that_dies_after_an_interim_response_is_502() {
    let origin = Origin::script(|_| Reply::RawThenClose(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()));
    let gateway = Gateway::with_origin(ROUTES, &origin);
    assert_eq!(gateway.get("a", "/dies").status, 502);
    assert_eq!(gateway.wait_record_of("/dies")["status"], 502);
}

#[test]
fn what_an_origin_sent_before_it_broke_off_reaches_the_client() {
    for lane in ["on", "off"] {
        let gate = Gate::closed();
        let held = Arc::clone(&gate);
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec();
        let origin =
            Origin::script(move |_| Reply::Partly(begun.clone(), Arc::clone(&held), Box::new(Reply::Close)));
        let gateway = Gateway::with_origin(&format!("proxy: {{ lane: {lane} }}\n{ROUTES}"), &origin);
        let mut connection = gateway.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        origin.wait_requests(1);
        // Time for the gateway to have its part of the response, which it may hold back, and wait for more.
        let _ = connection.is_quiet_for(Duration::from_millis(100));
        gate.open();
        let all = String::from_utf8(connection.rest()).expect("text");
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n\r\nhello"), "{lane}: {all}");
        let record = gateway.wait_record_of("/");
        assert_eq!((&record["status"], &record["bytes_out"]), (&200.into(), &5.into()), "lane: {lane}");
    }
}

#[test]
fn an_interim_response_passes_to_clients_that_know_it() {
    let hints =
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let origin = Origin::script(|_| Reply::Raw(hints.into()));
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let mut connection = gateway.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.wait_bytes(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert_eq!(connection.response().text(), "hi");
    assert_eq!(connection.get("a", "/", "").text(), "hi");
    let mut old = gateway.connect();
    old.send("GET / HTTP/1.0\r\n\r\n");
    let wire = String::from_utf8(old.rest()).expect("text");
    assert!(wire.starts_with("HTTP/1.1 200 OK\r\n") && wire.ends_with("\r\n\r\nhi"), "{wire}");
}

#[test]
fn an_interim_response_frames_no_body_and_keeps_what_concerns_its_connection() {
    let interim = |framing: &str| {
        format!(
            "HTTP/1.1 103 Early Hints\r\n{framing}\r\nLink: </a>\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
             Keep-Alive: timeout=5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        )
    };
    for lane in ["on", "off"] {
        for framing in ["Content-Length: 40", "Transfer-Encoding: chunked"] {
            let reply = interim(framing);
            let origin = Origin::script(move |_| Reply::Raw(reply.clone().into()));
            let gateway = Gateway::with_origin(&format!("proxy: {{ lane: {lane} }}\n{ROUTES}"), &origin);
            let mut connection = gateway.connect();
            connection.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let wire = String::from_utf8(connection.rest()).expect("text");
            let (first, last) = wire.split_once("\r\n\r\n").expect("two heads");
            assert_eq!(first, "HTTP/1.1 103 Early Hints\r\nLink: </a>", "lane {lane}, {framing}");
            assert!(last.starts_with("HTTP/1.1 200 OK\r\n") && last.ends_with("\r\n\r\nhi"), "{last}");
        }
    }
}

#[test]
fn an_old_client_gets_no_chunks_whatever_the_origin_sends() {
    let origin = Origin::script(|request| match request.target() {
        "/close" => Reply::RawThenClose(b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec()),
        _ => Reply::chunked(&["hel", "lo"]),
    });
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for path in ["/chunked", "/close"] {
        for headers in ["", "Connection: keep-alive\r\n"] {
            let mut connection = gateway.connect();
            connection.send(format!("GET {path} HTTP/1.0\r\nHost: a\r\n{headers}\r\n"));
            let wire = String::from_utf8(connection.rest()).expect("text");
            assert!(wire.ends_with("\r\n\r\nhello"), "{path} {headers:?}: {wire}");
            assert!(!wire.to_ascii_lowercase().contains("transfer-encoding"), "{wire}");
            assert!(wire.contains("\r\nConnection: close\r\n"), "{wire}");
        }
    }
}

#[test]
fn heads_that_make_no_sense_are_502() {
    let origin = Origin::script(|request| {
        let head = match request.target() {
            "/switch" => "101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade",
            "/lengths" => "200 OK\r\nContent-Length: 3\r\nContent-Length: 5",
            "/negative" => "200 OK\r\nContent-Length: -5",
            "/coding" => "200 OK\r\nTransfer-Encoding: gzip, chunked",
            "/codings" => "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            _ => "200 OK\r\nX-A: b\rSet-Cookie: evil\r\nContent-Length: 3",
        };
        Reply::Raw(format!("HTTP/1.1 {head}\r\n\r\n3\r\nabc\r\n0\r\n\r\n").into_bytes())
    });
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for path in ["/switch", "/lengths", "/negative", "/coding", "/codings", "/split"] {
        assert_eq!(gateway.get("a", path).status, 502, "{path}");
        assert_eq!(gateway.wait_record_of(path)["rejection"], "upstream_invalid", "{path}");
    }
    // Not asked for by this gateway's words for it either: only websockets are passed on.
    for headers in ["Upgrade: foo\r\nConnection: upgrade\r\n", "Upgrade: h2c\r\nConnection: upgrade\r\n"] {
        assert_eq!(gateway.connect().get("a", "/switch", headers).status, 502, "{headers}");
    }
}

#[test]
fn framing_is_passed_on_without_a_second_reading() {
    let origin = Origin::script(|request| {
        let head = match request.target() {
            "/both" => {
                "1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            }
            "/twice" => "1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            "/none" => "1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison",
            "/more" => {
                "1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
            }
            "/old" => "1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            _ => {
                "1.1 200 OK\r\nConnection: x-a\r\nConnection: x-b\r\nX-A: 1\r\nX-B: 2\r\nContent-Length: 5\r\n\r\nhello"
            }
        };
        Reply::RawThenClose(format!("HTTP/{head}").into_bytes())
    });
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for path in ["/both", "/twice", "/none", "/more", "/old", "/nominated"] {
        let mut connection = gateway.connect();
        for _ in 0..2 {
            let answer = connection.get("a", path, "");
            assert!(answer.status_line.starts_with("HTTP/1.1 2"), "{path}: {answer:?}");
            let framed =
                answer.header_all("content-length").len() + answer.header_all("transfer-encoding").len();
            assert_eq!(framed, usize::from(path != "/none"), "{path}: {answer:?}");
            assert_eq!(answer.text(), if path == "/none" { "" } else { "hello" }, "{path}");
            assert_eq!((answer.header("x-a"), answer.header("x-b")), (None, None), "{path}");
        }
    }
}

#[test]
fn trailers_and_chunk_extensions_stop_here_both_ways() {
    let wire = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
                5;ext=1\r\nhello\r\n0\r\nX-T: 1\r\nContent-Length: 7\r\n\r\n";
    let origin = Origin::script(|_| Reply::Raw(wire.into()));
    let gateway = Gateway::with_origin(ROUTES, &origin);
    let mut connection = gateway.connect();
    for _ in 0..2 {
        let answer = connection.request(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n\
             3;a=b\r\nabc\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
        );
        assert_eq!((answer.text(), answer.header("trailer")), ("hello", None));
    }
    for request in origin.requests() {
        assert_eq!((request.body.as_slice(), request.header("trailer")), (&b"abc"[..], None));
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    }
}

#[test]
fn a_body_that_is_sent_twice_is_counted_once() {
    let seen = AtomicUsize::new(0);
    let origin = Origin::script(move |_| match seen.fetch_add(1, Ordering::SeqCst) {
        1 => Reply::Close,
        _ => Reply::ok("stored"),
    });
    let yaml = ROUTES.replace(" }]", ", limits: { body: 10B } }]");
    let gateway = Gateway::with_origin(&yaml, &origin);
    let mut connection = gateway.connect();
    for _ in 0..2 {
        let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabcdefgh";
        assert_eq!(connection.request(request).status, 200);
    }
    assert_eq!(origin.requests().len(), 3, "one of them repeated");
}

#[test]
fn the_body_limit_holds_after_an_early_answer_to_a_would_be_upgrade() {
    let address = early_answer();
    let yaml = ROUTES.replace(" }]", ", limits: { body: 1KiB } }]");
    let gateway = Gateway::builder(&yaml).set("ORIGIN", address).start();
    let mut connection = gateway.connect();
    connection.send(
        "POST /big HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    connection.wait_bytes(b"HTTP/1.1 403 ");
    let _ = connection.try_send(format!("1000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1000)));
    assert_eq!(gateway.wait_record_of("/big")["rejection"], "body_too_large");
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let gateway = Gateway::builder(ROUTES).set("ORIGIN", early_answer()).start();
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n");
    connection.wait_bytes(b"HTTP/1.1 403 ");
    let _ = connection.try_send(vec![b'x'; 5_000_000]);
    assert_eq!(connection.response().status, 403);
    assert!(connection.rest().is_empty(), "nothing but one answer");
}

/// Answers as soon as the head is there, then reads what comes.
fn early_answer() -> SocketAddr {
    bare_origin(|mut stream| {
        let mut head = Vec::new();
        let mut buffer = [0; 1 << 16];
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno");
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    })
}

#[test]
fn a_broken_chunk_is_the_clients_fault_and_said_so() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    for (number, body) in
        ["5\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "0\r\nX: y\n\nGET / HTTP/1.1\r\n\r\n"]
            .iter()
            .enumerate()
    {
        let mut connection: Connection = gateway.connect();
        connection
            .send(format!("POST /{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        assert_eq!(connection.response().status, 400, "{body:?}");
        assert!(connection.rest().is_empty(), "{body:?}");
        assert_eq!(gateway.wait_record_of(&format!("/{number}"))["rejection"], "malformed", "{body:?}");
    }
}
