//! Which of several upstreams? A weighted split, such as a canary's.
//!
//! Shares are exact and smooth, by the same turns as within a pool. Knows nothing of endpoints.

use super::balance::Balancer;
use super::pool::Pool;
use std::sync::Arc;

/// A weighted choice between pools.
#[derive(Debug)]
pub struct Split {
    pools: Box<[Arc<Pool>]>,
    weights: Box<[u32]>,
    balancer: Balancer,
}

impl Split {
    /// A split with these weights; 0 = gets nothing. `None` when no weight is above 0.
    pub fn new(parts: Vec<(Arc<Pool>, u32)>) -> Option<Split> {
        let (pools, weights): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let balancer = Balancer::in_turn(&weights)?;
        Some(Split { pools: pools.into(), weights: weights.into(), balancer })
    }

    /// The pool that gets requests at all and ties this client, where there is a choice.
    pub fn tied(&self, ties: impl Fn(&Pool) -> bool) -> Option<&Arc<Pool>> {
        let weighty = self.pools.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0);
        weighty.map(|(pool, _)| pool).find(|pool| self.pools.len() > 1 && ties(pool))
    }

    /// The pool of the next request. Neither locks nor allocates.
    pub fn pick(&self) -> &Arc<Pool> {
        &self.pools[self.balancer.next()]
    }
}
