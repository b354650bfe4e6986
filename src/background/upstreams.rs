//! What is found out about upstreams beside the traffic, on a thread of its own: what names stand for, and
//! how endpoints are.
//!
//! At the start, and before a reload is published, it settles what is new: traffic that comes with a
//! configuration should not meet endpoints of which nothing is known yet. That wait is bounded.

use super::health::Checks;
use super::names::Lookups;
use crate::config::ResolverConfig;
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
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Longest time a start or a reload waits for what is new.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the service to do something. Clones ask the same one.
#[derive(Clone)]
pub struct Upstreams {
    asks: mpsc::UnboundedSender<Ask>,
}

enum Ask {
    /// Look after these pools, and answer when what is new about them is known.
    Settle(Vec<Arc<Pool>>, ResolverConfig, oneshot::Sender<()>),
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
            next.pools.values().for_each(|pool| pool.bring_up_to_date());
            return;
        }
        let (done, settled) = oneshot::channel();
        let pools = next.pools.values().cloned().collect();
        // Without the service there is nothing to wait for.
        if self.asks.send(Ask::Settle(pools, next.config.resolver.clone(), done)).is_ok() {
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

/// Whether each of its names and endpoints has been looked at.
fn is_known(pool: &Arc<Pool>) -> bool {
    pool.names().iter().all(|name| name.facts().asked)
        && pool.endpoints().iter().all(|endpoint| endpoint.state.health() != Health::Pending)
}

/// Who waits for pools to be settled.
struct Waiting {
    pools: Vec<Arc<Pool>>,
    settled: fn(&Arc<Pool>) -> bool,
    until: Instant,
    tell: Box<dyn FnOnce() + Send>,
}

impl Waiting {
    /// Lets traffic come, to what is known by now: a verdict of a moment ago counts for the first request too.
    fn tell(self) {
        self.pools.iter().for_each(|pool| pool.bring_up_to_date());
        (self.tell)();
    }
}

/// What the service has at hand.
struct Care {
    pools: Vec<Arc<Pool>>,
    lookups: Lookups,
    checks: Checks,
    waiting: Option<Waiting>,
}

impl UpstreamService {
    async fn look_after(&self, mut asked: mpsc::UnboundedReceiver<Ask>, started: ServiceReadyNotifier) {
        // One permit is stored: news between two looks is not lost.
        let news = Arc::new(Notify::new());
        let (pools, resolver) = self.serving();
        let mut care = Care {
            pools: Vec::new(),
            lookups: Lookups::new(&resolver, Arc::clone(&news)),
            checks: Checks::new(Arc::clone(&news)),
            waiting: None,
        };
        care.follow(pools.clone(), &resolver);
        care.wait(pools, is_known, move || started.notify_ready());
        loop {
            let deadline = care.deadline();
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(Ask::Settle(pools, resolver, done)) => {
                        care.follow(pools.clone(), &resolver);
                        care.wait(pools, is_settled, move || {
                            // A reload that no longer waits needs no answer.
                            let _ = done.send(());
                        });
                    }
                    Some(Ask::Published) => {
                        let (pools, resolver) = self.serving();
                        care.follow(pools, &resolver);
                    }
                    // Whoever asks lives as long as the process.
                    None => return,
                },
                () = news.notified() => care.take_news(),
                () = until(deadline) => care.give_up(),
            }
            care.tell_if_settled();
        }
    }

    fn serving(&self) -> (Vec<Arc<Pool>>, ResolverConfig) {
        let snapshot = self.store.load();
        (snapshot.pools.values().cloned().collect(), snapshot.config.resolver.clone())
    }
}

impl Care {
    fn follow(&mut self, pools: Vec<Arc<Pool>>, resolver: &ResolverConfig) {
        self.pools = pools;
        self.lookups.follow(&self.pools, resolver);
        self.take_news();
    }

    /// Names may stand for other addresses than before, and those want to be checked.
    fn take_news(&mut self) {
        for pool in &self.pools {
            pool.take_names();
        }
        self.checks.follow(&self.pools);
    }

    fn wait(
        &mut self,
        pools: Vec<Arc<Pool>>,
        settled: fn(&Arc<Pool>) -> bool,
        tell: impl FnOnce() + Send + 'static,
    ) {
        self.give_up();
        let until = Instant::now() + PATIENCE;
        self.waiting = Some(Waiting { pools, settled, until, tell: Box::new(tell) });
        self.tell_if_settled();
    }

    fn tell_if_settled(&mut self) {
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.pools.iter().all(waiting.settled)) {
            waiting.tell();
        }
    }

    /// When who waits gives up.
    fn deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|waiting| waiting.until)
    }

    fn give_up(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let late = waiting.pools.iter().filter(|pool| !(waiting.settled)(pool));
        let late: Vec<&str> = late.map(|pool| pool.name()).collect();
        warn!("not all is known yet of {}; going on after {PATIENCE:?}", late.join(", "));
        waiting.tell();
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
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
