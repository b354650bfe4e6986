//! Ports nobody else uses: outside the range the kernel hands out for outgoing connections, and
//! never the same one twice in this process.

use socket2::{Domain, Socket, Type};
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// Processes begin anywhere: with a rule in it, tests that run at once would meet.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(0) as u32));

/// A port that was free a moment ago, on IPv4 and IPv6.
pub fn free_port() -> u16 {
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + offset % COUNT) as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("::1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

/// A port nobody listens on while this lives: it is bound, so that nobody else can.
pub struct ClosedPort {
    port: u16,
    _socket: Socket,
}

impl ClosedPort {
    /// Connections to it are refused.
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&address.into()).expect("any port");
        let address = socket.local_addr().expect("an address").as_socket().expect("an IP address");
        ClosedPort { port: address.port(), _socket: socket }
    }
}

impl std::fmt::Display for ClosedPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.port.fmt(f)
    }
}

#[test]
fn two_ports_differ() {
    assert_ne!(free_port(), free_port());
}
