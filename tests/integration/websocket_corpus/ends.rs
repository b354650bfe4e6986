//! The two ends of a tunnel, down to the byte: neither of them knows what a frame is.

use super::cases::Case;
use crate::support::client::tcp;
use crate::support::eventually::DEADLINE;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Extensions the client offers.
pub const OFFER: &str = "permessage-deflate; client_max_window_bits, x-unknown";
/// What the origin takes of them.
pub const AGREED: &str = "permessage-deflate; server_no_context_takeover";

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A client that has shaken hands.
pub struct Client {
    stream: TcpStream,
    head: String,
}

/// An origin: shakes hands, expects what a case says goes up, sends what it says comes down, closes.
pub struct Tunnel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    cases: Vec<Case>,
    heads: Mutex<Vec<String>>,
    fault: Mutex<Option<String>>,
    ended: AtomicUsize,
}

impl Client {
    /// Opens the tunnel of a case; the origin answers in pieces of this size too.
    pub fn open(address: SocketAddr, number: usize, piece: usize) -> Self {
        let mut stream = tcp(address);
        stream.set_nodelay(true).unwrap();
        let request = format!(
            "GET /{number}/{piece} HTTP/1.1\r\nHost: app.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: chat, superchat\r\n\
             Sec-WebSocket-Extensions: {OFFER}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut stream).expect("an answer").to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let accept = derive_accept_key(KEY.as_bytes()).to_ascii_lowercase();
        assert!(head.contains(&format!("sec-websocket-accept: {accept}")), "{head}");
        Client { stream, head }
    }

    /// The answer's head, in lower case.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Sends bytes in pieces, while somebody else reads.
    pub fn send(&mut self, bytes: &[u8], piece: usize) {
        for part in bytes.chunks(piece) {
            self.stream.write_all(part).expect("the tunnel takes bytes");
        }
    }

    /// Everything until the end; without one in time, a panic.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).expect("an end");
        bytes
    }
}

impl Tunnel {
    /// Listens for clients that name one of these cases.
    pub fn start(cases: Vec<Case>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            cases,
            heads: Mutex::default(),
            fault: Mutex::default(),
            ended: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), shared) = (stream, Arc::clone(&accepting)) else { return };
                std::thread::spawn(move || {
                    let _ = serve(stream, &shared);
                    shared.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Tunnel { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What went up differently from what the case says.
    pub fn fault(&self) -> Option<String> {
        self.shared.fault.lock().unwrap().clone()
    }

    /// Tunnels that have ended.
    pub fn ended(&self) -> usize {
        self.shared.ended.load(Ordering::SeqCst)
    }

    /// A field of the latest request.
    pub fn last_head(&self, name: &str) -> String {
        let heads = self.shared.heads.lock().unwrap();
        let fields = heads.last().expect("a request").lines().filter_map(|line| line.split_once(": "));
        let values: Vec<_> = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values[0].1.to_owned()
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let head = read_head(&mut stream)?;
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    shared.heads.lock().unwrap().push(head);
    let mut parts = target.split('/').skip(1).map(|part| part.parse::<usize>().expect("a number"));
    let case = &shared.cases[parts.next().expect("a case")];
    let piece = parts.next().expect("a size");
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\
         Sec-WebSocket-Protocol: superchat\r\nSec-WebSocket-Extensions: {AGREED}\r\n\r\n",
        derive_accept_key(KEY.as_bytes())
    )?;
    let mut seen = vec![0; case.up().len()];
    stream.read_exact(&mut seen)?;
    if seen != case.up() {
        *shared.fault.lock().unwrap() = Some(format!("{} went up differently", case.name));
    }
    for part in case.down().chunks(piece) {
        stream.write_all(part)?;
    }
    Ok(())
}

fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
