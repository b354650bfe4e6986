//! Bodies that flow: without delay, and no faster than they are taken.

use crate::support::client::{Connection, Stream};
use crate::support::eventually::{DEADLINE, until};
use crate::support::frames::{self, Frames};
use crate::support::http2_origin::{Call, Http2Origin, send_all};
use crate::support::{Gate, Gateway, Origin, Reply};
use bytes::Bytes;
use http::Response;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KIB: u64 = 1024;
const PIECE: &[u8] = &[b'x'; 64 * 1024];
/// Far more than any buffer on the way.
const WHOLE: usize = 1 << 30;

fn yaml(protocol: &str) -> String {
    format!(
        "workers: 2\nroutes: [{{ upstream: app }}]\n\
         upstreams: {{ app: {{ endpoints: [\"{{ORIGIN}}\"], protocol: {protocol} }} }}\n"
    )
}

/// Gives each connection to `serve` once the head of a request has come.
fn bare_origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, serve) = (listener.local_addr().expect("an address"), Arc::new(serve));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                    head.push(byte[0]);
                }
                serve(stream);
            });
        }
    });
    address
}

/// Waits until a count has not grown for a while: everybody waits for somebody.
fn wait_still(count: &AtomicU64) {
    let mut last = (0, Instant::now());
    until("bytes that flow no more", || {
        let now = count.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        now > 0 && last.1.elapsed() > Duration::from_millis(500)
    });
}

/// Clients that ask for a GiB each and read nothing of it but the head.
fn slow_readers(gateway: &Gateway, sent: &AtomicU64, limit_kib: u64) {
    let before = gateway.rss_kib();
    let clients: Vec<Connection> = (0..100)
        .map(|_| {
            let mut client = gateway.connect();
            client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
            client.wait_bytes(b"\r\n\r\n");
            client
        })
        .collect();
    wait_still(sent);
    let grown = gateway.rss_kib().saturating_sub(before);
    assert!(grown < limit_kib, "grown by {grown} KiB for {} clients", clients.len());
    assert_eq!(gateway.metrics().sum("portcullis_http_requests_in_flight", &[]), 100.0);
}

#[test]
fn slow_readers_do_not_fill_the_memory() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let origin = bare_origin(move |mut stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {WHOLE}\r\n\r\n");
        while stream.write_all(PIECE).is_ok() {
            counted.fetch_add(PIECE.len() as u64, Ordering::SeqCst);
        }
    });
    let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
    slow_readers(&gateway, &sent, 8 * KIB);
}

/// A window that never opens, for each of many streams.
#[test]
fn streams_nobody_reads_do_not_fill_the_memory() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let origin = bare_origin(move |mut stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {WHOLE}\r\n\r\n");
        while stream.write_all(PIECE).is_ok() {
            counted.fetch_add(PIECE.len() as u64, Ordering::SeqCst);
        }
    });
    let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
    let before = gateway.rss_kib();
    let clients: Vec<Frames> = (0..4)
        .map(|_| {
            let mut client = Frames::silent(gateway.address());
            client.send([frames::PREFACE, &frames::setting(4, 0)].concat());
            for number in 0..50 {
                client.send(frames::headers(number * 2 + 1, frames::END_STREAM, &frames::get("a", "/big")));
            }
            client
        })
        .collect();
    gateway.wait_metric_is("portcullis_http_requests_in_flight", &[], 200.0);
    wait_still(&sent);
    let grown = gateway.rss_kib().saturating_sub(before);
    assert!(grown < 200 * 64, "grown by {grown} KiB for 200 streams");
    drop(clients);
}

#[test]
fn slow_readers_of_http2_upstreams_do_not_fill_the_memory() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let origin = Http2Origin::plain(move |mut call: Call| {
        let counted = Arc::clone(&counted);
        async move {
            let mut answer = call.answer(Response::new(()));
            for _ in 0..WHOLE / PIECE.len() {
                send_all(&mut answer, Bytes::from_static(PIECE)).await;
                counted.fetch_add(PIECE.len() as u64, Ordering::SeqCst);
            }
        }
    });
    let gateway = Gateway::builder(&yaml("h2c")).set("ORIGIN", origin.address()).start();
    slow_readers(&gateway, &sent, 48 * KIB);
}

#[test]
fn uploads_nobody_takes_do_not_fill_the_memory() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let plain = bare_origin(move |stream| {
        held.wait();
        drop(stream);
    });
    let http2 = Http2Origin::plain(|call: Call| async move {
        let _call = call;
        std::future::pending::<()>().await;
    });
    for (protocol, address) in [("http1", plain.to_string()), ("h2c", http2.address())] {
        let gateway = Gateway::builder(&yaml(protocol)).set("ORIGIN", address).start();
        let before = gateway.rss_kib();
        let sent = Arc::new(AtomicU64::new(0));
        let clients: Vec<TcpStream> = (0..20).map(|_| upload(gateway.address(), &sent)).collect();
        wait_still(&sent);
        let grown = gateway.rss_kib().saturating_sub(before);
        assert!(grown < 48 * KIB, "{protocol}: grown by {grown} KiB");
        drop(clients);
    }
    gate.open();
}

/// Sends a GiB for as long as it is taken.
fn upload(address: SocketAddr, sent: &Arc<AtomicU64>) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let (kept, sent) = (stream.try_clone().expect("a stream"), Arc::clone(sent));
    std::thread::spawn(move || {
        let _ = write!(stream, "PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: {WHOLE}\r\n\r\n");
        while stream.write_all(PIECE).is_ok() {
            sent.fetch_add(PIECE.len() as u64, Ordering::SeqCst);
        }
    });
    kept
}

/// A status, and what there is of a body, are not kept back for the rest: of either framing, by both drivers.
#[test]
fn what_there_is_of_an_answer_goes_on_while_its_origin_pauses() {
    for (further, tls) in [("", false), ("", true), ("proxy: { lane: off }\n", false)] {
        for (framing, first, rest) in [
            ("Content-Length: 11", "first", "second"),
            ("Transfer-Encoding: chunked", "5\r\nfirst\r\n", "6\r\nsecond\r\n0\r\n\r\n"),
        ] {
            let gate = Gate::closed();
            let held = Arc::clone(&gate);
            let origin = Origin::script(move |_| {
                let begun = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{first}").into_bytes();
                Reply::Partly(begun, Arc::clone(&held), Box::new(Reply::Raw(rest.as_bytes().to_vec())))
            });
            let gateway = Gateway::with_origin(
                &format!("routes: [{{ upstream: [\"{{ORIGIN}}\"] }}]\n{further}"),
                &origin,
            );
            let mut client = if tls { gateway.connect_tls("a") } else { gateway.connect() };
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.wait_bytes(b"first");
            gate.open();
            assert_eq!(client.response().text(), "firstsecond", "{framing} {further}");
        }
    }
}

#[test]
fn events_pass_as_they_come() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let first = format!("{head}9\r\ndata: 1\n\n\r\n").into_bytes();
        let rest = Reply::RawThenClose(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n".to_vec());
        Reply::Partly(first, Arc::clone(&held), Box::new(rest))
    });
    let gateway = Gateway::with_origin(&yaml("http1"), &origin);
    let mut client = gateway.connect();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br, zstd, gzip\r\n\r\n");
    client.wait_bytes(b"data: 1\n\n");
    gate.open();
    assert_eq!(client.response().text(), "data: 1\n\ndata: 2\n\n");
}

#[test]
fn a_client_that_waits_for_a_word_gets_the_origins_own() {
    let origin = bare_origin(|mut stream| {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("written");
        let mut body = [0; 5];
        stream.read_exact(&mut body).expect("a body");
        assert_eq!(&body, b"hello");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstored");
    });
    let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    client.wait_bytes(b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.response().text(), "stored");
}

#[test]
fn a_client_that_waits_for_a_word_may_get_the_answer_instead() {
    let origin = bare_origin(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        let _ = stream.read(&mut [0]);
    });
    let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
    let mut client = gateway.connect();
    let answer =
        client.request("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!((answer.status, answer.text()), (401, "no"));
}

#[test]
fn odd_origins_are_502_with_a_reason_and_never_a_hang() {
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(2 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: 1\r\n".repeat(300));
    let rows: [(&str, &[u8], &str); 8] = [
        ("garbage", b"\x00\x01\x02\x03 what is this\r\n\r\n", "upstream_invalid"),
        ("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "upstream_invalid"),
        ("nothing", b"", "upstream_closed"),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-", "upstream_closed"),
        ("a huge head", huge.as_bytes(), "upstream_invalid"),
        ("too many fields", many.as_bytes(), "upstream_invalid"),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "upstream_invalid",
        ),
        ("no length", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "upstream_invalid"),
    ];
    for (name, wire, reason) in rows {
        let wire = wire.to_vec();
        let origin = bare_origin(move |mut stream| {
            let _ = stream.write_all(&wire);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
        let began = Instant::now();
        assert_eq!(gateway.get("a", "/").status, 502, "{name}");
        assert!(began.elapsed() < DEADLINE / 4, "{name} took {:?}", began.elapsed());
        assert_eq!(gateway.wait_record_of("/")["rejection"], reason, "{name}");
        gateway.wait_metric("portcullis_rejections_total", &[("reason", reason)], 1.0);
    }
}

/// An empty size is none. The engine takes it for the last chunk, and what follows for an answer to somebody else.
#[test]
fn an_answer_in_chunks_without_a_size_is_not_taken_for_whole() {
    let origin = bare_origin(|mut stream| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(&[&head[..], b"\r\nhello\r\n0\r\n\r\n"].concat()).expect("an answer");
    });
    let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let wire = String::from_utf8(client.rest()).expect("text");
    assert!(wire.starts_with("HTTP/1.1 200 OK\r\n") && !wire.ends_with("0\r\n\r\n"), "{wire}");
    assert_eq!(gateway.wait_record_of("/")["rejection"], "upstream_invalid");
}

/// An answer that ends with its connection, of an origin that says no more and does not close it.
#[test]
fn an_origin_that_stops_is_not_taken_for_one_that_has_ended() {
    let origin = bare_origin(|mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").expect("an answer");
        // Until the gateway has had enough.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"], timeouts: { idle: 300ms } }]\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", origin).start();
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let wire = String::from_utf8(client.rest()).expect("text");
    assert!(wire.ends_with("5\r\nhello\r\n"), "no last chunk: {wire}");
    assert_eq!(gateway.wait_record_of("/")["rejection"], "upstream_timeout");
}

#[test]
fn answers_that_break_off_are_told_from_whole_ones() {
    let rows: [(&str, &[u8]); 3] = [
        ("short", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        ("chunks without an end", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        ("a broken chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"),
    ];
    for (name, wire) in rows {
        let wire = wire.to_vec();
        let origin = bare_origin(move |mut stream| drop(stream.write_all(&wire)));
        let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
        let mut client = gateway.connect();
        let answer = client.try_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.is_err(), "{name}: taken for whole: {answer:?}");
        let record = gateway.wait_record_of("/");
        assert_eq!(record["status"], 200, "{name}: that is what was sent");
        assert!(record["rejection"].is_string(), "{name}: {record}");
    }
}

#[test]
fn old_origins_are_understood() {
    let rows: [(&str, &[u8]); 3] = [
        ("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nold"),
        ("bare line feeds", b"HTTP/1.1 200 OK\nContent-Length: 3\n\nold"),
        ("no length", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nold"),
    ];
    for (name, wire) in rows {
        let wire = wire.to_vec();
        let origin = bare_origin(move |mut stream| drop(stream.write_all(&wire)));
        let gateway = Gateway::builder(&yaml("http1")).set("ORIGIN", origin).start();
        let answer = gateway.get("a", "/");
        assert_eq!((answer.status, answer.text()), (200, "old"), "{name}");
    }
}

/// Answers while the request is on its way, and sends back what it gets.
fn echo(mut stream: TcpStream, size: usize) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
    let (mut room, mut left) = (vec![0; 64 * 1024], size);
    stream.write_all(head.as_bytes()).expect("a head");
    while left > 0 {
        match stream.read(&mut room) {
            Ok(read) if read > 0 => {
                stream.write_all(&room[..read]).expect("what came");
                left -= read;
            }
            _ => return,
        }
    }
}

/// The origin takes no more than what is taken of its answer: whoever writes a piece up without looking at what comes
/// down stands still as soon as the buffers between are full.
#[test]
fn an_answer_flows_while_its_request_does() {
    const SIZE: usize = 48 << 20;
    let origin = bare_origin(|stream| echo(stream, SIZE));
    let yaml = "workers: 1\nroutes: [{ upstream: [\"{ADDRESS}\"] }]\n";
    let gateway = Gateway::builder(yaml).set("ADDRESS", origin).start();
    let stream = gateway.connect().into_stream();
    let Stream::Plain(mut down) = stream else { panic!("a plain stream") };
    let mut up = down.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n");
        up.write_all(head.as_bytes()).expect("a head");
        for piece in std::iter::repeat_n(PIECE, SIZE / PIECE.len()) {
            up.write_all(piece).expect("taken");
        }
    });
    let (mut seen, mut room) = (0, vec![0; 32 * 1024]);
    while seen < SIZE {
        match down.read(&mut room).expect("more of the answer") {
            0 => break,
            read => seen += read,
        }
    }
    sender.join().expect("all was taken");
    assert!(seen >= SIZE, "{seen} bytes of {SIZE}");
}

/// A word against an upload reaches the client that is still sending, though the origin takes no more of it.
#[test]
fn an_early_answer_comes_at_once() {
    // Held open, unread.
    let held = std::sync::Mutex::new(Vec::new());
    let origin = bare_origin(move |mut stream| {
        let answer = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig";
        stream.write_all(answer.as_bytes()).expect("an answer");
        held.lock().expect("a list").push(stream);
    });
    let yaml =
        "workers: 1\nroutes: [{ upstream: [\"{ADDRESS}\"], timeouts: { response: 300s, idle: 300s } }]\n";
    let gateway = Gateway::builder(yaml).set("ADDRESS", origin).start();
    let Stream::Plain(mut down) = gateway.connect().into_stream() else { panic!("a plain stream") };
    let mut up = down.try_clone().expect("a second handle");
    std::thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {WHOLE}\r\n\r\n");
        // Until nobody takes any more.
        let _ = up.write_all(head.as_bytes());
        while up.write_all(PIECE).is_ok() {}
    });
    let (mut answer, mut room) = (Vec::new(), vec![0; 4096]);
    while !answer.ends_with(b"big") {
        match down.read(&mut room).expect("an answer") {
            0 => break,
            read => answer.extend_from_slice(&room[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("\r\n\r\nbig"), "{answer}");
    let record = gateway.wait_record(|record| record["status"] == 413);
    assert_eq!(record.get("rejection"), None, "{record}");
}

/// An origin that answers and closes has no use for the rest of the request: a client that knows it is not to blame.
#[test]
fn nobody_waits_for_what_a_closing_origin_does_not_want() {
    let origin = bare_origin(|mut stream| {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        stream.write_all(answer.as_bytes()).expect("an answer");
    });
    let gateway =
        Gateway::builder("routes: [{ upstream: [\"{ADDRESS}\"] }]\n").set("ADDRESS", origin).start();
    let mut client = gateway.connect();
    client.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(client.response().text(), "ok");
    drop(client);
    let record = gateway.wait_record_of("/half");
    assert_eq!((&record["status"], record.get("rejection")), (&200.into(), None), "{record}");
}
