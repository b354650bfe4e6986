//! Counts open connections, so that a leaving process can go as soon as the last one ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

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

#[cfg(test)]
mod tests {
    use super::*;

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
