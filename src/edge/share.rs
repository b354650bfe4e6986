//! A worker's share of the open connections.
//!
//! All workers wait on the same socket, and whoever is awake takes the next connection: left alone,
//! one of them ends up with most. A worker above its share pauses between two accepts, which leaves
//! the next connections to the others; when they are busy it still gets one for each pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A worker may have this many connections more than its share, and a sixteenth more.
const SLACK: usize = 1;

/// Counts the connections of one worker.
pub struct Share {
    own: Arc<AtomicUsize>,
    workers: usize,
}

/// One open connection of the worker.
pub struct ShareGuard(Arc<AtomicUsize>);

impl Share {
    /// For one of `workers`.
    pub fn new(workers: usize) -> Self {
        Share { own: Arc::new(AtomicUsize::new(0)), workers }
    }

    /// Counts one more connection until the guard is dropped.
    pub fn enter(&self) -> ShareGuard {
        self.own.fetch_add(1, Relaxed);
        ShareGuard(Arc::clone(&self.own))
    }

    /// Whether this worker has more than its share of `all` open connections.
    pub fn is_exceeded(&self, all: usize) -> bool {
        let fair = all / self.workers.max(1);
        self.own.load(Relaxed) > fair + fair / 16 + SLACK
    }
}

impl Drop for ShareGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_alone_never_exceeds_its_share() {
        let share = Share::new(1);
        let guards: Vec<_> = (0..100).map(|_| share.enter()).collect();
        assert!(!share.is_exceeded(guards.len()));
    }

    #[test]
    fn the_share_is_exceeded_a_little_above_the_mean() {
        let share = Share::new(2);
        let mut guards: Vec<_> = (0..32).map(|_| share.enter()).collect();
        assert!(!share.is_exceeded(64));
        guards.extend((0..4).map(|_| share.enter()));
        assert!(share.is_exceeded(64));
        guards.truncate(30);
        assert!(!share.is_exceeded(64));
    }
}
