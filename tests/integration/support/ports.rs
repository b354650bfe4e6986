//! Ports nobody else uses: outside the range the kernel hands out for outgoing connections, and held from
//! the moment they are chosen until the test is over.

use socket2::{Domain, Socket, Type};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// Processes begin anywhere: with a rule in it, tests that run at once would meet.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(0) as u32));

/// A port for a program that the test starts, on IPv4 and IPv6. While this lives no other test takes it, also
/// while the program is not there: it is bound, by a socket that does not listen.
///
/// The kernel lets two sockets bind one port if both have SO_REUSEADDR and none of them listens yet. Servers set
/// that; this one does once it has the port, and those that look for one do not.
pub struct Port {
    number: u16,
    _socket: Socket,
}

impl Port {
    /// One that is free.
    pub fn free() -> Self {
        for _ in 0..COUNT {
            let offset = NEXT.fetch_add(1, Ordering::Relaxed);
            if let Ok(port) = Port::hold((FIRST + offset % COUNT) as u16) {
                return port;
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// Fails when anybody has it.
    fn hold(number: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
        socket.set_only_v6(false)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, number)).into())?;
        socket.set_reuse_address(true)?;
        Ok(Port { number, _socket: socket })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number.fmt(f)
    }
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
fn a_port_is_for_a_server_and_for_nobody_who_looks_for_one() {
    let port = Port::free();
    let number = port.number();
    assert!(Port::hold(number).is_err(), "taken twice");
    let addresses = ["127.0.0.1", "0.0.0.0", "::1"].map(|ip| (ip.parse().expect("an address"), number));
    for address in addresses.map(|(ip, port): (std::net::IpAddr, u16)| SocketAddr::from((ip, port))) {
        assert!(std::net::TcpStream::connect(address).is_err(), "somebody listens");
        // It sets SO_REUSEADDR, as servers do.
        let server = std::net::TcpListener::bind(address).expect("a server");
        assert!(Port::hold(number).is_err(), "taken while it is served");
        drop(server);
    }
    assert!(Port::hold(number).is_err(), "taken after its server");
}
