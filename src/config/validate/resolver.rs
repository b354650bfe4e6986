//! Rules for how names become addresses.

use super::super::error::ValueError;
use super::super::{HumanDuration, ResolverConfig};
use super::Check;
use std::time::Duration;

/// Most DNS servers.
const MAX_SERVERS: usize = 8;
/// Shortest time between two questions for one name.
const MIN_TTL: HumanDuration = HumanDuration(Duration::from_millis(100));
/// Longest time an answer may be used.
const MAX_TTL: HumanDuration = HumanDuration::secs(24 * 3600);
/// Longest wait for one answer.
const MAX_TIMEOUT: HumanDuration = HumanDuration::secs(60);

impl Check<'_> {
    pub(super) fn resolver(&mut self, resolver: &ResolverConfig) {
        let servers = resolver.servers.as_ref().map(Vec::len);
        if servers == Some(0) && !self.source.lost_parts("resolver") {
            let error = ValueError::new("at least one server is needed");
            self.refuse("resolver.servers", error.with_hint("leave it out for those of /etc/resolv.conf"));
        }
        if servers.is_some_and(|count| count > MAX_SERVERS) {
            let error = ValueError::new(format!("more than {MAX_SERVERS} servers"));
            self.refuse("resolver.servers", error);
        }
        self.positive("resolver.timeout", resolver.timeout);
        if resolver.timeout > MAX_TIMEOUT {
            let error = ValueError::new(format!("{} is longer than {MAX_TIMEOUT}", resolver.timeout));
            self.refuse("resolver.timeout", error);
        }
        for (key, ttl) in [("min_ttl", resolver.min_ttl), ("max_ttl", resolver.max_ttl)] {
            if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
                let error = ValueError::new(format!("{ttl} is not between {MIN_TTL} and {MAX_TTL}"));
                self.refuse(format!("resolver.{key}"), error);
            }
        }
        if resolver.min_ttl > resolver.max_ttl {
            let reason = format!("{} is longer than max_ttl, {}", resolver.min_ttl, resolver.max_ttl);
            self.refuse("resolver.min_ttl", ValueError::new(reason));
        }
    }
}
