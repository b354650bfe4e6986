//! Rules for how an upstream's endpoints are chosen.

use super::super::error::{ValueError, quoted};
use super::super::{BalanceConfig, EjectionConfig, HashBy, HumanDuration, UpstreamConfig};
use super::{Check, syntax};

/// Most failures that are counted.
const MAX_FAILURES: u32 = 10_000;
/// Shortest time failures are counted over, or an endpoint is out.
const MIN_SPAN: HumanDuration = HumanDuration::secs(1);
/// Longest of both.
const MAX_SPAN: HumanDuration = HumanDuration::secs(24 * 3600);

impl Check<'_> {
    pub(super) fn balancing(&mut self, upstream: &UpstreamConfig, path: &str) {
        if upstream.panic_percent > 100 {
            let error = ValueError::new(format!("{} is not from 0 to 100", upstream.panic_percent));
            self.refuse(format!("{path}.panic_percent"), error);
        }
        if let Some(ejection) = &upstream.ejection {
            self.ejection(ejection, &format!("{path}.ejection"));
        }
        if let Some(sticky) = &upstream.sticky {
            self.require(format!("{path}.sticky.cookie"), cookie_name(&sticky.cookie));
            if sticky.ttl.0.subsec_nanos() > 0 {
                let error = ValueError::new(format!("{} is not a number of whole seconds", sticky.ttl));
                self.refuse(format!("{path}.sticky.ttl"), error);
            }
        }
        match &upstream.balance {
            BalanceConfig::Hash(HashBy::Header(name)) => {
                self.require(format!("{path}.balance.hash.by.header"), syntax::header_name(name));
            }
            BalanceConfig::Hash(HashBy::Cookie(name)) => {
                self.require(format!("{path}.balance.hash.by.cookie"), cookie_name(name));
            }
            _ => {}
        }
    }

    fn ejection(&mut self, ejection: &EjectionConfig, path: &str) {
        if !(1..=MAX_FAILURES).contains(&ejection.failures) {
            let error = ValueError::new(format!("{} is not from 1 to {MAX_FAILURES}", ejection.failures));
            self.refuse(format!("{path}.failures"), error);
        }
        if !(1..=100).contains(&ejection.max_percent) {
            let error = ValueError::new(format!("{} is not from 1 to 100", ejection.max_percent));
            self.refuse(format!("{path}.max_percent"), error.with_hint("leave `ejection` out for never"));
        }
        for (key, span) in [("window", ejection.window), ("for", ejection.eject_for)] {
            if !(MIN_SPAN..=MAX_SPAN).contains(&span) {
                let error = ValueError::new(format!("{span} is not from {MIN_SPAN} to {MAX_SPAN}"));
                self.refuse(format!("{path}.{key}"), error);
            }
        }
    }
}

/// A token (RFC 6265 section 4.1.1).
fn cookie_name(text: &str) -> Result<(), ValueError> {
    match syntax::header_name(text) {
        Ok(()) => Ok(()),
        Err(_) => Err(ValueError::new(format!("{} is not the name of a cookie", quoted(text)))),
    }
}
