//! Connections that wait for their client to say something.
//!
//! Between two requests a connection is here and not in the engine: it holds no session, no buffer
//! and no future of the request path, so thousands of idle ones cost little, and what a request
//! needs is memory the last request of the worker has just used. A process that leaves wakes them
//! all; each is registered for that once in its life, not once for every request.

use super::silence::Silence;
use super::socket::Socket;
use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The connections of one worker, waiting or not.
#[derive(Default)]
pub struct Waiting {
    leaving: AtomicBool,
    wakers: Mutex<Slab<Arc<AtomicWaker>>>,
}

/// One connection's place among them.
pub struct Wait {
    waiting: Arc<Waiting>,
    key: usize,
    waker: Arc<AtomicWaker>,
    silence: Silence,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The client has sent this byte, which is still to be read, and perhaps more.
    Spoken(u8),
    /// The client has closed the connection, or it broke.
    Closed,
    /// The client was silent for too long.
    Silent,
    /// The process leaves.
    Leaving,
}

impl Waiting {
    /// Registers a connection.
    pub fn enter(self: &Arc<Self>) -> Wait {
        let waker = Arc::new(AtomicWaker::new());
        let key = self.wakers.lock().insert(Arc::clone(&waker));
        Wait { waiting: Arc::clone(self), key, waker, silence: Silence::default() }
    }

    /// Ends every wait, now and from now on.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        for (_, waker) in self.wakers.lock().iter() {
            waker.wake();
        }
    }
}

impl Wait {
    /// Waits for the client's next byte, at most `limit`.
    pub async fn next_byte(&mut self, socket: &mut Socket, limit: Duration) -> Waited {
        self.silence.broken();
        poll_fn(|cx| self.poll(socket, limit, cx)).await
    }

    fn poll(&mut self, socket: &mut Socket, limit: Duration, cx: &mut Context<'_>) -> Poll<Waited> {
        match socket.poll_first_byte(cx) {
            Poll::Ready(Ok(Some(byte))) => return Poll::Ready(Waited::Spoken(byte)),
            Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(Waited::Closed),
            Poll::Pending => {}
        }
        self.waker.register(cx.waker());
        if self.waiting.leaving.load(Ordering::SeqCst) {
            return Poll::Ready(Waited::Leaving);
        }
        self.silence.poll_exceeded(limit, cx).map(|()| Waited::Silent)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiting.wakers.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    const LONG: Duration = Duration::from_secs(60);

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        (Socket::new(listener.accept().await.expect("accept").0), client)
    }

    #[tokio::test]
    async fn a_wait_ends_with_a_byte_a_close_or_silence() {
        let waiting = Arc::new(Waiting::default());
        let (mut socket, mut client) = pair().await;
        let mut wait = waiting.enter();
        client.write_all(b"GET").await.expect("write");
        assert_eq!(wait.next_byte(&mut socket, LONG).await, Waited::Spoken(b'G'));
        let (mut socket, client) = pair().await;
        assert_eq!(wait.next_byte(&mut socket, Duration::from_millis(10)).await, Waited::Silent);
        drop(client);
        assert_eq!(wait.next_byte(&mut socket, LONG).await, Waited::Closed);
    }

    #[tokio::test]
    async fn leaving_ends_waits_that_run_and_waits_to_come() {
        let waiting = Arc::new(Waiting::default());
        let (mut socket, _client) = pair().await;
        let running = tokio::spawn({
            let mut wait = waiting.enter();
            async move { wait.next_byte(&mut socket, LONG).await }
        });
        tokio::task::yield_now().await;
        waiting.leave();
        assert_eq!(running.await.expect("ends"), Waited::Leaving);
        let (mut socket, _client) = pair().await;
        assert_eq!(waiting.enter().next_byte(&mut socket, LONG).await, Waited::Leaving);
        assert!(waiting.wakers.lock().is_empty());
    }
}
