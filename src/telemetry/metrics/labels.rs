//! The closed label sets: which method and status labels exist, and counters keyed by constant labels.
//!
//! A value that a client or an upstream chose never becomes a label: what is not in a set is `other`.

use super::family::Family;
use prometheus::proto::Metric;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of method labels.
pub(super) const METHODS: usize = METHOD_LABELS.len();

/// Method labels: RFC 9110 §9.3 and PATCH (RFC 5789), then what is none of them.
pub(super) const METHOD_LABELS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other"];

/// The place of a method in [`METHOD_LABELS`]. Methods are case-sensitive (RFC 9110 §9.1).
pub(super) fn method_index(method: &http::Method) -> usize {
    match *method {
        http::Method::GET => 0,
        http::Method::HEAD => 1,
        http::Method::POST => 2,
        http::Method::PUT => 3,
        http::Method::DELETE => 4,
        http::Method::CONNECT => 5,
        http::Method::OPTIONS => 6,
        http::Method::TRACE => 7,
        http::Method::PATCH => 8,
        _ => METHODS - 1,
    }
}

macro_rules! codes {
    ($($code:literal)*) => {
        const CODES: &[u16] = &[$($code),*];
        const CODE_LABELS: &[&str] = &[$(stringify!($code)),*, "other"];
    };
}

// IANA's HTTP Status Code Registry, and 499 for a client that went away.
codes! {
    100 101 102 103 104 200 201 202 203 204 205 206 207 208 226 300 301 302 303 304 305 306 307 308 400
    401 402 403 404 405 406 407 408 409 410 411 412 413 414 415 416 417 418 421 422 423 424 425 426 428
    429 431 451 499 500 501 502 503 504 505 506 507 508 510 511
}

const SLOTS: usize = CODE_LABELS.len();
const OTHER: u8 = (SLOTS - 1) as u8;
const HIGHEST: usize = 599;

/// Status → slot, so that a request pays one load instead of a search.
static SLOT_OF: [u8; HIGHEST + 1] = {
    let mut slots = [OTHER; HIGHEST + 1];
    let mut index = 0;
    while index < CODES.len() {
        slots[CODES[index] as usize] = index as u8;
        index += 1;
    }
    slots
};

/// One counter for each status label, about half a KiB.
pub(super) struct CodeCounters([AtomicU64; SLOTS]);

impl CodeCounters {
    /// All zero.
    pub(super) fn new() -> Box<Self> {
        Box::new(CodeCounters([const { AtomicU64::new(0) }; SLOTS]))
    }

    /// Counts one answer with this status.
    pub(super) fn add(&self, code: u16) {
        let slot = SLOT_OF.get(usize::from(code)).copied().unwrap_or(OTHER);
        self.0[usize::from(slot)].fetch_add(1, Ordering::Relaxed);
    }

    /// Label and count of each status seen.
    pub(super) fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        CODE_LABELS.iter().copied().zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// Counters keyed by labels that are constants of the program. At most `N` keys; any further one is
/// counted under `other`. Adding never locks: it compares the few keys there are, then adds.
pub(super) struct LabelCounters<K, const N: usize> {
    slots: [OnceLock<(K, AtomicU64)>; N],
    other: (K, AtomicU64),
}

impl<K: Copy + PartialEq, const N: usize> LabelCounters<K, N> {
    /// No key yet.
    pub(super) fn new(other: K) -> Self {
        LabelCounters { slots: [const { OnceLock::new() }; N], other: (other, AtomicU64::new(0)) }
    }

    /// Counts one under `key`.
    pub(super) fn add(&self, key: K) {
        // A slot is never emptied, so the first free one ends the search; losing the race for it only
        // means looking at one more.
        let slot = self.slots.iter().map(|slot| slot.get_or_init(|| (key, AtomicU64::new(0))));
        let (_, count) = slot.into_iter().find(|(taken, _)| *taken == key).unwrap_or(&self.other);
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Key and count of each key seen.
    pub(super) fn seen(&self) -> impl Iterator<Item = (K, u64)> {
        let taken = self.slots.iter().filter_map(OnceLock::get).chain([&self.other]);
        taken.map(|(key, count)| (*key, count.load(Ordering::Relaxed))).filter(|(_, count)| *count > 0)
    }
}

impl<const N: usize> LabelCounters<&'static str, N> {
    /// Samples of a family whose last label is the key; `first` are the values before it.
    pub(super) fn samples(&self, family: &Family, first: Option<&str>, out: &mut Vec<Metric>) {
        for (key, count) in self.seen() {
            out.push(match first {
                Some(first) => family.counter(&[first, key], count),
                None => family.counter(&[key], count),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_outside_the_standard_ones_is_other() {
        for (index, label) in METHOD_LABELS.iter().enumerate().take(9) {
            assert_eq!(method_index(&label.parse().unwrap()), index);
        }
        for odd in ["get", "PROPFIND", "FOO-123", &"X".repeat(5000)] {
            assert_eq!(METHOD_LABELS[method_index(&odd.parse().unwrap())], "other");
        }
    }

    #[test]
    fn a_status_outside_the_registry_is_other() {
        let counters = CodeCounters::new();
        for code in [0, 99, 200, 299, 499, 598, 599, 600, 999, u16::MAX, 511] {
            counters.add(code);
        }
        let seen: Vec<_> = counters.seen().collect();
        assert_eq!(seen, [("200", 1), ("499", 1), ("511", 1), ("other", 8)]);
    }

    #[test]
    fn keys_above_the_bound_are_counted_as_other() {
        let counters = LabelCounters::<&'static str, 2>::new("other");
        for key in ["a", "b", "c", "a", "d"] {
            counters.add(key);
        }
        assert_eq!(counters.seen().collect::<Vec<_>>(), [("a", 2), ("b", 1), ("other", 2)]);
    }

    #[test]
    fn threads_that_meet_a_key_at_once_share_its_slot() {
        let counters = LabelCounters::<&'static str, 4>::new("other");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| ["x", "y"].iter().cycle().take(2000).for_each(|key| counters.add(key)));
            }
        });
        let mut seen: Vec<_> = counters.seen().collect();
        seen.sort_unstable();
        assert_eq!(seen, [("x", 4000), ("y", 4000)]);
    }
}
