//! Tells an upstream on TCP who the client is: the header of the PROXY protocol, version 2, before
//! anything else on a new connection.
//!
//! A connection then speaks for one client, so it is reused only for requests that would begin with the
//! very same header. Knows nothing of requests, nor of how the client was found out.

use async_trait::async_trait;
use pingora_core::connectors::L4Connect;
use pingora_core::protocols::l4::socket::SocketAddr as EngineAddr;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

/// How a header begins (haproxy.org, "The PROXY protocol", section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, command PROXY.
const PROXY: u8 = 0x21;
/// Version 2, command LOCAL.
const LOCAL: u8 = 0x20;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Random, so that no client can choose an address whose key is another's.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Makes connections to `peer` begin by saying that `source` has connected to `destination`.
pub fn announce(peer: &mut HttpPeer, source: SocketAddr, destination: SocketAddr) {
    let header = header(source, destination);
    peer.group_key = KEYS.hash_one((peer.group_key, &header));
    peer.options.custom_l4 = Some(Arc::new(Announcing { header }));
}

/// Makes a connection to `peer` begin by saying that the gateway itself has something to ask, as checks do
/// (section 2.2: command LOCAL, no addresses).
pub(super) fn announce_own(peer: &mut HttpPeer) {
    let header = [SIGNATURE, &[LOCAL, 0, 0, 0]].concat();
    peer.options.custom_l4 = Some(Arc::new(Announcing { header }));
}

/// Connects and sends a header first.
#[derive(Debug)]
struct Announcing {
    header: Vec<u8>,
}

#[async_trait]
impl L4Connect for Announcing {
    /// The engine bounds the time of this as a part of connecting.
    async fn connect(&self, address: &EngineAddr) -> Result<Stream> {
        let announced = match address {
            EngineAddr::Inet(address) => announced(TcpStream::connect(address), &self.header).await,
            EngineAddr::Unix(path) => {
                let path = path.as_pathname().unwrap_or(Path::new(""));
                announced(UnixStream::connect(path), &self.header).await
            }
        };
        announced.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ErrorType::ConnectRefused,
                io::ErrorKind::TimedOut => ErrorType::ConnectTimedout,
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                    ErrorType::ConnectNoRoute
                }
                _ => ErrorType::ConnectError,
            };
            Error::because(kind, format!("announcing the client to {address}"), error)
        })
    }
}

async fn announced<S>(connecting: impl Future<Output = io::Result<S>>, header: &[u8]) -> io::Result<Stream>
where
    S: AsyncWriteExt + Unpin + Into<Stream>,
{
    let mut stream = connecting.await?;
    stream.write_all(header).await?;
    Ok(stream.into())
}

/// Both addresses must be of one family: where they are not, IPv4 goes as mapped IPv6.
fn header(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = Vec::with_capacity(SIGNATURE.len() + 4 + 36);
    header.extend_from_slice(SIGNATURE);
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend_from_slice(&[PROXY, TCP4, 0, 12]);
            header.extend_from_slice(&from.octets());
            header.extend_from_slice(&to.octets());
        }
        (from, to) => {
            header.extend_from_slice(&[PROXY, TCP6, 0, 36]);
            header.extend_from_slice(&as_v6(from).octets());
            header.extend_from_slice(&as_v6(to).octets());
        }
    }
    header.extend_from_slice(&source.port().to_be_bytes());
    header.extend_from_slice(&destination.port().to_be_bytes());
    header
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn key(source: &str, group_key: u64) -> u64 {
        let mut peer = HttpPeer::new(address("127.0.0.1:9000"), false, String::new());
        peer.group_key = group_key;
        announce(&mut peer, address(source), address("192.0.2.1:443"));
        peer.group_key
    }

    #[test]
    fn a_header_holds_both_addresses_and_ports() {
        let v4 = header(address("203.0.113.7:4711"), address("[::ffff:127.0.0.1]:80"));
        let expected = [SIGNATURE, &[0x21, 0x11, 0, 12, 203, 0, 113, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80]];
        assert_eq!(v4, expected.concat());
        let v6 = header(address("[2001:db8::7]:4711"), address("127.0.0.1:80"));
        assert_eq!(v6.len(), 16 + 36);
        assert_eq!(v6[14..20], [0, 36, 0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(v6[42..], [0xff, 0xff, 127, 0, 0, 1, 0x12, 0x67, 0, 80]);
    }

    #[test]
    fn connections_are_shared_by_equal_announcements_over_equal_transport() {
        let one = key("203.0.113.7:1", 0);
        assert_eq!(one, key("203.0.113.7:1", 0));
        for other in [key("203.0.113.7:2", 0), key("203.0.113.8:1", 0), key("203.0.113.7:1", 5), 0] {
            assert_ne!(one, other);
        }
    }
}
