//! How long does an endpoint keep idle connections? What its answers say (`Keep-Alive: timeout=5`), so
//! that none is used at the moment it is closed.
//!
//! Knows nothing of connections.

use http::HeaderMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// What an endpoint said last, in milliseconds; 0 = nothing yet.
#[derive(Debug, Default)]
pub struct KeptAlive(AtomicU32);

/// The endpoint's clock starts when it has sent the answer, and the next request takes its time to it:
/// connections are given up this much earlier, or a fifth where that is less.
const MARGIN: u32 = 1000;

impl KeptAlive {
    /// Takes from an answer how long its connection is kept.
    pub fn learn(&self, headers: &HeaderMap) {
        if let Some(field) = headers.get("keep-alive")
            && let Some(seconds) = timeout(field.as_bytes())
        {
            let said = seconds.min(3600).saturating_mul(1000);
            let limit = (said - MARGIN.min(said / 5)).max(1);
            if self.0.load(Relaxed) != limit {
                self.0.store(limit, Relaxed);
            }
        }
    }

    /// How long a connection may lie idle; `None` when the endpoint never said.
    pub fn limit(&self) -> Option<Duration> {
        match self.0.load(Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(u64::from(millis))),
        }
    }
}

/// The seconds in `timeout=5, max=100`.
fn timeout(field: &[u8]) -> Option<u32> {
    field.split(|byte| *byte == b',').find_map(|parameter| {
        let (name, value) = parameter.trim_ascii().split_at_checked("timeout=".len())?;
        if !name.eq_ignore_ascii_case(b"timeout=") {
            return None;
        }
        std::str::from_utf8(value).ok()?.trim_matches('"').parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_given_up_a_little_before_the_endpoint_does() {
        let limit_after = |field: &'static str| {
            let (kept, mut headers) = (KeptAlive::default(), HeaderMap::new());
            headers.insert("keep-alive", field.parse().unwrap());
            kept.learn(&headers);
            kept.limit().map(|limit| limit.as_millis())
        };
        assert_eq!(limit_after("timeout=1"), Some(800));
        assert_eq!(limit_after("max=100, Timeout=15"), Some(14_000));
        assert_eq!(limit_after("timeout=\"5\""), Some(4_000));
        assert_eq!(limit_after("timeout=0"), Some(1));
        assert_eq!(limit_after("timeout=4294967295"), Some(3_599_000));
        for nothing in ["", "max=5", "timeout=", "timeout=-1", "timeout=soon"] {
            assert_eq!(limit_after(nothing), None, "{nothing:?}");
        }
    }
}
