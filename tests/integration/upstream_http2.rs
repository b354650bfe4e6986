//! Upstreams that are spoken to in HTTP/2, for clients of either version.

use crate::support::certificates::Authority;
use crate::support::eventually::DEADLINE;
use crate::support::frames::{END_HEADERS, Frames, headers, kind, post};
use crate::support::http2::Http2;
use crate::support::http2_origin::{Call, Http2Origin, client, next, send_all};
use crate::support::{Gateway, Origin, Reply};
use bytes::Bytes;
use http::{Request, Response};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

fn yaml(settings: &str) -> String {
    format!(
        "workers: 1\nroutes: [{{ upstream: app, timeouts: {{ response: 2s, idle: 2m }} }}]\n\
         upstreams: {{ app: {{ endpoints: [\"{{ORIGIN}}\"], {settings} }} }}\n"
    )
}

fn in_front(settings: &str, origin: &Http2Origin) -> Gateway {
    Gateway::builder(&yaml(settings)).set("ORIGIN", origin.address()).start()
}

/// Says in the answer how it was asked.
async fn tell(call: Call) {
    let request = &call.request;
    let head = Response::builder()
        .header("x-uri", request.uri().to_string())
        .header("x-host", request.headers().get("host").is_some().to_string())
        .header("x-for", request.headers()["x-forwarded-for"].clone())
        .body(())
        .unwrap();
    let Call { mut respond, .. } = call;
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(Bytes::from_static(b"over HTTP/2"), true).unwrap();
}

#[test]
fn clients_of_both_versions_reach_it_without_tls() {
    let origin = Http2Origin::plain(tell);
    let gateway = in_front("protocol: h2c", &origin);
    let mut old = gateway.connect();
    for _ in 0..3 {
        let answer = old.get("app.test", "/a/b?c=d", "Connection: x-hop\r\nX-Hop: 1\r\n");
        assert_eq!((answer.status, answer.text()), (200, "over HTTP/2"));
        assert_eq!(answer.header("x-uri"), Some("http://app.test/a/b?c=d"));
        assert_eq!((answer.header("x-host"), answer.header("x-for")), (Some("false"), Some("127.0.0.1")));
    }
    client(gateway.address(), |mut send| async move {
        let request = Request::get("http://app.test/h2").body(()).unwrap();
        let (response, _) = send.send_request(request, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["x-uri"], "http://app.test/h2");
        assert_eq!(next(&mut response.into_body()).await.unwrap(), "over HTTP/2");
    });
    assert_eq!(origin.connections(), 1, "it is kept");
}

#[test]
fn it_is_verified_over_tls_and_its_connections_are_its_own() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let identity = authority.issue(&["origin.test"]);
    let origin = Http2Origin::tls(&identity, tell);
    let upstream = |name: &str, ca: &str| {
        format!(
            "  {name}: {{ endpoints: [\"{{ORIGIN}}\"], protocol: http2, \
             tls: {{ server_name: origin.test, ca: {ca} }} }}\n"
        )
    };
    let yaml = "workers: 1\nroutes:\n  - { path: /good, upstream: good }\n  - { path: /bad, upstream: bad }\nupstreams:\n"
        .to_owned() + &upstream("good", "ca.pem") + &upstream("bad", "stranger.pem");
    let builder = Gateway::builder(&yaml).set("ORIGIN", origin.address());
    authority.write(builder.dir(), "ca.pem");
    stranger.write(builder.dir(), "stranger.pem");
    let gateway = builder.start();
    for _ in 0..3 {
        let answer = gateway.get("app.test", "/good");
        assert_eq!((answer.text(), answer.header("x-uri")), ("over HTTP/2", Some("https://app.test/good")));
        assert_eq!(gateway.get("app.test", "/bad").status, 502);
    }
    assert_eq!(gateway.wait_record_of("/bad")["rejection"], "upstream_tls");
}

#[test]
fn the_handshake_chooses_where_both_are_allowed() {
    let authority = Authority::new("root");
    let identity = authority.issue(&["origin.test"]);
    let new = Http2Origin::tls(&identity, tell);
    let old = Origin::tls(&identity, |_| Reply::ok("over HTTP/1"));
    let settings = "protocol: auto, tls: { server_name: origin.test, ca: ca.pem }";
    for (address, expected) in [(new.address(), "over HTTP/2"), (old.address(), "over HTTP/1")] {
        let builder = Gateway::builder(&yaml(settings)).set("ORIGIN", address);
        authority.write(builder.dir(), "ca.pem");
        let gateway = builder.start();
        let mut client = gateway.connect();
        for _ in 0..3 {
            assert_eq!(client.get("app.test", "/", "").text(), expected);
        }
    }
    assert_eq!((new.connections(), old.connections()), (1, 1), "both are kept");
}

#[test]
fn an_origin_that_speaks_something_else_is_502() {
    let plain = Origin::fixed("HTTP/1 only");
    let identity = Authority::new("root").issue(&["a.test"]);
    let over_tls = Origin::tls(&identity, |_| Reply::ok("HTTP/1 only"));
    for (settings, origin) in [
        ("protocol: h2c", &plain),
        ("protocol: http2, tls: { server_name: a.test, verify: false }", &over_tls),
    ] {
        let gateway = Gateway::with_origin(&yaml(settings), origin);
        assert_eq!(gateway.get("a", "/").status, 502, "{settings}");
        assert_eq!(gateway.wait_record_of("/")["rejection"], "upstream_invalid", "{settings}");
    }
    assert!(over_tls.requests().is_empty());
}

#[test]
fn answers_without_a_body_have_none() {
    let origin = Http2Origin::plain(|call: Call| async move {
        let status: u16 = call.request.uri().path().trim_start_matches('/').parse().unwrap();
        let Call { mut respond, .. } = call;
        let head = Response::builder().status(status).header("etag", "7").body(()).unwrap();
        respond.send_response(head, true).unwrap();
    });
    let gateway = in_front("protocol: h2c", &origin);
    let mut connection = gateway.connect();
    for (method, status) in [("GET", 204), ("GET", 304), ("HEAD", 200), ("GET", 404)] {
        let answer =
            connection.try_request(&format!("{method} /{status} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!(
            (answer.status, answer.header("etag"), answer.body.len()),
            (status, Some("7"), 0),
            "{method} {status}"
        );
    }
}

async fn echo(mut call: Call) {
    let mut answer = call.answer(Response::new(()));
    while let Some(piece) = call.next().await {
        send_all(&mut answer, piece).await;
    }
    answer.send_data(Bytes::new(), true).unwrap();
}

#[test]
fn large_bodies_pass_whole_both_ways() {
    let authority = Authority::new("root");
    let plain = Http2Origin::plain(echo);
    let tls = Http2Origin::tls(&authority.issue(&["origin.test"]), echo);
    let auto = "protocol: auto, tls: { server_name: origin.test, ca: ca.pem }";
    for (settings, address) in [("protocol: h2c", plain.address()), (auto, tls.address())] {
        let builder = Gateway::builder(&yaml(settings)).set("ORIGIN", address);
        authority.write(builder.dir(), "ca.pem");
        let gateway = builder.start();
        let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let mut connection = gateway.connect();
        connection.send(format!("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        let sent = body.clone();
        let mut stream = match connection.into_stream() {
            crate::support::client::Stream::Plain(stream) => stream,
            crate::support::client::Stream::Tls(_) => unreachable!("a plain port"),
        };
        let mut writer = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &sent));
        let mut buffer = Vec::new();
        let answer = crate::support::response::read_response(&mut stream, &mut buffer, "PUT").unwrap();
        sending.join().unwrap().unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{settings}: {} of {} bytes", answer.body.len(), body.len());
    }
}

#[test]
fn a_silent_origin_is_late_and_hurts_nobody_else() {
    let origin = Http2Origin::plain(|call: Call| async move {
        if call.request.uri().path() == "/silent" {
            let _call = call;
            std::future::pending::<()>().await;
        } else {
            call.ok("fine");
        }
    });
    let gateway = in_front("protocol: h2c", &origin);
    let mut waiting = gateway.connect();
    let began = Instant::now();
    waiting.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(gateway.get("a", "/other").text(), "fine");
    }
    assert_eq!(waiting.response().status, 504);
    assert!(began.elapsed() < DEADLINE, "it has waited for `idle`");
    assert_eq!(gateway.wait_record_of("/silent")["rejection"], "upstream_timeout");
}

/// Who sends no body loses a stream, and its place among the requests; the connection is as good as before.
#[test]
fn a_body_that_never_begins_is_late_and_hurts_nobody_else() {
    let go_on = Arc::new(Notify::new());
    let told = Arc::clone(&go_on);
    let origin = Http2Origin::plain(move |mut call: Call| {
        let told = Arc::clone(&told);
        async move {
            match call.request.uri().path() {
                "/slow" => {
                    let mut stream = call.answer(Response::new(()));
                    stream.send_data(Bytes::from_static(b"one"), false).unwrap();
                    told.notified().await;
                    stream.send_data(Bytes::from_static(b"two"), true).unwrap();
                }
                "/" => call.ok("fine"),
                _ => drop(call.body().await),
            }
        }
    });
    let yaml = "workers: 1\nlimits: { body_idle_timeout: 1s }\n\
                routes: [{ upstream: app, timeouts: { response: 2m, idle: 2m } }]\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"], protocol: h2c, max_requests: 8 } }\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", origin.address()).start();
    let mut other = gateway.connect();
    other.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    other.wait_bytes(b"one\r\n");
    let mut old = gateway.connect();
    old.send("POST /old HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    let mut frames = Frames::open(gateway.address());
    for stream in [1, 3, 5, 7, 9] {
        let fields = [&post("a", "/new")[..], &[("content-length", "10")]].concat();
        frames.send(headers(stream, END_HEADERS, &fields));
    }
    for _ in 0..5 {
        frames.wait(kind::HEADERS);
    }
    assert_eq!(old.response().status, 408);
    gateway.wait_metric("portcullis_rejections_total", &[("reason", "body_timeout")], 6.0);
    go_on.notify_one();
    assert_eq!(other.response().text(), "onetwo");
    assert_eq!(gateway.get("a", "/").text(), "fine");
    assert_eq!(origin.connections(), 7, "one for each at a time, and none is lost by a late client");
    assert_eq!(gateway.metrics().sum("portcullis_upstream_requests_in_flight", &[]), 0.0);
}

#[test]
fn an_answer_may_pause_longer_than_its_head_may_take() {
    let go_on = Arc::new(Notify::new());
    let told = Arc::clone(&go_on);
    let origin = Http2Origin::plain(move |mut call: Call| {
        let told = Arc::clone(&told);
        async move {
            let mut stream = call.answer(Response::new(()));
            stream.send_data(Bytes::from_static(b"one"), false).unwrap();
            told.notified().await;
            stream.send_data(Bytes::from_static(b"two"), true).unwrap();
        }
    });
    let gateway = in_front("protocol: h2c", &origin);
    let mut connection = gateway.connect();
    connection.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    // Each event passes at once: the second is not sent before the first is here.
    connection.wait_bytes(b"one\r\n");
    assert!(connection.is_quiet_for(Duration::from_secs(3)));
    go_on.notify_one();
    assert_eq!(connection.response().text(), "onetwo");
}

#[test]
fn a_connection_that_says_goodbye_costs_no_request() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    // Ends the connection of every request once it is answered.
    let origin = goodbye_origin(count);
    let gateway = Gateway::builder(&yaml("protocol: h2c")).set("ORIGIN", origin).start();
    let mut connection = gateway.connect();
    for round in 0..30 {
        let answer =
            connection.request(&format!("POST /{round} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("0")), "{round}");
    }
    assert_eq!(served.load(Ordering::SeqCst), 30, "none was served twice");
}

fn goodbye_origin(served: Arc<AtomicUsize>) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let served = Arc::clone(&served);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, respond))) = connection.accept().await {
                        served.fetch_add(1, Ordering::SeqCst);
                        let mut respond = respond;
                        respond.send_response(Response::new(()), true).unwrap();
                        connection.graceful_shutdown();
                    }
                });
            }
        });
    });
    address
}

#[test]
fn a_client_that_waits_for_a_word_before_its_body_gets_it() {
    let expected = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&expected);
    let origin = Http2Origin::plain(move |mut call: Call| {
        *seen.lock().unwrap() = Some(call.request.headers().contains_key("expect"));
        async move {
            let body = call.body().await;
            assert_eq!(body, b"hello");
            call.ok("stored");
        }
    });
    let gateway = in_front("protocol: h2c", &origin);
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    connection.wait_bytes(b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("hello");
    assert_eq!(connection.response().text(), "stored");
    assert_eq!(*expected.lock().unwrap(), Some(false), "nobody waits behind us");
}

#[test]
fn http2_clients_reach_http1_origins() {
    let origin = Origin::script(|request| Reply::ok(if request.body == b"hi" { "both" } else { "none" }));
    let builder = Gateway::builder(
        "routes: [{ upstream: [\"{ORIGIN}\"] }]\ncertificates: [{ cert: app.pem, key: app.key }]\n",
    );
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let mut client = Http2::open(gateway.address(), "app.test");
    let request = Request::post("https://app.test/x").header("te", "trailers").body(()).unwrap();
    assert_eq!(client.request(request, b"hi").unwrap().text(), "both");
    let seen = origin.only_request();
    assert_eq!(
        (seen.line(), seen.header("host"), seen.header("te")),
        ("POST /x HTTP/1.1", Some("app.test"), None)
    );
}
