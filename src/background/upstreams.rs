//! What is found out about upstreams beside the traffic, on a thread of its own.
//!
//! At the start, and before a reload is published, it settles what is new: traffic that comes with a
//! configuration should not meet endpoints of which nothing is known yet. That wait is bounded.

use super::health::Checks;
use crate::snapshot::{Snapshot, SnapshotStore};
use crate::upstream::moment::Moment;
use crate::upstream::pool::Pool;
use crate::upstream::state::Health;
use async_trait::async_trait;
use log::warn;
use parking_lot::Mutex;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::BackgroundService;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Longest time a start or a reload waits for what is new.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the service to do something. Clones ask the same one.
#[derive(Clone)]
pub struct Upstreams {
    asks: mpsc::UnboundedSender<Ask>,
}

enum Ask {
    /// Look after these pools, and answer when what is new about them is known.
    Settle(Vec<Arc<Pool>>, oneshot::Sender<()>),
    /// Another snapshot serves.
    Published,
}

/// The service.
pub struct UpstreamService {
    store: Arc<SnapshotStore>,
    asked: Mutex<Option<mpsc::UnboundedReceiver<Ask>>>,
}

impl Upstreams {
    /// The service for what `store` serves, and who asks it. Not more than one reload asks at a time, so
    /// what it has been asked stays few.
    pub fn new(store: Arc<SnapshotStore>) -> (Upstreams, UpstreamService) {
        let (asks, asked) = mpsc::unbounded_channel();
        (Upstreams { asks }, UpstreamService { store, asked: Mutex::new(Some(asked)) })
    }

    /// Waits until each upstream of `next` has an endpoint that may get requests, if its endpoints and
    /// names allow, but not for ever. Blocks; to be called last before the publish.
    pub fn settle(&self, next: &Snapshot) {
        if next.pools.values().all(is_settled) {
            return;
        }
        let (done, settled) = oneshot::channel();
        let pools = next.pools.values().cloned().collect();
        // Without the service there is nothing to wait for.
        if self.asks.send(Ask::Settle(pools, done)).is_ok() {
            let _ = settled.blocking_recv();
        }
    }

    /// Tells that another snapshot serves.
    pub fn published(&self) {
        let _ = self.asks.send(Ask::Published);
    }
}

/// Whether it can serve, or it is known that it cannot.
fn is_settled(pool: &Arc<Pool>) -> bool {
    let (endpoints, now) = (pool.endpoints(), Moment::now());
    endpoints.iter().any(|endpoint| endpoint.state.available(now)) || is_known(pool)
}

/// Whether each of its endpoints has been looked at.
fn is_known(pool: &Arc<Pool>) -> bool {
    pool.endpoints().iter().all(|endpoint| endpoint.state.health() != Health::Pending)
}

impl UpstreamService {
    async fn look_after(&self, mut asked: mpsc::UnboundedReceiver<Ask>, started: ServiceReadyNotifier) {
        let mut checks = Checks::default();
        let pools = self.pools();
        checks.follow(&pools);
        settle(&checks, pools, is_known).await;
        started.notify_ready();
        // Whoever asks lives as long as the process.
        while let Some(ask) = asked.recv().await {
            match ask {
                Ask::Settle(pools, done) => {
                    checks.follow(&pools);
                    settle(&checks, pools, is_settled).await;
                    let _ = done.send(());
                }
                Ask::Published => checks.follow(&self.pools()),
            }
        }
    }

    fn pools(&self) -> Vec<Arc<Pool>> {
        self.store.load().pools.values().cloned().collect()
    }
}

async fn settle(checks: &Checks, pools: Vec<Arc<Pool>>, settled: fn(&Arc<Pool>) -> bool) {
    if timeout(PATIENCE, checks.until(|| pools.iter().all(settled))).await.is_err() {
        let late: Vec<&str> = pools.iter().filter(|pool| !settled(pool)).map(|pool| pool.name()).collect();
        warn!("endpoints are not known yet after {PATIENCE:?}, going on: {}", late.join(", "));
    }
}

#[async_trait]
impl BackgroundService for UpstreamService {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, started: ServiceReadyNotifier) {
        let Some(asked) = self.asked.lock().take() else { return };
        tokio::select! {
            () = self.look_after(asked, started) => {}
            // A sender that is gone means the same.
            _ = shutdown.wait_for(|ending| *ending) => {}
        }
    }
}
