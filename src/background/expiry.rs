//! Says loudly what of the certificates has had its time: when a configuration begins to serve, and when the
//! time comes.
//!
//! Nothing is refused for it, and OCSP responses stop being stapled by themselves. Knows nothing of what a
//! certificate is.

use crate::snapshot::{Snapshot, SnapshotStore};
use async_trait::async_trait;
use log::error;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

/// How late it may be said. Dates are compared anew each time, so a clock that is set does no harm.
const PAUSE: Duration = Duration::from_secs(5);

/// Watches what serves.
pub struct Expiry {
    /// What serves.
    pub store: Arc<SnapshotStore>,
}

/// Says what of `serving` is not good; for a configuration that begins to serve.
pub fn tell(serving: &Snapshot) {
    for overdue in serving.certificates.overdue() {
        error!("{}", overdue.what);
    }
}

impl Expiry {
    async fn watch(&self) {
        let mut looked = now();
        loop {
            sleep(PAUSE).await;
            let now = now();
            let overdue = self.store.pin().certificates.overdue();
            for overdue in overdue.into_iter().filter(|it| looked < it.since && it.since <= now) {
                error!("{}", overdue.what);
            }
            looked = now;
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[async_trait]
impl BackgroundService for Expiry {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            () = self.watch() => {}
            // A sender that is gone means the same.
            _ = shutdown.wait_for(|ending| *ending) => {}
        }
    }
}
