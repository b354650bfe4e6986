//! What the engine asks a stream about: which connection it is, and what is known of it.

use super::super::transport::Transport;
use super::EdgeStream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::{SslDigest, TlsRef};
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use std::sync::Arc;

/// What there is to tell.
#[derive(Clone)]
pub struct Digests {
    /// Carries the [`Connection`](super::super::connection::Connection).
    pub proxy: Arc<ProxyDigest>,
    /// Addresses.
    pub socket: Arc<SocketDigest>,
    /// Present when TLS.
    pub tls: Option<Arc<SslDigest>>,
    /// What the client chose by ALPN.
    pub alpn: Option<ALPN>,
}

impl UniqueID for EdgeStream {
    fn id(&self) -> UniqueIDType {
        self.transport.socket().fd()
    }
}

impl Ssl for EdgeStream {
    fn get_ssl(&self) -> Option<&TlsRef> {
        match &*self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => Some(tls.ssl()),
        }
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.digests.tls.clone()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.digests.alpn.clone()
    }
}

impl GetTimingDigest for EdgeStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for EdgeStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(Arc::clone(&self.digests.proxy))
    }
}

impl GetSocketDigest for EdgeStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.digests.socket))
    }
}

impl Peek for EdgeStream {}
