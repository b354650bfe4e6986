//! May a request be sent once more? The settings of an upstream, compiled, and its budget.
//!
//! When an upstream fails as a whole, retries would multiply what it gets. So those that cost it work
//! are bounded to a share of its requests: a bucket of tokens, one atomic number without a lock. Knows
//! nothing of what a request is.

use crate::config::{RetryConfig, RetryMethods, RetryOn};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What one retry costs; what a request brings in is its percentage.
const PRICE: u32 = 100;
/// What there is at the start, so that an upstream with few requests is not without.
const START: u32 = 10 * PRICE;
/// Most that is saved up.
const MOST: u32 = 100 * PRICE;

/// When requests to an upstream are sent once more.
#[derive(Debug)]
pub struct RetryPolicy {
    /// Most attempts of one request, the first included.
    pub attempts: u32,
    /// A connection that could not be made is tried at another endpoint.
    pub connect: bool,
    /// A kept connection that turned out dead is replaced by a fresh one.
    pub stale: bool,
    /// A fresh connection that ended without an answer is followed by another.
    pub closed: bool,
    /// A response head that did not come in time is tried for again.
    pub timeout: bool,
    /// Requests of every method are repeated, not only idempotent ones.
    pub all_methods: bool,
    statuses: [bool; STATUSES.len()],
    percent: u32,
    tokens: AtomicU32,
}

const STATUSES: [(u16, &str); 4] = [(500, "500"), (502, "502"), (503, "503"), (504, "504")];

impl RetryPolicy {
    /// What `retry:` stands for.
    pub fn compile(config: &RetryConfig) -> RetryPolicy {
        let on = |what| config.on.contains(&what);
        RetryPolicy {
            attempts: config.attempts,
            connect: on(RetryOn::Connect),
            stale: on(RetryOn::Stale),
            closed: on(RetryOn::Closed),
            timeout: on(RetryOn::Timeout),
            all_methods: config.methods == RetryMethods::All,
            statuses: STATUSES.map(|(status, _)| on(RetryOn::Status(status))),
            percent: config.budget_percent,
            tokens: AtomicU32::new(START),
        }
    }

    /// Whether an answer with this status is tried for again, and the word for that in metrics.
    pub fn status(&self, status: u16) -> Option<&'static str> {
        let on = STATUSES.iter().zip(self.statuses);
        on.filter(|(_, on)| *on).find(|((known, _), _)| *known == status).map(|((_, word), _)| *word)
    }

    /// A request begins: the budget grows by its share.
    pub fn earn(&self) {
        // Where nothing is ever spent, workers need not share a cache line for it.
        if self.timeout || self.closed || self.statuses.contains(&true) {
            let grown = |tokens: u32| (tokens < MOST).then(|| (tokens + self.percent).min(MOST));
            let _ = self.tokens.fetch_update(Relaxed, Relaxed, grown);
        }
    }

    /// Takes what one retry costs; `false` when there is not enough.
    pub fn spend(&self) -> bool {
        self.tokens.fetch_update(Relaxed, Relaxed, |tokens| tokens.checked_sub(PRICE)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(on: &[RetryOn]) -> RetryPolicy {
        RetryPolicy::compile(&RetryConfig { on: on.to_vec(), ..RetryConfig::default() })
    }

    #[test]
    fn retries_end_with_the_budget_and_go_on_with_a_share_of_the_requests() {
        let policy = policy(&[RetryOn::Status(503)]);
        assert_eq!((0..1_000).filter(|_| policy.spend()).count(), 10);
        let spent = (0..1_000).filter(|_| {
            policy.earn();
            policy.spend()
        });
        assert_eq!(spent.count(), 200);
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let policy = policy(&[RetryOn::Timeout]);
        (0..100_000).for_each(|_| policy.earn());
        assert_eq!((0..1_000).filter(|_| policy.spend()).count(), 100);
    }

    #[test]
    fn only_statuses_that_were_named_count() {
        let policy = policy(&[RetryOn::Stale, RetryOn::Status(502), RetryOn::Status(504)]);
        let words: Vec<_> = (500..506).filter_map(|status| policy.status(status)).collect();
        assert_eq!(words, ["502", "504"]);
        assert!(policy.stale && !policy.connect && !policy.timeout && !policy.all_methods);
    }
}
