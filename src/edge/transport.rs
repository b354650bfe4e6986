//! What carries the bytes of a connection: a socket, or TLS over one. Knows nothing of HTTP.

use super::socket::Socket;
use pingora_core::tls::tokio_ssl::SslStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What carries the bytes.
pub enum Transport {
    /// Plain TCP.
    Plain(Socket),
    /// TLS, handshaken.
    Tls(Box<SslStream<Socket>>),
}

impl Transport {
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, buf),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(tls) => tls.get_ref(),
        }
    }

    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(tls) => tls.get_mut(),
        }
    }
}
