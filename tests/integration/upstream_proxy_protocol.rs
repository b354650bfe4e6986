//! The PROXY protocol towards an upstream, which is here a second gateway that requires it.

use crate::support::websocket::Socket;
use crate::support::{Connection, Gateway, Origin, Reply};
use std::io::Read;
use std::net::{IpAddr, TcpListener};

const REUSED: &str = "portcullis_upstream_connections_total";

/// Believes the first one, and nobody else comes in.
fn second(route: &str) -> String {
    format!(
        "routes: [{{ name: app, {route} }}]\naccess: {{ trusted_proxies: [127.0.0.1/32] }}\n\
         listeners:\n  - {{ name: edge, address: \"127.0.0.1:{{PORT}}\", proxy_protocol: require }}\n"
    )
}

fn first(second: &Gateway, more: &str) -> Gateway {
    let yaml = format!(
        "routes: [{{ upstream: app }}]\naccess: {{ trusted_proxies: [127.0.0.9/32] }}\n\
         upstreams: {{ app: {{ endpoints: [\"{{SECOND}}\"], proxy_protocol: v2{more} }} }}\nworkers: 1\n"
    );
    Gateway::builder(&yaml).set("SECOND", second.address()).start()
}

fn from(gateway: &Gateway, source: &str) -> Connection {
    Connection::open_from(source.parse::<IpAddr>().unwrap(), gateway.address())
}

fn client_of(second: &Gateway, path: &str) -> String {
    second.wait_record_of(path)["client"].as_str().unwrap().to_owned()
}

#[test]
fn the_upstream_learns_each_client_and_connections_are_not_shared() {
    let second = Gateway::start(&second("respond: { body: hello }"));
    let first = first(&second, "");
    let mut clients = [from(&first, "127.0.0.5"), from(&first, "127.0.0.6"), from(&first, "127.0.0.6")];
    for round in 0..3 {
        for (index, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.get("a", &format!("/{index}/{round}"), "").text(), "hello");
        }
    }
    for round in 0..3 {
        for (index, client) in ["127.0.0.5", "127.0.0.6", "127.0.0.6"].into_iter().enumerate() {
            assert_eq!(client_of(&second, &format!("/{index}/{round}")), client);
        }
    }
    // A connection for each of the clients', and each used three times.
    let metrics = first.metrics();
    assert_eq!(metrics.sum(REUSED, &[("reused", "false")]), 3.0);
    assert_eq!(metrics.sum(REUSED, &[("reused", "true")]), 6.0);
    assert_eq!(second.metrics().sum("portcullis_connections_total", &[]), 3.0);
}

#[test]
fn a_client_behind_a_proxy_of_ours_is_the_one_named() {
    let second = Gateway::start(&second("respond: { body: hello }"));
    let first = first(&second, "");
    let mut proxy = from(&first, "127.0.0.9");
    for (index, client) in ["203.0.113.7", "203.0.113.8", "2001:db8::7"].into_iter().enumerate() {
        let path = format!("/{index}");
        let response = proxy.get("a", &path, &format!("X-Forwarded-For: {client}\r\n"));
        assert_eq!(response.text(), "hello");
        assert_eq!(client_of(&second, &path), client);
    }
}

#[test]
fn the_header_comes_before_tls() {
    let second = Gateway::start(&second("respond: { body: hello }"));
    let first = first(&second, ", tls: { server_name: app.test, verify: false }");
    assert_eq!(from(&first, "127.0.0.5").get("a", "/tls", "").text(), "hello");
    assert_eq!(client_of(&second, "/tls"), "127.0.0.5");
    assert_eq!(second.wait_record_of("/tls")["tls"], "TLSv1.3");
}

#[test]
fn a_websocket_is_announced_too() {
    let origin = Origin::script(|_| Reply::WebSocketEcho);
    let second = Gateway::with_origin(&second("upstream: [\"{ORIGIN}\"]"), &origin);
    let first = first(&second, "");
    let (mut socket, _) = Socket::open(from(&first, "127.0.0.5"), "a", "/socket").unwrap();
    assert_eq!(socket.echo("hello"), "hello");
    drop(socket);
    assert_eq!(client_of(&second, "/socket"), "127.0.0.5");
}

#[test]
fn copies_are_announced_too() {
    let shadow = Gateway::start(&second("respond: { body: hello }"));
    let origin = Origin::fixed("main");
    let yaml = "routes: [{ upstream: app, mirror: { upstream: shadow } }]\nupstreams:\n  \
                app: { endpoints: [\"{ORIGIN}\"] }\n  \
                shadow: { endpoints: [\"{SHADOW}\"], proxy_protocol: v2 }\n";
    let gateway = Gateway::builder(yaml).origin(&origin).set("SHADOW", shadow.address()).start();
    for client in ["127.0.0.5", "127.0.0.6"] {
        let path = format!("/{client}");
        assert_eq!(from(&gateway, client).get("a", &path, "").text(), "main");
        assert_eq!(client_of(&shadow, &path), client);
    }
}

#[test]
fn the_header_says_where_the_client_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let yaml = "routes: [{ upstream: app }]\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"], proxy_protocol: v2 } }\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", listener.local_addr().unwrap()).start();
    let mut client = from(&gateway, "127.0.0.5");
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut header = [0; 28];
    listener.accept().unwrap().0.read_exact(&mut header).unwrap();
    let (source, port) = (client.local_addr().port().to_be_bytes(), gateway.address().port().to_be_bytes());
    let ends = [&[127, 0, 0, 5, 127, 0, 0, 1][..], &source, &port].concat();
    assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
    assert_eq!(header[16..], ends);
}

#[test]
fn an_upstream_that_is_not_there_is_502_as_always() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let yaml = "routes: [{ upstream: app }]\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"], proxy_protocol: v2 } }\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", address).start();
    let mut client = gateway.connect();
    assert_eq!(client.get("a", "/", "").status, 502);
    assert_eq!(gateway.wait_record_of("/")["rejection"], "upstream_connect");
    assert_eq!(client.get("a", "/", "").status, 502, "the client's connection stays");
}
