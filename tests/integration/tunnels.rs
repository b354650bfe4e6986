//! Upgraded connections whose sides end one after the other: what is on its way arrives, and nothing is held for ever.

use crate::support::certificates::Authority;
use crate::support::client::{Connection, Stream};
use crate::support::{Gateway, Origin};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const UPGRADE: &str =
    "GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const GRANTED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
/// More than the buffers on the way hold.
const MUCH: usize = 16 << 20;

/// Grants every upgrade, and gives the connection to `serve`. What was asked is noted.
fn origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, serve) = (listener.local_addr().expect("an address"), Arc::new(serve));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (serve, noted) = (Arc::clone(&serve), Arc::clone(&noted));
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                    head.push(byte[0]);
                }
                noted.lock().expect("a list").push(String::from_utf8_lossy(&head).into_owned());
                stream.write_all(GRANTED).expect("granted");
                serve(stream);
            });
        }
    });
    (address, asked)
}

fn gateway(address: SocketAddr) -> Gateway {
    let yaml = "workers: 1\nroutes: [{ upstream: [\"{ORIGIN}\"], timeouts: { idle: 2s } }]\n\
                certificates: [{ cert: app.pem, key: app.key }]\n";
    let builder = Gateway::builder(yaml).set("ORIGIN", address);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    builder.start()
}

fn upgraded(connection: Connection) -> Stream {
    let mut stream = connection.into_stream();
    stream.write_all(UPGRADE.as_bytes()).expect("a request");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a head") == 1 {
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Reads to the end.
fn rest(stream: &mut impl Read) -> usize {
    let (mut room, mut count) = (vec![0; 64 * 1024], 0);
    loop {
        match stream.read(&mut room).expect("more, or an end") {
            0 => return count,
            read => count += read,
        }
    }
}

#[test]
fn a_client_that_has_said_all_hears_the_rest() {
    let (address, asked) = origin(|mut stream| {
        assert_eq!(rest(&mut stream), MUCH);
        stream.write_all(&vec![b'y'; MUCH]).expect("taken");
    });
    let gateway = gateway(address);
    for tls in [false, true] {
        let connection = if tls { gateway.connect_tls("app.test") } else { gateway.connect() };
        match upgraded(connection) {
            Stream::Plain(mut stream) => {
                stream.write_all(&vec![b'x'; MUCH]).expect("taken");
                stream.shutdown(Shutdown::Write).expect("half closed");
                assert_eq!(rest(&mut stream), MUCH);
            }
            Stream::Tls(mut stream) => {
                stream.write_all(&vec![b'x'; MUCH]).expect("taken");
                // Its word for the end; the socket stays open.
                stream.shutdown().expect("half closed");
                assert_eq!(rest(&mut stream), MUCH);
            }
        }
    }
    let asked = asked.lock().expect("a list").concat().to_ascii_lowercase();
    assert_eq!(asked.matches("\r\nupgrade: websocket\r\n").count(), 2, "{asked}");
    assert_eq!(asked.matches("\r\nconnection: upgrade\r\n").count(), 2, "{asked}");
    for _ in 0..2 {
        let record = gateway.wait_record(|record| record["status"] == 101);
        assert_eq!(
            (record["bytes_in"].as_u64(), record["bytes_out"].as_u64()),
            (Some(MUCH as u64), Some(MUCH as u64))
        );
        assert_eq!(record.get("rejection"), None, "{record}");
    }
    gateway.wait_metric_is("portcullis_connections_open", &[], 0.0);
}

#[test]
fn an_origin_that_has_said_all_hears_the_rest() {
    let heard = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&heard);
    let (address, _) = origin(move |mut stream| {
        stream.write_all(b"all").expect("taken");
        stream.shutdown(Shutdown::Write).expect("half closed");
        *noted.lock().expect("a number") = Some(rest(&mut stream));
    });
    let gateway = gateway(address);
    let Stream::Plain(mut stream) = upgraded(gateway.connect()) else { panic!("a plain stream") };
    assert_eq!(rest(&mut stream), 3);
    stream.write_all(&vec![b'x'; MUCH]).expect("taken");
    drop(stream);
    crate::support::eventually::until("the origin to have heard it", || {
        *heard.lock().expect("a number") == Some(MUCH)
    });
}

/// A side that has ended, and another that says nothing: nobody waits for `websocket_idle`, which is an hour.
#[test]
fn a_half_closed_tunnel_is_not_held_for_ever() {
    let held = Mutex::new(Vec::new());
    let (address, _) = origin(move |stream| held.lock().expect("a list").push(stream));
    let gateway = gateway(address);
    let Stream::Plain(mut stream) = upgraded(gateway.connect()) else { panic!("a plain stream") };
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(rest(&mut stream), 0);
    gateway.wait_metric_is("portcullis_upstream_requests_in_flight", &[], 0.0);
}

/// Neither way waits for the other.
#[test]
fn both_ways_flow_at_once() {
    let (address, _) = origin(|mut stream| {
        let mut up = stream.try_clone().expect("a handle");
        let reader = std::thread::spawn(move || rest(&mut up));
        stream.write_all(&vec![b'y'; MUCH]).expect("taken");
        stream.shutdown(Shutdown::Write).expect("half closed");
        assert_eq!(reader.join().expect("a number"), MUCH);
    });
    let gateway = gateway(address);
    let Stream::Plain(mut stream) = upgraded(gateway.connect()) else { panic!("a plain stream") };
    // All of it is written before a byte is read.
    stream.write_all(&vec![b'x'; MUCH]).expect("taken");
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(rest(&mut stream), MUCH);
}

/// The handshake would choose HTTP/2, which has no upgrades.
#[test]
fn a_websocket_to_an_auto_upstream_asks_for_http1() {
    let authority = Authority::new("root");
    let origin = Origin::tls_preferring_http2(&authority.issue(&["app.test"]), |request| {
        crate::support::Reply::ok(request.header("upgrade").unwrap_or("none"))
    });
    let yaml = "routes: [{ upstream: app }]\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"], protocol: auto, tls: { server_name: app.test, ca: ca.pem } } }\n";
    let builder = Gateway::builder(yaml);
    authority.write(builder.dir(), "ca.pem");
    let gateway = builder.origin(&origin).start();
    let mut client = gateway.connect();
    client.send(UPGRADE);
    assert_eq!(client.response().text(), "websocket");
}
