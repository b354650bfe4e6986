//! The loop of active checks: one task for each endpoint of each upstream that has them.
//!
//! Runs on a thread of its own; traffic reads the verdicts and never waits for one. Tasks follow the
//! endpoints: one that stays, with the same checks, keeps its task and what was counted, whatever else
//! a reload changes. Knows nothing of what a check asks.

use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::verdict::Tally;
use crate::upstream::health::{Failure, FailureKind, HealthCheck};
use crate::upstream::pool::Pool;
use crate::upstream::state::Health;
use log::{info, warn};
use pingora_core::connectors::TransportConnector;
use rand::Rng;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Most checks under way at a time, over all upstreams: each has a connection.
const MAX_AT_ONCE: usize = 256;

/// The checks of a process.
pub struct Checks {
    running: HashMap<Key, Running>,
    shared: Arc<Shared>,
}

/// Two upstreams at one address know nothing of each other.
type Key = (String, Arc<str>);

/// The task of one endpoint; ends when it is dropped.
struct Running {
    endpoint: Arc<Endpoint>,
    check: Arc<HealthCheck>,
    task: AbortHandle,
}

struct Shared {
    connector: TransportConnector,
    permits: Semaphore,
    news: Arc<Notify>,
}

/// What one task needs.
struct Watch {
    upstream: String,
    endpoint: Arc<Endpoint>,
    check: Arc<HealthCheck>,
    metrics: Arc<UpstreamMetrics>,
    shared: Arc<Shared>,
}

impl Checks {
    /// None yet; `news` is notified after each verdict.
    pub fn new(news: Arc<Notify>) -> Checks {
        let (connector, permits) = (TransportConnector::new(None), Semaphore::new(MAX_AT_ONCE));
        Checks { running: HashMap::new(), shared: Arc::new(Shared { connector, permits, news }) }
    }

    /// Starts what these pools need and is not running, ends what they do not need. New checks begin at
    /// once. Must be called in the runtime that is to run them.
    pub fn follow(&mut self, pools: &[Arc<Pool>]) {
        let mut before = std::mem::take(&mut self.running);
        for pool in pools {
            for endpoint in pool.endpoints() {
                match pool.health_check() {
                    Some(check) => {
                        let key = (pool.name().to_owned(), Arc::clone(&endpoint.label));
                        let kept = before.remove(&key).filter(|running| running.is_for(&endpoint, check));
                        let running = kept.unwrap_or_else(|| self.start(pool, endpoint, check));
                        self.running.insert(key, running);
                    }
                    // Nobody checks it any more: it is taken to work.
                    None => drop(endpoint.state.set_health(Health::Unchecked)),
                }
            }
        }
    }

    fn start(&self, pool: &Pool, endpoint: Arc<Endpoint>, check: &Arc<HealthCheck>) -> Running {
        if endpoint.state.health() == Health::Unchecked {
            // It serves; from now on checks may take it out.
            endpoint.state.set_health(Health::Up);
        }
        let watch = Watch {
            upstream: pool.name().to_owned(),
            endpoint: Arc::clone(&endpoint),
            check: Arc::clone(check),
            metrics: Arc::clone(pool.metrics()),
            shared: Arc::clone(&self.shared),
        };
        let task = tokio::spawn(watch.run()).abort_handle();
        Running { endpoint, check: Arc::clone(check), task }
    }
}

impl Running {
    fn is_for(&self, endpoint: &Endpoint, check: &HealthCheck) -> bool {
        self.endpoint.is(endpoint) && self.check.is_like(check) && !self.task.is_finished()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    async fn run(self) {
        let mut tally = Tally::default();
        loop {
            // Never closed.
            let permit = self.shared.permits.acquire().await;
            let begun = Instant::now();
            let result = self.check.run(&self.endpoint, &self.shared.connector).await;
            drop(permit);
            self.record(&mut tally, &result);
            sleep_until(begun + jittered(self.check.interval)).await;
        }
    }

    fn record(&self, tally: &mut Tally, result: &Result<(), Failure>) {
        self.metrics
            .health_check(result.as_ref().map_or_else(|failure| failure.kind.as_str(), |()| "success"));
        let state = &self.endpoint.state;
        state.set_reachable(!matches!(result, Err(failure) if failure.kind == FailureKind::Connect));
        let (healthy, unhealthy) = (self.check.healthy, self.check.unhealthy);
        let Some(verdict) = tally.count(state.health(), result.is_ok(), healthy, unhealthy) else { return };
        let before = state.set_health(verdict);
        let (upstream, label) = (&self.upstream, &self.endpoint.label);
        match result {
            Ok(()) => info!("upstream {upstream}: {label} is up"),
            Err(failure) if before == Health::Pending => {
                warn!("upstream {upstream}: {label} is down, the first check failed: {failure}");
            }
            Err(failure) => {
                warn!("upstream {upstream}: {label} is down, {unhealthy} checks failed: {failure}")
            }
        }
        self.shared.news.notify_one();
    }
}

/// Give or take a tenth, so that the checks of many endpoints, and of many gateways, spread out.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::thread_rng().gen_range(0.9..1.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_spread_out_by_a_tenth_of_their_interval() {
        let spans: Vec<_> = (0..1_000).map(|_| jittered(Duration::from_secs(10)).as_millis()).collect();
        assert!(spans.iter().all(|span| (9_000..=11_000).contains(span)));
        assert!(spans.iter().any(|span| *span < 9_500) && spans.iter().any(|span| *span > 10_500));
    }
}
