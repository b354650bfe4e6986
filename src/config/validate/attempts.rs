//! What an upstream is spoken to in, how often, and who gets copies.

use super::super::error::ValueError;
use super::super::{Config, MirrorConfig, RetryConfig, UpstreamConfig, UpstreamProtocol};
use super::Check;

/// Most attempts of one request.
const MAX_ATTEMPTS: u32 = 10;

impl Check<'_> {
    pub(super) fn protocol(&mut self, upstream: &UpstreamConfig, path: &str) {
        // A `tls` that was refused as a whole is there all the same.
        let tls = upstream.tls.is_some() || self.source.is_written(&format!("{path}.tls"));
        let error = match (upstream.protocol, tls) {
            (UpstreamProtocol::Http2, false) => {
                ValueError::new("needs `tls`").with_hint("h2c speaks HTTP/2 without")
            }
            (UpstreamProtocol::Auto, false) => ValueError::new("needs `tls`: the handshake settles it")
                .with_hint("without TLS write http1 or h2c"),
            (UpstreamProtocol::H2c, true) => {
                ValueError::new("is without TLS, but `tls` is set").with_hint("http2 speaks it over TLS")
            }
            _ => return,
        };
        self.refuse(format!("{path}.protocol"), error);
    }

    /// `sends`: the route has an upstream of its own.
    pub(super) fn mirror(&mut self, config: &Config, mirror: &MirrorConfig, sends: bool, path: &str) {
        if !sends && !self.source.is_written(&path.replace(".mirror", ".upstream")) {
            let error = ValueError::new("needs `upstream`: only what is sent on is copied");
            self.refuse(path, error);
        }
        self.upstream_name(config, &mirror.upstream, &format!("{path}.upstream"));
        if !(1..=100).contains(&mirror.percent) {
            let error = ValueError::new(format!("{} is not from 1 to 100", mirror.percent));
            self.refuse(format!("{path}.percent"), error.with_hint("remove `mirror` to copy nothing"));
        }
    }

    pub(super) fn retry(&mut self, retry: &RetryConfig, path: &str) {
        if !(1..=MAX_ATTEMPTS).contains(&retry.attempts) {
            let error = ValueError::new(format!("{} is not from 1 to {MAX_ATTEMPTS}", retry.attempts));
            self.refuse(format!("{path}.attempts"), error.with_hint("the first one counts"));
        }
        if !(1..=100).contains(&retry.budget_percent) {
            let error = ValueError::new(format!("{} is not from 1 to 100", retry.budget_percent));
            self.refuse(format!("{path}.budget_percent"), error.with_hint("`on: []` tries nothing again"));
        }
    }
}
