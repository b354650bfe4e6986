//! Which requests are copied to a second upstream? An exact share, and no more at once than is bounded.
//!
//! Knows nothing of what a request is.

use super::pool::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Copies on their way at once, for each route; what comes on top is not copied.
const IN_FLIGHT: usize = 256;

/// The second upstream of a route.
#[derive(Debug)]
pub struct Mirror {
    pool: Arc<Pool>,
    percent: u64,
    asked: AtomicU64,
    in_flight: AtomicUsize,
}

/// A copy on its way, for as long as it lives.
#[derive(Debug)]
pub struct OnItsWay(Arc<Mirror>);

impl Mirror {
    /// Copies `percent` of the requests to `pool`.
    pub fn new(pool: Arc<Pool>, percent: u32) -> Arc<Mirror> {
        let percent = u64::from(percent.min(100));
        Arc::new(Mirror { pool, percent, asked: AtomicU64::new(0), in_flight: AtomicUsize::new(0) })
    }

    /// Where the copies go.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether the next request is one to copy: spread evenly, not by chance.
    pub fn next(&self) -> bool {
        let share = self.asked.fetch_add(1, Relaxed) % 100 * self.percent;
        share % 100 + self.percent >= 100
    }

    /// Room for one copy; `None` when too many are on their way.
    pub fn enter(self: &Arc<Self>) -> Option<OnItsWay> {
        let more = |count| (count < IN_FLIGHT).then_some(count + 1);
        self.in_flight.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(OnItsWay(Arc::clone(self)))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Problems, UpstreamConfig};
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::fixtures::Folder;
    use crate::upstream::pool_name::PoolName;

    fn mirror(percent: u32) -> Arc<Mirror> {
        let endpoint = serde_json::from_str("\"127.0.0.1:9000\"").unwrap();
        let (config, source) = (UpstreamConfig::inline(vec![endpoint]), Folder::new().source());
        let metrics = Metrics::new().upstream("shadow");
        let name = PoolName::upstream("shadow");
        let pool = Pool::compile(&name, &config, &source, "", &metrics, None, &mut Problems::default());
        Mirror::new(pool.unwrap(), percent)
    }

    #[test]
    fn shares_are_exact_and_even() {
        for percent in [1, 10, 33, 50, 99, 100] {
            let mirror = mirror(percent);
            let copied: Vec<bool> = (0..1_000).map(|_| mirror.next()).collect();
            assert_eq!(copied.iter().filter(|copied| **copied).count(), 10 * percent as usize);
            let longest = 100usize.div_ceil(percent as usize);
            assert!(copied.windows(longest).all(|run| run.contains(&true)), "{percent}");
        }
    }

    #[test]
    fn no_more_are_on_their_way_than_is_bounded() {
        let mirror = mirror(100);
        let mut on_their_way: Vec<_> = (0..IN_FLIGHT).map(|_| mirror.enter().unwrap()).collect();
        assert!(mirror.enter().is_none());
        on_their_way.pop();
        assert!(mirror.enter().is_some());
    }
}
