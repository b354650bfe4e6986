//! A TCP socket that reads ahead.
//!
//! TLS asks for a record's 5-byte header and then for its body: two system calls a record. This
//! reads whatever is there into a scratch buffer of the thread and keeps what was not asked for,
//! so that a record costs one. It also lets the door look at the first byte without a peek call.
//! Between records nothing is held but a small buffer.

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One TLS record with its overhead (RFC 8446 section 5.2) fits.
const SCRATCH: usize = 17 * 1024;
/// A drained read-ahead buffer up to this size is kept for the next record.
const KEPT: usize = 1024;

thread_local! {
    static SCRATCH_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// See the module documentation.
#[derive(Debug)]
pub struct Socket {
    io: TcpStream,
    ahead: Vec<u8>,
    taken: usize,
    read_ahead: bool,
    reach: Option<Arc<Reach>>,
}

/// A connection, from outside of the task that serves it.
#[derive(Debug)]
pub struct Reach {
    waker: AtomicWaker,
    /// Taken away before the socket closes, because the number is then another's.
    fd: Mutex<Option<RawFd>>,
}

impl Reach {
    /// The task is to be woken by [`Reach::wake`].
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Wakes the task.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Shuts the connection both ways; its task sees that as the client going away.
    pub fn cut(&self) {
        if let Some(fd) = *self.fd.lock() {
            // SAFETY: no memory is passed, and the lock keeps the descriptor open.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

impl Socket {
    /// Wraps an accepted socket; nothing is read yet.
    pub fn new(io: TcpStream) -> Self {
        Socket { io, ahead: Vec::new(), taken: 0, read_ahead: false, reach: None }
    }

    /// The descriptor's number.
    pub fn fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }

    /// Reaches the connection for as long as it is open.
    pub fn reach(&mut self) -> Arc<Reach> {
        let fd = self.io.as_raw_fd();
        let new = || Arc::new(Reach { waker: AtomicWaker::new(), fd: Mutex::new(Some(fd)) });
        Arc::clone(self.reach.get_or_insert_with(new))
    }

    /// Whoever has its [`Reach`] can wake this task.
    pub fn register(&self, waker: &Waker) {
        if let Some(reach) = &self.reach {
            reach.register(waker);
        }
    }

    /// From now on, reads that ask for little take what is there.
    pub fn enable_read_ahead(&mut self) {
        self.read_ahead = true;
    }

    /// Acknowledges now what was received, unless more is there to be answered. A client without
    /// TCP_NODELAY holds its next bytes back until then (RFC 9293 section 3.7.4), and the kernel would
    /// wait 40 ms for bytes of ours to go along.
    pub fn acknowledge(&self) {
        if self.held().is_empty() {
            // Only its speed is lost where this fails.
            let _ = self.io.set_quickack(true);
        }
    }

    /// The first byte the peer sends, without consuming it; `None` when it closes before.
    pub fn poll_first_byte(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        ready!(self.poll_fill(cx))?;
        Poll::Ready(Ok(self.held().first().copied()))
    }

    /// Whether the peer begins with `wanted`, without consuming anything: as soon as a byte differs it
    /// does not. What is there already is looked at without a system call.
    pub fn poll_begins_with(&mut self, wanted: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let held = self.held();
            let compared = held.len().min(wanted.len());
            if held.get(..compared) != wanted.get(..compared) {
                return Poll::Ready(Ok(false));
            }
            if compared == wanted.len() {
                return Poll::Ready(Ok(true));
            }
            if !ready!(self.poll_more(cx))? {
                return Poll::Ready(Ok(false));
            }
        }
    }

    /// What the peer has sent and nobody has read yet.
    pub fn held(&self) -> &[u8] {
        self.ahead.get(self.taken..).unwrap_or_default()
    }

    /// Reads more behind what is held; `false` when the peer has closed. Whoever asks for more sees
    /// to it that this ends.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        SCRATCH_BUFFER.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            self.ahead.extend_from_slice(buf.filled());
            Poll::Ready(Ok(!buf.filled().is_empty()))
        })
    }

    /// Counts `count` of the held bytes as read.
    pub fn consume(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.ahead.len() {
            self.taken = 0;
            self.ahead.clear();
            if self.ahead.capacity() > KEPT {
                self.ahead = Vec::new();
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held().is_empty() {
            return Poll::Ready(Ok(()));
        }
        SCRATCH_BUFFER.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            self.keep(buf.filled());
            Poll::Ready(Ok(()))
        })
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.ahead.clear();
        self.taken = 0;
        self.ahead.extend_from_slice(bytes);
    }

    fn take_held(&mut self, buf: &mut ReadBuf<'_>) {
        let held = self.held();
        let count = held.len().min(buf.remaining());
        buf.put_slice(&held[..count]);
        self.consume(count);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(reach) = &self.reach {
            *reach.fd.lock() = None;
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.held().is_empty() {
            this.take_held(buf);
            return Poll::Ready(Ok(()));
        }
        if !this.read_ahead || buf.remaining() >= SCRATCH {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        SCRATCH_BUFFER.with_borrow_mut(|scratch| {
            let mut whole = ReadBuf::new(scratch);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut whole))?;
            let filled = whole.filled();
            let (wanted, rest) = filled.split_at(filled.len().min(buf.remaining()));
            buf.put_slice(wanted);
            if !rest.is_empty() {
                this.keep(rest);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn pair() -> (Socket, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        (Socket::new(listener.accept().await.expect("accept").0), client)
    }

    async fn first_byte(socket: &mut Socket) -> Option<u8> {
        std::future::poll_fn(|cx| socket.poll_first_byte(cx)).await.expect("no error")
    }

    #[tokio::test]
    async fn the_first_byte_is_seen_and_not_consumed() {
        let (mut socket, mut client) = pair().await;
        client.write_all(b"hello").await.expect("write");
        assert_eq!(first_byte(&mut socket).await, Some(b'h'));
        let mut all = [0; 5];
        socket.read_exact(&mut all).await.expect("read");
        assert_eq!(&all, b"hello");
    }

    #[tokio::test]
    async fn a_peer_that_closes_has_no_first_byte() {
        let (mut socket, client) = pair().await;
        drop(client);
        assert_eq!(first_byte(&mut socket).await, None);
    }

    #[tokio::test]
    async fn what_is_held_grows_and_is_consumed() {
        let (mut socket, mut client) = pair().await;
        client.write_all(b"head").await.expect("write");
        assert_eq!(first_byte(&mut socket).await, Some(b'h'));
        client.write_all(b"er\0rest").await.expect("write");
        while socket.held().len() < 11 {
            assert!(std::future::poll_fn(|cx| socket.poll_more(cx)).await.expect("no error"));
        }
        socket.consume(7);
        assert_eq!(socket.held(), b"rest");
        let mut rest = [0; 4];
        socket.read_exact(&mut rest).await.expect("read");
        assert_eq!(&rest, b"rest");
        drop(client);
        assert!(!std::future::poll_fn(|cx| socket.poll_more(cx)).await.expect("no error"));
    }

    #[tokio::test]
    async fn a_beginning_is_told_at_the_first_byte_that_differs_and_not_consumed() {
        let (mut socket, mut client) = pair().await;
        client.write_all(b"PO").await.expect("write");
        let begins = async |socket: &mut Socket| {
            std::future::poll_fn(|cx| socket.poll_begins_with(b"PRI *", cx)).await.expect("no error")
        };
        assert!(!begins(&mut socket).await);
        let (mut socket, mut client) = pair().await;
        client.write_all(b"PR").await.expect("write");
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), begins(&mut socket)).await;
        assert!(waiting.is_err(), "not enough to tell");
        client.write_all(b"I * HTTP").await.expect("write");
        assert!(begins(&mut socket).await);
        let mut all = [0; 10];
        socket.read_exact(&mut all).await.expect("read");
        assert_eq!(&all, b"PRI * HTTP");
    }

    #[tokio::test]
    async fn small_reads_lose_nothing_when_reading_ahead() {
        let (mut socket, mut client) = pair().await;
        socket.enable_read_ahead();
        let sent: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
        let expected = sent.clone();
        tokio::spawn(async move { client.write_all(&sent).await });
        let mut got = Vec::new();
        let mut piece = [0; 7];
        while got.len() < expected.len() {
            let n = socket.read(&mut piece).await.expect("read");
            got.extend_from_slice(&piece[..n]);
        }
        assert_eq!(got, expected);
    }
}
