//! When is an endpoint out for what it answered? Failures counted over a sliding window, and for how long
//! it stays out, which grows while it keeps failing.
//!
//! Atomic and a few bytes per endpoint. Knows nothing of what a failure is, nor of how many may be out.

use super::moment::Moment;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// An ejection lasts at most this many times as long as the first one.
const MAX_TIMES: u32 = 10;

/// The failures of one endpoint.
#[derive(Debug, Default)]
pub struct Failures {
    /// The number of the window in the high half; failures in it and in the one before, 16 bits each.
    counts: AtomicU64,
    /// Ejections one after another.
    ejections: AtomicU32,
}

impl Failures {
    /// Counts one; gives how many there were within the last `window`. Exact within two windows' borders,
    /// between them the older window counts in part.
    pub fn add(&self, now: Moment, window: Duration) -> u32 {
        let span = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1);
        let number = (now.0 / span) as u32;
        let mut seen = (0, 0);
        let next = |packed: u64| {
            let (at, here, before) = unpack(packed);
            let (here, before) = match number.wrapping_sub(at) {
                0 => (here, before),
                1 => (0, here),
                _ => (0, 0),
            };
            seen = (here.saturating_add(1), before);
            Some(u64::from(number) << 32 | u64::from(seen.0) << 16 | u64::from(seen.1))
        };
        let _ = self.counts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let (here, before) = seen;
        let left = 1.0 - (now.0 % span) as f64 / span as f64;
        u32::from(here) + (f64::from(before) * left).ceil() as u32
    }

    /// Forgets what was counted, and gives how long the endpoint is to be out: `first`, or so many times
    /// as long as there were ejections without a pause. A pause is as long as the last ejection was, after
    /// its end, `last_until`.
    pub fn eject(&self, now: Moment, first: Duration, last_until: Moment) -> Duration {
        self.counts.store(0, Ordering::Relaxed);
        let times = self.ejections.load(Ordering::Relaxed);
        let paused = now >= last_until.plus(first * times.min(MAX_TIMES));
        let times = if paused { 1 } else { times.saturating_add(1).min(MAX_TIMES) };
        self.ejections.store(times, Ordering::Relaxed);
        first * times
    }
}

fn unpack(packed: u64) -> (u32, u16, u16) {
    ((packed >> 32) as u32, (packed >> 16) as u16, packed as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO.plus(Duration::from_secs(1_000 + seconds))
    }

    #[test]
    fn failures_count_for_one_window() {
        let failures = Failures::default();
        let counts: Vec<_> = [1, 2, 3, 9].iter().map(|second| failures.add(at(*second), WINDOW)).collect();
        assert_eq!(counts, [1, 2, 3, 4]);
        assert_eq!(failures.add(at(10), WINDOW), 5, "the four before are at most ten seconds old");
        assert_eq!(failures.add(at(15), WINDOW), 4, "half of the four still counts");
        assert_eq!(failures.add(at(40), WINDOW), 1);
    }

    #[test]
    fn ejections_in_a_row_last_longer_up_to_a_bound_and_a_pause_forgives() {
        let (failures, first) = (Failures::default(), Duration::from_secs(30));
        let mut now = at(0);
        for times in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10] {
            let out = failures.eject(now, first, if times == 1 { Moment::ZERO } else { now });
            assert_eq!(out, first * times);
            now = now.plus(out);
        }
        assert_eq!(failures.eject(now.plus(first * 9), first, now), first * 10, "too soon");
        let until = now.plus(first * 30);
        assert_eq!(failures.eject(until.plus(first * 10), first, until), first);
    }

    #[test]
    fn what_led_to_an_ejection_does_not_count_twice() {
        let failures = Failures::default();
        assert_eq!((0..5).map(|_| failures.add(at(1), WINDOW)).last(), Some(5));
        failures.eject(at(1), WINDOW, Moment::ZERO);
        assert_eq!(failures.add(at(2), WINDOW), 1);
    }
}
