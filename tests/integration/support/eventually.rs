//! Waiting for a condition with a deadline: the only place of the tests that sleeps.
//!
//! Knows nothing of what is waited for.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: no test says with it how fast something is, only that it
/// hangs. So it is generous enough for a machine that runs much else at once, and shorter than the minute that many
/// timeouts of the gateway are by default: who waits for one of those is too late.
pub const DEADLINE: Duration = Duration::from_secs(45);

const PAUSE: Duration = Duration::from_millis(5);

/// Polls until `probe` gives a value; panics, naming `what`, when [`DEADLINE`] has passed.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, probe).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain for {what}"))
}

/// Polls until `probe` holds; panics, naming `what`, when [`DEADLINE`] has passed.
pub fn until(what: &str, mut probe: impl FnMut() -> bool) {
    eventually(what, || probe().then_some(()));
}

/// Polls until `probe` gives a value or `deadline` has passed.
pub fn within<T>(deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if start.elapsed() > deadline {
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "this is the one place that waits, between two looks")]
        std::thread::sleep(PAUSE);
    }
}

/// Watches a condition that must hold for all of `span`; panics, naming `what`, when it stops.
pub fn holds(what: &str, span: Duration, mut probe: impl FnMut() -> bool) {
    let broken = within(span, || (!probe()).then_some(()));
    assert!(broken.is_none(), "{what} did not hold for {span:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_comes_late_is_found() {
        let mut calls = 0;
        let found = eventually("the third call", || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        assert_eq!(within(Duration::from_millis(20), || None::<()>), None);
    }

    #[test]
    #[should_panic(expected = "calm did not hold")]
    fn a_condition_that_stops_is_noticed() {
        let mut calls = 0;
        holds("calm", Duration::from_secs(5), || {
            calls += 1;
            calls < 3
        });
    }
}
