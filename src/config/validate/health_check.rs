//! Rules for the active checks of an upstream.

use super::super::error::{ValueError, quoted};
use super::super::{HealthCheckConfig, HealthCheckMethod, HealthCheckType, HumanDuration};
use super::{Check, syntax};
use std::time::Duration;

/// Shortest time between two checks of an endpoint.
const MIN_INTERVAL: HumanDuration = HumanDuration(Duration::from_millis(100));
/// Longest time between two checks of an endpoint.
const MAX_INTERVAL: HumanDuration = HumanDuration::secs(3600);
/// Most checks in a row for a verdict.
const MAX_CHECKS: u32 = 100;
/// Longest text looked for in a body, and longest name of a service, in bytes.
const MAX_TEXT: usize = 1024;

impl Check<'_> {
    pub(super) fn health_check(&mut self, check: &HealthCheckConfig, path: &str) {
        self.health_check_keys(check, path);
        self.health_check_times(check, path);
        let written = check.path.as_deref().map_or(Ok(()), check_path);
        self.require(format!("{path}.path"), written);
        let host = check.host.as_deref().map_or(Ok(()), syntax::header_value);
        self.require(format!("{path}.host"), host);
        if check.host.as_deref().is_some_and(|host| host.is_empty() || host.contains([' ', '/', '@'])) {
            let error = ValueError::new("this is no host").with_hint("such as app.internal");
            self.refuse(format!("{path}.host"), error);
        }
        if check.status.as_ref().is_some_and(Vec::is_empty) && !self.source.lost_parts(path) {
            let error = ValueError::new("no answer would be good").with_hint("leave it out for [200]");
            self.refuse(format!("{path}.status"), error);
        }
        for (key, text) in [("body", &check.body), ("service", &check.service)] {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > MAX_TEXT) {
                let error = ValueError::new(format!("must have 1 to {MAX_TEXT} bytes"));
                self.refuse(format!("{path}.{key}"), error);
            }
        }
        if check.body.is_some() && check.method == Some(HealthCheckMethod::Head) {
            let error = ValueError::new("an answer to HEAD has no body");
            self.refuse(format!("{path}.body"), error.with_hint("leave `method` out"));
        }
        if check.port == Some(0) {
            self.refuse(format!("{path}.port"), ValueError::new("ports go from 1 to 65535"));
        }
    }

    /// Keys that another type of check would use.
    fn health_check_keys(&mut self, check: &HealthCheckConfig, path: &str) {
        use HealthCheckType::{Grpc, Http, Tcp};
        for (key, written, types) in [
            ("path", check.path.is_some(), &[Http] as &[_]),
            ("method", check.method.is_some(), &[Http]),
            ("status", check.status.is_some(), &[Http]),
            ("body", check.body.is_some(), &[Http]),
            ("host", check.host.is_some(), &[Http, Grpc]),
            ("service", check.service.is_some(), &[Grpc]),
        ] {
            if !written || types.contains(&check.kind) {
                continue;
            }
            let (kind, other) = match (check.kind, types) {
                (Tcp, [Grpc]) => ("tcp", "`type: grpc`"),
                (Tcp, _) => ("tcp", "`type: http`, the default"),
                (Grpc, _) => ("grpc", "`type: http`, the default"),
                (Http, _) => ("http", "`type: grpc`"),
            };
            let error = ValueError::new(format!("a check of type {kind} does not use it"));
            self.refuse(format!("{path}.{key}"), error.with_hint(format!("it belongs to {other}")));
        }
    }

    fn health_check_times(&mut self, check: &HealthCheckConfig, path: &str) {
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&check.interval) {
            let reason = format!("{} is not between {MIN_INTERVAL} and {MAX_INTERVAL}", check.interval);
            self.refuse(format!("{path}.interval"), ValueError::new(reason));
        }
        self.positive(&format!("{path}.timeout"), check.timeout);
        if check.timeout > check.interval {
            let reason = format!("{} is longer than the interval, {}", check.timeout, check.interval);
            let error = ValueError::new(reason).with_hint("a check ends before the next one begins");
            self.refuse(format!("{path}.timeout"), error);
        }
        for (key, count) in [("healthy", check.healthy), ("unhealthy", check.unhealthy)] {
            if !(1..=MAX_CHECKS).contains(&count) {
                let error = ValueError::new(format!("{count} is not from 1 to {MAX_CHECKS}"));
                self.refuse(format!("{path}.{key}"), error);
            }
        }
    }
}

/// A path with or without a query, as it goes on the wire.
fn check_path(path: &str) -> Result<(), ValueError> {
    let sound = path.starts_with('/')
        && path.len() <= 2048
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if sound {
        return Ok(());
    }
    let error = ValueError::new(format!("{} is not a path", quoted(path)));
    Err(error.with_hint("such as /healthz or /healthz?full=1, encoded as in a URL"))
}
