//! A scripted HTTP/1.1 origin inside the test process: remembers every request byte for byte.
//!
//! Deliberately lenient and simple: one thread a connection, no protocol checks.

use super::certificates::Identity;
use super::eventually;
use super::response::{fill, position};
use boring::ssl::{AlpnError, SslAcceptor, SslMethod, SslStream, select_next_proto};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Request line and fields, up to and without the empty line.
    pub head: String,
    /// The body, chunks joined.
    pub body: Vec<u8>,
    /// Which connection of this origin it came on, from 0.
    pub connection: usize,
}

/// What the origin does with a request.
pub enum Reply {
    /// Sends these bytes and keeps the connection.
    Raw(Vec<u8>),
    /// Sends these bytes and closes.
    RawThenClose(Vec<u8>),
    /// Closes without a byte.
    Close,
    /// Waits until the gate opens, then goes on with the other reply.
    After(Arc<Gate>, Box<Reply>),
    /// Sends the first bytes, waits for the gate, goes on with the other reply.
    Partly(Vec<u8>, Arc<Gate>, Box<Reply>),
    /// Switches to the websocket protocol and echoes messages.
    WebSocketEcho,
}

/// A gate a test opens when it is ready.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

type Script = dyn Fn(&Received) -> Reply + Send + Sync;

/// The origin.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    acceptor: Option<SslAcceptor>,
    requests: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    /// Those that are open, by number.
    streams: Mutex<HashMap<usize, TcpStream>>,
    stop: AtomicBool,
}

impl Origin {
    /// Answers everything with 200 and this body.
    pub fn fixed(body: &'static str) -> Self {
        Origin::script(move |_| Reply::ok(body))
    }

    /// Answers as the script says.
    pub fn script(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Origin::start(Box::new(script), None)
    }

    /// The same over TLS with this certificate.
    pub fn tls(identity: &Identity, script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("an acceptor");
        builder.set_certificate(&identity.certificate).expect("a certificate");
        builder.set_private_key(&identity.key).expect("a key");
        Origin::start(Box::new(script), Some(builder.build()))
    }

    /// The same, in front of which the handshake chooses HTTP/2 if it may. Then nothing is understood.
    pub fn tls_preferring_http2(
        identity: &Identity,
        script: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("an acceptor");
        builder.set_certificate(&identity.certificate).expect("a certificate");
        builder.set_private_key(&identity.key).expect("a key");
        builder.set_alpn_select_callback(|_, offered| {
            select_next_proto(b"\x02h2\x08http/1.1", offered).ok_or(AlpnError::NOACK)
        });
        Origin::start(Box::new(script), Some(builder.build()))
    }

    fn start(script: Box<Script>, acceptor: Option<SslAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script,
            acceptor,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            streams: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Origin { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Everything received so far.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The one request received; panics when there is none or more.
    pub fn only_request(&self) -> Received {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "requests at the origin: {requests:?}");
        requests.into_iter().next().unwrap()
    }

    /// The latest request received.
    pub fn last_request(&self) -> Received {
        self.requests().pop().expect("a request at the origin")
    }

    /// Waits until so many requests have arrived.
    pub fn wait_requests(&self, count: usize) {
        eventually::until("requests at the origin", || self.requests().len() >= count);
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Ends it as a crash would: its connections break, new ones are refused.
    pub fn kill(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        eventually::until("refused connections", || TcpStream::connect(self.address).is_err());
    }

    /// Connections accepted and closed again.
    pub fn closed(&self) -> usize {
        self.shared.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

impl Received {
    /// The first line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The request target.
    pub fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }

    /// All values of a field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// The value of a field; panics when it came more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() < 2, "{name} came {} times: {values:?}", values.len());
        values.first().copied()
    }
}

impl Reply {
    /// 200 with this body.
    pub fn ok(body: &str) -> Self {
        Reply::status(200, "", body)
    }

    /// A status, further header lines (each with its line break) and a body.
    pub fn status(code: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        Reply::Raw(
            format!("HTTP/1.1 {code} Scripted\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
                .into_bytes(),
        )
    }

    /// 200 with a chunked body.
    pub fn chunked(chunks: &[&str]) -> Self {
        let mut wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in chunks {
            wire.extend(format!("{:x}\r\n{chunk}\r\n", chunk.len()).into_bytes());
        }
        wire.extend(b"0\r\n\r\n");
        Reply::Raw(wire)
    }

    /// This reply, once the gate is open.
    pub fn after(self, gate: &Arc<Gate>) -> Self {
        Reply::After(Arc::clone(gate), Box::new(self))
    }
}

impl Gate {
    /// A closed one.
    pub fn closed() -> Arc<Self> {
        Arc::default()
    }

    /// Opens it for good.
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Waits until it is open.
    pub fn wait(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            let (guard, timeout) = self.changed.wait_timeout(open, eventually::DEADLINE * 3).unwrap();
            open = guard;
            if timeout.timed_out() {
                return;
            }
        }
    }
}

trait Duplex: Read + Write {}
impl Duplex for TcpStream {}
impl Duplex for SslStream<TcpStream> {}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { return };
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
        shared.streams.lock().unwrap().extend(stream.try_clone().map(|stream| (connection, stream)));
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let _ = stream.set_nodelay(true);
            let _ = match &shared.acceptor {
                None => serve(stream, connection, &shared),
                Some(acceptor) => match acceptor.accept(stream) {
                    Ok(stream) => serve(stream, connection, &shared),
                    Err(_) => Ok(()),
                },
            };
            // The last descriptor of it: now it closes.
            shared.streams.lock().unwrap().remove(&connection);
            shared.closed.fetch_add(1, Ordering::SeqCst);
        });
    }
}

fn serve(mut stream: impl Duplex, connection: usize, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let request = receive(&mut stream, &mut buffer, connection)?;
        shared.requests.lock().unwrap().push(request.clone());
        let mut reply = (shared.script)(&request);
        loop {
            reply = match reply {
                Reply::Raw(bytes) => {
                    stream.write_all(&bytes)?;
                    stream.flush()?;
                    break;
                }
                Reply::RawThenClose(bytes) => return stream.write_all(&bytes).and_then(|()| stream.flush()),
                Reply::Close => return Ok(()),
                Reply::After(gate, next) => {
                    gate.wait();
                    *next
                }
                Reply::Partly(bytes, gate, next) => {
                    stream.write_all(&bytes)?;
                    stream.flush()?;
                    gate.wait();
                    *next
                }
                Reply::WebSocketEcho => return echo(stream, &request),
            }
        }
    }
}

fn receive(stream: &mut impl Read, buffer: &mut Vec<u8>, connection: usize) -> io::Result<Received> {
    let end = loop {
        match position(buffer, b"\r\n\r\n") {
            Some(end) => break end,
            None => fill(stream, buffer)?,
        }
    };
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let head = String::from_utf8_lossy(&head[..end]).into_owned();
    let mut request = Received { head, body: Vec::new(), connection };
    if request.all("transfer-encoding").iter().any(|coding| coding.eq_ignore_ascii_case("chunked")) {
        request.body = chunks(stream, buffer)?;
    } else if let Some(length) = request.all("content-length").first() {
        let length: usize = length.parse().map_err(io::Error::other)?;
        while buffer.len() < length {
            fill(stream, buffer)?;
        }
        request.body = buffer.drain(..length).collect();
    }
    Ok(request)
}

fn chunks(stream: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            match position(buffer, b"\r\n") {
                Some(end) => break end,
                None => fill(stream, buffer)?,
            }
        };
        let line: Vec<u8> = buffer.drain(..end + 2).collect();
        let size = std::str::from_utf8(&line[..end]).map_err(io::Error::other)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        while buffer.len() < size + 2 {
            fill(stream, buffer)?;
        }
        body.extend(buffer.drain(..size));
        buffer.drain(..2);
        if size == 0 {
            return Ok(body);
        }
    }
}

fn echo(mut stream: impl Duplex, request: &Received) -> io::Result<()> {
    let key = derive_accept_key(request.header("sec-websocket-key").unwrap_or_default().as_bytes());
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {key}\r\n\r\n"
    )?;
    stream.flush()?;
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    loop {
        let message = socket.read().map_err(io::Error::other)?;
        if message.is_text() || message.is_binary() {
            socket.send(message).map_err(io::Error::other)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::certificates::Authority;
    use super::super::client::{Connection, get};
    use super::super::tls::TlsClient;
    use super::*;

    fn at(origin: &Origin) -> SocketAddr {
        origin.address
    }

    #[test]
    fn requests_are_kept_byte_for_byte_with_their_connection() {
        let origin = Origin::fixed("hi");
        let mut connection = Connection::open(at(&origin));
        connection.request("POST /a HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 3\r\n\r\nabc");
        connection.get("y", "/b", "");
        get(at(&origin), "z", "/c");
        let seen = origin.requests();
        assert_eq!(seen[0].head, "POST /a HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 3");
        assert_eq!(seen[0].body, b"abc");
        assert_eq!(seen.iter().map(|r| r.connection).collect::<Vec<_>>(), [0, 0, 1]);
    }

    #[test]
    fn a_gate_holds_the_reply_until_it_opens() {
        let gate = Gate::closed();
        let held = Arc::clone(&gate);
        let origin = Origin::script(move |_| Reply::chunked(&["he", "llo"]).after(&held));
        let mut connection = Connection::open(at(&origin));
        connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        origin.wait_requests(1);
        assert!(connection.is_quiet_for(std::time::Duration::from_millis(20)));
        gate.open();
        assert_eq!(connection.response().text(), "hello");
    }

    #[test]
    fn an_origin_speaks_tls_with_the_given_certificate() {
        let identity = Authority::new("root").issue(&["app.test"]);
        let origin = Origin::tls(&identity, |_| Reply::ok("secret"));
        let mut connection = Connection::open_tls(at(&origin), &TlsClient::named("app.test")).unwrap();
        assert_eq!(connection.get("app.test", "/", "").text(), "secret");
        assert!(identity.is(&connection.tls().certificate));
    }
}
