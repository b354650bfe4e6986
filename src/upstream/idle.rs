//! Which connections lie idle? Those of one worker that are not in the engine's own pool.
//!
//! The engine watches each of its idle connections with a task of its own, which costs a connection in use
//! more than the rest of keeping it. Here nothing is done for one until it is taken again; a look at all of
//! them, once a second, closes those whose time is over or whose other end has closed or spoken.
//! Knows nothing of HTTP.

use ahash::AHashMap;
use parking_lot::Mutex;
use pingora_core::protocols::Stream;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::task::unconstrained;

/// Between two looks at all idle connections.
const LOOK: Duration = Duration::from_secs(1);

/// The idle connections of one worker, by what they can be reused for.
pub struct IdleConnections {
    room: usize,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// The longest idle first.
    by_key: AHashMap<u64, VecDeque<Idle>>,
    count: usize,
    looking: bool,
}

struct Idle {
    stream: Stream,
    since: Instant,
    until: Instant,
}

impl IdleConnections {
    /// Room for so many; beyond it the one that was idle longest is closed.
    pub fn new(room: usize) -> Self {
        IdleConnections { room, kept: Arc::default() }
    }

    /// Takes the connection for `key` that was used last, if there is one that still holds.
    pub fn take(&self, key: u64) -> Option<Stream> {
        let mut kept = self.kept.lock();
        let now = Instant::now();
        while let Some(mut idle) = kept.by_key.get_mut(&key).and_then(VecDeque::pop_back) {
            kept.count -= 1;
            if idle.holds(now) {
                return Some(idle.stream);
            }
        }
        None
    }

    /// Keeps a connection for `key`, at most for `limit`. Must be called on the worker's runtime.
    pub fn put(&self, key: u64, stream: Stream, limit: Duration) {
        let since = Instant::now();
        let mut idle = Idle { stream, since, until: since + limit };
        if self.room == 0 || !idle.holds(since) {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.count >= self.room {
            kept.drop_longest_idle();
        }
        kept.by_key.entry(key).or_default().push_back(idle);
        kept.count += 1;
        if !std::mem::replace(&mut kept.looking, true) {
            let kept = Arc::clone(&self.kept);
            tokio::spawn(async move { while look(&kept).await {} });
        }
    }
}

/// Whether there is anything left to look at.
async fn look(kept: &Mutex<Kept>) -> bool {
    tokio::time::sleep(LOOK).await;
    let mut kept = kept.lock();
    let now = Instant::now();
    kept.by_key.retain(|_, connections| {
        connections.retain_mut(|idle| idle.holds(now));
        !connections.is_empty()
    });
    kept.count = kept.by_key.values().map(VecDeque::len).sum();
    kept.looking = kept.count > 0;
    kept.looking
}

impl Kept {
    fn drop_longest_idle(&mut self) {
        let first = |(key, connections): (&u64, &VecDeque<Idle>)| Some((connections.front()?.since, *key));
        let longest = self.by_key.iter().filter_map(first).min();
        if let Some(connections) = longest.and_then(|(_, key)| self.by_key.get_mut(&key)) {
            connections.pop_front();
            self.count -= 1;
        }
    }
}

impl Idle {
    /// Whether its time is not over and the other end is quiet: what it says now answers nothing, and its
    /// end is the end.
    fn holds(&mut self, now: Instant) -> bool {
        let mut byte = [0];
        // Whatever the task's budget says.
        let read = pin!(unconstrained(self.stream.read(&mut byte)));
        now < self.until && read.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pingora_core::protocols::l4;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    const LONG: Duration = Duration::from_secs(60);

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let ours = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let stream: Stream = Box::new(l4::stream::Stream::from(ours));
        (stream, listener.accept().await.expect("accept").0)
    }

    #[tokio::test]
    async fn the_one_used_last_is_taken_first_and_only_for_its_key() {
        let idle = IdleConnections::new(8);
        let (first, _a) = pair().await;
        let (second, _b) = pair().await;
        let id = second.id();
        idle.put(1, first, LONG);
        idle.put(1, second, LONG);
        assert!(idle.take(2).is_none());
        assert_eq!(idle.take(1).expect("one").id(), id);
        assert!(idle.take(1).is_some());
        assert!(idle.take(1).is_none());
    }

    /// Ends when what is kept for `key` is known not to hold.
    async fn given_up(idle: &IdleConnections, key: u64) {
        while let Some(stream) = idle.take(key) {
            idle.put(key, stream, LONG);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_was_closed_or_spoke_or_is_over_is_not_taken() {
        let idle = IdleConnections::new(8);
        let (closed, other) = pair().await;
        idle.put(1, closed, LONG);
        drop(other);
        let (spoke, mut other) = pair().await;
        idle.put(2, spoke, LONG);
        other.write_all(b"x").await.expect("write");
        for key in [1, 2] {
            tokio::time::timeout(LONG, given_up(&idle, key)).await.expect("given up");
        }
        let (over, _other) = pair().await;
        idle.put(3, over, Duration::ZERO);
        assert!(idle.take(3).is_none());
    }

    #[tokio::test]
    async fn beyond_its_room_the_longest_idle_is_closed() {
        let idle = IdleConnections::new(1);
        let (first, mut other) = pair().await;
        idle.put(1, first, LONG);
        let (second, _other) = pair().await;
        idle.put(2, second, LONG);
        assert_eq!(other.read(&mut [0]).await.expect("end"), 0);
        assert!(idle.take(1).is_none());
        assert!(idle.take(2).is_some());
    }

    #[tokio::test]
    async fn a_look_closes_what_nobody_will_take() {
        let idle = IdleConnections::new(8);
        let (stream, mut other) = pair().await;
        idle.put(1, stream, LONG);
        other.shutdown().await.expect("shutdown");
        assert_eq!(other.read(&mut [0]).await.expect("end"), 0);
        assert!(!idle.kept.lock().looking);
    }
}
