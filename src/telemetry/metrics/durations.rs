//! A histogram of durations that costs two atomic additions an observation.
//!
//! Count and buckets come from the same numbers, so they always agree; the sum may be one observation
//! ahead or behind in a scrape taken in between. Does not know what is measured.

use super::family::Family;
use prometheus::proto::{Bucket, Histogram, Metric};
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds in seconds, inclusive.
pub(super) type Bounds = [f64; BOUNDS];
const BOUNDS: usize = 15;

/// A proxied request on a good day to one that gave up.
pub(super) const REQUEST: Bounds =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// A websocket that failed at once to one that is open for a week.
pub(super) const TUNNEL: Bounds = [
    0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0,
    604_800.0,
];

/// More than anything takes; keeps a broken clock from overflowing the sum.
const LONGEST_SECONDS: f64 = 31_536_000.0;

/// Counts by bucket, and their sum.
pub(super) struct Durations {
    bounds: &'static Bounds,
    buckets: [AtomicU64; BOUNDS + 1],
    // An integer, because adding to a shared float needs a loop.
    sum_nanoseconds: AtomicU64,
}

impl Durations {
    /// Nothing observed.
    pub(super) fn new(bounds: &'static Bounds) -> Box<Self> {
        Box::new(Durations { bounds, buckets: Default::default(), sum_nanoseconds: AtomicU64::new(0) })
    }

    /// Counts one duration; what is not a number or negative counts as zero.
    pub(super) fn observe(&self, seconds: f64) {
        let seconds = seconds.clamp(0.0, LONGEST_SECONDS);
        let bucket = self.bounds.iter().filter(|bound| seconds > **bound).count();
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanoseconds.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
    }

    /// The sample of a scrape.
    pub(super) fn sample(&self, family: &Family, values: &[&str]) -> Metric {
        let mut total = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (count, bound) in self.buckets.iter().zip(*self.bounds) {
            total += count.load(Ordering::Relaxed);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(total);
            buckets.push(bucket);
        }
        total += self.buckets[self.bounds.len()].load(Ordering::Relaxed);
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(total);
        histogram.set_sample_sum(self.sum_nanoseconds.load(Ordering::Relaxed) as f64 / 1e9);
        let mut metric = family.labelled(values);
        metric.set_histogram(histogram);
        metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::family::Kind;

    const FAMILY: Family =
        Family { name: "test_seconds", help: "Test.", labels: &["route"], kind: Kind::Histogram };

    fn counts(durations: &Durations) -> (Vec<u64>, u64, f64) {
        let metric = durations.sample(&FAMILY, &["a"]);
        let histogram = metric.get_histogram();
        let buckets = histogram.get_bucket().iter().map(|bucket| bucket.cumulative_count()).collect();
        (buckets, histogram.get_sample_count(), histogram.get_sample_sum())
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let durations = Durations::new(&REQUEST);
        durations.observe(0.0005);
        durations.observe(0.00051);
        durations.observe(31.0);
        let (buckets, count, sum) = counts(&durations);
        assert_eq!((buckets[0], buckets[1], buckets[14], count), (1, 2, 2, 3));
        assert!((sum - 31.00101).abs() < 1e-6);
    }

    #[test]
    fn broken_clocks_do_not_break_the_sum() {
        let durations = Durations::new(&REQUEST);
        for odd in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            durations.observe(odd);
        }
        durations.observe(f64::INFINITY);
        assert_eq!(counts(&durations), (vec![3; 15], 4, LONGEST_SECONDS));
    }
}
