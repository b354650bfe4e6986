//! Latencies in buckets whose width is at most a hundredth of what is in them.

use std::time::Duration;

/// Buckets for each power of two.
const STEPS: u32 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts by microseconds.
#[derive(Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        let place = place(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.total += 1;
    }

    /// Microseconds that this part of all stays within; 0 when there is none.
    pub fn percentile(&self, part: f64) -> u64 {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return highest(place);
            }
        }
        0
    }
}

/// Below STEPS one bucket a microsecond, then STEPS buckets for each doubling.
fn place(micros: u64) -> usize {
    let doublings = (u64::BITS - micros.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (u64::from(doublings * STEPS) + (micros >> doublings)) as usize
}

fn highest(place: usize) -> u64 {
    let steps = STEPS as usize;
    let doublings = (place / steps).saturating_sub(1);
    let first = ((place - doublings * steps) as u64) << doublings;
    first + (1 << doublings) - 1
}
