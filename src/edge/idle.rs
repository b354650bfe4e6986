//! Connections that wait for their client to say something.
//!
//! Between two requests a connection is here and not in the engine: it holds no session, no buffer
//! and no future of the request path, so thousands of idle ones cost little, and what a request
//! needs is memory the last request of the worker has just used. A process that leaves wakes them
//! all; each is registered for that once in its life, not once for every request.

use super::silence::Silence;
use super::socket::{Reach, Socket};
use parking_lot::Mutex;
use slab::Slab;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The connections of one worker at one listener, waiting or not.
#[derive(Default)]
pub struct Waiting {
    leaving: AtomicBool,
    connections: Mutex<Slab<Arc<Reach>>>,
}

/// One connection's place among them.
pub struct Wait {
    waiting: Arc<Waiting>,
    key: usize,
    reach: Arc<Reach>,
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
    pub fn enter(self: &Arc<Self>, socket: &mut Socket) -> Wait {
        let reach = socket.reach();
        let key = self.connections.lock().insert(Arc::clone(&reach));
        Wait { waiting: Arc::clone(self), key, reach, silence: Silence::default() }
    }

    /// Ends every wait, now and from now on.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        for (_, connection) in self.connections.lock().iter() {
            connection.wake();
        }
    }

    /// Shuts every connection, whatever it does.
    pub fn cut(&self) {
        for (_, connection) in self.connections.lock().iter() {
            connection.cut();
        }
    }
}

impl Wait {
    /// Waits for the client's next byte, at most `limit`.
    pub async fn next_byte(&mut self, socket: &mut Socket, limit: Duration) -> Waited {
        self.silence.broken();
        poll_fn(|cx| self.poll(socket, limit, cx)).await
    }

    /// Gives what `reading` gives, unless the process leaves and it has to wait: then `None`.
    pub async fn unless_leaving<T>(&self, reading: impl Future<Output = T>) -> Option<T> {
        let mut reading = pin!(reading);
        poll_fn(|cx| {
            if let Poll::Ready(read) = reading.as_mut().poll(cx) {
                return Poll::Ready(Some(read));
            }
            self.reach.register(cx.waker());
            if self.waiting.leaving.load(Ordering::SeqCst) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    fn poll(&mut self, socket: &mut Socket, limit: Duration, cx: &mut Context<'_>) -> Poll<Waited> {
        match socket.poll_first_byte(cx) {
            Poll::Ready(Ok(Some(byte))) => return Poll::Ready(Waited::Spoken(byte)),
            Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(Waited::Closed),
            Poll::Pending => {}
        }
        self.reach.register(cx.waker());
        if self.waiting.leaving.load(Ordering::SeqCst) {
            return Poll::Ready(Waited::Leaving);
        }
        self.silence.poll_exceeded(limit, cx).map(|()| Waited::Silent)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiting.connections.lock().remove(self.key);
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
        let mut wait = waiting.enter(&mut socket);
        client.write_all(b"GET").await.expect("write");
        assert_eq!(wait.next_byte(&mut socket, LONG).await, Waited::Spoken(b'G'));
        let (mut socket, client) = pair().await;
        assert_eq!(wait.next_byte(&mut socket, Duration::from_millis(10)).await, Waited::Silent);
        drop(client);
        assert_eq!(wait.next_byte(&mut socket, LONG).await, Waited::Closed);
    }

    #[tokio::test]
    async fn a_cut_reaches_what_is_not_waiting_and_spares_what_is_gone() {
        use tokio::io::AsyncReadExt;
        let waiting = Arc::new(Waiting::default());
        let (mut socket, mut client) = pair().await;
        let (mut gone, _) = pair().await;
        let _waits = [waiting.enter(&mut socket), waiting.enter(&mut gone)];
        drop(gone);
        waiting.cut();
        assert_eq!(client.read(&mut [0; 1]).await.expect("no reset"), 0);
    }

    #[tokio::test]
    async fn leaving_ends_waits_that_run_and_waits_to_come() {
        let waiting = Arc::new(Waiting::default());
        let (mut socket, _client) = pair().await;
        let running = tokio::spawn({
            let mut wait = waiting.enter(&mut socket);
            async move { wait.next_byte(&mut socket, LONG).await }
        });
        tokio::task::yield_now().await;
        waiting.leave();
        assert_eq!(running.await.expect("ends"), Waited::Leaving);
        let (mut socket, _client) = pair().await;
        assert_eq!(waiting.enter(&mut socket).next_byte(&mut socket, LONG).await, Waited::Leaving);
        assert!(waiting.connections.lock().is_empty());
    }
}
