//! The loop of lookups: one task for each name of each upstream, again whenever an answer has had its time.
//!
//! Runs beside the checks, on their thread. What a name stands for now goes into its [`Name`]; the pools
//! take it from there. Knows nothing of DNS.

use crate::config::ResolverConfig;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::names::resolver::Resolver;
use crate::upstream::names::{Facts, Name, within_reach};
use crate::upstream::pool::Pool;
use log::{info, warn};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Most lookups under way at a time.
const MAX_AT_ONCE: usize = 64;
/// Longest first pause after a lookup that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after lookups that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The lookups of a process.
pub struct Lookups {
    running: HashMap<Key, Running>,
    resolver: Arc<Resolver>,
    permits: Arc<Semaphore>,
    news: Arc<Notify>,
}

/// Upstream and name.
type Key = (String, String);

/// The task of one name; ends when it is dropped.
struct Running {
    name: Arc<Name>,
    resolver: Arc<Resolver>,
    checked: bool,
    task: AbortHandle,
}

/// What one task needs.
struct Watch {
    upstream: String,
    name: Arc<Name>,
    resolver: Arc<Resolver>,
    /// Whether checks find out which addresses work.
    checked: bool,
    metrics: Arc<UpstreamMetrics>,
    permits: Arc<Semaphore>,
    news: Arc<Notify>,
}

impl Lookups {
    /// None yet; `news` is notified after each.
    pub fn new(config: &ResolverConfig, news: Arc<Notify>) -> Lookups {
        Lookups {
            running: HashMap::new(),
            resolver: Arc::new(Resolver::new(config.clone())),
            permits: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            news,
        }
    }

    /// Starts what these pools need and is not running, ends what they do not need. Must be called in the
    /// runtime that is to run them.
    pub fn follow(&mut self, pools: &[Arc<Pool>], config: &ResolverConfig) {
        if self.resolver.config() != config {
            self.resolver = Arc::new(Resolver::new(config.clone()));
        }
        let mut before = std::mem::take(&mut self.running);
        for pool in pools {
            let checked = pool.health_check().is_some();
            for name in pool.names() {
                let key = (pool.name().to_owned(), name.host().to_owned());
                let kept = before.remove(&key).filter(|running| {
                    Arc::ptr_eq(&running.name, name)
                        && Arc::ptr_eq(&running.resolver, &self.resolver)
                        && running.checked == checked
                        && !running.task.is_finished()
                });
                let running = kept.unwrap_or_else(|| self.start(pool, name, checked));
                self.running.insert(key, running);
            }
        }
    }

    fn start(&self, pool: &Pool, name: &Arc<Name>, checked: bool) -> Running {
        let watch = Watch {
            upstream: pool.name().to_owned(),
            name: Arc::clone(name),
            resolver: Arc::clone(&self.resolver),
            checked,
            metrics: Arc::clone(pool.metrics()),
            permits: Arc::clone(&self.permits),
            news: Arc::clone(&self.news),
        };
        let task = tokio::spawn(watch.run()).abort_handle();
        Running { name: Arc::clone(name), resolver: Arc::clone(&self.resolver), checked, task }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    async fn run(self) {
        // How long answers are used at least says nothing of how long one is waited for.
        let first = self.resolver.config().min_ttl.0.min(FIRST_PAUSE);
        let mut pause = first;
        loop {
            let before = self.name.facts();
            let ttl = self.look_up().await;
            self.tell(&before);
            // A family that could not be asked for is trouble too.
            if self.name.facts().trouble.is_none() {
                pause = first;
                sleep(ttl.unwrap_or(first)).await;
            } else {
                sleep(ttl.map_or(pause, |ttl| ttl.min(pause))).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// One lookup; how long its answer holds, `None` without one.
    async fn look_up(&self) -> Option<Duration> {
        // Never closed.
        let _permit = self.permits.acquire().await;
        match self.resolver.look_up(self.name.host()).await {
            Ok(answer) => {
                let ttl = answer.ttl;
                let answer = if self.checked { answer } else { within_reach(answer, self.name.port()).await };
                self.metrics.resolution("success");
                self.name.answered(answer);
                Some(ttl)
            }
            Err(trouble) => {
                self.metrics.resolution(trouble.as_str());
                self.name.failed(&trouble);
                None
            }
        }
    }

    fn tell(&self, before: &Facts) {
        let (upstream, host, now) = (&self.upstream, self.name.host(), self.name.facts());
        if now.addresses != before.addresses {
            let addresses: Vec<String> = now.addresses.iter().map(ToString::to_string).collect();
            info!("upstream {upstream}: {host} is {}", addresses.join(", "));
        }
        match (&now.trouble, &before.trouble) {
            (Some(trouble), before) if before.as_ref() != Some(trouble) => match now.addresses.len() {
                0 => warn!("upstream {upstream}: {host} cannot be resolved: {trouble}"),
                _ => warn!("upstream {upstream}: {host} is kept as it was: {trouble}"),
            },
            (None, Some(_)) => info!("upstream {upstream}: {host} is resolved again"),
            _ => {}
        }
        self.news.notify_one();
    }
}
