//! The endpoints of a pool at one time, and which of them is next.
//!
//! Immutable: when endpoints come or go, a pool takes another set; what is known of those that stay is in
//! their states. Knows nothing of how endpoints are found out.

use super::balance::Balancer;
use super::endpoint::Endpoint;
use super::moment::Moment;
use crate::config::BalanceConfig;
use std::sync::Arc;

/// Endpoints and their chooser.
#[derive(Debug)]
pub struct Members {
    endpoints: Box<[Arc<Endpoint>]>,
    /// `None` = there is none to choose.
    balancer: Option<Balancer>,
}

impl Members {
    /// A set to choose from; one without endpoints is allowed.
    pub fn new(balance: BalanceConfig, endpoints: Vec<Arc<Endpoint>>) -> Members {
        let weights: Vec<u32> = endpoints.iter().map(|endpoint| endpoint.weight).collect();
        Members { balancer: Balancer::new(balance, &weights), endpoints: endpoints.into() }
    }

    /// All of them, in the order they were given.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Chooses an endpoint that is available and not in `avoid`. Neither locks nor allocates.
    pub fn pick(&self, avoid: &[Arc<Endpoint>]) -> Option<&Arc<Endpoint>> {
        let now = Moment::now();
        let free = |member: usize| {
            self.endpoints.get(member).is_some_and(|endpoint| {
                endpoint.state.available(now) && !avoid.iter().any(|avoided| avoided.is(endpoint))
            })
        };
        self.endpoints.get(self.balancer.as_ref()?.pick(free)?)
    }
}
