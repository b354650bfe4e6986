//! gRPC through the gateway: calls of all four kinds, deadlines, trailers, and refusals a client
//! understands.

use crate::support::Gateway;
use crate::support::http2_origin::{Call, Http2Origin, client, fields, next};
use crate::support::ports::ClosedPort;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

const ROUTES: &str = "routes: [{ upstream: app, timeouts: { response: 20s } }]\n\
    upstreams: { app: { endpoints: [\"{ORIGIN}\"], protocol: h2c } }\n";

fn gateway(origin: &Http2Origin) -> Gateway {
    Gateway::builder(ROUTES).set("ORIGIN", origin.address()).start()
}

fn call(
    send: &mut SendRequest<Bytes>,
    path: &str,
    more: &[(&'static str, &str)],
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::post(format!("http://app.test{path}")).body(()).expect("a request");
    let usual = [("content-type", "application/grpc+proto"), ("te", "trailers")];
    request.headers_mut().extend(fields(&usual));
    request.headers_mut().extend(fields(more));
    send.send_request(request, false).expect("a stream")
}

fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().extend(fields(&[("content-type", "application/grpc+proto")]));
    head
}

/// Like any framework: takes messages, gives each back, ends with trailers.
async fn echo(mut call: Call) {
    let mut answer = call.answer(head());
    while let Some(message) = call.next().await {
        answer.send_data(message, false).expect("an open stream");
    }
    answer.send_trailers(fields(&[("grpc-status", "0"), ("x-checksum", "7")])).expect("trailers");
}

async fn message(body: &mut RecvStream) -> Bytes {
    next(body).await.expect("a message")
}

async fn trailers(body: &mut RecvStream) -> HeaderMap {
    while next(body).await.is_some() {}
    body.trailers().await.expect("an end").expect("trailers")
}

#[test]
fn a_call_has_its_metadata_its_answer_and_its_trailers() {
    let seen: Arc<Mutex<Option<(HeaderMap, String)>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let origin = Http2Origin::plain(move |call| {
        let request = &call.request;
        *kept.lock().unwrap() = Some((request.headers().clone(), request.uri().to_string()));
        echo(call)
    });
    let gateway = gateway(&origin);
    client(gateway.address(), |mut send| async move {
        let (response, mut stream) = call(&mut send, "/pkg.Service/Unary", &[("x-meta-bin", "AAEC")]);
        stream.send_data(Bytes::from_static(b"\0\0\0\0\x02hi"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(message(&mut body).await, "\0\0\0\0\x02hi");
        let trailers = trailers(&mut body).await;
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-checksum"]),
            (&"0".parse().unwrap(), &"7".parse().unwrap())
        );
    });
    let (headers, uri) = seen.lock().unwrap().take().expect("a call at the origin");
    assert_eq!(uri, "http://app.test/pkg.Service/Unary");
    assert_eq!(
        (&headers["te"], &headers["x-meta-bin"]),
        (&"trailers".parse().unwrap(), &"AAEC".parse().unwrap())
    );
    assert!(headers.contains_key("x-forwarded-for") && !headers.contains_key("host"));
    let record = gateway.wait_record_of("/pkg.Service/Unary");
    assert_eq!((&record["status"], &record["protocol"]), (&200.into(), &"HTTP/2".into()));
}

#[test]
fn messages_flow_both_ways_at_once() {
    let origin = Http2Origin::plain(echo);
    let gateway = gateway(&origin);
    client(gateway.address(), |mut send| async move {
        let (response, mut stream) = call(&mut send, "/pkg.Service/Both", &[]);
        stream.send_data(Bytes::from_static(b"first"), false).unwrap();
        // The head comes while the request is still open.
        let mut body = response.await.unwrap().into_body();
        assert_eq!(message(&mut body).await, "first");
        for text in ["second", "third"] {
            stream.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
            assert_eq!(message(&mut body).await, text);
        }
        stream.send_data(Bytes::new(), true).unwrap();
        assert_eq!(trailers(&mut body).await["grpc-status"], "0");
    });
}

#[test]
fn a_client_that_cancels_ends_the_call_at_the_origin() {
    let ended = Arc::new(Notify::new());
    let end = Arc::clone(&ended);
    let origin = Http2Origin::plain(move |mut call| {
        let end = Arc::clone(&end);
        async move {
            let mut answer = call.answer(head());
            answer.send_data(Bytes::from_static(b"one"), false).unwrap();
            let reason = std::future::poll_fn(|cx| answer.poll_reset(cx)).await;
            if reason.is_ok() {
                end.notify_one();
            }
        }
    });
    let gateway = gateway(&origin);
    client(gateway.address(), |mut send| async move {
        let (response, mut stream) = call(&mut send, "/pkg.Service/Watch", &[]);
        stream.send_data(Bytes::from_static(b"watch"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(message(&mut body).await, "one");
        stream.send_reset(h2::Reason::CANCEL);
        drop(body);
        ended.notified().await;
    });
    assert_eq!(gateway.wait_record_of("/pkg.Service/Watch")["rejection"], "client_closed");
}

/// A head that ends the stream, and what it says.
async fn refusal(response: ResponseFuture) -> (u16, String, HeaderMap) {
    let response = response.await.expect("an answer");
    assert!(response.body().is_end_stream(), "a head alone is what clients take for an end");
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "application/grpc");
    (response.status().as_u16(), headers["grpc-status"].to_str().unwrap().to_owned(), headers)
}

#[test]
fn the_clients_deadline_ends_the_wait() {
    let origin = Http2Origin::plain(|call| async move {
        let _call = call;
        std::future::pending::<()>().await;
    });
    let gateway = gateway(&origin);
    client(gateway.address(), |mut send| async move {
        let (response, mut stream) = call(&mut send, "/slow", &[("grpc-timeout", "300m")]);
        stream.send_data(Bytes::from_static(b"message"), true).unwrap();
        let (status, grpc_status, headers) = refusal(response).await;
        assert_eq!((status, grpc_status.as_str()), (200, "4"));
        assert!(headers.contains_key("grpc-message"));
    });
    let record = gateway.wait_record_of("/slow");
    assert_eq!((&record["status"], &record["rejection"]), (&504.into(), &"client_deadline".into()));
    let took = record["duration_ms"].as_f64().expect("a duration");
    assert!((300.0..19_000.0).contains(&took), "{took} ms: that is the route's limit");
}

#[test]
fn refusals_are_statuses_of_grpc() {
    let yaml = "routes:\n  - { path: /down, upstream: [\"127.0.0.1:{CLOSED}\"] }\n  - \
        { path: /denied, access: { allow: [] }, upstream: [\"127.0.0.1:{CLOSED}\"] }\n";
    let closed = ClosedPort::new();
    let gateway = Gateway::builder(yaml).set("CLOSED", &closed).start();
    client(gateway.address(), |mut send| async move {
        for (path, expected) in [("/down", "14"), ("/denied", "7"), ("/absent", "12")] {
            send = send.ready().await.unwrap();
            let (response, mut stream) = call(&mut send, path, &[]);
            stream.send_data(Bytes::from_static(b"message"), true).unwrap();
            let (status, grpc_status, _) = refusal(response).await;
            assert_eq!((status, grpc_status.as_str()), (200, expected), "{path}");
        }
    });
    // In records and metrics they are what they would be to anybody else.
    for (path, status) in [("/down", 502), ("/denied", 403), ("/absent", 404)] {
        assert_eq!(gateway.wait_record_of(path)["status"], status);
    }
}

#[test]
fn an_answer_that_breaks_off_is_no_end() {
    let origin = Http2Origin::plain(|mut call| async move {
        let mut answer = call.answer(head());
        answer.send_data(Bytes::from_static(b"one"), false).unwrap();
        // Nothing more comes until the message is taken.
        let _ = call.body().await;
        answer.send_reset(h2::Reason::INTERNAL_ERROR);
    });
    let gateway = gateway(&origin);
    client(gateway.address(), |mut send| async move {
        let (response, mut stream) = call(&mut send, "/broken", &[]);
        let mut body = response.await.unwrap().into_body();
        assert_eq!(message(&mut body).await, "one");
        stream.send_data(Bytes::from_static(b"message"), true).unwrap();
        let broken = body.data().await.expect("not a clean end");
        assert!(broken.is_err(), "{broken:?}");
    });
    assert_eq!(gateway.wait_record_of("/broken")["rejection"], "upstream_closed");
}
