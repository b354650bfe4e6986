//! The deadlines of an upstream exchange: for the request body, then for the response head, then
//! between two pieces of the response body.
//!
//! Each worker looks over its running exchanges a few times a second, and tells the one that is late. The engine
//! cannot be told: it has one read timeout for all deadlines, and reports a connection that is shut as closed.
//! Whose fault it is, the socket knows: an upstream that has taken all we sent, or has sent what nobody reads, waits
//! for the client. Of a stream of HTTP/2 only the exchange knows, and says so when it waits for either.

use crate::upstream::link::queued;
use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};
use std::task::Context;
use std::time::{Duration, Instant};

/// How often a worker looks; a deadline is kept to within this.
const TICK: Duration = Duration::from_millis(50);

/// A moment in milliseconds since the process's first look at the clock.
fn now() -> u64 {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    millis(EPOCH.elapsed())
}

thread_local! {
    /// Only the worker's own thread takes this lock; it is a lock because tasks must be Send.
    static WATCHED: Arc<Watched> = Arc::new(Watched::default());
}

#[derive(Default)]
struct Watched {
    exchanges: Mutex<Vec<Weak<Watch>>>,
    ticking: AtomicBool,
}

/// Who kept an exchange waiting for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// The upstream: it took or sent nothing.
    Upstream,
    /// The client: it sent nothing more of its body.
    Client,
    /// Nobody: the time the client had given the whole exchange is over.
    Nobody,
}

/// The connection of an exchange, as far as its deadline has to know it.
#[derive(Debug, Clone, Copy)]
pub enum Line {
    /// One the engine holds: it is shut.
    Engine(RawFd),
    /// One of its own.
    Own(RawFd),
    /// A stream of one that others share.
    Stream,
}

/// The deadline of one upstream connection in use. Dropping it lifts the deadline; it must be
/// dropped before the connection is, or without an await after it, so that the descriptor is never
/// another's when the worker looks.
pub struct Watch {
    line: Line,
    /// The exchange that waits.
    waker: AtomicWaker,
    /// When something moved last; this and the rest in milliseconds of [`now`].
    moved: AtomicU64,
    /// The upstream's time.
    limit: AtomicU64,
    /// The client's time for the next piece of its body; [`NEVER`] once all of it is there.
    patience: AtomicU64,
    late: AtomicU8,
}

const NEVER: u64 = u64::MAX;

impl Watch {
    /// Watches a connection from now on: the upstream has `limit` to send something.
    pub fn waiting(line: Line, limit: Duration) -> Arc<Watch> {
        Watch::start(line, millis(limit), NEVER)
    }

    /// Watches a connection while a request body is sent on it: the upstream has `limit` to take
    /// what there is, the client `patience` to send more.
    pub fn sending(line: Line, limit: Duration, patience: Duration) -> Arc<Watch> {
        Watch::start(line, millis(limit), millis(patience))
    }

    fn start(line: Line, limit: u64, patience: u64) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            line,
            waker: AtomicWaker::new(),
            moved: AtomicU64::new(now()),
            limit: AtomicU64::new(limit),
            patience: AtomicU64::new(patience),
            late: AtomicU8::new(0),
        });
        WATCHED.with(|watched| watched.add(Arc::downgrade(&watch)));
        watch
    }

    /// Something moved: everybody's time begins again.
    pub fn moved(&self) {
        self.moved.store(now(), Relaxed);
    }

    /// From now on the upstream has `limit` to take what there is, the client `patience` to send more.
    pub fn expect(&self, limit: Duration, patience: Duration) {
        self.limit.store(millis(limit), Relaxed);
        self.patience.store(millis(patience), Relaxed);
        self.moved();
    }

    /// From now on the upstream has `limit` to send something, again and again.
    pub fn wait(&self, limit: Duration) {
        self.limit.store(millis(limit), Relaxed);
        self.patience.store(NEVER, Relaxed);
        self.moved();
    }

    /// Whether somebody is late; if not, the task is woken when somebody is.
    pub fn is_over(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.late.load(Relaxed) != 0
    }

    /// Who was late.
    pub fn late(&self) -> Option<Late> {
        match self.late.load(Relaxed) {
            0 => None,
            1 => Some(Late::Upstream),
            _ => Some(Late::Client),
        }
    }

    /// Whether it is still to be watched.
    fn check(&self, now: u64) -> bool {
        let silent = now.saturating_sub(self.moved.load(Relaxed));
        let (limit, patience) = (self.limit.load(Relaxed), self.patience.load(Relaxed));
        if silent < limit.min(patience) {
            return true;
        }
        let is_sending = patience != NEVER;
        let (all_taken, unread) = match self.line {
            Line::Engine(fd) | Line::Own(fd) => {
                (is_sending && queued(fd, libc::TIOCOUTQ) == Some(0), queued(fd, libc::FIONREAD) > Some(0))
            }
            Line::Stream => (is_sending, false),
        };
        let late = match (all_taken, unread) {
            (_, true) => {
                // Writing to the client has a timeout of its own.
                self.moved.store(now, Relaxed);
                return true;
            }
            (true, false) if silent >= patience => 2,
            (false, false) if silent >= limit => 1,
            _ => return true,
        };
        self.late.store(late, Relaxed);
        match self.line {
            // SAFETY: no memory is passed; a descriptor that is no longer a socket is refused.
            Line::Engine(fd) => unsafe { _ = libc::shutdown(fd, libc::SHUT_RDWR) },
            Line::Own(_) | Line::Stream => self.waker.wake(),
        }
        false
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(NEVER)
}

impl Watched {
    fn add(self: &Arc<Self>, watch: Weak<Watch>) {
        self.exchanges.lock().push(watch);
        if !self.ticking.swap(true, Relaxed) {
            let watched = Arc::clone(self);
            tokio::spawn(async move { watched.tick().await });
        }
    }

    /// Runs while there is something to watch.
    async fn tick(&self) {
        loop {
            tokio::time::sleep(TICK).await;
            let mut exchanges = self.exchanges.lock();
            let now = now();
            exchanges.retain(|watch| watch.upgrade().is_some_and(|watch| watch.check(now)));
            if exchanges.is_empty() {
                self.ticking.store(false, Relaxed);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::task::Poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let client = tokio::net::TcpStream::connect(address).await.expect("connect");
        (client, listener.accept().await.expect("accept").0)
    }

    #[tokio::test]
    async fn a_late_upstream_is_shut_out_and_said_to_be_late() {
        let (mut client, _server) = pair().await;
        let watch = Watch::waiting(Line::Engine(client.as_raw_fd()), Duration::from_millis(60));
        assert_eq!(client.read(&mut [0; 1]).await.expect("end of stream"), 0);
        assert_eq!(watch.late(), Some(Late::Upstream));
    }

    #[tokio::test]
    async fn a_client_that_stops_sending_is_late_and_not_the_upstream() {
        let (mut client, _server) = pair().await;
        let (limit, patience) = (Duration::from_millis(1), Duration::from_millis(60));
        let watch = Watch::sending(Line::Engine(client.as_raw_fd()), limit, patience);
        assert_eq!(client.read(&mut [0; 1]).await.expect("end of stream"), 0);
        assert_eq!(watch.late(), Some(Late::Client));
    }

    #[tokio::test]
    async fn an_upstream_that_takes_nothing_is_late() {
        let (mut client, _server) = pair().await;
        let line = Line::Engine(client.as_raw_fd());
        let watch = Watch::sending(line, Duration::from_millis(60), Duration::from_secs(60));
        let broken = client.write_all(&vec![0; 64 << 20]).await;
        assert!(broken.is_err());
        assert_eq!(watch.late(), Some(Late::Upstream));
    }

    #[tokio::test]
    async fn an_upstream_with_something_to_read_is_not_late() {
        let (mut client, mut server) = pair().await;
        server.write_all(b"ab").await.expect("written");
        client.readable().await.expect("readable");
        let watch = Watch::waiting(Line::Engine(client.as_raw_fd()), Duration::from_millis(1));
        let nothing = tokio::time::timeout(TICK * 3, server.read(&mut [0; 1])).await;
        assert!(nothing.is_err(), "still open");
        assert_eq!(watch.late(), None);
        assert_eq!(client.read(&mut [0; 2]).await.expect("bytes"), 2);
        assert_eq!(client.read(&mut [0; 1]).await.expect("end of stream"), 0);
        assert_eq!(watch.late(), Some(Late::Upstream));
    }

    #[tokio::test]
    async fn an_exchange_is_told_and_its_connection_is_left_alone() {
        let (mut client, mut server) = pair().await;
        for (line, client_late) in [(Line::Own(client.as_raw_fd()), false), (Line::Stream, true)] {
            let (long, short) = (Duration::from_secs(60), Duration::from_millis(1));
            let watch = match client_late {
                true => Watch::sending(line, short, TICK),
                false => Watch::waiting(line, short),
            };
            std::future::poll_fn(|cx| if watch.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
            assert_eq!(watch.late(), Some(if client_late { Late::Client } else { Late::Upstream }));
            let silent = tokio::time::timeout(TICK, server.read(&mut [0; 1])).await;
            assert!(silent.is_err(), "still open");
            drop(Watch::waiting(line, long));
        }
        client.write_all(b"x").await.expect("still open");
    }

    #[tokio::test]
    async fn a_lifted_deadline_does_nothing() {
        let (mut client, _server) = pair().await;
        drop(Watch::waiting(Line::Engine(client.as_raw_fd()), Duration::from_millis(1)));
        let other = Watch::waiting(Line::Engine(client.as_raw_fd()), Duration::from_secs(60));
        let read = tokio::time::timeout(TICK * 4, client.read(&mut [0; 1])).await;
        assert!(read.is_err(), "still open");
        assert_eq!(other.late(), None);
    }
}
