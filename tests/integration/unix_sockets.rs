//! Endpoints on Unix sockets.

use crate::support::{Gateway, eventually};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

/// Serves requests one connection after the other; gives what each connection sent.
fn serve(path: &Path) -> Receiver<Vec<u8>> {
    let listener = UnixListener::bind(path).expect("a socket");
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let seen = seen.clone();
            std::thread::spawn(move || answer(stream, &seen));
        }
    });
    requests
}

fn answer(mut stream: UnixStream, seen: &std::sync::mpsc::Sender<Vec<u8>>) {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).is_ok_and(|count| count == 1) {
        request.push(byte[0]);
        if request.ends_with(b"\r\n\r\n") {
            let _ = seen.send(std::mem::take(&mut request));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix");
        }
    }
}

const YAML: &str = "workers: 1\nroutes: [{ upstream: app }]\nupstreams:\n  \
    app: { endpoints: [\"unix:{DIR}/app.sock\"] }\n";

#[test]
fn requests_reach_it_and_its_connections_are_kept() {
    let builder = Gateway::builder(YAML);
    let requests = serve(&builder.dir().join("app.sock"));
    let gateway = builder.start();
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(client.get("app.test", "/x", "").text(), "unix");
        let request = String::from_utf8(requests.recv().expect("a request")).expect("text");
        assert!(request.starts_with("GET /x HTTP/1.1\r\n") && request.contains("app.test"), "{request}");
    }
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("portcullis_upstream_connections_total", &[("reused", "true")]), 2.0);
    let endpoint = gateway.wait_record_of("/x")["endpoint"].as_str().expect("an endpoint").to_owned();
    assert!(endpoint.starts_with("unix:/") && endpoint.ends_with("/app.sock"), "{endpoint}");
}

#[test]
fn one_that_is_not_there_yet_is_502_until_it_is() {
    let gateway = Gateway::start(YAML);
    assert_eq!(gateway.get("a", "/").status, 502);
    assert_eq!(gateway.wait_record_of("/")["rejection"], "upstream_connect");
    let _requests = serve(&gateway.dir().join("app.sock"));
    eventually::until("an answer", || gateway.get("a", "/").status == 200);
}

#[test]
fn the_client_is_announced_there_too() {
    let yaml = YAML.replace("] }", "], proxy_protocol: v2 }");
    let builder = Gateway::builder(&yaml);
    let requests = serve(&builder.dir().join("app.sock"));
    let gateway = builder.start();
    assert_eq!(gateway.get("a", "/").text(), "unix");
    // The header begins like the end of a request.
    assert_eq!(requests.recv().expect("a header"), b"\r\n\r\n");
    let rest = requests.recv().expect("a request");
    assert!(rest.starts_with(b"\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01"), "{rest:?}");
}
