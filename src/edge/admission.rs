//! Who comes in: settled for each connection before its first byte of TLS or HTTP.
//!
//! In this order: the address of the socket is judged by the global access policy when that closes what
//! it denies; a PROXY header is read where the listener takes one, from trusted proxies alone; the
//! address it names is judged in its turn; connections of that client are counted. A trusted proxy
//! speaks for many: it is neither judged nor counted by its own address, because who is behind it shows
//! in each request. It knows nothing of TLS and HTTP.

use super::census::ClientPlace;
use super::idle::{Wait, Waited};
use super::listener::{Entrance, Listener};
use super::proxy_header::{self, Fault, Header, Parsed};
use super::socket::Socket;
use crate::access::policy::Decision;
use crate::config::{OnDeny, ProxyProtocol};
use crate::snapshot::{Limits, SnapshotStore};
use crate::telemetry::metrics::Metrics;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use tokio::time::timeout;

/// Why a connection is closed: the label of its count.
pub type Refused = &'static str;

/// What admission goes by.
pub struct Admission<'a> {
    /// Where the connection came in.
    pub listener: &'a Listener,
    /// For the policy and the trusted proxies that serve now.
    pub snapshots: &'a SnapshotStore,
    /// For denials.
    pub metrics: &'a Metrics,
    /// For the time a header may take.
    pub limits: &'a Limits,
}

/// A connection that may come in.
pub struct Admitted {
    /// Who speaks to us: the address a PROXY header named, else that of the socket.
    pub peer: SocketAddr,
    /// To be held until the connection ends; `None` for trusted proxies.
    pub place: Option<ClientPlace>,
}

/// What an address is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// May speak for others.
    TrustedProxy,
    /// Speaks for itself.
    Client,
}

impl Admission<'_> {
    /// Settles who `peer`, the other end of the socket, speaks for. `Ok(None)`: it left, or we do.
    ///
    /// # Errors
    /// The reason for which the connection is to be closed.
    pub async fn settle(
        &self,
        socket: &mut Socket,
        peer: SocketAddr,
        wait: &mut Wait,
    ) -> Result<Option<Admitted>, Refused> {
        let entrance = self.listener.entrance;
        let standing = self.judge(peer.ip())?;
        // Before anything is read: who says nothing holds a place like everybody else.
        let mut admitted = self.admit(peer, standing, &entrance)?;
        if entrance.proxy_protocol != ProxyProtocol::Off {
            match self.header(socket, entrance.proxy_protocol, standing, wait).await? {
                Read::Gone => return Ok(None),
                Read::Absent | Read::Header(Header { source: None, .. }) => {}
                Read::Header(Header { source: Some(source), .. }) => {
                    let standing = self.judge(source.ip())?;
                    admitted = self.admit(source, standing, &entrance)?;
                }
            }
        }
        Ok(Some(admitted))
    }

    fn admit(&self, peer: SocketAddr, standing: Standing, entrance: &Entrance) -> Result<Admitted, Refused> {
        if standing == Standing::TrustedProxy {
            return Ok(Admitted { peer, place: None });
        }
        let limit = entrance.max_connections_per_client;
        let place = self.listener.census.enter_client(peer.ip(), limit);
        Ok(Admitted { peer, place: Some(place.ok_or("max_connections_per_client")?) })
    }

    /// A policy that answers what it denies must wait for a request to answer.
    fn judge(&self, address: IpAddr) -> Result<Standing, Refused> {
        let snapshot = self.snapshots.load();
        if snapshot.trusted.is_trusted(address) {
            return Ok(Standing::TrustedProxy);
        }
        let access = &snapshot.access;
        if access.on_deny() == OnDeny::Close
            && let Decision::Deny(reason) = access.decide(address)
        {
            self.metrics.access_denied("global", reason.as_str());
            return Err("access_denied");
        }
        Ok(Standing::Client)
    }

    async fn header(
        &self,
        socket: &mut Socket,
        wanted: ProxyProtocol,
        standing: Standing,
        wait: &mut Wait,
    ) -> Result<Read, Refused> {
        let (span, late) = match (wanted, standing) {
            (ProxyProtocol::Require, Standing::Client) => return Err("proxy_untrusted"),
            (ProxyProtocol::Require, _) => (self.limits.header_timeout, "proxy_timeout"),
            // It may be a client that will speak HTTP in its own time.
            _ => (self.limits.idle_timeout, "silent"),
        };
        match wait.next_byte(socket, span).await {
            Waited::Spoken(_) => {}
            Waited::Closed | Waited::Leaving => return Ok(Read::Gone),
            Waited::Silent => return Err(late),
        }
        let read = timeout(self.limits.header_timeout, read(socket, standing)).await;
        match read.map_err(|_| "proxy_timeout")?? {
            Read::Absent if wanted == ProxyProtocol::Require => Err("proxy_missing"),
            read => Ok(read),
        }
    }
}

/// How the search for a header ended.
enum Read {
    Header(Header),
    Absent,
    Gone,
}

/// Reads until it is clear what the connection begins with; a header is consumed. What is held stays
/// below the longest header and one read: a longer header is refused before more is read.
async fn read(socket: &mut Socket, standing: Standing) -> Result<Read, Refused> {
    loop {
        let parsed = match standing {
            Standing::TrustedProxy => proxy_header::parse(socket.held()).map_err(reason)?,
            Standing::Client => match proxy_header::is_header(socket.held()) {
                Some(true) => return Err("proxy_untrusted"),
                Some(false) => Parsed::Absent,
                None => Parsed::Incomplete,
            },
        };
        match parsed {
            Parsed::Absent => return Ok(Read::Absent),
            Parsed::Header(header) => {
                socket.consume(header.length);
                return Ok(Read::Header(header));
            }
            Parsed::Incomplete => {}
        }
        match poll_fn(|cx| socket.poll_more(cx)).await {
            Ok(true) => {}
            Ok(false) => return Err("proxy_malformed"),
            Err(_) => return Ok(Read::Gone),
        }
    }
}

fn reason(fault: Fault) -> Refused {
    match fault {
        Fault::Malformed => "proxy_malformed",
        Fault::Oversized => "proxy_oversized",
    }
}
