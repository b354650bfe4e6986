//! A connection, plain or TLS, whose answers leave in one write where they fit: a buffer of one TLS record that is only
//! there while it holds something.

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::{SslDigest, TlsRef};
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID, UniqueIDType,
};
use pingora_core::tls::tokio_ssl::SslStream;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// One TLS record's plaintext (RFC 8446 section 5.1).
const BUFFER: usize = 16 * 1024;

/// What carries the bytes.
pub enum Transport {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS, handshaken.
    Tls(Box<SslStream<TcpStream>>),
}

/// See the module documentation.
pub struct FloorStream {
    transport: Transport,
    out: Vec<u8>,
    sent: usize,
    socket: Arc<SocketDigest>,
    tls: Option<Arc<SslDigest>>,
}

impl FloorStream {
    /// A connection that is ready for HTTP.
    pub fn new(transport: Transport) -> Self {
        let tls = match &transport {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => {
                let version = stream.ssl().version_str();
                Some(Arc::new(SslDigest::new("", version, None, None, Vec::new())))
            }
        };
        let socket = Arc::new(SocketDigest::from_raw_fd(transport.socket().as_raw_fd()));
        FloorStream { transport, out: Vec::new(), sent: 0, socket, tls }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let count = ready!(self.transport.poll_write(cx, &self.out[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.sent = 0;
        self.out = Vec::new();
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, buf: &[u8], room: usize) -> usize {
        let count = buf.len().min(room);
        if self.out.capacity() == 0 {
            self.out.reserve_exact(BUFFER);
        }
        self.out.extend_from_slice(&buf[..count]);
        count
    }
}

impl Transport {
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, buf),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(tls) => tls.get_ref(),
        }
    }
}

impl AsyncRead for FloorStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for FloorStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.out.is_empty() && buf.len() >= BUFFER {
            return this.transport.poll_write(cx, buf);
        }
        let room = BUFFER - this.out.len();
        if room == 0 {
            ready!(this.poll_drain(cx))?;
            return Poll::Ready(Ok(this.take(buf, BUFFER)));
        }
        Poll::Ready(Ok(this.take(buf, room)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        match &mut self.transport {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        match &mut self.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

impl fmt::Debug for FloorStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FloorStream").finish_non_exhaustive()
    }
}

#[async_trait]
impl Shutdown for FloorStream {
    async fn shutdown(&mut self) {
        // The client may be gone already.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for FloorStream {
    fn id(&self) -> UniqueIDType {
        self.transport.socket().as_raw_fd()
    }
}

impl Ssl for FloorStream {
    fn get_ssl(&self) -> Option<&TlsRef> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => Some(tls.ssl()),
        }
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.tls.clone()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        let http2 = self.get_ssl().and_then(|ssl| ssl.selected_alpn_protocol()) == Some(b"h2");
        http2.then_some(ALPN::H2)
    }
}

impl GetTimingDigest for FloorStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for FloorStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for FloorStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.socket))
    }
}

impl Peek for FloorStream {}
