//! Where one request ends and the next begins: what is ambiguous is refused.

use crate::support::{Gateway, Origin};

fn gateway() -> (Gateway, Origin) {
    let origin = Origin::fixed("hello");
    (Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin), origin)
}

#[test]
fn an_ambiguous_head_is_400_and_never_goes_upstream() {
    let (gateway, origin) = gateway();
    for head in [
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
        "GET / HTTP/1.1\r\nHost: a\r\n:x\r\nX-A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\rc\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ] {
        let mut connection = gateway.connect();
        connection.send(head);
        assert_eq!(connection.response().status, 400, "{head:?}");
        connection.rest();
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn content_length_beside_transfer_encoding_never_both_go_upstream() {
    let (gateway, origin) = gateway();
    let mut connection = gateway.connect();
    connection.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    let status = connection.response().status;
    assert!(matches!(status, 200 | 400), "{status}");
    connection.rest();
    for request in origin.requests() {
        assert_eq!(
            request.all("content-length").len() + request.all("transfer-encoding").len(),
            1,
            "{}",
            request.head
        );
    }
}

#[test]
fn a_broken_chunk_ends_the_exchange_and_spoils_no_upstream_connection() {
    let (gateway, origin) = gateway();
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5x\r\nhello\r\n0\r\n\r\n",
        "11111111111111111\r\nx",
        "5\r\nhelloX0\r\n\r\n",
    ] {
        let mut connection = gateway.connect();
        connection.send(format!(
            "POST /broken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let answer = String::from_utf8_lossy(&connection.rest()).into_owned();
        assert!(!answer.contains("hello"), "{body:?}: {answer}");
        assert_eq!(gateway.get("a", "/after").text(), "hello", "{body:?}");
    }
    assert!(origin.requests().iter().all(|request| request.target() == "/after"), "{:?}", origin.requests());
}

/// The body is dropped after an answer of our own; its end, and a request, come when it has broken already.
#[test]
fn nothing_follows_a_broken_body_however_it_goes_on() {
    let origin = Origin::fixed("hello");
    let yaml = "routes: [{ path: /own, respond: { body: own } }, { upstream: [\"{ORIGIN}\"] }]";
    let gateway = Gateway::with_origin(yaml, &origin);
    for begun in ["zz\r\n", "\r\n", "5\r\nhello!", "1;\n"] {
        let mut connection = gateway.connect();
        connection
            .send(format!("POST /own HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{begun}"));
        assert_eq!(connection.response().status, 200, "{begun:?}");
        // The gateway may have closed already.
        let _ = connection.try_send("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let rest = connection.rest();
        assert!(rest.is_empty(), "{begun:?}: {}", String::from_utf8_lossy(&rest));
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn a_body_is_never_taken_for_a_request() {
    let (gateway, origin) = gateway();
    let mut connection = gateway.connect();
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for method in ["GET", "POST", "DELETE", "OPTIONS"] {
        let request =
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{inner}", inner.len());
        assert_eq!(connection.request(&request).status, 200, "{method}");
    }
    assert!(origin.requests().iter().all(|request| request.target() == "/"), "{:?}", origin.requests());
}
