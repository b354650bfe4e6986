//! Rules for how an upstream's endpoints are chosen.

use super::super::error::{ValueError, quoted};
use super::super::{BalanceConfig, HashBy, UpstreamConfig};
use super::{Check, syntax};

impl Check<'_> {
    pub(super) fn balancing(&mut self, upstream: &UpstreamConfig, path: &str) {
        if upstream.panic_percent > 100 {
            let error = ValueError::new(format!("{} is not from 0 to 100", upstream.panic_percent));
            self.refuse(format!("{path}.panic_percent"), error);
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
}

/// A token (RFC 6265 section 4.1.1).
fn cookie_name(text: &str) -> Result<(), ValueError> {
    match syntax::header_name(text) {
        Ok(()) => Ok(()),
        Err(_) => Err(ValueError::new(format!("{} is not the name of a cookie", quoted(text)))),
    }
}
