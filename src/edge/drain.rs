//! Counts open connections, so that a leaving process can go as soon as the last one ends, and knows how
//! long it may take them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// Process-lived; shared by every worker.
#[derive(Default)]
pub struct Drain {
    open: AtomicUsize,
    idle: Notify,
}

/// One open connection; dropping it says that it ended.
pub struct DrainGuard(Arc<Drain>);

impl Drain {
    /// Counts one more connection.
    pub fn enter(self: &Arc<Self>) -> DrainGuard {
        self.open.fetch_add(1, Ordering::AcqRel);
        DrainGuard(Arc::clone(self))
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Returns when no connection is open.
    pub async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            if self.open() == 0 {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// How long what runs may go on where nothing new is taken: `shutdown.drain`, as it is now. A change holds
/// for drains that run.
pub struct Patience(watch::Sender<Option<Duration>>);

impl Patience {
    /// This long, for the time being.
    pub fn new(limit: Duration) -> Self {
        Patience(watch::Sender::new(Some(limit)))
    }

    /// This long from now on, unless it has ended for good.
    pub fn change(&self, limit: Duration) {
        self.0.send_if_modified(|now| now.as_mut().is_some_and(|now| std::mem::replace(now, limit) != limit));
    }

    /// No longer at all, whatever is configured later.
    pub fn end(&self) {
        self.0.send_replace(None);
    }

    /// How long it is now.
    pub fn limit(&self) -> Duration {
        self.0.borrow().unwrap_or_default()
    }

    /// Returns when a drain that began at this moment has had its time.
    pub async fn over(&self, begun: Instant) {
        let mut limit = self.0.subscribe();
        loop {
            let until = begun + limit.borrow_and_update().unwrap_or_default();
            tokio::select! {
                () = sleep_until(until) => return,
                // The sender is borrowed here.
                _ = limit.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_runs_heeds_what_changes() {
        let patience = Arc::new(Patience::new(Duration::from_secs(3600)));
        let begun = Instant::now();
        let waiter = tokio::spawn({
            let patience = Arc::clone(&patience);
            async move { patience.over(begun).await }
        });
        tokio::time::sleep_until(begun + Duration::from_secs(10)).await;
        assert!(!waiter.is_finished());
        patience.change(Duration::from_secs(20));
        waiter.await.expect("its time is over");
        assert_eq!(begun.elapsed().as_secs(), 20);
        patience.end();
        patience.change(Duration::from_secs(3600));
        patience.over(Instant::now()).await;
        assert_eq!(begun.elapsed().as_secs(), 20, "it had ended for good");
    }

    #[tokio::test]
    async fn idle_returns_when_the_last_guard_is_dropped() {
        let drain = Arc::new(Drain::default());
        let (first, second) = (drain.enter(), drain.enter());
        let waiter = tokio::spawn({
            let drain = Arc::clone(&drain);
            async move { drain.idle().await }
        });
        drop(first);
        assert_eq!(drain.open(), 1);
        drop(second);
        waiter.await.expect("idle returns");
        assert_eq!(drain.open(), 0);
    }
}
