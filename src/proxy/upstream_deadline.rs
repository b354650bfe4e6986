//! The deadlines of an upstream exchange: for the response head, then between two reads of its
//! body.
//!
//! The engine has one read timeout for both. It is set to the longer of the two; the shorter one is
//! watched here: each worker looks over its running exchanges a few times a second and shuts the
//! connection of one that is late, which the engine then reports as closed.

use parking_lot::Mutex;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

/// How often a worker looks; a deadline is kept to within this.
const TICK: Duration = Duration::from_millis(50);

/// A moment in milliseconds since the process's first look at the clock.
fn now() -> u64 {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(EPOCH.elapsed().as_millis()).unwrap_or(u64::MAX)
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

/// The deadline of one upstream connection in use. Dropping it lifts the deadline; it must be
/// dropped before the connection is, so that the descriptor is never another's.
pub struct Watch {
    fd: RawFd,
    due: AtomicU64,
    expired: AtomicBool,
}

impl Watch {
    /// Watches connection `fd` from now on; it has `limit` until it is late.
    pub fn arm(fd: RawFd, limit: Duration) -> Arc<Watch> {
        let watch = Arc::new(Watch { fd, due: AtomicU64::new(0), expired: AtomicBool::new(false) });
        watch.extend(limit);
        WATCHED.with(|watched| watched.add(Arc::downgrade(&watch)));
        watch
    }

    /// Something arrived: the connection has `limit` again.
    pub fn extend(&self, limit: Duration) {
        self.due.store(now().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)), Relaxed);
    }

    /// Whether the connection was shut for being late.
    pub fn expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    fn check(&self, now: u64) -> bool {
        if now < self.due.load(Relaxed) {
            return true;
        }
        self.expired.store(true, Relaxed);
        // SAFETY: no memory is passed; a descriptor that is no longer a socket is refused.
        unsafe { libc::shutdown(self.fd, libc::SHUT_RDWR) };
        false
    }
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
    use tokio::io::AsyncReadExt;

    async fn pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let client = tokio::net::TcpStream::connect(address).await.expect("connect");
        (client, listener.accept().await.expect("accept").0)
    }

    #[tokio::test]
    async fn a_late_connection_is_shut_and_says_so() {
        let (mut client, _server) = pair().await;
        let watch = Watch::arm(client.as_raw_fd(), Duration::from_millis(60));
        assert_eq!(client.read(&mut [0; 1]).await.expect("end of stream"), 0);
        assert!(watch.expired());
    }

    #[tokio::test]
    async fn a_lifted_deadline_does_nothing() {
        let (mut client, _server) = pair().await;
        drop(Watch::arm(client.as_raw_fd(), Duration::from_millis(1)));
        let other = Watch::arm(client.as_raw_fd(), Duration::from_secs(60));
        let read = tokio::time::timeout(TICK * 4, client.read(&mut [0; 1])).await;
        assert!(read.is_err(), "still open");
        assert!(!other.expired());
    }
}
