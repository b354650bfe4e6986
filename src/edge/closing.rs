//! When is a socket closed? When its last descriptor is, and every worker has one.
//!
//! A reload may ask for an address that the reload before has removed: it waits here for the moment.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts the descriptors of one socket.
#[derive(Default)]
pub struct Closing {
    open: Mutex<usize>,
    closed: Condvar,
}

/// One descriptor; to be dropped after it.
pub struct Held(Arc<Closing>);

impl Closing {
    /// Counts one more descriptor.
    pub fn hold(self: &Arc<Self>) -> Held {
        *self.open.lock() += 1;
        Held(Arc::clone(self))
    }

    /// Blocks until every descriptor is closed; false: some were not after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut open = self.open.lock();
        !self.closed.wait_while_until(&mut open, |open| *open > 0, deadline).timed_out()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        *open -= 1;
        if *open == 0 {
            self.0.closed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_last_descriptor_and_not_for_ever() {
        let closing = Arc::new(Closing::default());
        assert!(closing.wait(Duration::ZERO));
        let held = closing.hold();
        assert!(!closing.wait(Duration::from_millis(5)));
        let other = std::thread::spawn(move || drop(held));
        assert!(closing.wait(Duration::from_secs(10)));
        other.join().expect("no panic");
    }
}
