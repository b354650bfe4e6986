//! How fast is an endpoint? A moving average that believes bad news at once and good news slowly.
//!
//! Peak-EWMA: a slower answer counts in full from now on, a faster one pulls the average down with a
//! half-life. The average also sinks while nothing is heard, so that an endpoint that was slow is tried
//! again. Value and time share one atomic, so they are never torn apart. Knows nothing of who asks.

use super::moment::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time after which a past value counts half, in ticks of about a millisecond.
const HALF_LIFE: u32 = 7_000;

/// The average: microseconds as a float in the high half, 0 = never measured; ticks of the last measurement
/// in the low half.
#[derive(Debug, Default)]
pub struct Latency(AtomicU64);

impl Latency {
    /// Takes in one measurement.
    pub fn observe(&self, now: Moment, took: Duration) {
        let sample = (took.as_secs_f32() * 1e6).max(1.0);
        let tick = ticks(now);
        let next = |packed: u64| {
            let (value, at) = unpack(packed);
            let left = part_left(tick, at);
            let value = match value * left {
                sunk if sample >= sunk => sample,
                sunk => sunk + sample * (1.0 - left),
            };
            Some(u64::from(value.to_bits()) << 32 | u64::from(tick))
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Microseconds, at least 1; `None` when nothing was measured yet.
    pub fn micros(&self, now: Moment) -> Option<u32> {
        let (value, at) = unpack(self.0.load(Ordering::Relaxed));
        (value > 0.0).then(|| (value * part_left(ticks(now), at)).max(1.0) as u32)
    }
}

/// About milliseconds; they wrap after 52 days, which only differences notice.
fn ticks(moment: Moment) -> u32 {
    (moment.0 >> 20) as u32
}

fn unpack(packed: u64) -> (f32, u32) {
    (f32::from_bits((packed >> 32) as u32), packed as u32)
}

/// What is left of a value of then: half of it after each half-life, between them within half a percent.
fn part_left(now: u32, then: u32) -> f32 {
    let since = now.wrapping_sub(then);
    // Another thread's clock may be ahead: no time has passed then.
    let since = if since > u32::MAX / 2 { 0 } else { since };
    let (halvings, rest) = (since / HALF_LIFE, (since % HALF_LIFE) as f32 / HALF_LIFE as f32);
    // A parabola through 1 and one half, in place of a call for two to a power.
    let part = 1.0 - rest * (0.672 - 0.172 * rest);
    part * f32::from_bits((127 - halvings.min(126)) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO.plus(Duration::from_secs(1_000)).plus(Duration::from_nanos(ms << 20))
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slower_answer_counts_at_once_and_a_faster_one_slowly() {
        let latency = Latency::default();
        assert_eq!(latency.micros(at(0)), None);
        latency.observe(at(0), MS);
        assert_eq!(latency.micros(at(0)), Some(1_000));
        latency.observe(at(10), 200 * MS);
        assert_eq!(latency.micros(at(10)), Some(200_000));
        latency.observe(at(20), MS);
        assert!((195_000..200_000).contains(&latency.micros(at(20)).unwrap()));
        for ms in 0..70_000 {
            latency.observe(at(20 + ms), MS);
        }
        assert!((1_000..1_500).contains(&latency.micros(at(70_020)).unwrap()));
    }

    #[test]
    fn it_sinks_while_nothing_is_heard_but_stays_measured() {
        let latency = Latency::default();
        latency.observe(at(0), 200 * MS);
        assert_eq!(latency.micros(at(7_000)), Some(100_000));
        assert_eq!(latency.micros(at(14_000)), Some(50_000));
        assert!((70_000..71_500).contains(&latency.micros(at(10_500)).unwrap()));
        assert_eq!(latency.micros(at(1_000_000)), Some(1));
        assert_eq!(latency.micros(at(u64::from(u32::MAX / 4))), Some(1));
    }

    #[test]
    fn a_clock_behind_another_threads_counts_as_the_same_time() {
        let latency = Latency::default();
        latency.observe(at(5), 8 * MS);
        assert_eq!(latency.micros(at(4)), Some(8_000));
        latency.observe(at(4), MS);
        assert!((7_990..=8_000).contains(&latency.micros(at(5)).unwrap()));
    }
}
