//! A point in time that fits in an atomic: nanoseconds of the monotonic clock since the process first
//! asked.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A point in time, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) u64);

impl Moment {
    /// Before all others.
    pub const ZERO: Moment = Moment(0);
    /// After all others.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// Now. Never [`Moment::ZERO`].
    pub fn now() -> Moment {
        Moment(nanos(FIRST.elapsed()).max(1))
    }

    /// Later by this much.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }

    /// How long after `earlier`; zero when it is not after it.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ordered_and_their_distance_is_never_negative() {
        let now = Moment::now();
        let later = now.plus(Duration::from_secs(5));
        assert!(Moment::ZERO < now && now < later && later < Moment::NEVER);
        assert_eq!(later.since(now), Duration::from_secs(5));
        assert_eq!(now.since(later), Duration::ZERO);
        assert_eq!(Moment::NEVER.plus(Duration::MAX), Moment::NEVER);
    }
}
