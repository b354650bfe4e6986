//! Interim answers (RFC 9110 section 15.2) reach the clients that can read them: a body that waits to be asked for, and
//! hints before the answer.

use crate::support::eventually::DEADLINE;
use crate::support::frames::{self, END_HEADERS, END_STREAM, Frame, Frames, block, get, headers, kind, post};
use crate::support::http2_origin::{Call, Http2Origin};
use crate::support::{Gateway, Origin};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Gives each connection to `serve` once the head of a request has come.
fn origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, serve) = (listener.local_addr().expect("an address"), Arc::new(serve));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                    head.push(byte[0]);
                }
                serve(stream);
            });
        }
    });
    address
}

fn gateway(address: impl ToString, protocol: &str) -> Gateway {
    let yaml = format!(
        "workers: 1\nroutes: [{{ upstream: app }}]\nlimits: {{ body_idle_timeout: 300s }}\n\
         upstreams: {{ app: {{ endpoints: [\"{{ORIGIN}}\"], protocol: {protocol} }} }}\n"
    );
    Gateway::builder(&yaml).set("ORIGIN", address.to_string()).start()
}

/// The next head of a stream, other than settings and the like.
fn head(client: &mut Frames) -> Frame {
    client.wait(kind::HEADERS)
}

fn is_interim(head: &Frame, status: &str) -> bool {
    head.flags == END_HEADERS && head.payload.starts_with(&[&[8, 3][..], status.as_bytes()].concat())
}

const EXPECT: [(&str, &str); 2] = [("expect", "100-continue"), ("content-length", "5")];

/// The origin reads the body only once it has said that it wants it.
fn asks(mut stream: TcpStream) {
    stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("a word");
    let mut body = [0; 5];
    stream.read_exact(&mut body).expect("the body");
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", String::from_utf8_lossy(&body));
    stream.write_all(answer.as_bytes()).expect("an answer");
}

#[test]
fn a_client_of_http2_is_asked_for_its_body_when_the_origin_asks() {
    let gateway = gateway(origin(asks), "http1");
    let mut client = Frames::open(gateway.address());
    // Heads that are refused by the library, before and between: the streams behind them keep their places.
    let wrong = [&get("a", "/")[..], &[("connection", "close")]].concat();
    for stream in [3, 9] {
        client.send(headers(stream - 2, END_STREAM, &wrong));
        let fields = [&post("a", "/")[..], &EXPECT].concat();
        client.send(headers(stream, 0, &fields));
        let word = head(&mut client);
        assert_eq!(word.stream, stream);
        assert!(is_interim(&word, "100"), "{word:?}");
        client.send(frames::data(stream, END_STREAM, b"hello"));
        let answer = head(&mut client);
        assert_eq!((answer.stream, answer.flags), (stream, END_HEADERS));
        assert_eq!(client.wait(kind::DATA).payload, b"hello");
    }
}

#[test]
fn a_client_of_http2_is_asked_by_us_where_the_upstream_speaks_http2() {
    let origin = Http2Origin::plain(|mut call: Call| async move {
        let body = call.body().await;
        assert_eq!(body, b"hello");
        call.ok("thanks");
    });
    let gateway = gateway(origin.address(), "h2c");
    let mut client = Frames::open(gateway.address());
    client.send(headers(1, 0, &[&post("a", "/")[..], &EXPECT].concat()));
    assert!(is_interim(&head(&mut client), "100"));
    client.send(frames::data(1, END_STREAM, b"hello"));
    assert_eq!(head(&mut client).flags, END_HEADERS);
    assert_eq!(client.wait(kind::DATA).payload, b"thanks");
}

#[test]
fn hints_reach_clients_of_both_versions_and_only_before_the_answer() {
    let address = origin(|mut stream| {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n";
        let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(format!("{hint}{hint}{answer}").as_bytes()).expect("an answer");
    });
    let gateway = gateway(address, "http1");
    let mut client = Frames::open(gateway.address());
    for stream in [1, 3, 5] {
        client.send(headers(stream, END_STREAM, &get("a", "/")));
        for _ in 0..2 {
            let hint = head(&mut client);
            assert_eq!(hint.stream, stream);
            assert!(is_interim(&hint, "103"), "{hint:?}");
            let fields = block(&[("link", "</a.css>; rel=preload")]);
            assert_eq!(hint.payload[5..], fields, "and nothing of the connection");
        }
        let answer = head(&mut client);
        assert!(!is_interim(&answer, "103") && answer.stream == stream, "{answer:?}");
        assert_eq!(client.wait(kind::DATA).payload, b"ok");
    }
    let mut old = gateway.connect();
    old.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    old.wait_bytes(b"HTTP/1.1 103 Early Hints\r\n");
    let mut oldest = gateway.connect();
    oldest.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(oldest.response().status, 200, "HTTP/1.0 knows no interim answers");
}

/// An upstream that says 1xx for ever has said nothing.
#[test]
fn hints_without_an_end_are_no_answer() {
    let address = origin(|mut stream| while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {});
    let yaml = "workers: 1\nroutes: [{ upstream: [\"{ORIGIN}\"], timeouts: { response: 300s } }]\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", address.to_string()).start();
    let mut client = gateway.connect();
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut stream = client.into_stream();
    let reader = std::thread::spawn(move || {
        let mut room = vec![0; 64 * 1024];
        while stream.read(&mut room).is_ok_and(|count| count > 0) {}
    });
    assert_eq!(gateway.wait_record_of("/endless")["rejection"], "upstream_invalid");
    // The connection is kept, for a client that goes on.
    drop(reader);
}

/// The answer instead of a word: the body never comes, and the connection is not kept for it.
#[test]
fn an_answer_in_place_of_a_word_ends_the_connection() {
    let origin = Origin::fixed("no need");
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]\n", &origin);
    let began = std::time::Instant::now();
    let address = self::origin(|mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno").expect("an answer");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    gateway.reload(&format!("routes: [{{ upstream: [\"{address}\"] }}]\n"));
    let mut client = gateway.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.text(), answer.header("connection")), ("no", Some("close")));
    assert!(client.rest().is_empty());
    assert!(began.elapsed() < DEADLINE, "the body was waited for");
}
